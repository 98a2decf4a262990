//! The audit log: a tracing layer that writes events with the target `hatchery::audit` as JSON lines to a file.
//!
//! The layer is installed when the process starts and writes nothing before [`open`]. A line is written in one write on
//! the thread of the event, which takes some 10 µs, so that a decision is written before it takes effect.

mod file;

use std::fmt::{self, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use anyhow::Context as _;
use hatchery::audit::TARGET;
use hatchery::{AuditConfig, ByteSize, Storage};
use hatchery_core::sync::MutexExt;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use file::RotatingFile;

/// Maximum size of the value of a field in bytes. Components provide many of the values.
const MAX_VALUE_BYTES: usize = 2048;

/// The open log.
static LOG: Mutex<Option<Log>> = Mutex::new(None);

struct Log {
    file: RotatingFile,
    /// True if the last line could not be written.
    is_failing: bool,
}

fn lock_log() -> MutexGuard<'static, Option<Log>> {
    LOG.lock_unpoisoned()
}

/// Writes audit events to the open log.
pub struct AuditLayer;

impl AuditLayer {
    /// Returns the layer for audit events. It is independent of `HATCHERY_LOG`.
    pub fn filtered<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
        let is_audit: FilterFn<_> = filter_fn(|metadata| metadata.target() == TARGET);
        Self.with_filter(is_audit.with_max_level_hint(LevelFilter::DEBUG))
    }
}

impl<S: Subscriber> Layer<S> for AuditLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut guard = lock_log();
        let Some(log) = guard.as_mut() else { return };
        let error = log.file.append(&format_line(event)).err();
        // Not logged by `tracing`, which would call this function again.
        if let Some(error) = error.as_ref().filter(|_| !log.is_failing) {
            anstream::eprintln!(
                "error: cannot write the audit log {}: {error}; until it can be written, audit events appear in \
                 these log lines only",
                log.file.path().display()
            );
        }
        log.is_failing = error.is_some();
    }
}

/// Opens the log at `path`. Audit events are written to it from now on.
pub fn open(path: &Path, config: &AuditConfig) -> anyhow::Result<()> {
    prepare(Some(path), config)?();
    Ok(())
}

/// Opens the log at `path`, if any. Returns a function that directs audit events to it.
pub fn prepare(path: Option<&Path>, config: &AuditConfig) -> anyhow::Result<impl FnOnce() + Send + use<>> {
    let log = path.map(|path| create(path, config)).transpose()?;
    Ok(move || *lock_log() = log)
}

fn create(path: &Path, config: &AuditConfig) -> anyhow::Result<Log> {
    let file = RotatingFile::open(path, config.max_size.bytes() as u64, config.max_backups).with_context(|| {
        format!("cannot open the audit log {}; set `audit.file` in hatchery.yaml to another file", path.display())
    })?;
    Ok(Log { file, is_failing: false })
}

/// Opens the log of a folder's server, which may be writing to it. This process adds lines and leaves it to the server
/// to rotate the file. Nothing is opened if the log is switched off.
pub fn open_beside_server(config: &AuditConfig, storage: &Storage) -> anyhow::Result<()> {
    match config.path(storage) {
        Some(path) => open(&path, &AuditConfig { max_size: ByteSize(usize::MAX), ..config.clone() }),
        None => Ok(()),
    }
}

/// Formats an event as a line of JSON: time, level, kind and fields.
fn format_line(event: &Event<'_>) -> String {
    let mut time = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let mut fields = Fields { kind: String::new(), values: Map::new() };
    event.record(&mut fields);
    let mut line = Map::new();
    line.insert("time".into(), time.into());
    line.insert("level".into(), event.metadata().level().to_string().into());
    line.insert("kind".into(), fields.kind.into());
    line.extend(fields.values);
    format!("{}\n", Value::Object(line))
}

struct Fields {
    kind: String,
    values: Map<String, Value>,
}

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        self.values.insert(field.name().into(), value);
    }

    fn insert_text(&mut self, field: &Field, text: String) {
        if field.name() == "message" {
            self.kind = text;
        } else {
            self.insert(field, text.into());
        }
    }
}

impl Visit for Fields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let mut text = TruncatedString::default();
        // Returns an error if the value is truncated.
        let _ = text.write_str(value);
        self.insert_text(field, text.0);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = TruncatedString::default();
        let _ = write!(text, "{value:?}");
        self.insert_text(field, text.0);
    }
}

/// A string that is truncated to [`MAX_VALUE_BYTES`] bytes and `…`.
#[derive(Default)]
struct TruncatedString(String);

impl Write for TruncatedString {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_VALUE_BYTES.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
        self.0.push('…');
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn audit_events_are_json_lines_whatever_the_log_level_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/audit/audit.log");
        let subscriber = tracing_subscriber::registry().with(AuditLayer::filtered());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: TARGET, "before it is open");
            open(&path, &AuditConfig::default()).unwrap();
            tracing::warn!("of another target");
            tracing::trace!(target: TARGET, "below the level");
            let (text, long) = ("two\nlines \u{1b}[2K", "ä".repeat(MAX_VALUE_BYTES));
            tracing::warn!(target: TARGET, component = "spy", action = %text, limit = 16, ok = false, detail = long, "denied");
            tracing::info!(target: TARGET, removed = ?["a"], "grants");
            *lock_log() = None;
            tracing::warn!(target: TARGET, "after it is closed");
        });
        let lines = lines(&path);
        assert_eq!(lines.len(), 2);
        let denied = &lines[0];
        assert_eq!((denied["kind"].as_str(), denied["level"].as_str()), (Some("denied"), Some("WARN")));
        assert_eq!((denied["component"].as_str(), denied["limit"].as_u64()), (Some("spy"), Some(16)));
        assert_eq!(denied["action"], "two\nlines \u{1b}[2K");
        let detail = denied["detail"].as_str().unwrap();
        assert!(detail.len() <= MAX_VALUE_BYTES + 3 && detail.ends_with("ä…"), "{}", detail.len());
        let time = denied["time"].as_str().unwrap();
        assert!(time.len() == 27 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
        assert_eq!((lines[1]["kind"].as_str(), lines[1]["removed"].as_str()), (Some("grants"), Some("[\"a\"]")));
    }
}
