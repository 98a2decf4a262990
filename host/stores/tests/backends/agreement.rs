//! The session services agree: after any sequence of operations they hold the same sessions.

use std::sync::Arc;

use hatchery_core::{
    Event, EventActions, EventData, EventWindow, JsonMap, Session, SessionKey, SessionService, StoreError, Timestamp,
};
use hatchery_stores::{MemorySessions, SqliteSessions};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

#[derive(Debug, Clone)]
enum Operation {
    Create(SessionKey, JsonMap),
    Append(SessionKey, Arc<Event>),
    Delete(SessionKey),
}

fn key() -> impl Strategy<Value = SessionKey> {
    (0..2, 0..2, 0..3)
        .prop_map(|(app, user, id)| SessionKey::new(format!("app{app}"), format!("user{user}"), format!("id{id}")))
}

fn state() -> impl Strategy<Value = JsonMap> {
    let name = proptest::sample::select(vec!["a", "b", "app:a", "app:b", "user:a", "user:b", "temp:a", ":", "App:a"]);
    let value = prop_oneof![
        any::<i64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        Just(Value::Null),
        Just(json!("__ADK_SENTINEL_REMOVED__")),
        Just(json!({"nested": [1, null]})),
    ];
    btree_map(name.prop_map(String::from), value, 0..4).prop_map(|map| map.into_iter().collect())
}

fn event() -> impl Strategy<Value = Arc<Event>> {
    (state(), 1..1000_i64).prop_map(|(state_delta, micros)| {
        Event::new(EventData {
            actions: EventActions { state_delta, ..EventActions::default() },
            timestamp: Timestamp::from_micros(micros),
            ..EventData::default()
        })
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => (key(), state()).prop_map(|(key, state)| Operation::Create(key, state)),
        5 => (key(), event()).prop_map(|(key, event)| Operation::Append(key, event)),
        1 => key().prop_map(Operation::Delete),
    ]
}

/// The result of an operation, without times of creation.
#[derive(Debug, PartialEq)]
enum Outcome {
    Created(Value),
    Revision(u64),
    Deleted,
    Exists,
    NotFound,
}

async fn perform(sessions: &dyn SessionService, operation: &Operation) -> Outcome {
    let outcome = match operation {
        Operation::Create(key, state) => sessions
            .create(&key.app, &key.user, Some(&key.id), state.clone())
            .await
            .map(|session| Outcome::Created(comparable(&session))),
        Operation::Append(key, event) => sessions.append(key, event).await.map(Outcome::Revision),
        Operation::Delete(key) => sessions.delete(key).await.map(|()| Outcome::Deleted),
    };
    outcome.unwrap_or_else(|error| match error {
        StoreError::SessionExists(_) => Outcome::Exists,
        StoreError::SessionNotFound(_) => Outcome::NotFound,
        other => panic!("{operation:?}: {other}"),
    })
}

fn comparable(session: &Session) -> Value {
    let mut json = serde_json::to_value(session).unwrap();
    json["revision"] = session.revision.into();
    if session.revision == 0 {
        assert_eq!(session.last_update_time, session.created);
        json["lastUpdateTime"] = Value::Null;
    }
    json
}

/// All sessions, read in every way.
async fn contents(sessions: &dyn SessionService) -> Vec<Value> {
    let mut contents = Vec::new();
    for (app, user) in [("app0", "user0"), ("app0", "user1"), ("app1", "user0"), ("app1", "user1")] {
        contents.extend(sessions.list(app, user).await.unwrap().iter().map(comparable));
        for id in ["id0", "id1", "id2"] {
            for window in [
                EventWindow::All,
                EventWindow::Recent(2),
                EventWindow::Since(Timestamp::from_micros(500)),
                EventWindow::AfterRevision(3),
            ] {
                let session = sessions.get(&SessionKey::new(app, user, id), window).await.unwrap();
                contents.push(session.as_ref().map_or(Value::Null, comparable));
            }
        }
    }
    contents
}

async fn compare(operations: &[Operation]) {
    let folder = tempfile::tempdir().unwrap();
    let memory = MemorySessions::new();
    let sqlite = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
    for operation in operations {
        assert_eq!(perform(&memory, operation).await, perform(&sqlite, operation).await, "{operation:?}");
    }
    assert_eq!(contents(&memory).await, contents(&sqlite).await);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_leads_to_the_same_sessions(operations in vec(operation(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(compare(&operations));
    }
}
