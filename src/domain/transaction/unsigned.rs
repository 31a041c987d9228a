//! A transaction of either type, before it is signed.

use super::{Eip1559, Error, Legacy, Signature, Signed};
use crate::domain::fees::{Price, TxType};
use entity::values::{Address, Hash, Wei};

/// What all types have: the call and its nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpriced {
    pub chain_id: u64,
    pub nonce: u64,
    pub gas_limit: u64,
    pub to: Address,
    pub value: Wei,
    pub data: Vec<u8>,
}

impl Unpriced {
    /// The transaction of this type at this price. A legacy one offers the cap as its one price.
    #[must_use]
    pub fn priced(self, tx_type: TxType, price: Price) -> Unsigned {
        let Self { chain_id, nonce, gas_limit, to, value, data } = self;
        match tx_type {
            TxType::Legacy => Unsigned::Legacy(Legacy { chain_id, nonce, gas_price: price.max_fee_per_gas, gas_limit, to, value, data }),
            TxType::Eip1559 => {
                let Price { max_fee_per_gas, max_priority_fee_per_gas } = price;
                Unsigned::Eip1559(Eip1559 { chain_id, nonce, max_priority_fee_per_gas, max_fee_per_gas, gas_limit, to, value, data })
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsigned {
    Legacy(Legacy),
    Eip1559(Eip1559),
}

impl From<Eip1559> for Unsigned {
    fn from(transaction: Eip1559) -> Self {
        Self::Eip1559(transaction)
    }
}

impl Unsigned {
    /// Reads signed bytes of either type back.
    pub fn decode(raw: &[u8]) -> Result<(Self, Signature), Error> {
        match Legacy::decode(raw) {
            Ok((transaction, signature)) => Ok((Self::Legacy(transaction), signature)),
            Err(Error::Type) => Eip1559::decode(raw).map(|(transaction, signature)| (Self::Eip1559(transaction), signature)),
            Err(error) => Err(error),
        }
    }

    /// The call, and the price; a legacy transaction has it in both fields.
    #[must_use]
    pub fn parts(&self) -> (Unpriced, Price) {
        match self.clone() {
            Self::Legacy(Legacy { chain_id, nonce, gas_price, gas_limit, to, value, data }) => {
                let price = Price { max_fee_per_gas: gas_price, max_priority_fee_per_gas: gas_price };
                (Unpriced { chain_id, nonce, gas_limit, to, value, data }, price)
            }
            Self::Eip1559(Eip1559 { chain_id, nonce, max_priority_fee_per_gas, max_fee_per_gas, gas_limit, to, value, data }) => {
                (Unpriced { chain_id, nonce, gas_limit, to, value, data }, Price { max_fee_per_gas, max_priority_fee_per_gas })
            }
        }
    }

    #[must_use]
    pub const fn tx_type(&self) -> TxType {
        match self {
            Self::Legacy(_) => TxType::Legacy,
            Self::Eip1559(_) => TxType::Eip1559,
        }
    }

    #[must_use]
    pub const fn chain_id(&self) -> u64 {
        match self {
            Self::Legacy(transaction) => transaction.chain_id,
            Self::Eip1559(transaction) => transaction.chain_id,
        }
    }

    #[must_use]
    pub const fn nonce(&self) -> u64 {
        match self {
            Self::Legacy(transaction) => transaction.nonce,
            Self::Eip1559(transaction) => transaction.nonce,
        }
    }

    /// What a signer signs.
    #[must_use]
    pub fn sighash(&self) -> Hash {
        match self {
            Self::Legacy(transaction) => transaction.sighash(),
            Self::Eip1559(transaction) => transaction.sighash(),
        }
    }

    /// The bytes for the wire, and their hash.
    #[must_use]
    pub fn signed(&self, signature: &Signature) -> Signed {
        match self {
            Self::Legacy(transaction) => transaction.signed(signature),
            Self::Eip1559(transaction) => transaction.signed(signature),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_built_from_the_same_call() {
        let call = Unpriced { chain_id: 5, nonce: 7, gas_limit: 21_000, to: Address([1; 20]), value: Wei::from(3), data: vec![9] };
        let price = Price { max_fee_per_gas: Wei::from(20), max_priority_fee_per_gas: Wei::from(2) };
        for tx_type in [TxType::Legacy, TxType::Eip1559] {
            let built = call.clone().priced(tx_type, price);
            assert_eq!((built.tx_type(), built.chain_id(), built.nonce()), (tx_type, 5, 7));
            assert_eq!(built.parts(), (call.clone(), price.shaped(tx_type)));
            let signature = Signature::new(true, [7; 32], [9; 32]).unwrap();
            assert_eq!(Unsigned::decode(&built.signed(&signature).raw), Ok((built, signature)));
        }
        assert_eq!(Unsigned::decode(&[1, 0xc0]), Err(Error::Type));
        let Unsigned::Legacy(legacy) = call.clone().priced(TxType::Legacy, price) else { panic!("another type") };
        assert_eq!(legacy.gas_price, Wei::from(20));
        let Unsigned::Eip1559(typed) = call.priced(TxType::Eip1559, price) else { panic!("another type") };
        assert_eq!((typed.max_fee_per_gas, typed.max_priority_fee_per_gas), (Wei::from(20), Wei::from(2)));
    }
}
