//! Owns the bytes of a transaction: what is signed, what is sent, and reading both back. EIP-1559 here, older chains in `legacy.rs`.
//! Never holds a key and never picks a price. Called by the signer's users before a journal row and by checks after one.

mod legacy;
mod unsigned;

pub use legacy::Legacy;
pub use unsigned::{Unpriced, Unsigned};

use crate::domain::encoding::{keccak256, word};
use entity::values::{Address, Hash, Wei};
use rlp::{DecoderError, Rlp, RlpStream};
use std::fmt;

/// EIP-2718 type of a transaction with a fee cap and a tip.
const TYPE: u8 = 2;

/// Nodes refuse a transaction of more than 128 KiB; the rest of the envelope takes less than half a kibibyte.
pub const MAX_DATA_BYTES: usize = 128 * 1024 - 512;

/// The order of secp256k1, big-endian.
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48,
    0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
];

/// Half of it: EIP-2 lets only the lower of the two valid values of s into a block.
const HALF_ORDER: [u8; 32] = [
    0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x5d, 0x57, 0x6e, 0x73, 0x57, 0xa4,
    0x50, 0x1d, 0xdf, 0xe9, 0x2f, 0x46, 0x68, 0x1b, 0x20, 0xa0,
];

/// Why bytes are no transaction that this program could have signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("r or s of the signature is zero or not below the order of the curve")]
    SignatureRange,
    #[error("s of the signature is in the upper half of the order")]
    HighS,
    #[error("not an EIP-1559 transaction")]
    Type,
    #[error("the transaction carries an access list or creates a contract, which this program never signs")]
    Foreign,
    #[error("the transaction is not canonical RLP")]
    Encoding,
}

impl From<DecoderError> for Error {
    fn from(_: DecoderError) -> Self {
        Self::Encoding
    }
}

/// A signature that a block can hold: in range and with a low s.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    y_parity: bool,
    r: [u8; 32],
    s: [u8; 32],
}

impl Signature {
    pub fn new(y_parity: bool, r: [u8; 32], s: [u8; 32]) -> Result<Self, Error> {
        // Arrays compare like the big-endian numbers they hold.
        let in_range = |v: &[u8; 32]| *v != [0; 32] && *v < ORDER;
        if !in_range(&r) || !in_range(&s) {
            return Err(Error::SignatureRange);
        }
        if s > HALF_ORDER {
            return Err(Error::HighS);
        }
        Ok(Self { y_parity, r, s })
    }

    #[must_use]
    pub fn y_parity(&self) -> bool {
        self.y_parity
    }

    #[must_use]
    pub fn r(&self) -> &[u8; 32] {
        &self.r
    }

    #[must_use]
    pub fn s(&self) -> &[u8; 32] {
        &self.s
    }
}

/// Shown without its numbers: together with the call they are the bytes that only the journal may hold.
impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(..)")
    }
}

/// Bytes ready for the journal, and the hash under which the chain will know them.
#[derive(Clone, PartialEq, Eq)]
pub struct Signed {
    pub raw: Vec<u8>,
    pub hash: Hash,
}

impl fmt::Debug for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signed").field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// A call with its nonce and prices. Contracts are deployed through other means, so there always is a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eip1559 {
    pub chain_id: u64,
    pub nonce: u64,
    pub max_priority_fee_per_gas: Wei,
    pub max_fee_per_gas: Wei,
    pub gas_limit: u64,
    pub to: Address,
    pub value: Wei,
    pub data: Vec<u8>,
}

impl Eip1559 {
    /// The bytes whose hash is signed: type byte and the nine unsigned fields.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        self.encode(None)
    }

    /// What a signer signs.
    #[must_use]
    pub fn sighash(&self) -> Hash {
        keccak256(&self.payload())
    }

    /// The bytes for the wire. Their hash is known here, before anyone has seen them.
    #[must_use]
    pub fn signed(&self, signature: &Signature) -> Signed {
        let raw = self.encode(Some(signature));
        let hash = keccak256(&raw);
        Signed { raw, hash }
    }

    /// Reads signed bytes back. Only the one canonical form is accepted: encoding the result again gives the same bytes.
    pub fn decode(raw: &[u8]) -> Result<(Self, Signature), Error> {
        let Some((&TYPE, body)) = raw.split_first() else {
            return Err(Error::Type);
        };
        let list = Rlp::new(body);
        if list.item_count()? != 12 {
            return Err(Error::Encoding);
        }
        if list.at(5)?.is_empty() || !list.at(8)?.is_list() || list.at(8)?.item_count()? != 0 {
            return Err(Error::Foreign);
        }
        let transaction = Self {
            chain_id: small(&list, 0)?,
            nonce: small(&list, 1)?,
            max_priority_fee_per_gas: amount(&list, 2)?,
            max_fee_per_gas: amount(&list, 3)?,
            gas_limit: small(&list, 4)?,
            to: Address(list.at(5)?.data()?.try_into().map_err(|_| Error::Encoding)?),
            value: amount(&list, 6)?,
            data: list.at(7)?.data()?.to_vec(),
        };
        let y_parity = match small(&list, 9)? {
            0 => false,
            1 => true,
            _ => return Err(Error::Encoding),
        };
        let signature = Signature::new(y_parity, word(&amount(&list, 10)?), word(&amount(&list, 11)?))?;
        if transaction.encode(Some(&signature)) != raw {
            return Err(Error::Encoding);
        }
        Ok((transaction, signature))
    }

    fn encode(&self, signature: Option<&Signature>) -> Vec<u8> {
        let mut list = RlpStream::new_list(if signature.is_some() { 12 } else { 9 });
        list.append(&self.chain_id).append(&self.nonce);
        list.append(&trimmed(&word(&self.max_priority_fee_per_gas))).append(&trimmed(&word(&self.max_fee_per_gas)));
        list.append(&self.gas_limit).append(&self.to.0.as_slice());
        list.append(&trimmed(&word(&self.value))).append(&self.data.as_slice());
        list.begin_list(0);
        if let Some(signature) = signature {
            list.append(&u8::from(signature.y_parity)).append(&trimmed(&signature.r)).append(&trimmed(&signature.s));
        }
        let list = list.out();
        let mut bytes = Vec::with_capacity(1 + list.len());
        bytes.push(TYPE);
        bytes.extend_from_slice(&list);
        bytes
    }
}

/// RLP writes a number without leading zero bytes, and zero as nothing.
fn trimmed(word: &[u8; 32]) -> &[u8] {
    let zeros = word.iter().take_while(|byte| **byte == 0).count();
    &word[zeros..]
}

fn amount(list: &Rlp<'_>, at: usize) -> Result<Wei, Error> {
    let bytes = list.at(at)?.data()?;
    if bytes.len() > 32 {
        return Err(Error::Encoding);
    }
    let mut value = Wei::ZERO;
    for byte in bytes {
        value = Wei((value.0 << 8) | (*byte).into());
    }
    Ok(value)
}

fn small(list: &Rlp<'_>, at: usize) -> Result<u64, Error> {
    let value = amount(list, at)?;
    if value.0.bits() > 64 {
        return Err(Error::Encoding);
    }
    Ok(value.0.low_u64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use entity::values::{bytes_from_hex, hex_from_bytes};
    use proptest::prelude::*;

    const MAX: &str = "115792089237316195423570985008687907853269984665640564039457584007913129639935";

    /// Made with ethers 6 (RFC 6979 keys 0x46…46, 0xac09…ff80, 0x00…01, 0x46…46): sighash, raw bytes, hash.
    fn golden() -> Vec<(Eip1559, &'static str, &'static str, &'static str)> {
        let mut record = bytes_from_hex("0xb5c645bd").unwrap();
        record.extend_from_slice(&[0xab; 32]);
        vec![
            (
                Eip1559 {
                    chain_id: 1,
                    nonce: 0,
                    max_priority_fee_per_gas: Wei::ZERO,
                    max_fee_per_gas: Wei::ZERO,
                    gas_limit: 21_000,
                    to: Address([0x35; 20]),
                    value: Wei::ZERO,
                    data: vec![],
                },
                "0xfe51751c4b08e01c021d5c24bea0aebbebe360e64bdaa2adb7bc5440c241b1ed",
                "0x02f862018080808252089435353535353535353535353535353535353535358080c080a01a46d45530d7035f791514701b3cff61ffe496b33925b0a6c9959fc8ed90c17fa070aef15332ffa9ecc27580e2139910b8d574d1767b712f12135f9062406dd4a7",
                "0xd5727a83762a7662f59555fefaf07121228addac8d7bf2ea24b6bc0aed6891d7",
            ),
            (
                Eip1559 {
                    chain_id: 31_337,
                    nonce: 127,
                    max_priority_fee_per_gas: Wei::from(1_000_000_000),
                    max_fee_per_gas: Wei::from(2_000_000_000),
                    gas_limit: 90_000,
                    to: "0x5fbdb2315678afecb367f032d93f642f64180aa3".parse().unwrap(),
                    value: Wei::ZERO,
                    data: record,
                },
                "0xe8fcd0982e6f2fbdb9a40904689c9f79a0f5da91f3ee692dcd3195c6a14a2978",
                "0x02f891827a697f843b9aca00847735940083015f90945fbdb2315678afecb367f032d93f642f64180aa380a4b5c645bdababababababababababababababababababababababababababababababababc001a0ead373237df567f16c51c73454eeed543be517a84bda8eb25a19672b63161bcfa00445e4724185fd566228fbf9c4f2628ed7f8a7f0d0c16cd1a33bc24bcd8771b2",
                "0x3c92848a00eaee976b61c37d82c5b8c064d73392fe83468f34a53f0930ecf297",
            ),
            (
                Eip1559 {
                    chain_id: u64::MAX,
                    nonce: 9_007_199_254_740_991,
                    max_priority_fee_per_gas: "57896044618658097711785492504343953926634992332820282019728792003956564819968"
                        .parse()
                        .unwrap(),
                    max_fee_per_gas: MAX.parse().unwrap(),
                    gas_limit: u64::MAX,
                    to: Address([0; 20]),
                    value: MAX.parse().unwrap(),
                    data: vec![0],
                },
                "0xcacb12b024be73f43e5fa267d2a4083b2426a114ee1add8fb9791d37f04300cf",
                "0x02f8d788ffffffffffffffff871fffffffffffffa08000000000000000000000000000000000000000000000000000000000000000a0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff88ffffffffffffffff940000000000000000000000000000000000000000a0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00c080a0f40032678f06f7ead0ba8869e345590493afda34cc09027bc3aab084f925c0d8a068dfaf1ad5664ce80dc853c79ace9865918ae48f7bc541c071c3a5a136f6dc9b",
                "0x8a538e2ffce79e08fe2d8207860271f62bb552b838af54f50c61fbf14fb29403",
            ),
            (
                Eip1559 {
                    chain_id: 137,
                    nonce: 128,
                    max_priority_fee_per_gas: Wei::from(128),
                    max_fee_per_gas: Wei::from(256),
                    gas_limit: 16_777_216,
                    to: Address([0xff; 20]),
                    value: Wei::from(1_000_000_000_000_000_000),
                    data: vec![0; 60],
                },
                "0xdab70c09c21952d5527d3dcebaedee58e2a827ed3b997b9e238b27ee8cd2b3d4",
                "0x02f8ae818981808180820100840100000094ffffffffffffffffffffffffffffffffffffffff880de0b6b3a7640000b83c000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000c080a0f8d41b41ce441e29b21ba6dd9e80260dc659d64d4be0ef278532506952b3f2c3a02eb6ca7641d1e7b5b684c64ca01612e4274d866eecd80f26a0a0a5b2ad79f437",
                "0x47b594e02f79a236d84f1e4cd3f015bd4a2e8c71e7d21ad1c244b66ce3d31ab8",
            ),
        ]
    }

    #[test]
    fn bytes_and_hashes_equal_those_of_an_independent_encoder() {
        for (transaction, sighash, raw, hash) in golden() {
            assert_eq!(transaction.sighash().to_string(), sighash);
            let bytes = bytes_from_hex(raw).unwrap();
            let (read, signature) = Eip1559::decode(&bytes).unwrap();
            assert_eq!(read, transaction);
            let signed = transaction.signed(&signature);
            assert_eq!(hex_from_bytes(&signed.raw), raw);
            assert_eq!(signed.hash.to_string(), hash);
        }
    }

    #[test]
    fn a_high_s_is_refused() {
        let mut above = HALF_ORDER;
        above[31] += 1;
        assert!(Signature::new(false, [1; 32], HALF_ORDER).is_ok());
        assert_eq!(Signature::new(false, [1; 32], above), Err(Error::HighS));
        for (r, s) in [([0; 32], [1; 32]), ([1; 32], [0; 32]), (ORDER, [1; 32]), ([1; 32], ORDER), ([0xff; 32], [1; 32])] {
            assert_eq!(Signature::new(true, r, s), Err(Error::SignatureRange));
        }
    }

    #[test]
    fn other_forms_of_the_same_transaction_are_refused() {
        let (_, _, raw, _) = golden().swap_remove(0);
        let raw = bytes_from_hex(raw).unwrap();
        assert_eq!(Eip1559::decode(&[]), Err(Error::Type));
        assert_eq!(Eip1559::decode(&raw[1..]), Err(Error::Type));
        let mut longer = raw.clone();
        longer.push(0);
        assert_eq!(Eip1559::decode(&longer), Err(Error::Encoding));
        assert_eq!(Eip1559::decode(&raw[..raw.len() - 1]), Err(Error::Encoding));
        let mut zero_led = raw.clone();
        // The empty nonce 0x80 written as the byte 0x00 is the same number in another form.
        assert_eq!(zero_led[4], 0x80);
        zero_led[4] = 0;
        assert_eq!(Eip1559::decode(&zero_led), Err(Error::Encoding));
    }

    #[test]
    fn a_contract_creation_is_not_ours() {
        let mut list = RlpStream::new_list(12);
        list.append(&1u64).append(&0u64).append(&0u64).append(&0u64).append(&21_000u64).append(&"").append(&0u64).append(&"");
        list.begin_list(0).append(&0u8).append(&1u64).append(&1u64);
        let mut raw = vec![TYPE];
        raw.extend_from_slice(&list.out());
        assert_eq!(Eip1559::decode(&raw), Err(Error::Foreign));
    }

    #[test]
    fn no_debug_form_shows_signed_bytes() {
        let (transaction, _, raw, hash) = golden().swap_remove(1);
        let (_, signature) = Eip1559::decode(&bytes_from_hex(raw).unwrap()).unwrap();
        let shown = format!("{signature:?} {:?}", transaction.signed(&signature));
        assert_eq!(shown, format!("Signature(..) Signed {{ hash: {hash}, .. }}"));
    }

    #[test]
    fn the_longest_data_still_fits_a_transaction_that_nodes_take() {
        let (mut transaction, _, raw, _) = golden().swap_remove(2);
        let (_, signature) = Eip1559::decode(&bytes_from_hex(raw).unwrap()).unwrap();
        transaction.data = vec![1; MAX_DATA_BYTES];
        assert!(transaction.signed(&signature).raw.len() <= 128 * 1024);
    }

    fn wei() -> impl Strategy<Value = Wei> {
        (any::<[u8; 32]>(), 0usize..=32).prop_map(|(bytes, keep)| {
            let mut value = Wei::ZERO;
            for byte in &bytes[..keep] {
                value = Wei((value.0 << 8) | (*byte).into());
            }
            value
        })
    }

    prop_compose! {
        fn transactions()(chain_id: u64, nonce: u64, gas_limit: u64, to: [u8; 20], tip in wei(), cap in wei(), value in wei(),
            data in prop::collection::vec(any::<u8>(), 0..300)) -> Eip1559 {
            Eip1559 { chain_id, nonce, max_priority_fee_per_gas: tip, max_fee_per_gas: cap, gas_limit, to: Address(to), value, data }
        }
    }

    fn signatures() -> impl Strategy<Value = Signature> {
        (any::<bool>(), any::<[u8; 32]>(), any::<[u8; 32]>(), 0usize..32).prop_filter_map("in range", |(parity, mut r, mut s, zeros)| {
            r[..zeros].fill(0);
            s[0] &= 0x7f;
            Signature::new(parity, r, s).ok()
        })
    }

    proptest! {
        #[test]
        fn what_is_signed_is_read_back(transaction in transactions(), signature in signatures()) {
            let signed = transaction.signed(&signature);
            prop_assert_eq!(keccak256(&signed.raw), signed.hash);
            prop_assert_eq!(Eip1559::decode(&signed.raw), Ok((transaction, signature)));
        }

        #[test]
        fn a_flipped_bit_never_reads_as_the_same_transaction(transaction in transactions(), signature in signatures(), at: prop::sample::Index, bit in 0..8) {
            let mut raw = transaction.signed(&signature).raw;
            let at = at.index(raw.len());
            raw[at] ^= 1u8 << bit;
            prop_assert_ne!(Eip1559::decode(&raw), Ok((transaction, signature)));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(mut raw in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Eip1559::decode(&raw);
            raw.insert(0, TYPE);
            let _ = Eip1559::decode(&raw);
        }
    }
}
