//! Owns the form of an API key: `holdfast_<environment>_<id>_<secret><checksum>`, by which scanners find leaked keys and mistyped ones are
//! seen without a database. Never stores one: the database keeps a hash of the secret. Called by `http` to read keys, by `operator`
//! and `app` to make them.

use entity::values::Hash;
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

const PREFIX: &str = "holdfast_";
const ID_LENGTH: usize = 8;
/// 43 digits of base 62 hold 256 bits.
const SECRET_LENGTH: usize = 43;
const CHECK_LENGTH: usize = 6;
const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Ids are read by people and by case-insensitive tools.
const ID_DIGITS: u16 = 36;
/// Two words for the id, four for the secret.
const ENTROPY: usize = 48;

/// A key that was just made. Its text is shown once and never kept.
pub struct Minted {
    pub id: String,
    pub plaintext: Zeroizing<String>,
    /// What the database keeps.
    pub hash: Hash,
}

impl fmt::Debug for Minted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Minted").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What a presented key claims to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    id: &'a str,
    secret: &'a str,
}

impl Parts<'_> {
    #[must_use]
    pub fn id(&self) -> &str {
        self.id
    }

    /// To be compared, in constant time, with what the database keeps.
    #[must_use]
    pub fn hash(&self) -> Hash {
        hash(self.secret)
    }
}

impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the system gives no random numbers")]
    NoRandomness,
}

/// Makes a key for an environment such as `live` or `dev`, of whose name only letters and digits are used.
///
/// # Errors
/// When the system gives no random numbers: the one thing here that is not decided by the arguments.
pub fn mint(environment: &str) -> Result<Minted, Error> {
    let mut entropy = Zeroizing::new([0; ENTROPY]);
    getrandom::fill(entropy.as_mut_slice()).map_err(|_| Error::NoRandomness)?;
    Ok(made(environment, &entropy))
}

fn made(environment: &str, entropy: &[u8; ENTROPY]) -> Minted {
    let (for_id, for_secret) = entropy.split_at(16);
    let id = digits(for_id, ID_DIGITS, ID_LENGTH);
    let secret = Zeroizing::new(digits(for_secret, 62, SECRET_LENGTH));
    let environment: String = environment.chars().filter(char::is_ascii_alphanumeric).collect();
    let plaintext = Zeroizing::new(format!("{PREFIX}{environment}_{id}_{}{}", *secret, checksum(&id, &secret)));
    Minted { hash: hash(&secret), id, plaintext }
}

/// Takes a key apart; None when it is none of ours, cut or mistyped.
#[must_use]
pub fn parse(text: &str) -> Option<Parts<'_>> {
    let plain = |text: &str| text.bytes().all(|c| c.is_ascii_alphanumeric());
    let (environment, rest) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let (id, rest) = rest.split_once('_')?;
    if !plain(environment) || !plain(id) || !plain(rest) || id.len() != ID_LENGTH || rest.len() != SECRET_LENGTH + CHECK_LENGTH {
        return None;
    }
    let (secret, check) = rest.split_at(SECRET_LENGTH);
    let lower = !id.bytes().any(|c| c.is_ascii_uppercase());
    (lower && checksum(id, secret) == check).then_some(Parts { id, secret })
}

/// The secret has 256 bits of entropy, so a slow hash would protect nothing and cost every request.
fn hash(secret: &str) -> Hash {
    Hash(Sha256::digest(secret.as_bytes()).into())
}

/// The last digits of a big-endian number in a base up to 62.
fn digits(number: &[u8], base: u16, count: usize) -> String {
    let mut number = Zeroizing::new(number.to_vec());
    let mut text = vec![0; count];
    for digit in text.iter_mut().rev() {
        let mut rest = 0;
        for byte in number.iter_mut() {
            let part = rest << 8 | u16::from(*byte);
            // Below 256, because the rest of the step before is below the base.
            *byte = u8::try_from(part / base).unwrap_or(u8::MAX);
            rest = part % base;
        }
        *digit = DIGITS[usize::from(rest)];
    }
    text.into_iter().map(char::from).collect()
}

fn checksum(id: &str, secret: &str) -> String {
    digits(&crc32(id.bytes().chain(secret.bytes())).to_be_bytes(), 62, CHECK_LENGTH)
}

/// CRC-32 as in IEEE 802.3.
fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_is_the_common_crc32() {
        assert_eq!(crc32(b"123456789".iter().copied()), 0xcbf4_3926);
    }

    #[test]
    fn a_key_has_the_documented_form() {
        let key = mint("dev_2").unwrap();
        let parts: Vec<&str> = key.plaintext.split('_').collect();
        assert_eq!(parts[..2], ["holdfast", "dev2"]);
        assert_eq!((parts[2], parts[2].len(), parts[3].len(), parts.len()), (key.id.as_str(), 8, 49, 4));
        assert_ne!(*key.plaintext, *mint("dev_2").unwrap().plaintext);
    }

    #[test]
    fn neither_the_key_nor_its_hash_can_be_printed() {
        let key = mint("dev").unwrap();
        for shown in [format!("{key:?}"), format!("{:?}", parse(&key.plaintext))] {
            assert!(!shown.contains(&key.plaintext[22..40]) && !shown.contains(&key.hash.to_string()), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn a_minted_key_is_read_back(low: [u8; 24], high: [u8; 24]) {
            let mut entropy = [0; ENTROPY];
            entropy[..24].copy_from_slice(&low);
            entropy[24..].copy_from_slice(&high);
            let key = made("live", &entropy);
            prop_assert!(key.id.len() == 8 && key.id.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
            let parts = parse(&key.plaintext).unwrap();
            prop_assert_eq!((parts.id(), parts.hash()), (key.id.as_str(), key.hash));
        }

        #[test]
        fn a_wrong_character_of_id_secret_or_checksum_is_seen(at in 14usize..72, with in "[0-9a-zA-Z_]") {
            let key = made("live", &[3; ENTROPY]).plaintext;
            prop_assert_eq!(key.len(), 72);
            let wrong = format!("{}{with}{}", &key[..at], &key[at + 1..]);
            prop_assert!(wrong == *key || parse(&wrong).is_none());
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "(holdfast_)?\\PC*") {
            let _ = parse(&text);
        }
    }
}
