//! Recognises what an error answer says. Owns the classification table (`rpc_errors.tsv`), what the operator puts before it, and the
//! reading of both; decides nothing: the meaning of a class is `domain::rpc_verdict`. Called by `wire` for each JSON-RPC error.

use crate::config::ErrorOverride;
use crate::domain::rpc_verdict::Class;
use regex::RegexSet;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Longer texts say nothing more; some providers answer with whole pages.
const TEXT_MAX: usize = 8 * 1024;
const DATA_DEPTH_MAX: usize = 6;
/// Unknown texts of a chain that are counted one by one.
const UNKNOWN_TEXTS: usize = 16;

#[derive(Debug)]
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

    /// The class of the first row that matches.
    fn find(&self, text: &str) -> Option<Class> {
        self.patterns.matches(text).iter().next().and_then(|first| self.classes.get(first)).copied()
    }
}

/// What the words of the endpoints of one chain mean.
#[derive(Debug, Default)]
pub struct Words {
    overrides: Option<Table>,
    unknown: Mutex<BTreeSet<String>>,
}

impl Words {
    /// The operator's rows come before the table, in their order. The configuration has compiled them already.
    pub fn new(overrides: &[ErrorOverride]) -> Self {
        let rows = overrides.iter().filter_map(|row| Some((&row.pattern, row.class.parse::<Class>().ok()?)));
        let (patterns, classes): (Vec<_>, Vec<_>) = rows.unzip();
        let patterns = regex::RegexSetBuilder::new(patterns).multi_line(true).case_insensitive(true).build();
        Self { overrides: patterns.ok().map(|patterns| Table { patterns, classes }), unknown: Mutex::default() }
    }

    /// The class of a JSON-RPC error. `http` is the status it came with, where that is not a success.
    #[must_use]
    pub fn classify(&self, code: i64, message: &str, data: Option<&Value>, http: Option<u16>) -> Class {
        let text = text(code, message, data, http);
        if let Some(class) = self.overrides.as_ref().and_then(|table| table.find(&text)) {
            return class;
        }
        // A test reads the table; were it broken all the same, "unknown" is the class that loses nothing.
        TABLE.as_ref().ok().and_then(|table| table.find(&text)).unwrap_or(Class::Unknown)
    }

    /// A name for an unknown text that can be a label: a hash of its words without their figures, of so many texts and no more.
    pub fn name_unknown(&self, message: &str) -> String {
        let figureless = |word: &str| if word.bytes().any(|b| b.is_ascii_digit()) { "#".to_owned() } else { word.to_ascii_lowercase() };
        let words: Vec<_> = message.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(figureless).collect();
        let name = hex::encode(&Sha256::digest(words.join(" ").as_bytes())[..4]);
        let mut known = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&name) || known.len() < UNKNOWN_TEXTS && known.insert(name.clone()) { name } else { "other".to_owned() }
    }
}

/// Compiles the table ahead of the first error, which would wait for it.
pub fn prepare() {
    LazyLock::force(&TABLE);
}

/// The class of a JSON-RPC error on a chain without overrides.
#[must_use]
pub fn classify(code: i64, message: &str, data: Option<&Value>, http: Option<u16>) -> Class {
    Words::default().classify(code, message, data, http)
}

/// Everything that an error says, as the patterns expect it.
fn text(code: i64, message: &str, data: Option<&Value>, http: Option<u16>) -> String {
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
    text
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
    fn what_clients_really_said_is_the_class_it_should_be() {
        let mut wrong = Vec::new();
        for row in rows(include_str!("../../tests/fixtures/rpc/error_strings.tsv")) {
            let [expected, client, code, message, data] = row[..] else { panic!("five columns: {row:?}") };
            let data: Option<Value> = (!data.is_empty()).then(|| serde_json::from_str(data).unwrap());
            let found = classify(code.parse().unwrap(), message, data.as_ref(), None);
            if found.as_str() != expected {
                wrong.push(format!("{client}: {message:?} is {found}, not {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn the_rows_of_the_operator_come_before_the_table_and_in_their_order() {
        let row = |pattern: &str, class: Class| ErrorOverride { pattern: pattern.to_owned(), class: class.as_str() };
        let words = Words::new(&[
            row("Sequencer Says NO", Class::TxpoolFull),
            row("nonce too low: odd fork", Class::NonceTooHigh),
            row("nonce too low: odd", Class::Revert),
            row("^code:-39999$", Class::RateLimited),
        ]);
        for (code, message, class) in [
            (-32000, "the sequencer says no, today", Class::TxpoolFull),
            (-32000, "nonce too low: odd fork", Class::NonceTooHigh),
            (-32000, "nonce too low: odd", Class::Revert),
            (-32000, "nonce too low", Class::NonceTooLow),
            (-39999, "x", Class::RateLimited),
            (-32000, "x", Class::Unknown),
        ] {
            assert_eq!(words.classify(code, message, None, None), class, "{message}");
        }
        assert_eq!(classify(-32000, "the sequencer says no", None, None), Class::Unknown, "another chain has rows of its own");
    }

    #[test]
    fn unknown_texts_get_a_bounded_number_of_names_and_figures_make_no_new_one() {
        let words = Words::default();
        let first = words.name_unknown("Strange: slot 17 of 0xabc1 is odd");
        assert_eq!(first.len(), 8);
        assert_eq!(words.name_unknown("strange: slot 9 of 0xdef2 is odd"), first);
        let letters = |n: usize| "x".repeat(n + 1);
        let names: BTreeSet<_> = (0..100).map(|n| words.name_unknown(&letters(n))).collect();
        assert_eq!(names.len(), UNKNOWN_TEXTS, "with \"other\"; one name was taken");
        assert!(names.contains("other"));
        assert_eq!(words.name_unknown("strange: slot 1 of 0x0 is odd"), first, "a name stays");
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
