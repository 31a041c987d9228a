//! Owns how much is logged and in which form. Never writes a line. Read by `telemetry`.

use super::fault::Problem;
use super::layers::Section;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Text,
}

#[derive(Clone, Debug)]
pub struct Log {
    /// As in `info` or `info,holdfast=debug`.
    pub level: String,
    pub format: LogFormat,
}

impl Log {
    pub(super) fn read(from: &Section<'_>) -> Self {
        Self {
            level: level(from),
            format: from.word("format", "LOG_FORMAT", &[("json", LogFormat::Json), ("text", LogFormat::Text)], LogFormat::Json),
        }
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

fn level(from: &Section<'_>) -> String {
    let Some(text) = from.text("level", "LOG_LEVEL") else { return "info".into() };
    if text.split(',').all(|part| is_directive(part.trim())) {
        return text.to_string();
    }
    from.layers().fault(from.name_of("level", "LOG_LEVEL"), Problem::NotALevel(LEVELS.join(", ")));
    "info".into()
}

/// A level, or a part of the program and its level. The filter itself would take an unknown word for the name of a part, and then
/// log nothing at all.
fn is_directive(text: &str) -> bool {
    let is_level = |text: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text));
    match text.split_once('=') {
        None => is_level(text),
        Some((part, level)) => {
            !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || b"_:-".contains(&c)) && is_level(level)
        }
    }
}
