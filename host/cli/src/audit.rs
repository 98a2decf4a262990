//! The audit log: events of the target `hatchery::audit` as JSON lines in a file of the host's user.
//!
//! The layer is there from the start of the process and writes nothing before [`open`]. A line is written whole, at once and on the thread
//! of the event, so that what has been decided is on its way to the disk when the decision takes effect; that costs some 10 µs.

pub mod changes;
mod file;

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use hatchery::audit::TARGET;
use hatchery::{AuditConfig, Storage};
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

/// The most bytes of a field's value. Much of what is audited comes from components.
const MAX_VALUE: usize = 2048;

/// The log that is open, and whether the last line could be written.
static LOG: Mutex<Option<Log>> = Mutex::new(None);

struct Log {
    file: RotatingFile,
    is_failing: bool,
}

fn log() -> MutexGuard<'static, Option<Log>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes events into the log that is open.
pub struct AuditLayer;

impl AuditLayer {
    /// The layer, for events of the audit's target only, whatever `HATCHERY_LOG` says.
    pub fn filtered<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
        let is_audit: FilterFn<_> = filter_fn(|metadata| metadata.target() == TARGET);
        Self.with_filter(is_audit.with_max_level_hint(LevelFilter::INFO))
    }
}

impl<S: Subscriber> Layer<S> for AuditLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut open = log();
        let Some(log) = open.as_mut() else { return };
        let failed = log.file.append(&line(event)).err();
        // An event here would come back to this very place.
        if let Some(error) = failed.as_ref().filter(|_| !log.is_failing) {
            anstream::eprintln!("error: audit log {}: {error}; events go to this log only", log.file.path().display());
        }
        log.is_failing = failed.is_some();
    }
}

/// Where the log of a host is kept that has its data in `storage`. `None` if none is.
pub fn place(config: &AuditConfig, storage: &Storage) -> Option<PathBuf> {
    let in_storage = || match storage {
        Storage::Directory(folder) => Some(folder.join("audit").join("audit.log")),
        Storage::InMemory => None,
    };
    config.file.clone().or_else(in_storage).filter(|_| config.enabled)
}

/// Begins to write events into `path`.
pub fn open(path: &Path, config: &AuditConfig) -> anyhow::Result<()> {
    let file = RotatingFile::open(path, config.max_size.bytes() as u64, config.keep).with_context(|| {
        format!("audit log {}: choose another place with `audit.file` in hatchery.yaml", path.display())
    })?;
    *log() = Some(Log { file, is_failing: false });
    Ok(())
}

/// An event as a line of JSON: when, how grave, what kind, and its fields.
fn line(event: &Event<'_>) -> String {
    let mut time = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let mut fields = Fields { kind: String::new(), rest: Map::new() };
    event.record(&mut fields);
    let mut line = Map::new();
    line.insert("time".into(), time.into());
    line.insert("level".into(), event.metadata().level().to_string().into());
    line.insert("kind".into(), fields.kind.into());
    line.extend(fields.rest);
    format!("{}\n", Value::Object(line))
}

struct Fields {
    kind: String,
    rest: Map<String, Value>,
}

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        self.rest.insert(field.name().into(), value);
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
        let mut text = Bounded::default();
        // It ends with an error when there is no more room.
        let _ = text.write_str(value);
        self.insert_text(field, text.0);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = Bounded::default();
        let _ = write!(text, "{value:?}");
        self.insert_text(field, text.0);
    }
}

/// At most [`MAX_VALUE`] bytes, and then `…`.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_VALUE.saturating_sub(self.0.len());
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
    fn events_of_the_audit_are_lines_of_json_whatever_else_is_logged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/audit/audit.log");
        let subscriber = tracing_subscriber::registry().with(AuditLayer::filtered());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: TARGET, "before it is open");
            open(&path, &AuditConfig::default()).unwrap();
            tracing::warn!("of another target");
            tracing::debug!(target: TARGET, "too small");
            let (text, long) = ("two\nlines \u{1b}[2K", "ä".repeat(MAX_VALUE));
            tracing::warn!(target: TARGET, component = "spy", action = %text, limit = 16, ok = false, detail = long, "denied");
            tracing::info!(target: TARGET, removed = ?["a"], "grants");
            *log() = None;
            tracing::warn!(target: TARGET, "after it is closed");
        });
        let lines = lines(&path);
        assert_eq!(lines.len(), 2);
        let denied = &lines[0];
        assert_eq!((denied["kind"].as_str(), denied["level"].as_str()), (Some("denied"), Some("WARN")));
        assert_eq!((denied["component"].as_str(), denied["limit"].as_u64()), (Some("spy"), Some(16)));
        assert_eq!(denied["action"], "two\nlines \u{1b}[2K");
        let detail = denied["detail"].as_str().unwrap();
        assert!(detail.len() <= MAX_VALUE + 3 && detail.ends_with("ä…"), "{}", detail.len());
        let time = denied["time"].as_str().unwrap();
        assert!(time.len() == 27 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
        assert_eq!((lines[1]["kind"].as_str(), lines[1]["removed"].as_str()), (Some("grants"), Some("[\"a\"]")));
    }

    #[test]
    fn the_log_is_with_the_data_unless_told_otherwise() {
        let data = Storage::Directory("/data".into());
        let config = AuditConfig::default();
        assert_eq!(place(&config, &data), Some("/data/audit/audit.log".into()));
        assert_eq!(place(&config, &Storage::InMemory), None);
        let elsewhere = AuditConfig { file: Some("/var/log/audit.log".into()), ..config.clone() };
        assert_eq!(place(&elsewhere, &Storage::InMemory), elsewhere.file);
        assert_eq!(place(&AuditConfig { enabled: false, ..elsewhere }, &data), None);
    }
}
