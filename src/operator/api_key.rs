//! API keys: their form, and making one. The text exists once, in the answer; Postgres keeps a hash of the secret part.
//! Called by `cli keys create`, by `app` for development, and by `http`, which takes keys apart.
//!
//! `holdfast_live_` + 8 characters of id + `_` + 43 characters of secret + 6 of CRC-32, so that scanners find a leaked key by its
//! form and drop mistyped ones without asking anybody.

use super::cancel::check;
use super::{Desk, Error};
use crate::store::audited::{self, Operator};
use entity::values::Hash;
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

const PREFIX: &str = "holdfast_live_";
const ID: usize = 8;
const SECRET: usize = 43;
const SUM: usize = 6;
const BASE62: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// The same ids for a reader who does not see case.
const BASE36: usize = 36;

/// A fresh key. Never shown by Debug.
pub struct Minted {
    pub id: String,
    /// What the client is given.
    pub text: Zeroizing<String>,
    pub secret_hash: Hash,
}

impl fmt::Debug for Minted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Minted({}, ***)", self.id)
    }
}

/// A key as a client presents it: sound in form, known or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented<'a> {
    pub id: &'a str,
    pub secret_hash: Hash,
}

/// # Errors
/// `NoRandomness`.
pub fn mint() -> Result<Minted, Error> {
    let id = letters(ID, BASE36)?.to_string();
    let secret = letters(SECRET, BASE62.len())?;
    let sum = checksum(&id, &secret);
    let text = Zeroizing::new(format!("{PREFIX}{id}_{}{sum}", *secret));
    Ok(Minted { secret_hash: hash(&secret), id, text })
}

/// Takes a key apart; None when it is none of ours or mistyped.
#[must_use]
pub fn parse(text: &str) -> Option<Presented<'_>> {
    if !text.is_ascii() {
        return None;
    }
    let rest = text.strip_prefix(PREFIX).filter(|rest| rest.len() == ID + 1 + SECRET + SUM)?;
    let (id, rest) = rest.split_at(ID);
    let (secret, sum) = rest.strip_prefix('_')?.split_at(SECRET);
    let sound = id.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase()) && secret.bytes().all(|b| b.is_ascii_alphanumeric());
    (sound && checksum(id, secret) == sum).then(|| Presented { id, secret_hash: hash(secret) })
}

/// Makes a key of a project and writes down who did; the only time that its text is seen.
///
/// # Errors
/// `Invalid` for a malformed project, `NoOperator`, and see [`Error`].
pub async fn create(desk: &Desk, project: &str, operator: (&str, &str)) -> Result<Minted, Error> {
    check(operator.0, operator.1)?;
    let first = project.bytes().next().is_some_and(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    if !first || project.len() > 63 || !project.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase() || b"_-".contains(&b)) {
        return Err(Error::Invalid("project", "must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or digit".into()));
    }
    let minted = mint()?;
    audited::create_key(&desk.db, &minted.id, project, minted.secret_hash, Operator { id: operator.0, reason: operator.1 }).await?;
    Ok(minted)
}

fn hash(secret: &str) -> Hash {
    Hash(Sha256::digest(secret.as_bytes()).into())
}

/// Letters of the first `radix` of the alphabet, each as likely as the other.
fn letters(count: usize, radix: usize) -> Result<Zeroizing<String>, Error> {
    let mut text = Zeroizing::new(String::with_capacity(count));
    let limit = 256 - 256 % radix;
    let mut bytes = Zeroizing::new([0; 64]);
    while text.len() < count {
        getrandom::fill(bytes.as_mut_slice()).map_err(|_| Error::NoRandomness)?;
        let fair = bytes.iter().map(|b| usize::from(*b)).filter(|b| *b < limit).take(count - text.len());
        fair.for_each(|b| text.push(char::from(BASE62[b % radix])));
    }
    Ok(text)
}

fn checksum(id: &str, secret: &str) -> String {
    let mut rest = crc32(id.bytes().chain(secret.bytes())) as usize;
    let mut digits = [0; SUM];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[rest % BASE62.len()];
        rest /= BASE62.len();
    }
    digits.iter().map(|b| char::from(*b)).collect()
}

fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_crc_that_everybody_has() {
        assert_eq!(crc32(b"123456789".iter().copied()), 0xcbf4_3926);
    }

    #[test]
    fn a_minted_key_is_read_back_and_each_is_another() {
        let (one, two) = (mint().unwrap(), mint().unwrap());
        assert_ne!(*one.text, *two.text);
        assert_eq!(one.text.len(), 72);
        assert_eq!(parse(&one.text), Some(Presented { id: &one.id, secret_hash: one.secret_hash }));
        assert!(!format!("{one:?}").contains(&one.text[23..]));
    }

    #[test]
    fn a_mistyped_key_is_none() {
        let key = mint().unwrap().text;
        for at in 0..key.len() {
            let mut other = key.to_string().into_bytes();
            other[at] = if other[at] == b'x' { b'y' } else { b'x' };
            assert_eq!(parse(std::str::from_utf8(&other).unwrap()), None, "changed at {at}");
        }
        assert_eq!(parse(&key[..71]), None);
        assert_eq!(parse(&format!("{}é", &key[..70])), None);
        assert_eq!(parse(""), None);
    }
}
