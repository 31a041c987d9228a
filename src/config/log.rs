//! Owns how much is logged and in which form. Never writes a line. Read by `telemetry`.

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
            level: from.text("level", "LOG_LEVEL").map_or_else(|| "info".into(), |level| level.to_string()),
            format: from.word("format", "LOG_FORMAT", &[("json", LogFormat::Json), ("text", LogFormat::Text)], LogFormat::Json),
        }
    }
}
