//! Imports of components: settings, log lines, and calls during `describe`.

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex};

use hatchery_core::{ItemResolver, JsonMap};
use hatchery_wasm::{ComponentSettings, Limits};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::support::{TestCatalog, call};

#[tokio::test]
async fn a_component_reads_its_own_settings() {
    let greetings = json!({"de": "Guten Tag", "en": ["Hello", "Hi"]});
    let config = JsonMap::from_iter([("greetings".to_owned(), greetings.clone())]);
    let settings = ComponentSettings { config, ..ComponentSettings::default() };
    let catalog = TestCatalog::new().with("gallery").with_settings("gallery", settings).catalog().await;
    assert_eq!(call(&catalog, "configured", json!({"key": "greetings"})).await.unwrap(), greetings);
    assert_eq!(call(&catalog, "configured", json!({"key": "farewells"})).await.unwrap(), json!(null));
}

#[tokio::test]
async fn a_component_does_not_see_the_settings_of_another_one() {
    let config = JsonMap::from_iter([("greetings".to_owned(), json!("Hello"))]);
    let settings = ComponentSettings { config, ..ComponentSettings::default() };
    let catalog = TestCatalog::new().with("gallery").with("dice").with_settings("dice", settings).catalog().await;
    assert_eq!(call(&catalog, "configured", json!({"key": "greetings"})).await.unwrap(), json!(null));
}

#[tokio::test]
async fn a_component_that_uses_the_session_in_describe_gets_an_error_and_is_loaded() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    assert_eq!(catalog.agent("gallery/curious").unwrap().description, "there is no session in `describe`");
}

#[tokio::test]
async fn output_beyond_the_limit_is_dropped_and_the_call_continues() {
    let limits = Limits { log: 10 * (10 + 128), ..Limits::default() };
    let catalog = TestCatalog::new().with("gallery").with_limits(limits).catalog().await;
    // Each call has its own budget.
    for _ in 0..2 {
        let log = CapturedLog::default();
        let guard = tracing::subscriber::set_default(log.clone());
        assert_eq!(call(&catalog, "chatter", json!({"lines": 1000})).await.unwrap(), json!(1000));
        drop(guard);
        let expected: Vec<_> = (1..=10).map(|line| format!("line {line:05}")).collect();
        assert_eq!(log.lines("hatchery::component"), expected);
        assert_eq!(
            log.lines("hatchery_wasm::guest_log"),
            [
                "further output of the component is dropped: it exceeded its limit of 1380 B of log output; raise `limits.log` in \
                 hatchery.yaml to allow more"
            ]
        );
    }
}

#[tokio::test]
async fn log_lines_of_a_component_have_its_name_session_and_run() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    assert_eq!(call(&catalog, "chatter", json!({"lines": 1})).await.unwrap(), json!(1));
    drop(guard);
    assert_eq!(log.lines("hatchery::component"), ["line 00001", "that was all"]);
    for fields in log.fields("hatchery::component") {
        assert!(fields.contains(r#"component="gallery" session="session" invocation="e-test""#), "{fields}");
    }
}

/// With a single subscriber, an event that a thread without one records first would be disabled for all threads.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(CapturedLog(Arc::default())));

/// Captures the log of this thread.
#[derive(Clone)]
pub struct CapturedLog(Arc<Mutex<Vec<Line>>>);

impl Default for CapturedLog {
    fn default() -> Self {
        LazyLock::force(&SECOND_SUBSCRIBER);
        Self(Arc::default())
    }
}

#[derive(Clone, Default)]
struct Line {
    target: String,
    message: String,
    /// The other fields, as `name=value` separated by spaces.
    fields: String,
}

impl CapturedLog {
    fn find(&self, target: &str) -> Vec<Line> {
        self.0.lock().unwrap().iter().filter(|line| line.target == target).cloned().collect()
    }

    pub fn lines(&self, target: &str) -> Vec<String> {
        self.find(target).into_iter().map(|line| line.message).collect()
    }

    pub fn fields(&self, target: &str) -> Vec<String> {
        self.find(target).into_iter().map(|line| line.fields).collect()
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            let gap = if self.fields.is_empty() { "" } else { " " };
            write!(self.fields, "{gap}{}={value:?}", field.name()).unwrap();
        }
    }
}

impl Subscriber for CapturedLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line { target: event.metadata().target().to_owned(), ..Line::default() };
        event.record(&mut line);
        self.0.lock().unwrap().push(line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
