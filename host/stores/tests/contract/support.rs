//! Sessions of the contract tests.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{
    Content, Event, EventActions, EventData, EventWindow, JsonMap, SessionKey, SessionService, Timestamp,
};
use hatchery_stores::quotas::QuotaSessions;
pub use hatchery_test_support::map;
use serde_json::Value;

/// Longer than any test takes.
pub const LONG: Duration = Duration::from_secs(60);

pub fn behind_quotas(sessions: impl SessionService + 'static) -> QuotaSessions {
    QuotaSessions::new(Arc::new(sessions), Arc::default())
}

pub fn event(text: &str) -> Arc<Event> {
    Event::new(EventData {
        author: "user".into(),
        content: Some(Arc::new(Content::user(text))),
        ..EventData::default()
    })
}

pub fn event_at(micros: i64) -> Arc<Event> {
    Event::new(EventData { timestamp: Timestamp::from_micros(micros), ..EventData::default() })
}

pub fn delta(state: Value) -> Arc<Event> {
    Event::new(EventData {
        actions: EventActions { state_delta: map(state), ..EventActions::default() },
        ..EventData::default()
    })
}

pub async fn create(sessions: &dyn SessionService, user: &str, id: &str) -> SessionKey {
    sessions.create("app", user, Some(id), JsonMap::new()).await.unwrap().key
}

pub async fn append(sessions: &dyn SessionService, key: &SessionKey, events: impl IntoIterator<Item = Arc<Event>>) {
    for event in events {
        sessions.append(key, &event).await.unwrap();
    }
}

pub async fn state(sessions: &dyn SessionService, key: &SessionKey) -> Value {
    let session = sessions.get(key, EventWindow::AfterRevision(u64::MAX)).await.unwrap().unwrap();
    serde_json::to_value(&session.state).unwrap()
}

pub async fn ids(sessions: &dyn SessionService, key: &SessionKey, window: EventWindow) -> Vec<String> {
    let session = sessions.get(key, window).await.unwrap().unwrap();
    session.events.iter().map(|event| event.id.clone()).collect()
}
