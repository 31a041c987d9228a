//! Owns the small encodings of the chain that decisions need: keccak-256, checksummed addresses and the hash of a call.
//! Never signs, never asks a node. Called by every room that shows, accepts or compares an address or a call.

use entity::values::{Address, Hash, Malformed, Wei, hex_from_bytes};
use tiny_keccak::{Hasher, Keccak};

/// Why a text is refused as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Malformed(#[from] Malformed),
    #[error("the mixed-case checksum is wrong: a digit was mistyped, or the address must be written in one case")]
    Checksum,
}

/// keccak-256, the hash of the chain (not the later SHA-3, which pads differently).
#[must_use]
pub fn keccak256(bytes: &[u8]) -> Hash {
    let mut hasher = Keccak::v256();
    hasher.update(bytes);
    let mut digest = [0; 32];
    hasher.finalize(&mut digest);
    Hash(digest)
}

/// The address as people read it: mixed case by EIP-55, so that a mistyped digit shows.
#[must_use]
pub fn checksummed(address: &Address) -> String {
    let plain = hex_from_bytes(&address.0);
    let digits = &plain[2..];
    let digest = keccak256(digits.as_bytes());
    let mut text = String::with_capacity(plain.len());
    text.push_str("0x");
    for (at, digit) in digits.chars().enumerate() {
        let byte = digest.0[at / 2];
        let nibble = if at % 2 == 0 { byte >> 4 } else { byte & 15 };
        text.push(if nibble >= 8 { digit.to_ascii_uppercase() } else { digit });
    }
    text
}

/// Reads an address from outside. Mixed case claims a checksum and must then carry the right one; one case claims nothing.
pub fn parse_address(text: &str) -> Result<Address, Error> {
    let address: Address = text.parse()?;
    let digits = &text[2..];
    let mixed = digits.bytes().any(|c| c.is_ascii_lowercase()) && digits.bytes().any(|c| c.is_ascii_uppercase());
    if mixed && checksummed(&address) != text {
        return Err(Error::Checksum);
    }
    Ok(address)
}

/// Appends a field behind its length, so that no two lists of fields share one encoding.
pub fn push_field(to: &mut Vec<u8>, field: &[u8]) {
    // A field is an amount, a name or call data, all far below 2^32; a longer one would still not collide, as its bytes follow.
    let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(field);
}

/// What a lineage is for, as one hash: equal exactly when chain, target, value, data and gas limit are equal.
///
/// The preimage is six fields, each behind its length as four big-endian bytes: the text `holdfast.call.1`, the chain id (8 bytes,
/// big-endian), the target (20), the value (32, big-endian), the data as it is, and the gas limit (8, big-endian). Prices and the nonce
/// stay out, because replacements of one call change them. Stored rows depend on this layout: another one needs another first field.
#[must_use]
pub fn call_hash(chain_id: u64, to: &Address, value: &Wei, data: &[u8], gas_limit: u64) -> Hash {
    let mut preimage = Vec::with_capacity(128 + data.len());
    push_field(&mut preimage, b"holdfast.call.1");
    push_field(&mut preimage, &chain_id.to_be_bytes());
    push_field(&mut preimage, &to.0);
    push_field(&mut preimage, &word(value));
    push_field(&mut preimage, data);
    push_field(&mut preimage, &gas_limit.to_be_bytes());
    keccak256(&preimage)
}

/// The 32 big-endian bytes of an amount.
#[must_use]
pub fn word(value: &Wei) -> [u8; 32] {
    let mut bytes = [0; 32];
    value.0.to_big_endian(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keccak_is_not_sha3() {
        assert_eq!(keccak256(b"").to_string(), "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470");
        assert_eq!(
            keccak256(b"Recorded(bytes32,address)").to_string(),
            "0xdca60c2087041cbb12d9a57628c6cad28ecbd0437e47c7ab6c3aa6e162bf4497"
        );
    }

    #[test]
    fn addresses_are_shown_with_their_checksum() {
        // The examples of EIP-55.
        for text in [
            "0x52908400098527886E0F7030069857D2E4169EE7",
            "0xde709f2102306220921060314715629080e2fb77",
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
            "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        ] {
            assert_eq!(checksummed(&parse_address(text).unwrap()), text);
        }
    }

    #[test]
    fn one_case_is_accepted_and_a_wrong_mixed_case_is_refused() {
        let right = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
        let lower = right.to_lowercase();
        let upper = format!("0x{}", right[2..].to_uppercase());
        assert_eq!(parse_address(&lower), parse_address(right));
        assert_eq!(parse_address(&upper), parse_address(right));
        assert_eq!(parse_address("0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"), Err(Error::Checksum));
        assert_eq!(parse_address("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAec"), Err(Error::Checksum));
        for text in ["", "0x", &right[2..], &lower.replace("0x", "0X"), &format!("{lower}0"), "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaég"]
        {
            assert_eq!(parse_address(text), Err(Error::Malformed(Malformed::Hex { bytes: 20 })), "{text:?}");
        }
    }

    #[test]
    fn the_hash_of_a_call_keeps_its_layout() {
        let plain = call_hash(31337, &Address([0x35; 20]), &Wei::from(7), &[1, 2, 3], 21_000);
        let mut preimage = vec![0, 0, 0, 15];
        preimage.extend_from_slice(b"holdfast.call.1\0\0\0\x08\0\0\0\0\0\0\x7a\x69\0\0\0\x14");
        preimage.extend_from_slice(&[0x35; 20]);
        preimage.extend_from_slice(&[0, 0, 0, 32]);
        preimage.extend_from_slice(&[0; 31]);
        preimage.extend_from_slice(&[7, 0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0x52, 0x08]);
        assert_eq!(plain, keccak256(&preimage));
    }

    #[test]
    fn every_part_of_a_call_changes_its_hash() {
        let (to, value, data) = (Address([1; 20]), Wei::from(1), [1u8]);
        let hashes = [
            call_hash(1, &to, &value, &data, 21_000),
            call_hash(2, &to, &value, &data, 21_000),
            call_hash(1, &Address([2; 20]), &value, &data, 21_000),
            call_hash(1, &to, &Wei::from(2), &data, 21_000),
            call_hash(1, &to, &value, &[], 21_000),
            call_hash(1, &to, &value, &[1, 0], 21_000),
            call_hash(1, &to, &value, &data, 21_001),
        ];
        let distinct: std::collections::BTreeSet<_> = hashes.iter().collect();
        assert_eq!(distinct.len(), hashes.len());
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(bytes: [u8; 20]) {
            let address = Address(bytes);
            prop_assert_eq!(parse_address(&checksummed(&address)), Ok(address));
            prop_assert_eq!(parse_address(&address.to_string()), Ok(address));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = parse_address(&text);
        }
    }
}
