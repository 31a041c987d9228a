//! Owns the private keys of local signers, by pool. Never signs and never shows a key. Read by `signer`, which does.

use super::layers::Section;
use super::remote::Remote;
use super::secrets::{Item, Malformed, Members, Shape, bytes32, shown};
use secrecy::ExposeSecret;
use std::collections::BTreeSet;
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// What is wrong with SIGNER_KEYS. Names pools and positions, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("is not JSON")]
    NotJson,
    #[error("must be a JSON object of pool to a list of keys")]
    NotAnObject,
    #[error("holds no pool")]
    Empty,
    #[error("pool {0} is given twice")]
    DuplicatePool(String),
    #[error("pool number {0} must be named environment:role, each 1 to 63 lower-case letters, digits, hyphens or underscores")]
    BadPool(usize),
    #[error("pool {0} must be a list of keys")]
    NotAList(String),
    #[error("pool {0} holds no key")]
    EmptyPool(String),
    #[error("key {position} of pool {pool} must be a string")]
    NotText { pool: String, position: usize },
    #[error("key {position} of pool {pool} must begin with 0x")]
    NoPrefix { pool: String, position: usize },
    #[error("key {position} of pool {pool} must have 64 hex digits after 0x")]
    Length { pool: String, position: usize },
    #[error("key {position} of pool {pool} has characters that are not hex digits")]
    NotHex { pool: String, position: usize },
    #[error("key {position} of pool {pool} is zero or not below the order of the curve")]
    OutOfRange { pool: String, position: usize },
    #[error("key {position} of pool {pool} was given before: a signer belongs to one pool, once")]
    DuplicateKey { pool: String, position: usize },
}

/// A secp256k1 private key. Wiped when dropped, never shown.
#[derive(Clone)]
pub struct SecretKey32(Zeroizing<[u8; 32]>);

impl SecretKey32 {
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SecretKey32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey32(***)")
    }
}

#[derive(Clone, Debug)]
pub struct PoolKeys {
    /// "environment:role"
    pub pool: String,
    pub keys: Vec<SecretKey32>,
}

#[derive(Clone, Debug, Default)]
pub struct SignerKeys {
    pub pools: Vec<PoolKeys>,
    /// Keys that are elsewhere.
    pub remote: Remote,
}

impl SignerKeys {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.remote.pools.is_empty()
    }

    /// The pools that it has signers for, each once.
    #[must_use]
    pub fn pool_names(&self) -> BTreeSet<&str> {
        let local = self.pools.iter().map(|pool| pool.pool.as_str());
        local.chain(self.remote.pools.iter().map(|pool| pool.pool.as_str())).collect()
    }

    pub(super) fn read(from: &Section<'_>) -> Self {
        let remote = Remote::read(from);
        let Some(text) = from.secret("keys", "SIGNER_KEYS") else { return Self { pools: Vec::new(), remote } };
        let pools = parse(text.expose_secret()).unwrap_or_else(|errors| {
            errors.into_iter().for_each(|error| from.layers().fault(from.name_of("keys", "SIGNER_KEYS"), error.into()));
            Vec::new()
        });
        Self { pools, remote }
    }
}

fn parse(text: &str) -> Result<Vec<PoolKeys>, Vec<Error>> {
    let members = Members::parse(text).map_err(|shape| match shape {
        Shape::NotJson => vec![Error::NotJson],
        Shape::NotAnObject => vec![Error::NotAnObject],
    })?;
    if members.0.is_empty() {
        return Err(vec![Error::Empty]);
    }
    let mut pools: Vec<PoolKeys> = Vec::new();
    let mut errors = Vec::new();
    for (index, (pool, item)) in members.0.into_iter().enumerate() {
        let name = shown(&pool, index + 1);
        if !is_pool(&pool) {
            errors.push(Error::BadPool(index + 1));
            continue;
        }
        let Item::List(items) = item else {
            errors.push(Error::NotAList(name));
            continue;
        };
        if pools.iter().any(|other| other.pool == pool) {
            errors.push(Error::DuplicatePool(name));
            continue;
        }
        if items.is_empty() {
            errors.push(Error::EmptyPool(name.clone()));
        }
        pools.push(PoolKeys { pool, keys: Vec::new() });
        for (index, item) in items.into_iter().enumerate() {
            match read_key(item, &name, index + 1, &pools) {
                Ok(key) => pools.last_mut().into_iter().for_each(|last| last.keys.push(key.clone())),
                Err(error) => errors.push(error),
            }
        }
    }
    if errors.is_empty() { Ok(pools) } else { Err(errors) }
}

fn read_key(item: Item, pool: &str, position: usize, known: &[PoolKeys]) -> Result<SecretKey32, Error> {
    let pool = || pool.to_owned();
    let Item::Text(text) = item else { return Err(Error::NotText { pool: pool(), position }) };
    let bytes = bytes32(&text).map_err(|malformed| match malformed {
        Malformed::NoPrefix => Error::NoPrefix { pool: pool(), position },
        Malformed::Length => Error::Length { pool: pool(), position },
        Malformed::NotHex => Error::NotHex { pool: pool(), position },
    })?;
    if *bytes == [0; 32] || *bytes >= CURVE_ORDER {
        return Err(Error::OutOfRange { pool: pool(), position });
    }
    if known.iter().flat_map(|pool| &pool.keys).any(|key| key.0.ct_eq(&*bytes).into()) {
        return Err(Error::DuplicateKey { pool: pool(), position });
    }
    Ok(SecretKey32(bytes))
}

pub(super) fn is_pool(name: &str) -> bool {
    let part = |part: &str| {
        (1..=63).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b))
    };
    name.split_once(':').is_some_and(|(environment, role)| part(environment) && part(role))
}

const CURVE_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48,
    0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
];

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee01";

    fn error(text: &str) -> Error {
        let errors = parse(text).err().unwrap();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let shown = format!("{errors:?} {}", errors[0]);
        assert!(!shown.to_lowercase().contains("c0ffee"), "{shown}");
        errors.into_iter().next().unwrap()
    }

    #[test]
    fn every_malformed_pool_has_its_own_error_that_shows_no_value() {
        let k = CANARY;
        let pool = || "\"local:relayer\"".to_owned();
        let at = |position| (pool(), position);
        let one = |keys: &str| error(&format!(r#"{{"local:relayer":{keys}}}"#));
        assert_eq!(error(k), Error::NotJson);
        assert_eq!(error(&format!(r#"["0x{k}"]"#)), Error::NotAnObject);
        assert_eq!(error("{}"), Error::Empty);
        for bad in ["relayer", "local:", ":x", "Local:relayer", "a:b:c", "local relayer", &format!("0x{k}")] {
            assert_eq!(error(&format!(r#"{{"{bad}":["0x{k}"]}}"#)), Error::BadPool(1), "{bad}");
        }
        assert_eq!(error(&format!(r#"{{"a:b":["0x{k}"],"a:b":["0x{k}"]}}"#)), Error::DuplicatePool("\"a:b\"".into()));
        assert_eq!(one(&format!("\"0x{k}\"")), Error::NotAList(pool()));
        assert_eq!(one("[]"), Error::EmptyPool(pool()));
        let (pool, position) = at(1);
        assert_eq!(one("[1]"), Error::NotText { pool, position });
        let (pool, position) = at(1);
        assert_eq!(one(&format!("[\"{k}\"]")), Error::NoPrefix { pool, position });
        let (pool, position) = at(1);
        assert_eq!(one(&format!("[\"0x{k}0\"]")), Error::Length { pool, position });
        let (pool, position) = at(1);
        assert_eq!(one(&format!("[\"0x{}\"]", k.replace('0', "x"))), Error::NotHex { pool, position });
        let (pool, position) = at(1);
        assert_eq!(one(&format!("[\"0x{}\"]", "0".repeat(64))), Error::OutOfRange { pool, position });
        let (pool, position) = at(1);
        assert_eq!(one(&format!("[\"0x{}\"]", "f".repeat(64))), Error::OutOfRange { pool, position });
        let (pool, position) = at(2);
        assert_eq!(one(&format!(r#"["0x{k}","0x{}"]"#, k.to_uppercase())), Error::DuplicateKey { pool, position });
    }

    #[test]
    fn a_key_may_not_serve_two_pools() {
        let text = format!(r#"{{"a:b":["0x{CANARY}"],"a:c":["0x{CANARY}"]}}"#);
        assert_eq!(error(&text), Error::DuplicateKey { pool: "\"a:c\"".into(), position: 1 });
    }

    #[test]
    fn sound_pools_are_read_in_their_order_and_never_shown() {
        let other = CANARY.replace("01", "02");
        let pools = parse(&format!(r#"{{"z:b":["0x{CANARY}","0x{other}"],"a:c":["0x{}"]}}"#, CANARY.replace("01", "03"))).unwrap();
        let names: Vec<_> = pools.iter().map(|pool| (pool.pool.as_str(), pool.keys.len())).collect();
        assert_eq!(names, [("z:b", 2), ("a:c", 1)]);
        assert_eq!(pools[0].keys[1].expose()[31], 2);
        let shown = format!("{pools:?}").to_lowercase();
        assert!(!shown.contains("c0") && !shown.contains("192"), "{shown}");
    }
}
