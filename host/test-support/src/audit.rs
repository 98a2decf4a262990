//! A capture of the audit log.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::keep_events_enabled;

/// Captures the audit events of this thread until it is dropped, one line per event: the level and the fields, without
/// the invocation.
pub struct AuditCapture(Lines);

type Lines = Arc<Mutex<Vec<String>>>;

thread_local! {
    static LINES: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

impl AuditCapture {
    /// Starts the capture.
    pub fn capture() -> Self {
        // One subscriber for all threads, because callsites cache the interest of subscribers.
        static SUBSCRIBE: Once = Once::new();
        SUBSCRIBE.call_once(|| {
            keep_events_enabled();
            tracing::subscriber::set_global_default(AuditSubscriber).unwrap();
        });
        let lines = Lines::default();
        LINES.set(Some(lines.clone()));
        Self(lines)
    }

    /// Returns the lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Drop for AuditCapture {
    fn drop(&mut self) {
        LINES.set(None);
    }
}

struct AuditSubscriber;

impl Subscriber for AuditSubscriber {
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
