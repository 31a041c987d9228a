//! Owns the keys that encrypt signed bytes, and which of them is in use. Never encrypts and never shows a key.
//! Read by `signer`, which does.

use super::fault::Problem;
use super::layers::Section;
use super::secrets::{Item, Malformed, Members, Shape, bytes32, shown};
use secrecy::ExposeSecret;
use std::collections::BTreeMap;
use std::fmt;
use zeroize::Zeroizing;

/// What is wrong with TX_JOURNAL_KEYS or TX_JOURNAL_ACTIVE_KEY_ID. Names entries, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("is not JSON")]
    NotJson,
    #[error("must be a JSON object of key id to key")]
    NotAnObject,
    #[error("holds no key")]
    Empty,
    #[error("key id {0} is given twice")]
    DuplicateId(String),
    #[error("key id number {0} must be 1 to 64 letters, digits, dots, hyphens or underscores")]
    BadId(usize),
    #[error("key {0} must be a string")]
    NotText(String),
    #[error("key {0} must begin with 0x")]
    NoPrefix(String),
    #[error("key {0} must have 64 hex digits after 0x")]
    Length(String),
    #[error("key {0} has characters that are not hex digits")]
    NotHex(String),
    #[error("names no key of TX_JOURNAL_KEYS")]
    ActiveUnknown,
}

/// Rows that one key may seal: with random 96-bit nonces of AES-GCM a collision stays less likely than 2^-32 up to here.
pub const SEALS_MAX: i64 = 1 << 32;

/// A key of 32 bytes. Wiped when dropped, never shown.
#[derive(Clone)]
pub struct JournalKey(Zeroizing<[u8; 32]>);

impl JournalKey {
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for JournalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JournalKey(***)")
    }
}

#[derive(Clone, Debug)]
pub struct Journal {
    pub keys: BTreeMap<String, JournalKey>,
    /// The id of the key that encrypts; always one of `keys`.
    pub active: String,
}

impl Journal {
    /// Neither the keys nor the active id: no journal. One of them alone is a fault.
    pub(super) fn read(from: &Section<'_>) -> Option<Self> {
        const KEYS: &str = "TX_JOURNAL_KEYS";
        const ACTIVE: &str = "TX_JOURNAL_ACTIVE_KEY_ID";
        let fault = |key, name, problem| from.layers().fault(from.name_of(key, name), problem);
        let given = from.is_given("keys", KEYS);
        let active = from.text("active_key_id", ACTIVE).map(|id| id.to_string());
        if given && active.is_none() {
            fault("active_key_id", ACTIVE, Problem::RequiredBy(KEYS));
        } else if !given && active.is_some() {
            fault("keys", KEYS, Problem::RequiredBy(ACTIVE));
        }
        let keys = match parse(from.secret("keys", KEYS)?.expose_secret()) {
            Ok(keys) => keys,
            Err(errors) => {
                errors.into_iter().for_each(|error| fault("keys", KEYS, error.into()));
                return None;
            }
        };
        let active = active?;
        if !keys.contains_key(&active) {
            fault("active_key_id", ACTIVE, Error::ActiveUnknown.into());
            return None;
        }
        Some(Self { keys, active })
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, JournalKey>, Vec<Error>> {
    let members = Members::parse(text).map_err(|shape| match shape {
        Shape::NotJson => vec![Error::NotJson],
        Shape::NotAnObject => vec![Error::NotAnObject],
    })?;
    if members.0.is_empty() {
        return Err(vec![Error::Empty]);
    }
    let mut keys = BTreeMap::new();
    let mut errors = Vec::new();
    for (index, (id, item)) in members.0.into_iter().enumerate() {
        let name = shown(&id, index + 1);
        if !is_id(&id) {
            errors.push(Error::BadId(index + 1));
            continue;
        }
        let key = match item {
            Item::Text(text) => bytes32(&text).map_err(|malformed| match malformed {
                Malformed::NoPrefix => Error::NoPrefix(name.clone()),
                Malformed::Length => Error::Length(name.clone()),
                Malformed::NotHex => Error::NotHex(name.clone()),
            }),
            Item::List(_) | Item::Object(_) | Item::Other => Err(Error::NotText(name.clone())),
        };
        match key {
            Ok(_) if keys.contains_key(&id) => errors.push(Error::DuplicateId(name)),
            Ok(bytes) => drop(keys.insert(id, JournalKey(bytes))),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(keys) } else { Err(errors) }
}

fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

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
    fn every_malformed_journal_has_its_own_error_that_shows_no_value() {
        let k = CANARY;
        let name = || "\"k1\"".to_owned();
        assert_eq!(error(k), Error::NotJson);
        assert_eq!(error(&format!(r#"{{"k1":"0x{k}""#)), Error::NotJson);
        assert_eq!(error(&format!(r#"{{"k1":"0x{k}"}} x"#)), Error::NotJson);
        assert_eq!(error(&format!(r#"["0x{k}"]"#)), Error::NotAnObject);
        assert_eq!(error(&format!(r#""0x{k}""#)), Error::NotAnObject);
        assert_eq!(error("{}"), Error::Empty);
        assert_eq!(error(&format!(r#"{{"k1":"0x{k}","k1":"0x{k}"}}"#)), Error::DuplicateId(name()));
        assert_eq!(error(&format!(r#"{{"":"0x{k}"}}"#)), Error::BadId(1));
        assert_eq!(error(&format!(r#"{{"a b":"0x{k}"}}"#)), Error::BadId(1));
        assert_eq!(error(&format!(r#"{{"0x{k}":"k1"}}"#)), Error::BadId(1));
        assert_eq!(error(&format!(r#"{{"k1":"{k}"}}"#)), Error::NoPrefix(name()));
        assert_eq!(error(&format!(r#"{{"k1":"0x{k}00"}}"#)), Error::Length(name()));
        assert_eq!(error(&format!(r#"{{"k1":"0x{}"}}"#, &k[1..])), Error::Length(name()));
        assert_eq!(error(&format!(r#"{{"k1":"0x{}"}}"#, k.replace('0', "g"))), Error::NotHex(name()));
        assert_eq!(error(&format!(r#"{{"k1":["0x{k}"]}}"#)), Error::NotText(name()));
        assert_eq!(error(r#"{"k1":12}"#), Error::NotText(name()));
        assert_eq!(error(r#"{"k1":null}"#), Error::NotText(name()));
        assert_eq!(error(&format!(r#"{{"k1":{{"a":"0x{k}"}}}}"#)), Error::NotText(name()));
    }

    #[test]
    fn a_key_written_where_the_id_belongs_is_not_shown() {
        assert_eq!(error(&format!(r#"{{"{CANARY}":"k1"}}"#)), Error::NoPrefix("number 1".into()));
    }

    #[test]
    fn all_malformed_keys_are_named_at_once() {
        let text = format!(r#"{{"a":"0x12","b":"{CANARY}","c":"0x{CANARY}"}}"#);
        assert_eq!(parse(&text).err().unwrap(), [Error::Length("\"a\"".into()), Error::NoPrefix("\"b\"".into())]);
    }

    #[test]
    fn a_sound_journal_is_read_and_never_shown() {
        let keys = parse(&format!(r#"{{"2024-01":"0x{CANARY}","k.2":"0x{}"}}"#, CANARY.to_uppercase())).unwrap();
        assert_eq!(keys["2024-01"].expose(), keys["k.2"].expose());
        assert_eq!(keys["k.2"].expose()[..3], [0xc0, 0xff, 0xee]);
        let shown = format!("{keys:?}").to_lowercase();
        assert!(!shown.contains("c0") && !shown.contains("192"), "{shown}");
    }
}
