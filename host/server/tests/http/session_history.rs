//! Routes that rewind, fork and import sessions.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery::ServerConfig;
use hatchery_core::{Event, EventWindow, SessionKey, SessionService, StoreError, WrapperSessionService};
use hatchery_stores::MemorySessions;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::{Host, TIMEOUT, post_bytes, problem, run_body, wait_for};

const SESSION: &str = "/apps/says/users/u/sessions/s";

/// A host that lets clients import sessions, with a session of two turns.
async fn host() -> (Host, Value) {
    let host = Host::with(ServerConfig { allow_import: true, ..ServerConfig::default() }).await;
    host.session("says").await;
    for text in ["hello", "bye"] {
        host.post_json("/run", &run_body("says", text)).await;
    }
    let session = host.get_json(SESSION).await;
    (host, session)
}

fn ids(session: &Value) -> Vec<&str> {
    session["events"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_session_is_rewound_to_an_event_right_after_a_run_and_continues_there() {
    let (host, session) = host().await;
    let all = ids(&session);
    let kept = all.len() / 2;
    assert_eq!(session["state"], json!({"said": "bye"}));
    let rewound = host.post_json(&format!("{SESSION}/rewind"), &json!({"eventId": all[kept - 1]})).await;
    assert_eq!((ids(&rewound), &rewound["state"]), (all[..kept].to_vec(), &json!({"said": "hello"})));
    host.post_json("/run", &run_body("says", "again")).await;
    let continued = host.get_json(SESSION).await;
    assert_eq!((ids(&continued).len(), &continued["state"]), (all.len(), &json!({"said": "again"})));
    assert_eq!(ids(&continued)[..kept], all[..kept]);
    let empty = host.post_json(&format!("{SESSION}/rewind"), &json!({"revision": 0})).await;
    assert_eq!((&empty["events"], &empty["state"]), (&json!([]), &json!({})));
}

#[tokio::test]
async fn a_session_is_forked_at_an_event_or_at_its_end() {
    let (host, session) = host().await;
    let all = ids(&session);
    let fork = host.post_json(&format!("{SESSION}/fork"), &json!({"eventId": all[0], "sessionId": "early"})).await;
    assert_eq!((&fork["id"], ids(&fork)), (&json!("early"), all[..1].to_vec()));
    let whole = host.request(Method::POST, &format!("{SESSION}/fork")).send().await.unwrap();
    let whole: Value = whole.json().await.unwrap();
    assert_eq!((ids(&whole), &whole["state"]), (all.clone(), &session["state"]));
    assert_eq!(host.get_json(SESSION).await, session, "the session stays as it is");
    problem(host.post(&format!("{SESSION}/fork"), &json!({"sessionId": "early"})).await, 409, "SESSION_EXISTS").await;
}

#[tokio::test]
async fn an_event_that_a_session_does_not_have_is_an_error() {
    let (host, session) = host().await;
    let too_late = format!("the session has {} events, so there is no event 99", ids(&session).len());
    for route in ["rewind", "fork"] {
        for (body, start) in [
            (json!({"eventId": "none"}), "the session has no event `none`: name one of its events"),
            (json!({"revision": 99}), too_late.as_str()),
        ] {
            let error = problem(host.post(&format!("{SESSION}/{route}"), &body).await, 400, "REFUSED").await;
            assert!(error["detail"].as_str().unwrap().starts_with(start), "{error}");
        }
        let both = json!({"eventId": "x", "revision": 1});
        problem(host.post(&format!("{SESSION}/{route}"), &both).await, 400, "BAD_INPUT").await;
        let unknown = host.post(&format!("/apps/says/users/u/sessions/none/{route}"), &json!({"revision": 0})).await;
        problem(unknown, 404, "SESSION_NOT_FOUND").await;
    }
    problem(host.post(&format!("{SESSION}/rewind"), &json!({})).await, 400, "BAD_INPUT").await;
    assert_eq!(host.get_json(SESSION).await, session);
}

#[tokio::test]
async fn an_export_is_imported_with_the_state_of_each_event() {
    let (host, mut exported) = host().await;
    for event in exported["events"].as_array_mut().unwrap() {
        event.as_object_mut().unwrap().remove("customMetadata");
    }
    let copy = "/apps/says/users/u/sessions/copy";
    let imported = host.post_json(&format!("{copy}/import"), &exported).await;
    assert_eq!((&imported["id"], &imported["events"]), (&json!("copy"), &exported["events"]));
    assert_eq!(imported["state"], exported["state"]);
    let half = ids(&exported).len() / 2;
    let rewound = host.post_json(&format!("{copy}/rewind"), &json!({ "revision": half })).await;
    assert_eq!(rewound["state"], json!({"said": "hello"}));
    problem(host.post(&format!("{copy}/import"), &exported).await, 409, "SESSION_EXISTS").await;

    let strict = Host::start().await;
    problem(strict.post(&format!("{copy}/import"), &exported).await, 403, "IMPORT_NOT_ALLOWED").await;
}

#[tokio::test]
async fn an_export_of_adk_for_java_is_imported_with_its_times_and_metadata() {
    let (host, _) = host().await;
    let metadata = json!([
        {"key": "name", "stringValue": "ada"},
        {"key": "age", "numericValue": 36.5, "stringValue": null},
        {"key": "tags", "stringListValue": {"values": ["a", "b"]}},
        {"key": "none"},
    ]);
    let no_actions =
        json!({"stateDelta": {}, "artifactDelta": {}, "requestedAuthConfigs": {}, "requestedToolConfirmations": {}});
    let event = |author: &str, millis: u64, metadata: Value| {
        let content = json!({"role": "user", "parts": [{"text": author}]});
        json!({"author": author, "content": content, "actions": no_actions, "customMetadata": metadata, "timestamp": millis})
    };
    let events = [event("user", 1_700_000_000_123, json!([])), event("says", 1_700_000_000_456, metadata)];
    let exported = json!({"id": "s", "appName": "says", "userId": "u", "state": {}, "events": events, "lastUpdateTime": 1_700_000_000.456});
    let imported = host.post_json("/apps/says/users/u/sessions/java/import", &exported).await;
    let [first, second] = [0_usize, 1].map(|index| &imported["events"][index]);
    assert_eq!((&first["timestamp"], first.get("customMetadata")), (&json!(1_700_000_000.123), None));
    assert_eq!(second["customMetadata"], json!({"name": "ada", "age": 36.5, "tags": ["a", "b"], "none": null}));
    assert_eq!(imported["lastUpdateTime"], json!(1_700_000_000.456));
}

/// Waits for a permit before each event is stored.
struct HeldAppends {
    inner: MemorySessions,
    entered: Semaphore,
    leave: Semaphore,
}

#[async_trait]
impl WrapperSessionService for HeldAppends {
    fn inner(&self) -> &dyn SessionService {
        &self.inner
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        self.entered.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
        self.inner.append_with(key, event, fence).await
    }
}

#[tokio::test]
async fn an_import_is_completed_if_its_client_goes_away() {
    let (inner, entered, leave) = (MemorySessions::new(), Semaphore::new(0), Semaphore::new(0));
    let sessions = Arc::new(HeldAppends { inner, entered, leave });
    let host = Host::with_sessions(sessions.clone()).await;
    host.state.prepare(ServerConfig { allow_import: true, ..ServerConfig::default() }, false).unwrap()();
    let event = |text: &str| json!({"author": "user", "content": {"role": "user", "parts": [{"text": text}]}});
    let body = json!({"events": [event("one"), event("two")]});
    let client = host.connect(&post_bytes(&format!("{SESSION}/import"), &body)).await;
    wait_for(&sessions.entered).await;
    drop(client);
    // Lets the server notice that.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    sessions.leave.add_permits(2);
    let key = SessionKey::new("says", "u", "s");
    let completed = async {
        loop {
            let session = host.services.sessions.get(&key, EventWindow::All).await.unwrap();
            if session.is_some_and(|session| session.events.len() == 2) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, completed).await.expect("the session has only a part of the events");
}
