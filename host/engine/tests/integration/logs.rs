//! Captures log events while a test runs.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};

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
        let lines = Arc::default();
        let guard = tracing::subscriber::set_default(Listener(Arc::clone(&lines)));
        Self { lines, _guard: guard }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

struct Listener(Arc<Mutex<Vec<String>>>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&self.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a Mutex<Vec<String>>);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

/// Captures the audit events of this thread until it is dropped, as one line of fields per event.
pub struct Audit(Lines);

type Lines = Arc<Mutex<Vec<String>>>;

thread_local! {
    static LINES: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

impl Audit {
    pub fn capture() -> Self {
        // One listener for all threads, because callsites cache which subscribers want them.
        static LISTEN: Once = Once::new();
        LISTEN.call_once(|| tracing::subscriber::set_global_default(AuditListener).unwrap());
        let lines = Lines::default();
        LINES.set(Some(lines.clone()));
        Self(lines)
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        LINES.set(None);
    }
}

struct AuditListener;

impl Subscriber for AuditListener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "hatchery::audit"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = AuditLine(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.with_borrow(|lines| lines.iter().for_each(|lines| lines.lock().unwrap().push(line.0.clone())));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct AuditLine(String);

impl Visit for AuditLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "invocation" => {}
            name => self.0.push_str(&format!(" {name}={value:?}")),
        }
    }
}
