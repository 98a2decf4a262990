//! What components ask the host for: settings, log lines, and answers while they describe themselves.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use hatchery_core::{ItemResolver, JsonMap};
use hatchery_wasm::{ComponentSettings, Limits};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{Lab, call};

#[tokio::test]
async fn a_component_reads_its_own_settings() {
    let greetings = json!({"de": "Guten Tag", "en": ["Hello", "Hi"]});
    let config = JsonMap::from_iter([("greetings".to_owned(), greetings.clone())]);
    let settings = ComponentSettings { config, ..ComponentSettings::default() };
    let catalog = Lab::new().with("gallery").configured("gallery", settings).catalog().await;
    assert_eq!(call(&catalog, "configured", json!({"key": "greetings"})).await.unwrap(), greetings);
    assert_eq!(call(&catalog, "configured", json!({"key": "farewells"})).await.unwrap(), json!(null));
}

#[tokio::test]
async fn a_component_does_not_see_the_settings_of_another_one() {
    let config = JsonMap::from_iter([("greetings".to_owned(), json!("Hello"))]);
    let settings = ComponentSettings { config, ..ComponentSettings::default() };
    let catalog = Lab::new().with("gallery").with("dice").configured("dice", settings).catalog().await;
    assert_eq!(call(&catalog, "configured", json!({"key": "greetings"})).await.unwrap(), json!(null));
}

#[tokio::test]
async fn a_component_that_asks_for_the_session_while_it_describes_itself_gets_an_error_and_is_loaded() {
    let catalog = Lab::new().with("gallery").catalog().await;
    assert_eq!(
        catalog.agent("gallery/curious").unwrap().description,
        "there is no session while a component describes itself"
    );
}

#[tokio::test]
async fn a_component_that_says_too_much_is_not_heard_any_more_and_goes_on() {
    let limits = Limits { log: 10 * (10 + 128), ..Limits::default() };
    let catalog = Lab::new().with("gallery").limited(limits).catalog().await;
    // Each call has a budget of its own.
    for _ in 0..2 {
        let heard = Heard::default();
        let guard = tracing::subscriber::set_default(heard.clone());
        assert_eq!(call(&catalog, "chatter", json!({"lines": 1000})).await.unwrap(), json!(1000));
        drop(guard);
        let expected: Vec<_> = (1..=10).map(|line| format!("line {line:05}")).collect();
        assert_eq!(heard.lines("hatchery::component"), expected);
        assert_eq!(
            heard.lines("hatchery_wasm::store::output"),
            [
                "further output of the component is dropped: it needs more than 1380 B of log output; raise `limits.log` in \
                 hatchery.yaml to allow more"
            ]
        );
    }
}

#[tokio::test]
async fn what_a_component_says_is_logged_with_where_it_comes_from() {
    let catalog = Lab::new().with("gallery").catalog().await;
    let heard = Heard::default();
    let guard = tracing::subscriber::set_default(heard.clone());
    assert_eq!(call(&catalog, "chatter", json!({"lines": 1})).await.unwrap(), json!(1));
    drop(guard);
    assert_eq!(heard.lines("hatchery::component"), ["line 00001", "that was all"]);
    for fields in heard.fields("hatchery::component") {
        assert!(fields.contains(r#"component="gallery" session="session" invocation="e-test""#), "{fields}");
    }
}

/// Hears what the host logs on this thread.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<Line>>>);

#[derive(Clone, Default)]
struct Line {
    target: String,
    message: String,
    /// The other fields, as `name=value` joined by spaces.
    fields: String,
}

impl Heard {
    fn of(&self, target: &str) -> Vec<Line> {
        self.0.lock().unwrap().iter().filter(|line| line.target == target).cloned().collect()
    }

    pub fn lines(&self, target: &str) -> Vec<String> {
        self.of(target).into_iter().map(|line| line.message).collect()
    }

    pub fn fields(&self, target: &str) -> Vec<String> {
        self.of(target).into_iter().map(|line| line.fields).collect()
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

impl Subscriber for Heard {
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
