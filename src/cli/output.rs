//! The form of an answer: text for people, JSON for programs, and nothing but the answer on stdout.

use super::Global;
use super::failure::{Code, Failure};
use super::page::Page;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{ErrorKind, IsTerminal, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables, for people
    Text,
    /// One document with its schema
    Json,
    /// One line per item
    Jsonl,
}

/// Gives the answer of `name` (noun.verb) in the form that was asked for.
pub fn answer<T: Serialize>(global: &Global, name: &str, data: &T, text: impl FnOnce(&mut Page)) -> Result<(), Failure> {
    answer_with(global, name, data, &[], text)
}

/// `answer` with warnings, which stand in the document, or on stderr.
pub fn answer_with<T: Serialize>(
    global: &Global,
    name: &str,
    data: &T,
    warnings: &[String],
    text: impl FnOnce(&mut Page),
) -> Result<(), Failure> {
    let whole = match global.output {
        Format::Text => {
            let mut page = Page::new(std::io::stdout().is_terminal() && global.no_color.as_ref().is_none_or(String::is_empty));
            text(&mut page);
            page.into_text()
        }
        Format::Json => document(name, &value(data)?, warnings),
        Format::Jsonl => lines(&value(data)?),
    };
    if global.output != Format::Json {
        warnings.iter().for_each(|warning| note(global.output, warning));
    }
    say(&whole)
}

/// A line on stderr: plain for people, JSON where the answer is JSON, so that a program may read all of stderr.
pub fn note(format: Format, text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", noted(format, text));
}

fn noted(format: Format, text: &str) -> String {
    match format {
        Format::Text => format!("holdfast: {text}"),
        Format::Json | Format::Jsonl => json!({ "event": "note", "message": text }).to_string(),
    }
}

fn value<T: Serialize>(data: &T) -> Result<Value, Failure> {
    serde_json::to_value(data).map_err(|error| Failure::new(Code::Internal, "the answer cannot be written as JSON", error.to_string()))
}

fn document(name: &str, data: &Value, warnings: &[String]) -> String {
    json!({ "schema": format!("holdfast.cli/{name}/v1"), "data": data, "warnings": warnings }).to_string() + "\n"
}

/// The items of a list, or the one answer.
fn lines(data: &Value) -> String {
    match data.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().map(|item| item.to_string() + "\n").collect(),
        None => data.to_string() + "\n",
    }
}

fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Who reads has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::Internal, "the answer cannot be written", error.to_string()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_names_its_schema() {
        let text = document("jobs.list", &json!({ "items": [] }), &["old".into()]);
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, json!({ "schema": "holdfast.cli/jobs.list/v1", "data": { "items": [] }, "warnings": ["old"] }));
    }

    #[test]
    fn a_note_has_the_form_of_the_answer() {
        assert_eq!(noted(Format::Text, "x"), "holdfast: x");
        for format in [Format::Json, Format::Jsonl] {
            let line: Value = serde_json::from_str(&noted(format, "a \"b\"")).unwrap();
            assert_eq!(line, json!({ "event": "note", "message": "a \"b\"" }));
        }
    }

    #[test]
    fn a_list_is_a_line_per_item_and_anything_else_is_one_line() {
        assert_eq!(lines(&json!({ "items": [1, { "a": 2 }], "next_cursor": null })), "1\n{\"a\":2}\n");
        assert_eq!(lines(&json!({ "version": "1" })), "{\"version\":\"1\"}\n");
    }
}
