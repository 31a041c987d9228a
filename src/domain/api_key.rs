//! Owns the form of an API key: `holdfast_<environment>_<id>_<secret><checksum>`, made so that scanners find leaked ones and typing
//! errors are seen without a database. Pure: whoever mints brings the entropy. Called by `http` to read keys, by `operator` and `app` to mint them.

use entity::values::Hash;
use sha2::{Digest, Sha256};
use std::fmt;

const PREFIX: &str = "holdfast_";
const ID_LENGTH: usize = 8;
/// 43 digits of base 62 hold 256 bits.
const SECRET_LENGTH: usize = 43;
const CHECK_LENGTH: usize = 6;
const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// A key that was just made. The plain text is shown once and never kept.
pub struct Minted {
    pub id: String,
    pub plaintext: String,
    /// What the database keeps.
    pub secret_hash: Hash,
}

impl fmt::Debug for Minted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Minted").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What a presented key claims.
#[derive(Clone, PartialEq, Eq)]
pub struct Presented {
    pub id: String,
    pub secret_hash: Hash,
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The text is no key of ours: no lookup is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an API key")]
pub struct Malformed;

/// Makes a key for an environment such as `live` or `dev` out of 40 random bytes. Letters and digits of `environment` only are used.
#[must_use]
pub fn mint(environment: &str, entropy: [u8; 40]) -> Minted {
    let (for_id, for_secret) = entropy.split_at(8);
    let id = digits(for_id, 36, ID_LENGTH);
    let secret = digits(for_secret, 62, SECRET_LENGTH);
    let environment: String = environment.chars().filter(char::is_ascii_alphanumeric).collect();
    let body = format!("{PREFIX}{environment}_{id}_{secret}");
    let plaintext = format!("{body}{}", checksum(&body));
    Minted { id, plaintext, secret_hash: hash(&secret) }
}

/// Reads a presented key; the checksum catches what was mistyped or cut.
///
/// # Errors
/// When the text is no key.
pub fn read(text: &str) -> Result<Presented, Malformed> {
    let (body, check) = text.is_ascii().then(|| text.split_at_checked(text.len().checked_sub(CHECK_LENGTH)?)).flatten().ok_or(Malformed)?;
    let mut parts = body.strip_prefix(PREFIX).ok_or(Malformed)?.split('_');
    let (Some(environment), Some(id), Some(secret), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(Malformed);
    };
    let plain = |text: &str, length: usize| text.len() == length && text.bytes().all(|c| c.is_ascii_alphanumeric());
    let id_is_plain = plain(id, ID_LENGTH) && !id.bytes().any(|c| c.is_ascii_uppercase());
    if !plain(environment, environment.len()) || !id_is_plain || !plain(secret, SECRET_LENGTH) || check != checksum(body) {
        return Err(Malformed);
    }
    Ok(Presented { id: id.into(), secret_hash: hash(secret) })
}

/// The secret has 256 bits of entropy, so a slow hash would protect nothing and cost every request.
fn hash(secret: &str) -> Hash {
    Hash(Sha256::digest(secret.as_bytes()).into())
}

/// The last digits of a big-endian number in a base up to 62.
fn digits(number: &[u8], base: u16, count: usize) -> String {
    let mut number = number.to_vec();
    let mut text = Vec::with_capacity(count);
    for _ in 0..count {
        let mut rest = 0;
        for byte in &mut number {
            let part = rest << 8 | u16::from(*byte);
            // Below 256, because the rest of the step before is below the base.
            *byte = u8::try_from(part / base).unwrap_or(u8::MAX);
            rest = part % base;
        }
        text.push(char::from(DIGITS[usize::from(rest)]));
    }
    text.into_iter().rev().collect()
}

fn checksum(body: &str) -> String {
    digits(&crc32(body.as_bytes()).to_be_bytes(), 62, CHECK_LENGTH)
}

/// CRC-32 as in IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_is_the_common_crc32() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_key_has_the_documented_form() {
        let key = mint("dev_2", [7; 40]);
        let parts: Vec<&str> = key.plaintext.split('_').collect();
        assert_eq!(parts[..2], ["holdfast", "dev2"]);
        assert_eq!((parts[2], parts[2].len(), parts[3].len(), parts.len()), (key.id.as_str(), 8, 49, 4));
    }

    #[test]
    fn neither_the_key_nor_its_hash_can_be_printed() {
        let key = mint("dev", [9; 40]);
        for shown in [format!("{key:?}"), format!("{:?}", read(&key.plaintext))] {
            assert!(!shown.contains(&key.plaintext[20..40]) && !shown.contains(&key.secret_hash.to_string()), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn a_minted_key_is_read_back(low: [u8; 20], high: [u8; 20]) {
            let mut entropy = [0; 40];
            entropy[..20].copy_from_slice(&low);
            entropy[20..].copy_from_slice(&high);
            let key = mint("live", entropy);
            prop_assert!(key.id.len() == 8 && key.id.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
            prop_assert_eq!(read(&key.plaintext), Ok(Presented { id: key.id, secret_hash: key.secret_hash }));
        }

        #[test]
        fn one_wrong_character_is_seen(at in 0usize..71, with in "[0-9a-zA-Z_]") {
            let key = mint("live", [3; 40]).plaintext;
            prop_assert_eq!(key.len(), 72);
            let wrong = format!("{}{with}{}", &key[..at], &key[at + 1..]);
            prop_assert!(wrong == key || read(&wrong).is_err());
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "(holdfast_)?\\PC*") {
            let _ = read(&text);
        }
    }
}
