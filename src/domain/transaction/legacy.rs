//! The transaction of before EIP-2718, with one gas price: for chains whose blocks have no base fee. Signed for one chain (EIP-155).

use super::{Error, Signature, Signed, amount, small, trimmed};
use crate::domain::encoding::{keccak256, word};
use entity::values::{Address, Hash, Wei};
use primitive_types::U256;
use rlp::{Rlp, RlpStream};

/// EIP-155: v is this and twice the chain id, and the parity.
const V: u64 = 35;

/// A call with its nonce and its one price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Legacy {
    pub chain_id: u64,
    pub nonce: u64,
    pub gas_price: Wei,
    pub gas_limit: u64,
    pub to: Address,
    pub value: Wei,
    pub data: Vec<u8>,
}

impl Legacy {
    /// The bytes whose hash is signed: six fields, the chain id and two zeros in the place of the signature.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        self.encode(None)
    }

    /// What a signer signs.
    #[must_use]
    pub fn sighash(&self) -> Hash {
        keccak256(&self.payload())
    }

    /// The bytes for the wire, and their hash.
    #[must_use]
    pub fn signed(&self, signature: &Signature) -> Signed {
        let raw = self.encode(Some(signature));
        let hash = keccak256(&raw);
        Signed { raw, hash }
    }

    /// Reads signed bytes back; only the canonical form, and only one that is bound to a chain.
    pub fn decode(raw: &[u8]) -> Result<(Self, Signature), Error> {
        if raw.first().is_none_or(|first| *first < 0xc0) {
            return Err(Error::Type);
        }
        let list = Rlp::new(raw);
        if list.item_count()? != 9 {
            return Err(Error::Encoding);
        }
        if list.at(3)?.is_empty() {
            return Err(Error::Foreign);
        }
        let of_chain = amount(&list, 6)?.0.checked_sub(U256::from(V)).ok_or(Error::Foreign)?;
        let chain_id = u64::try_from(of_chain >> 1).map_err(|_| Error::Encoding)?;
        let transaction = Self {
            chain_id,
            nonce: small(&list, 0)?,
            gas_price: amount(&list, 1)?,
            gas_limit: small(&list, 2)?,
            to: Address(list.at(3)?.data()?.try_into().map_err(|_| Error::Encoding)?),
            value: amount(&list, 4)?,
            data: list.at(5)?.data()?.to_vec(),
        };
        let signature = Signature::new(of_chain.bit(0), word(&amount(&list, 7)?), word(&amount(&list, 8)?))?;
        if transaction.encode(Some(&signature)) != raw {
            return Err(Error::Encoding);
        }
        Ok((transaction, signature))
    }

    fn encode(&self, signature: Option<&Signature>) -> Vec<u8> {
        let mut list = RlpStream::new_list(9);
        list.append(&self.nonce).append(&trimmed(&word(&self.gas_price))).append(&self.gas_limit);
        list.append(&self.to.0.as_slice()).append(&trimmed(&word(&self.value))).append(&self.data.as_slice());
        match signature {
            None => list.append(&self.chain_id).append(&0_u8).append(&0_u8),
            Some(signature) => {
                let v = U256::from(self.chain_id) * 2 + V + u64::from(signature.y_parity());
                list.append(&trimmed(&word(&Wei(v)))).append(&trimmed(signature.r())).append(&trimmed(signature.s()))
            }
        };
        list.out().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entity::values::{bytes_from_hex, hex_from_bytes};
    use proptest::prelude::*;

    /// The example of EIP-155: key 0x46…46, chain 1.
    const RAW: &str = "0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83";

    fn example() -> Legacy {
        Legacy {
            chain_id: 1,
            nonce: 9,
            gas_price: Wei::from(20_000_000_000),
            gas_limit: 21_000,
            to: Address([0x35; 20]),
            value: Wei::from(1_000_000_000_000_000_000),
            data: vec![],
        }
    }

    #[test]
    fn the_example_of_eip_155_has_its_payload_its_bytes_and_its_hash() {
        let payload = "0xec098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a764000080018080";
        assert_eq!(hex_from_bytes(&example().payload()), payload);
        assert_eq!(example().sighash().to_string(), "0xdaf5a779ae972f972197303d7b574746c7ef83eadac0f2791ad23db92e4c8e53");
        let (read, signature) = Legacy::decode(&bytes_from_hex(RAW).unwrap()).unwrap();
        assert_eq!(read, example());
        let signed = example().signed(&signature);
        assert_eq!(hex_from_bytes(&signed.raw), RAW);
        assert_eq!(signed.hash.to_string(), "0x33469b22e9f636356c4160a87eb19df52b7412e8eac32a4a55ffe88ea8350788");
    }

    #[test]
    fn other_types_and_signatures_for_every_chain_are_refused() {
        let raw = bytes_from_hex(RAW).unwrap();
        assert_eq!(Legacy::decode(&[]), Err(Error::Type));
        assert_eq!(Legacy::decode(&[2, 0xc0]), Err(Error::Type));
        let mut for_all = raw.clone();
        let at = raw.iter().rposition(|byte| *byte == 0x25).unwrap();
        for_all[at] = 27;
        assert_eq!(Legacy::decode(&for_all), Err(Error::Foreign));
        assert!(Legacy::decode(&raw[..raw.len() - 1]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_signed_is_read_back(chain_id: u64, nonce: u64, price: u64, gas_limit: u64, value: u64, to: [u8; 20], parity: bool, r: [u8; 32], mut s: [u8; 32],
            data in prop::collection::vec(any::<u8>(), 0..200)) {
            s[0] &= 0x7f;
            if let Ok(signature) = Signature::new(parity, r, s) {
                let transaction = Legacy { chain_id, nonce, gas_price: Wei::from(price), gas_limit, to: Address(to), value: Wei::from(value), data };
                let signed = transaction.signed(&signature);
                prop_assert_eq!(keccak256(&signed.raw), signed.hash);
                prop_assert_eq!(Legacy::decode(&signed.raw), Ok((transaction, signature)));
            }
        }

        #[test]
        fn no_bytes_make_the_reader_panic(raw in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Legacy::decode(&raw);
        }
    }
}
