//! Owns what the operator sees: logs, metrics and the note of a panic. Never decides and never fails the work it watches.
//! Every room but `domain` writes to it; `app` and `cli` start it.

mod instrument;
pub mod logs;
pub mod metrics;
pub mod redact;

/// Makes every panic a line in the log and a count, in place of an unredacted text on stderr.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        metrics::PANICS.add(1, &[]);
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("(no text)");
        tracing::error!(event = "panic", place, "panicked: {text}");
    }));
}
