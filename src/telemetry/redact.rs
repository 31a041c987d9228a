//! Owns what must not leave the process in a text: credentials of URLs, keys, tokens, signed bytes.
//! The last guard, not the first: types that hold secrets do not print them. Called by `logs` for every value, and by whoever
//! shows the text of a foreign error.

use regex::{Captures, Regex};
use std::borrow::Cow;
use std::sync::LazyLock;

pub const MASK: &str = "***";

/// Words that announce a key. A hash is as long as a key, so the digits alone do not tell.
const KEYISH: &str = "key|secret|private|mnemonic|seed|password|passwd|passphrase|token|credential";
/// Names of fields whose whole value is masked, as a part between underscores, hyphens or dots.
const SECRET_NAMES: [&str; 11] =
    ["secret", "password", "passwd", "token", "authorization", "mnemonic", "ciphertext", "plaintext", "keys", "raw", "credentials"];
const SECRET_ENDS: [&str; 5] = ["private_key", "api_key", "secret_key", "signer_key", "journal_key"];

struct Rules {
    user: Regex,
    url: Regex,
    opaque: Regex,
    bearer: Regex,
    token: Regex,
    long_hex: Regex,
    keyed: Regex,
    assigned: Regex,
}

static RULES: LazyLock<Result<Rules, regex::Error>> = LazyLock::new(|| {
    Ok(Rules {
        // To the last @ of the word: a password may hold a slash or an @ itself.
        user: Regex::new(r#"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s"'<>`]*@"#)?,
        url: Regex::new(r#"(?P<head>(?i:https?|wss?)://[^\s"'<>`/?#]*)(?P<tail>[/?#][^\s"'<>`]*)"#)?,
        opaque: Regex::new(r"[A-Za-z0-9_-]{16,}")?,
        bearer: Regex::new(r"(?i)\b(?P<word>bearer|basic)\s+[A-Za-z0-9._~+/=-]+")?,
        token: Regex::new(r"holdfast_(?P<kind>live|dev)_[A-Za-z0-9_-]+")?,
        long_hex: Regex::new(r"(?:0x)?[0-9A-Fa-f]{65,}")?,
        keyed: Regex::new(&format!(r"(?i)(?P<before>(?:{KEYISH}|\*\*\*)[^\n]{{0,64}}?)\b(?:0x)?[0-9a-f]{{64}}\b"))?,
        assigned: Regex::new(concat!(
            r#"(?i)(?P<name>\b(?:password|passwd|secret|api[_-]?key|private[_-]?key|admin_token|access_token)["']?\s*[=:]\s*)"#,
            r#"(?:"[^"]*"|'[^']*'|[^\s,;&"']+)"#
        ))?,
    })
});

/// The text without what is secret in it.
#[must_use]
pub fn text(text: &str) -> Cow<'_, str> {
    // Nothing secret is shorter than this, and most values are.
    if text.len() < 8 {
        return Cow::Borrowed(text);
    }
    let Ok(rules) = RULES.as_ref() else { return Cow::Borrowed(MASK) };
    let mut out = Cow::Borrowed(text);
    if out.contains("://") {
        apply(&mut out, &rules.user, |found| format!("{}{MASK}@", &found["scheme"]));
        apply(&mut out, &rules.url, |found| format!("{}{}", &found["head"], without_keys(rules, &found["tail"])));
    }
    apply(&mut out, &rules.token, |found| format!("holdfast_{}_{MASK}", &found["kind"]));
    apply(&mut out, &rules.bearer, |found| format!("{} {MASK}", &found["word"]));
    apply(&mut out, &rules.assigned, |found| format!("{}{MASK}", &found["name"]));
    apply(&mut out, &rules.long_hex, |found| format!("({} hex digits)", found[0].trim_start_matches("0x").len()));
    // Each pass masks one key after each word; a list of keys is a chain of masks.
    while out.len() >= 64 && rules.keyed.is_match(&out) {
        apply(&mut out, &rules.keyed, |found| format!("{}{MASK}", &found["before"]));
    }
    out
}

/// The value of a named field, without what is secret in it.
#[must_use]
pub fn field<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    if is_secret_name(name) { Cow::Borrowed(MASK) } else { text(value) }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_ENDS.iter().any(|end| name.ends_with(end)) || name.split(['_', '-', '.']).any(|part| SECRET_NAMES.contains(&part))
}

/// Providers put the key of an account into the path or the query.
fn without_keys(rules: &Rules, tail: &str) -> String {
    let (path, query) = tail.find(['?', '#']).map_or((tail, ""), |at| tail.split_at(at));
    let path = rules.opaque.replace_all(path, MASK);
    if query.is_empty() { path.into_owned() } else { format!("{path}{}{MASK}", &query[..1]) }
}

fn apply(out: &mut Cow<'_, str>, rule: &Regex, with: impl Fn(&Captures<'_>) -> String) {
    if let Cow::Owned(changed) = rule.replace_all(out, |found: &Captures<'_>| with(found)) {
        *out = Cow::Owned(changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee01";

    #[test]
    fn canary_secrets_do_not_survive_in_any_shape() {
        let signed = format!("0x02f8{KEY}{KEY}");
        for given in [
            "connect to postgres://app:c0ffee@db:5432/x failed",
            "postgres://app:c0ff/c0ffee@c0ffee@db/x",
            "redis://:c0ffee@cache",
            "https://u:p@a.example,https://c0ffee:c0ffee@b.example",
            "https://main.example/v3/c0ffeec0ffeec0ffeec0ffee",
            "https://main.example/v3/x?apikey=c0ffee",
            "WSS://main.example/c0ffeec0ffeec0ffeec0ffee#c0ffee",
            "error sending request for url (https://main.example/v2/c0ffee_-c0ffeec0ffeec0ffee)",
            "Authorization: Bearer c0ffee.c0ffee-c0ffee",
            "key holdfast_live_c0ffee-C0FFEE and holdfast_dev_c0ffee",
            &format!("private key 0x{KEY}"),
            &format!("private key {KEY}"),
            &format!("TX_JOURNAL_KEYS={{\"k1\":\"0x{KEY}\",\"k2\":\"0x{KEY}\",\"k3\":\"0x{KEY}\"}}"),
            &format!("Secret(0x{})", KEY.to_uppercase()),
            &format!("SIGNER_KEYS {{\"local:relayer\":[\"0x{KEY}\", \"0x{KEY}\"]}}"),
            &format!("sent {signed}"),
            "password=c0ffee;",
            "{\"api_key\":\"c0ffee\"}",
            "admin_token: c0ffee",
        ] {
            let shown = text(given);
            assert!(!shown.to_lowercase().contains("c0ffee"), "{given} -> {shown}");
        }
    }

    #[test]
    fn what_an_operator_needs_survives() {
        let hash = format!("transaction 0x{KEY} mined in block 0x{KEY}");
        for given in [
            hash.as_str(),
            "job 0198c0de-0000-7000-8000-0000c0ffee00 is dead",
            "signer 0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266 at nonce 12",
            "listening on http://127.0.0.1:8080/v1/jobs",
            "the connection to db:5432 was reset",
            "key id k1 is active",
            "grüße, 世界 – ünïcode",
        ] {
            assert_eq!(text(given), given);
        }
        assert_eq!(text("postgres://app:pw@db:5432/holdfast"), "postgres://***@db:5432/holdfast");
        assert_eq!(text("https://main.example/v3/0123456789abcdef01?x=1"), "https://main.example/v3/***?***");
    }

    #[test]
    fn a_field_with_a_secret_name_is_masked_whatever_it_holds() {
        for name in ["password", "admin_token", "private_key", "signer_keys", "raw", "Authorization", "raw_transaction", "api_key"] {
            assert_eq!(field(name, "x"), MASK, "{name}");
        }
        for name in ["idempotency_key", "key_id", "state", "hash", "monkey", "draw"] {
            assert_eq!(field(name, "x"), "x", "{name}");
        }
    }

    #[test]
    fn redaction_is_done_once() {
        for given in ["postgres://a:b@c/d", "Bearer abcdefgh", &format!("key 0x{KEY} and 0x{KEY}"), "secret=***"] {
            let once = text(given).into_owned();
            assert_eq!(text(&once), once);
        }
    }
}
