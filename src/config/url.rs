//! Owns what two endpoint URLs have to share to be one host. Never resolves a name and never shows a URL.
//! Called by the sections that take URLs, and by `chain` for the name of an endpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether the text is `scheme://…` of one of the schemes and names a host.
#[must_use]
pub fn has_host(url: &str, schemes: &[&str]) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| schemes.contains(&scheme.to_ascii_lowercase().as_str())) && host(url).is_some()
}

/// The identity of a host: lower case, without user, port, path or a closing dot; addresses in their one plain form.
/// None when there is no host, or when it is written so that two spellings of one host would count as two.
#[must_use]
pub fn host(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    if rest.bytes().any(|b| b.is_ascii_control() || b == b' ' || b == b'\\') {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let place = authority.rsplit('@').next()?;
    if let Some(inner) = place.strip_prefix('[') {
        let (address, port) = inner.split_once(']')?;
        valid_port(port.strip_prefix(':'), port.is_empty())?;
        return Some(plain_address(address.parse().ok()?));
    }
    let (name, port) = place.split_once(':').map_or((place, None), |(name, port)| (name, Some(port)));
    valid_port(port, port.is_none())?;
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let charset = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if name.is_empty() || !charset || name.split('.').any(str::is_empty) {
        return None;
    }
    // A last label that is a number makes it an address, of which 127.1 and 0x7f.0.0.1 are other spellings.
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit()) {
        return name.parse::<Ipv4Addr>().ok().map(|address| address.to_string());
    }
    Some(name)
}

fn plain_address(address: Ipv6Addr) -> String {
    match IpAddr::V6(address).to_canonical() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => v6.to_string(),
    }
}

fn valid_port(port: Option<&str>, none: bool) -> Option<()> {
    match port {
        // "host:" is the default port.
        Some("") => Some(()),
        Some(port) => port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse::<u16>().ok()).flatten().map(|_| ()),
        None => none.then_some(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_the_same_under_other_case_port_user_path_and_query() {
        for url in [
            "https://rpc.example.org",
            "https://RPC.Example.ORG/",
            "https://rpc.example.org:8545/v3/abc",
            "wss://user:pa@ss@rpc.example.org/x?y#z",
            "https://rpc.example.org.",
            "https://rpc.example.org:?k=@other.org",
        ] {
            assert_eq!(host(url).as_deref(), Some("rpc.example.org"), "{url}");
        }
    }

    #[test]
    fn an_address_has_one_spelling() {
        assert_eq!(host("http://127.0.0.1:8545").as_deref(), Some("127.0.0.1"));
        assert_eq!(host("http://[::ffff:127.0.0.1]:1").as_deref(), Some("127.0.0.1"));
        assert_eq!(host("http://[0:0::1]").as_deref(), Some("::1"));
        for url in ["http://127.1", "http://0x7f.0.0.0x1", "http://2130706433", "http://127.0.0.01", "http://256.0.0.1"] {
            assert_eq!(host(url), None, "{url}");
        }
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for url in [
            "",
            "host",
            "http://",
            "http:///x",
            "http://user@",
            "http://a..b",
            "http://a b",
            "http://a%62",
            "http://a:x",
            "http://a:99999",
            "http://[::1",
        ] {
            assert_eq!(host(url), None, "{url}");
        }
        assert!(has_host("POSTGRES://h/d", &["postgres"]));
        assert!(!has_host("mysql://h/d", &["postgres"]));
    }
}
