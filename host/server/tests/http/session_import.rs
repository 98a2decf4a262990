//! Import of sessions with their events.

use hatchery::ServerConfig;
use hatchery_test_support::AuditCapture;
use reqwest::Method;
use serde_json::{Value, json};

use crate::sessions::SESSIONS;
use crate::support::{Host, problem, run_body};

/// A host whose operator lets clients import sessions.
pub async fn importing() -> Host {
    Host::with(ServerConfig { allow_import: true, ..ServerConfig::default() }).await
}

/// Removes the signatures of events.
fn without_proofs(events: &Value) -> Value {
    let mut events = events.clone();
    for event in events.as_array_mut().unwrap() {
        event.as_object_mut().unwrap().remove("customMetadata");
    }
    events
}

#[tokio::test]
async fn an_exported_session_can_be_imported_where_the_operator_allows_it() {
    let host = importing().await;
    host.session("says").await;
    host.post_json("/run", &run_body("says", "hello")).await;
    let exported = host.get_json(&format!("{SESSIONS}/s")).await;
    assert!(exported["events"][0]["customMetadata"]["hatchery:proof"].is_string(), "{exported}");
    let imported = host.post_json(SESSIONS, &json!({"state": exported["state"], "events": exported["events"]})).await;
    assert_ne!(imported["id"], exported["id"]);
    assert_eq!(imported["events"], without_proofs(&exported["events"]));
    assert_eq!(imported["state"], json!({"said": "hello"}));
}

#[tokio::test]
async fn an_import_does_not_overwrite_shared_state_unless_asked() {
    let host = importing().await;
    host.post_json(&format!("{SESSIONS}/mine"), &json!({"user:name": "Ada", "app:theme": "dark"})).await;
    let event = json!({"author": "says", "actions": {"stateDelta": {"app:theme": "light", "own": 2}}});
    let mut import = json!({"state": {"user:name": "Eve", "kept": 1}, "events": [event]});
    let imported = host.post_json(SESSIONS, &import).await;
    assert_eq!(imported["state"], json!({"app:theme": "dark", "kept": 1, "own": 2, "user:name": "Ada"}));
    assert_eq!(imported["events"][0]["actions"]["stateDelta"], json!({"own": 2}));
    import["overwriteSharedState"] = json!(true);
    let imported = host.post_json(SESSIONS, &import).await;
    assert_eq!(imported["state"], json!({"app:theme": "light", "kept": 1, "own": 2, "user:name": "Eve"}));
}

#[tokio::test]
async fn an_imported_event_gets_no_time_in_the_future() {
    let host = importing().await;
    let future = 4_000_000_000.0;
    let compaction = json!({"startTimestamp": 1.0, "endTimestamp": future, "compactedContent": {"parts": []}});
    let events = json!([{"author": "user", "timestamp": future, "actions": {"compaction": compaction}}]);
    let imported = host.post_json(SESSIONS, &json!({ "events": events })).await;
    let event = &imported["events"][0];
    for time in [&event["timestamp"], &event["actions"]["compaction"]["endTimestamp"]] {
        assert!(time.as_f64().unwrap() < future, "{event}");
    }
}

#[tokio::test]
async fn a_run_of_an_imported_session_is_not_resumed_even_under_its_old_id() {
    let host = importing().await;
    host.session("says").await;
    host.post_json("/run", &run_body("says", "hello")).await;
    let exported = host.get_json(&format!("{SESSIONS}/s")).await;
    let invocation = &exported["events"][0]["invocationId"];
    let resume = json!({"appName": "says", "userId": "u", "sessionId": "s", "invocationId": invocation});
    host.post_json("/run", &resume).await;
    host.request(Method::DELETE, &format!("{SESSIONS}/s")).send().await.unwrap();
    host.post_json(SESSIONS, &json!({"sessionId": "s", "events": exported["events"]})).await;
    let body = problem(host.post("/run", &resume).await, 404, "NOT_FOUND").await;
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("carries no proof that this host recorded it"), "{detail}");
}

#[tokio::test]
async fn an_import_is_rejected_unless_the_operator_allows_it() {
    let host = Host::start().await;
    let events = json!([{"author": "user"}]);
    let response = host.post(SESSIONS, &json!({"sessionId": "s", "events": events})).await;
    let body = problem(response, 403, "IMPORT_NOT_ALLOWED").await;
    assert_eq!(body["detail"], "sessions cannot be created with events");
    problem(host.get(&format!("{SESSIONS}/s")).await, 404, "SESSION_NOT_FOUND").await;
    host.post_json(SESSIONS, &json!({"sessionId": "s", "events": []})).await;
}

#[tokio::test]
async fn imports_are_in_the_audit_log() {
    let audit = AuditCapture::capture();
    let import = json!({"sessionId": "s", "events": [{"author": "user"}]});
    Host::start().await.post(SESSIONS, &import).await;
    importing().await.post_json(SESSIONS, &import).await;
    let who = r#"app="says" user="u" session="s""#;
    let lines = [
        format!("WARN message=import {who} decision=\"refused\" detail=\"1 event\""),
        format!("INFO message=import {who} decision=\"allowed\" detail=\"1 event\""),
    ];
    assert_eq!(audit.lines(), lines);
}

#[tokio::test]
async fn an_import_of_a_partial_event_leaves_nothing_behind() {
    let host = importing().await;
    let events = json!([{"author": "user"}, {"author": "says", "partial": true}]);
    let response = host.post(SESSIONS, &json!({"sessionId": "s", "events": events})).await;
    let body = problem(response, 400, "BAD_INPUT").await;
    assert_eq!(body["detail"], "events[1] is partial; only complete events can be imported");
    problem(host.get(&format!("{SESSIONS}/s")).await, 404, "SESSION_NOT_FOUND").await;
}

#[tokio::test]
async fn an_import_of_what_clients_cannot_read_is_refused() {
    let host = importing().await;
    for (key, value, problem_of_value) in [
        ("groundingMetadata", json!([null]), " is not an object"),
        ("customMetadata", json!([null]), " is not an object"),
        ("inputTranscription", json!("said"), " is not an object"),
        ("inputTranscription", json!({"text": {}}), ".text is not a string"),
        ("outputTranscription", json!({"text": "said", "finished": 1}), ".finished is not a boolean"),
    ] {
        let import = json!({"sessionId": "s", "events": [{"author": "user"}, {"author": "says", key: value}]});
        let body = problem(host.post(SESSIONS, &import).await, 400, "BAD_INPUT").await;
        assert_eq!(body["detail"], format!("events[1].{key}{problem_of_value}"));
        problem(host.get(&format!("{SESSIONS}/s")).await, 404, "SESSION_NOT_FOUND").await;
    }
}
