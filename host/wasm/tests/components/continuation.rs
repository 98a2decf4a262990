//! Code that runs again because its run is continued: its calls of services are not repeated.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{
    CallContext, Content, EventWindow, Invocation, JsonMap, NewInvocation, RunJournal, Services, SessionKey, TurnLease,
    TurnStart, UptimeInstant,
};
use hatchery_models::scripted::Scripted;
use hatchery_wasm::Catalog;
use serde_json::{Value, json};

use crate::support::{Lab, call_in, context_in, services};

fn key() -> SessionKey {
    SessionKey::new("app", "user", "session")
}

/// Returns the context of a tool call, with what the journal of its run has of earlier attempts.
async fn attempt(catalog: &Arc<Catalog>, services: &Services, previous: Option<u64>) -> (CallContext, u64) {
    let (acquired, duration) = (UptimeInstant::now(), Duration::from_secs(60));
    let TurnStart::Begun(turn) = services.sessions.begin_turn(&key(), previous, duration).await.unwrap() else {
        panic!("another turn is in progress")
    };
    let session = services.sessions.get(&key(), EventWindow::All).await.unwrap().unwrap();
    let new = NewInvocation::new(session, services.clone());
    let lease = TurnLease::new(services.sessions.clone(), key(), turn.fence, (acquired, duration), new.cancel.clone());
    let lease = Arc::new(lease);
    let journal = Arc::new(RunJournal::new(lease.clone(), "e-test"));
    assert!(journal.load().await.unwrap(), "the run has not finished");
    let (invocation, _writer) = Invocation::new(NewInvocation {
        id: "e-test".into(),
        user_content: Arc::new(Content::user("hello")),
        lease: Some(lease),
        journal: Some(journal),
        ..new
    });
    (context_in(catalog, invocation).with_idempotency_key(Some("call")), turn.fence)
}

/// Creates two sessions, one of them with a new id, and appends the same event to one of them twice.
async fn work(cx: &CallContext, catalog: &Catalog) -> Vec<Value> {
    let order = |what: &str, id: &str| json!({"what": what, "app": "night_watch", "id": id, "state": "lamp"});
    let mut results = Vec::new();
    for order in [order("create", "s1"), order("create", ""), order("append", "s1"), order("append", "s1")] {
        results.push(call_in(cx, catalog, "sessions", order).await.unwrap());
    }
    results
}

#[tokio::test]
async fn sessions_are_not_created_and_events_not_appended_again() {
    let grants = json!({"sessions": {"write": ["night_watch"]}});
    let catalog = Lab::new().with("services").with_grants("services", grants).catalog().await;
    let services = services(Scripted::new());
    services.sessions.create("app", "user", Some("session"), JsonMap::new()).await.unwrap();
    let (cx, fence) = attempt(&catalog, &services, None).await;
    let first = work(&cx, &catalog).await;
    let (cx, _) = attempt(&catalog, &services, Some(fence)).await;
    let again = work(&cx, &catalog).await;
    assert_eq!(first[1]["id"], again[1]["id"]);
    assert_eq!(first[2..], again[2..]);
    let watch = SessionKey::new("night_watch", "user", "s1");
    let stored = services.sessions.get(&watch, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(stored.events.len(), 2, "two calls with the same arguments are two events");
    assert_eq!(services.sessions.list("night_watch", "user").await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_call_that_was_interrupted_is_made_once() {
    let grants = json!({"sessions": {"write": ["night_watch"]}});
    let catalog = Lab::new().with("services").with_grants("services", grants).catalog().await;
    let services = services(Scripted::new());
    services.sessions.create("app", "user", Some("session"), JsonMap::new()).await.unwrap();
    let (cx, fence) = attempt(&catalog, &services, None).await;
    let first = work(&cx, &catalog).await;
    // As if the host had died before it recorded the results.
    let journal = services.sessions.journal().unwrap();
    for mut record in journal.read(&key(), "e-test").await.unwrap().unwrap() {
        record.outcome = None;
        journal.record(&key(), "e-test", fence, &record).await.unwrap();
    }
    let (cx, _) = attempt(&catalog, &services, Some(fence)).await;
    let again = work(&cx, &catalog).await;
    assert_eq!((&first[0]["id"], &first[2..]), (&again[0]["id"], &again[2..]));
    let watch = SessionKey::new("night_watch", "user", "s1");
    let stored = services.sessions.get(&watch, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(stored.events.len(), 2);
}
