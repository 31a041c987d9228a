//! Recognises what an error answer says. Owns the classification table (`rpc_errors.tsv`) and the reading of it; decides nothing: the
//! meaning of a class is `domain::rpc_verdict`. Called by `wire` for each JSON-RPC error.

use crate::domain::rpc_verdict::Class;
use regex::RegexSet;
use serde_json::Value;
use std::sync::LazyLock;

/// Longer texts say nothing more; some providers answer with whole pages.
const TEXT_MAX: usize = 8 * 1024;
const DATA_DEPTH_MAX: usize = 6;

struct Table {
    patterns: RegexSet,
    classes: Vec<Class>,
}

#[derive(Debug, thiserror::Error)]
enum TableFault {
    #[error("line {0} has not three columns")]
    Columns(usize),
    #[error(transparent)]
    Class(#[from] crate::domain::rpc_verdict::UnknownClass),
    #[error(transparent)]
    Pattern(#[from] regex::Error),
}

static TABLE: LazyLock<Result<Table, TableFault>> = LazyLock::new(|| Table::read(include_str!("rpc_errors.tsv")));

impl Table {
    fn read(text: &str) -> Result<Self, TableFault> {
        let (mut patterns, mut classes) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let mut columns = line.split('\t');
            let (Some(class), Some(_clients), Some(pattern), None) = (columns.next(), columns.next(), columns.next(), columns.next())
            else {
                return Err(TableFault::Columns(index + 1));
            };
            classes.push(class.parse()?);
            patterns.push(pattern);
        }
        let patterns = regex::RegexSetBuilder::new(&patterns).multi_line(true).build()?;
        Ok(Self { patterns, classes })
    }
}

/// Compiles the table ahead of the first error, which would wait for it.
pub fn prepare() {
    LazyLock::force(&TABLE);
}

/// The class of a JSON-RPC error. `http` is the status it came with, where that is not a success.
#[must_use]
pub fn classify(code: i64, message: &str, data: Option<&Value>, http: Option<u16>) -> Class {
    let mut text = String::with_capacity(message.len() + 64);
    add_line(&mut text, message);
    if let Some(data) = data {
        add_texts(&mut text, data, DATA_DEPTH_MAX);
        if revert_bytes(data).is_some() {
            text.push_str("data:revert\n");
        }
    }
    if let Some(status) = http {
        text.push_str(&format!("http:{status}\n"));
    }
    text.push_str(&format!("code:{code}\n"));
    match &*TABLE {
        Ok(table) => {
            table.patterns.matches(&text).iter().next().and_then(|first| table.classes.get(first)).copied().unwrap_or(Class::Unknown)
        }
        // A test reads the table; were it broken all the same, "unknown" is the class that loses nothing.
        Err(_) => Class::Unknown,
    }
}

fn add_line(text: &mut String, part: &str) {
    let room = TEXT_MAX.saturating_sub(text.len());
    text.extend(part.chars().take(room).map(|c| if c.is_control() { ' ' } else { c.to_ascii_lowercase() }));
    text.push('\n');
}

/// All texts inside `data`, also where a proxy has packed JSON into a string. Hex is no text: its digits would match numbers.
fn add_texts(text: &mut String, data: &Value, depth: usize) {
    if depth == 0 || text.len() >= TEXT_MAX {
        return;
    }
    match data {
        Value::String(part) if hex_bytes(part).is_some() => {}
        Value::String(part) => match serde_json::from_str::<Value>(part) {
            Ok(inner @ (Value::Object(_) | Value::Array(_))) => add_texts(text, &inner, depth - 1),
            _ => add_line(text, part),
        },
        Value::Array(parts) => parts.iter().for_each(|part| add_texts(text, part, depth - 1)),
        Value::Object(fields) => fields.values().for_each(|part| add_texts(text, part, depth - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    entity::values::bytes_from_hex(text)
}

/// The bytes a contract reverted with, wherever the client put them: `data`, `data.data`, or behind a word as in "Reverted 0x…".
/// Only what has the shape of an ABI-encoded error (a selector and whole words), for some clients put a hash there.
#[must_use]
pub fn revert_bytes(data: &Value) -> Option<Vec<u8>> {
    fn find(data: &Value, depth: usize) -> Option<Vec<u8>> {
        match data {
            Value::String(text) => {
                let start = text.find("0x")?;
                let digits = text[start..].split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
                hex_bytes(digits).filter(|bytes| bytes.len() % 32 == 4)
            }
            Value::Object(fields) if depth > 0 => fields.values().find_map(|part| find(part, depth - 1)),
            Value::Array(parts) if depth > 0 => parts.iter().find_map(|part| find(part, depth - 1)),
            _ => None,
        }
    }
    find(data, DATA_DEPTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
        text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(|line| line.split('\t').collect())
    }

    #[test]
    fn the_table_reads() {
        let table = TABLE.as_ref().unwrap();
        assert!(table.classes.len() > 120);
    }

    #[test]
    fn every_known_wording_is_the_class_it_should_be() {
        let mut wrong = Vec::new();
        for row in rows(include_str!("../../tests/fixtures/rpc/error_samples.tsv")) {
            let [expected, client, code, message] = row[..] else { panic!("four columns: {row:?}") };
            let found = classify(code.parse().unwrap(), message, None, None);
            if found.as_str() != expected {
                wrong.push(format!("{client}: {message:?} is {found}, not {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_code_alone_decides_only_where_the_words_say_nothing() {
        assert_eq!(classify(-32603, "nonce too low", None, None), Class::NonceTooLow);
        assert_eq!(classify(-32005, "exceeds block gas limit", None, None), Class::GasBlockLimit);
        assert_eq!(classify(429, "", None, None), Class::RateLimited);
        assert_eq!(classify(-32000, "", None, Some(503)), Class::ServiceUnavailable);
        assert_eq!(classify(-32000, "", None, Some(402)), Class::QuotaOrAuth);
        assert_eq!(classify(3, "", None, None), Class::Revert);
        assert_eq!(classify(-32015, "node timed out", None, None), Class::ServiceUnavailable);
        assert_eq!(classify(-32000, "", None, None), Class::Unknown);
    }

    #[test]
    fn texts_hidden_in_the_data_are_read() {
        let nested = json!({"originalError": {"message": "nonce too low"}});
        assert_eq!(classify(-32603, "Internal JSON-RPC error.", Some(&nested), None), Class::NonceTooLow);
        let packed = json!("{\"error\":{\"message\":\"already known\"}}");
        assert_eq!(classify(-32000, "request failed", Some(&packed), None), Class::AlreadyKnown);
        assert_eq!(classify(-32015, "oops", Some(&json!("Reverted 0x")), None), Class::Revert);
    }

    #[test]
    fn the_same_revert_data_is_a_revert_under_any_code_and_message() {
        let bytes = format!("0x08c379a0{}", "00".repeat(96));
        for (code, message) in [(3, "a"), (-32000, "b"), (-32015, "c"), (-32603, "d")] {
            for data in [json!(bytes), json!({"data": bytes}), json!(format!("Reverted {bytes}")), json!({"x": {"return": bytes}})] {
                assert_eq!(classify(code, message, Some(&data), None), Class::Revert, "{code} {data}");
            }
        }
        let hash = json!(format!("0x{}", "ab".repeat(32)));
        assert_eq!(classify(-32000, "something new", Some(&hash), None), Class::Unknown);
    }

    #[test]
    fn digits_in_revert_data_are_not_taken_for_a_status() {
        let data = json!(format!("0x08c379a0{}", "503f".repeat(16)));
        assert_eq!(classify(3, "opaque", Some(&data), None), Class::Revert);
    }

    #[test]
    fn endless_and_strange_texts_are_only_unknown() {
        assert_eq!(classify(0, &"x".repeat(1 << 20), None, None), Class::Unknown);
        let mut deep = json!("nonce too low");
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert_eq!(classify(0, "", Some(&deep), None), Class::Unknown);
    }
}
