//! Owns where signers live whose keys this program never has: by pool, a URL that speaks `eth_signTransaction` and the addresses there.
//! Never asks them. Read by `signer`, which does.

use super::layers::Section;
use super::secrets::{Item, Members, Shape, shown};
use super::signers::is_pool;
use super::url;
use entity::values::Address;
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

/// What is wrong with SIGNER_REMOTE_URLS. Names pools and positions, never values: a URL may hold a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("is not JSON")]
    NotJson,
    #[error("must be a JSON object of pool to {{\"url\": …, \"addresses\": […]}}")]
    NotAnObject,
    #[error("holds no pool")]
    Empty,
    #[error("pool {0} is given twice")]
    DuplicatePool(String),
    #[error("pool number {0} must be named environment:role, each 1 to 63 lower-case letters, digits, hyphens or underscores")]
    BadPool(usize),
    #[error("pool {0} must be an object of exactly url and addresses")]
    BadPlace(String),
    #[error("the url of pool {0} must begin with http:// or https:// and name a host")]
    BadUrl(String),
    #[error("pool {0} holds no address")]
    NoAddress(String),
    #[error("address {position} of pool {pool} must be 0x and 40 hex digits")]
    BadAddress { pool: String, position: usize },
    #[error("address {position} of pool {pool} was given before: a signer belongs to one pool, once")]
    DuplicateAddress { pool: String, position: usize },
}

/// A pool whose keys are elsewhere.
#[derive(Clone, Debug)]
pub struct RemotePool {
    /// "environment:role"
    pub pool: String,
    pub url: SecretString,
    pub addresses: Vec<Address>,
}

#[derive(Clone, Debug, Default)]
pub struct Remote {
    pub pools: Vec<RemotePool>,
    /// Longest wait for one signature.
    pub timeout: Duration,
}

impl Remote {
    pub(super) fn read(from: &Section<'_>) -> Self {
        const NAME: &str = "SIGNER_REMOTE_URLS";
        let timeout = from.millis("remote_timeout_ms", "SIGNER_REMOTE_TIMEOUT_MILLISECONDS", 1);
        let Some(text) = from.secret("remote_urls", NAME) else { return Self { pools: Vec::new(), timeout } };
        let pools = parse(text.expose_secret()).unwrap_or_else(|errors| {
            errors.into_iter().for_each(|error| from.layers().fault(from.name_of("remote_urls", NAME), error.into()));
            Vec::new()
        });
        Self { pools, timeout }
    }
}

fn parse(text: &str) -> Result<Vec<RemotePool>, Vec<Error>> {
    let members = Members::parse(text).map_err(|shape| match shape {
        Shape::NotJson => vec![Error::NotJson],
        Shape::NotAnObject => vec![Error::NotAnObject],
    })?;
    if members.0.is_empty() {
        return Err(vec![Error::Empty]);
    }
    let mut pools: Vec<RemotePool> = Vec::new();
    let mut errors = Vec::new();
    for (index, (pool, item)) in members.0.into_iter().enumerate() {
        let name = shown(&pool, index + 1);
        if !is_pool(&pool) {
            errors.push(Error::BadPool(index + 1));
        } else if pools.iter().any(|other| other.pool == pool) {
            errors.push(Error::DuplicatePool(name));
        } else {
            match place(pool, &name, item, &pools) {
                Ok(pool) => pools.push(pool),
                Err(error) => errors.push(error),
            }
        }
    }
    if errors.is_empty() { Ok(pools) } else { Err(errors) }
}

fn place(pool: String, name: &str, item: Item, known: &[RemotePool]) -> Result<RemotePool, Error> {
    let bad = || Error::BadPlace(name.to_owned());
    let Item::Object(Members(members)) = item else { return Err(bad()) };
    let (mut at, mut listed) = (None, None);
    for (key, value) in members {
        match (key.as_str(), value) {
            ("url", Item::Text(text)) if at.is_none() => at = Some(SecretString::from(text.as_str())),
            ("addresses", Item::List(items)) if listed.is_none() => listed = Some(items),
            _ => return Err(bad()),
        }
    }
    let (Some(at), Some(items)) = (at, listed) else { return Err(bad()) };
    if !url::has_host(at.expose_secret(), &["http", "https"]) {
        return Err(Error::BadUrl(name.to_owned()));
    }
    if items.is_empty() {
        return Err(Error::NoAddress(name.to_owned()));
    }
    let mut addresses: Vec<Address> = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let (pool, position) = (name.to_owned(), index + 1);
        let address = if let Item::Text(text) = item { text.parse::<Address>().ok() } else { None };
        let Some(address) = address else { return Err(Error::BadAddress { pool, position }) };
        if addresses.contains(&address) || known.iter().any(|other| other.addresses.contains(&address)) {
            return Err(Error::DuplicateAddress { pool, position });
        }
        addresses.push(address);
    }
    Ok(RemotePool { pool, url: at, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0x00000000000000000000000000000000000000aa";
    const B: &str = "0x00000000000000000000000000000000000000bb";

    fn error(text: &str) -> Error {
        let errors = parse(text).err().unwrap();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let shown = format!("{errors:?} {}", errors[0]);
        assert!(!shown.contains("SECRET"), "{shown}");
        errors.into_iter().next().unwrap()
    }

    fn one(place: &str) -> Error {
        error(&format!(r#"{{"live:relayer":{place}}}"#))
    }

    #[test]
    fn a_pool_that_cannot_be_is_told_by_its_place_and_never_with_its_url() {
        let pool = || "\"live:relayer\"".to_owned();
        assert_eq!(error("x"), Error::NotJson);
        assert_eq!(error("[]"), Error::NotAnObject);
        assert_eq!(error("{}"), Error::Empty);
        assert_eq!(error(&format!(r#"{{"live":{{"url":"http://SECRET@h","addresses":["{A}"]}}}}"#)), Error::BadPool(1));
        for bad in [
            "1",
            "[]",
            "{}",
            r#"{"url":"http://SECRET@h"}"#,
            r#"{"url":1,"addresses":[]}"#,
            r#"{"url":"http://h","addresses":[],"key":"SECRET"}"#,
        ] {
            assert_eq!(one(bad), Error::BadPlace(pool()), "{bad}");
        }
        assert_eq!(one(&format!(r#"{{"url":"SECRET","addresses":["{A}"]}}"#)), Error::BadUrl(pool()));
        assert_eq!(one(r#"{"url":"http://SECRET@h","addresses":[]}"#), Error::NoAddress(pool()));
        assert_eq!(one(r#"{"url":"http://SECRET@h","addresses":["0x12"]}"#), Error::BadAddress { pool: pool(), position: 1 });
        let twice = one(&format!(r#"{{"url":"http://SECRET@h","addresses":["{A}","{A}"]}}"#));
        assert_eq!(twice, Error::DuplicateAddress { pool: pool(), position: 2 });
    }

    #[test]
    fn sound_pools_are_read_in_their_order_and_their_url_is_never_shown() {
        let text = format!(
            r#"{{"z:b":{{"url":"https://u:SECRET@h/x","addresses":["{A}","{B}"]}},"a:c":{{"addresses":["0x{}"],"url":"http://h"}}}}"#,
            "1".repeat(40)
        );
        let pools = parse(&text).unwrap();
        let names: Vec<_> = pools.iter().map(|pool| (pool.pool.as_str(), pool.addresses.len())).collect();
        assert_eq!(names, [("z:b", 2), ("a:c", 1)]);
        assert!(!format!("{pools:?}").contains("SECRET"));
    }
}
