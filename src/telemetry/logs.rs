//! Owns the form of a log line: JSON on stderr, or text for people, every value through `redact`.
//! Never writes to stdout, which belongs to the answer of a command, and never fails the work it tells of. Started by `cli` and `app`.
//!
//! A line has timestamp, level, message, event, role, instance and version, then the fields of the event and of the spans around it.
//! `event` is the stable name of what happened (`tx_signed_persisted`); the message is for people.

use super::{metrics, redact};
use crate::clock::{Clock, SystemClock};
use crate::config::{Log, LogFormat};
use chrono::SecondsFormat;
use serde_json::{Map, Value};
use std::fmt::{Debug, Write as _};
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Registry, filter};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter's own message may quote the value.
    #[error("LOG_LEVEL: is no filter such as info or info,holdfast=debug")]
    Level(#[from] filter::ParseError),
    #[error("logs are already set up")]
    AlreadySet(#[from] TryInitError),
}

/// Who writes: stands in every line.
#[derive(Clone, Debug)]
pub struct Identity {
    pub role: String,
    pub instance: String,
}

/// Lines that wait for whoever reads stderr: some 2 MB. Past them lines are dropped and counted.
const WAITING: usize = 4_096;

/// Starts the log of a command on stderr.
///
/// # Errors
/// When the level is no filter or a log was started before.
pub fn start(settings: &Log, identity: Identity) -> Result<(), Error> {
    begin(settings, identity, std::io::stderr())
}

/// Writes what still waits, for a second at most, when it is dropped.
pub struct Rest(#[expect(dead_code, reason = "its end is what it is for")] WorkerGuard);

/// Starts the log of a service on stderr: a reader that reads no more (a log collector that hangs) loses lines, and stops no work.
///
/// # Errors
/// When the level is no filter or a log was started before.
pub fn start_for_service(settings: &Log, identity: Identity) -> Result<Rest, Error> {
    let (writer, rest) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING).thread_name("logs").finish(std::io::stderr());
    let dropped = writer.error_counter();
    begin(settings, identity, writer)?;
    metrics::before_reading(move || metrics::LOG_LINES_DROPPED.set(dropped.dropped_lines() as f64, &[]));
    Ok(Rest(rest))
}

fn begin(settings: &Log, identity: Identity, writer: impl Write + Send + 'static) -> Result<(), Error> {
    let filter = EnvFilter::try_new(&settings.level)?;
    Registry::default().with(filter).with(Lines::new(settings.format, identity, SystemClock, writer)).try_init()?;
    Ok(())
}

/// Turns events into lines of a writer.
pub struct Lines<C, W> {
    format: LogFormat,
    identity: Identity,
    clock: C,
    writer: Mutex<W>,
}

impl<C: Clock, W: Write> Lines<C, W> {
    pub fn new(format: LogFormat, identity: Identity, clock: C, writer: W) -> Self {
        Self { format, identity, clock, writer: Mutex::new(writer) }
    }

    fn line(&self, level: Level, target: &str, mut fields: Fields) -> String {
        let timestamp = self.clock.now().to_rfc3339_opts(SecondsFormat::Micros, true);
        let message = fields.0.remove("message");
        let event = fields.0.remove("event");
        match self.format {
            LogFormat::Json => {
                let mut line = Map::new();
                let head = [
                    ("timestamp", Some(timestamp.into())),
                    ("level", Some(level.as_str().to_lowercase().into())),
                    ("message", message),
                    ("event", event),
                    ("role", Some(self.identity.role.clone().into())),
                    ("instance", Some(self.identity.instance.clone().into())),
                    ("version", Some(env!("CARGO_PKG_VERSION").into())),
                    ("target", Some(target.into())),
                ];
                line.extend(head.into_iter().map(|(name, value)| (name.to_owned(), value.unwrap_or_default())));
                for (name, value) in fields.0 {
                    // A field never stands in for who, when and how bad.
                    let name = if line.contains_key(&name) { format!("{name}_") } else { name };
                    line.insert(name, value);
                }
                let mut text = Value::Object(line).to_string();
                text.push('\n');
                text
            }
            LogFormat::Text => {
                let mut text = format!("{timestamp} {:>5} {}", level.as_str(), message.as_ref().map(plain).unwrap_or_default());
                let event = event.map(|event| ("event".to_owned(), event));
                for (name, value) in event.into_iter().chain(fields.0) {
                    let _ = write!(text, " {name}={}", plain(&value));
                }
                text.push('\n');
                text
            }
        }
    }
}

/// A value for people: strings without quotes, and on one line.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| text.replace('\n', "\\n"))
}

impl<S, C, W> Layer<S> for Lines<C, W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    C: Clock + 'static,
    W: Write + Send + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        // Read before the span is locked: a Debug that panics is logged, and that reads the span.
        let mut added = Fields::default();
        values.record(&mut added);
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            fields.0.extend(added.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        // From the outermost span inwards: the nearer says it better.
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.0.extend(outer.0.clone());
            }
        }
        event.record(&mut fields);
        let line = self.line(*event.metadata().level(), event.metadata().target(), fields);
        // One write a line, so that lines of threads and processes do not mix. A log that is gone stops no work.
        let _ = self.writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}

/// Fields by name, already redacted.
#[derive(Clone, Debug, Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, redact::field(field.name(), value).into_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        self.put(field, redact::field(field.name(), &text).into_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            let _ = write!(text, ": {cause}");
            source = cause.source();
        }
        self.put(field, redact::field(field.name(), &text).into_owned());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::io;
    use std::sync::Arc;

    const KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee01";

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(format: LogFormat, act: impl FnOnce()) -> String {
        let paper = Paper::default();
        let identity = Identity { role: "relayer".into(), instance: "pod-7".into() };
        let lines = Lines::new(format, identity, ManualClock::default(), paper.clone());
        tracing::subscriber::with_default(Registry::default().with(EnvFilter::new("info")).with(lines), act);
        String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_line_says_when_how_bad_what_and_who() {
        let text = written(LogFormat::Json, || {
            let span = tracing::info_span!("job", job = "j1", step = tracing::field::Empty);
            span.record("step", "sign");
            let _entered = span.enter();
            tracing::info!(event = "tx_signed_persisted", nonce = 7_u64, ok = true, role = "mine", "signed\nand kept");
            tracing::debug!("below the level");
        });
        let line: Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
        let wanted = serde_json::json!({
            "timestamp": "1970-01-01T00:00:00.000000Z", "level": "info", "message": "signed\nand kept", "event": "tx_signed_persisted",
            "role": "relayer", "instance": "pod-7", "version": env!("CARGO_PKG_VERSION"), "target": module_path!(),
            "job": "j1", "step": "sign", "nonce": 7, "ok": true, "role_": "mine",
        });
        assert_eq!(line, wanted);
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn text_for_people_is_one_line_an_event() {
        let text = written(LogFormat::Text, || tracing::warn!(event = "lock_lost", late = 3, "lost\nit"));
        assert_eq!(text, "1970-01-01T00:00:00.000000Z  WARN lost\\nit event=lock_lost late=3\n");
    }

    #[test]
    fn canary_secrets_reach_no_line_by_any_way() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        #[derive(Debug)]
        struct Url(#[allow(dead_code)] &'static str);

        for format in [LogFormat::Json, LogFormat::Text] {
            let text = written(format, || {
                let span = tracing::info_span!("call", endpoint = "https://u:c0ffee@a.example", password = "c0ffee");
                let _entered = span.enter();
                let error = Outer(io::Error::other("postgres://app:c0ffee@db refused"));
                let error: &(dyn std::error::Error + 'static) = &error;
                tracing::error!(error, "failed");
                tracing::error!(url = ?Url("redis://:c0ffee@cache"), "debug");
                tracing::error!(api_key = %"c0ffee", "display");
                tracing::error!("private key 0x{KEY}, Bearer c0ffee.c0ffee, holdfast_live_c0ffee");
            });
            assert_eq!(text.lines().count(), 4);
            assert!(text.contains("outer: postgres://***@db refused"), "{text}");
            assert!(!text.contains("c0ffee"), "{text}");
        }
    }

    #[test]
    fn a_panic_is_a_redacted_line_and_a_count() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let before = std::panic::take_hook();
        crate::telemetry::watch_panics();
        let text = written(LogFormat::Json, || {
            ::metrics::with_local_recorder(&recorder, || {
                let caught = std::panic::catch_unwind(|| panic!("no answer of redis://:{}@cache", "c0ffee"));
                assert!(caught.is_err());
            });
        });
        std::panic::set_hook(before);
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["event"], &line["message"]), (&"panic".into(), &"panicked: no answer of redis://***@cache".into()));
        assert!(line["place"].as_str().is_some_and(|place| place.contains("logs.rs:")), "{line}");
        assert!(recorder.handle().render().contains("holdfast_panics_total 1"));
    }

    #[test]
    fn a_level_that_is_no_filter_is_named_but_not_shown() {
        let settings = Log { level: "holdfast=c0ffee=1".into(), format: LogFormat::Json };
        let error = start(&settings, Identity { role: String::new(), instance: String::new() }).unwrap_err();
        assert!(error.to_string().starts_with("LOG_LEVEL: ") && !error.to_string().contains("c0ffee"), "{error}");
    }
}
