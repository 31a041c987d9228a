//! Owns finding variables that look like ours and are none: a misspelt setting is otherwise silently its default.
//! Never looks at a value. Called by `Config::from_process`.

use super::layers::EMBEDDED;
use super::warnings::Warning;

/// Names that are no key of the file.
const MORE: [&str; 3] = ["HOLDFAST_CONFIG", "HOLDFAST_FAIL_POINT", "HOSTNAME"];
/// Below this length two letters make another word.
const LONG: usize = 10;

/// Every variable that is read, from the list of them in the embedded file.
fn known() -> Vec<String> {
    let mut names: Vec<String> = MORE.map(Into::into).into();
    for line in EMBEDDED.lines() {
        let Some((_, list)) = line.trim_end().strip_suffix(']').and_then(|line| line.rsplit_once('[')) else { continue };
        for name in list.split(',').map(str::trim).filter(|name| is_variable(name)) {
            names.push(name.into());
            if line.contains("# secret:") {
                names.push(format!("{name}_FILE"));
            }
        }
    }
    names
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_')
}

/// A warning for each name that is none of ours and one or two letters away from one.
pub(super) fn of(names: impl Iterator<Item = String>) -> Vec<Warning> {
    let known = known();
    let mut found: Vec<_> = names
        .filter(|name| is_variable(name) && !known.contains(name))
        .filter_map(|name| {
            let limit = if name.len() < LONG { 1 } else { 2 };
            let (distance, meant) = known.iter().map(|meant| (distance(&name, meant), meant)).min()?;
            (distance <= limit).then(|| Warning { text: format!("is no setting and changes nothing: is {meant} meant?"), name })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Letters to insert, take out or replace (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, a) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (place, b) in other.iter().enumerate() {
            let replaced = before + usize::from(a != *b);
            before = row[place + 1];
            row[place + 1] = replaced.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(name: &str) -> Option<String> {
        of([name.to_owned()].into_iter()).pop().map(|warning| warning.text)
    }

    #[test]
    fn a_misspelt_variable_is_told_with_the_one_that_is_meant() {
        for (name, expected) in [
            ("DATABSE_URL", "DATABASE_URL"),
            ("REDIS_URLS", "REDIS_URL"),
            ("TX_CONFIRMATION", "TX_CONFIRMATIONS"),
            ("SIGNER_KEY", "SIGNER_KEYS"),
            ("SIGNERS_KEYS_FILE", "SIGNER_KEYS_FILE"),
            ("RPC_READ_URL", "RPC_READ_URLS"),
            ("HOLDFAST_CONFIGS", "HOLDFAST_CONFIG"),
        ] {
            assert!(meant(name).is_some_and(|text| text.contains(&format!("is {expected} meant?"))), "{name}: {:?}", meant(name));
        }
    }

    #[test]
    fn what_is_ours_and_what_is_of_others_is_not_told() {
        for name in ["DATABASE_URL", "DATABASE_URL_FILE", "DATABASE_POOL_SIZE", "HOSTNAME", "PATH", "HOME", "PGHOST", "LANG", "MY_URL"] {
            assert_eq!(meant(name), None, "{name}");
        }
        let known = known();
        assert!(known.len() > 50 && known.contains(&"OPERATOR_ID".to_owned()), "{known:?}");
        assert!(!known.contains(&"OPERATOR_ID_FILE".to_owned()));
    }
}
