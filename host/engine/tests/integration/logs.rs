//! Captures of warnings, and of the whole log.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use hatchery_test_support::keep_events_enabled;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// Captures the warnings of this thread until it is dropped.
pub struct Warnings {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Warnings {
    pub fn capture() -> Self {
        keep_events_enabled();
        let lines = Arc::default();
        let guard = tracing::subscriber::set_default(WarningSubscriber(Arc::clone(&lines)));
        Self { lines, _guard: guard }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

struct WarningSubscriber(Arc<Mutex<Vec<String>>>);

impl Subscriber for WarningSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut MessageVisitor(&self.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct MessageVisitor<'a>(&'a Mutex<Vec<String>>);

impl Visit for MessageVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

/// Captures the log of this thread until the guard is dropped.
pub fn capture_log() -> (Arc<Mutex<Vec<u8>>>, DefaultGuard) {
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    keep_events_enabled();
    let log = Arc::new(Mutex::new(Vec::new()));
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || Log(writer.clone())).finish();
    (log, tracing::subscriber::set_default(subscriber))
}

pub fn text_of(log: &Mutex<Vec<u8>>) -> String {
    String::from_utf8(log.lock().unwrap().clone()).unwrap()
}
