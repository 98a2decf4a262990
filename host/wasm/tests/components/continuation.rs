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

use crate::support::{TestCatalog, call_in, context_in, services};
use crate::web::Web;

fn key() -> SessionKey {
    SessionKey::new("app", "user", "session")
}

/// Returns the context of a tool call, with the journal of earlier attempts of its run.
async fn attempt(catalog: &Arc<Catalog>, services: &Services, previous: Option<u64>) -> (CallContext, u64) {
    let (acquired, duration) = (UptimeInstant::now(), Duration::from_secs(60));
    let TurnStart::Begun(turn) = services.sessions.begin_turn(&key(), previous, duration).await.unwrap() else {
        panic!("another turn is in progress")
    };
    let session = services.sessions.get(&key(), EventWindow::All).await.unwrap().unwrap();
    let new = NewInvocation::new(session, services.clone());
    let lease = TurnLease::new(services.sessions.clone(), key(), turn.fence, acquired, duration, new.cancel.clone());
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
    (context_in(catalog, invocation).with_call_key(Some("call")), turn.fence)
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
    let catalog = TestCatalog::new().with("services").with_grants("services", grants).catalog().await;
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
    let catalog = TestCatalog::new().with("services").with_grants("services", grants).catalog().await;
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

/// Sends a request with a component, and returns the `Idempotency-Key` that the server has got.
async fn key_of_request(cx: &CallContext, catalog: &Catalog, web: &Web, request: Value) -> Option<String> {
    let before = web.seen("idempotency-key").len();
    let answer = call_in(cx, catalog, "fetch", request).await.unwrap();
    assert_eq!(answer["status"], 200, "{answer}");
    web.seen("idempotency-key").get(before).cloned()
}

#[tokio::test]
async fn requests_of_a_repeated_call_have_the_idempotency_keys_of_the_first_attempt() {
    let web = Web::start().await;
    let (host, other) = (web.host(), format!("localhost:{}", web.port()));
    let grants = json!({
        "network": [format!("http://{host}"), format!("http://{other}")], "private_network": [host, other],
        "idempotency_keys": [format!("http://{host}")],
    });
    let catalog = TestCatalog::new().with("browser").with_grants("browser", grants).catalog().await;
    let services = services(Scripted::new());
    services.sessions.create("app", "user", Some("session"), JsonMap::new()).await.unwrap();
    let post = |path: &str| json!({"method": "POST", "url": web.url(path)});
    let mut attempts = Vec::new();
    let mut previous = None;
    for _ in 0..2 {
        let (cx, fence) = attempt(&catalog, &services, previous).await;
        previous = Some(fence);
        let mut keys = Vec::new();
        for request in
            [post("/echo"), post("/echo"), post("/echo?q=1"), json!({"method": "PUT", "url": web.url("/echo")})]
        {
            keys.push(key_of_request(&cx, &catalog, &web, request).await.expect("a key"));
        }
        let call = cx.idempotency_key().unwrap();
        assert!(keys.iter().all(|key| key.starts_with(&format!("{call}-"))), "{call}: {keys:?}");
        assert!(keys[0].ends_with("-1") && keys[1].ends_with("-2") && keys[2].ends_with("-1"), "{keys:?}");
        attempts.push(keys);
        // These get none of the host.
        assert_eq!(key_of_request(&cx, &catalog, &web, json!({"url": web.url("/echo")})).await, None, "GET");
        let elsewhere = json!({"method": "POST", "url": format!("http://{other}/echo")});
        assert_eq!(key_of_request(&cx, &catalog, &web, elsewhere).await, None, "a host without the grant");
        let mut own = post("/echo");
        own["headers"] = json!([["Idempotency-Key", "mine"]]);
        assert_eq!(key_of_request(&cx, &catalog, &web, own).await.as_deref(), Some("mine"));
        let uncalled = cx.clone().with_call_key(None::<String>);
        assert_eq!(key_of_request(&uncalled, &catalog, &web, post("/echo")).await, None, "no tool call");
    }
    assert_eq!(attempts[0], attempts[1]);
    assert_eq!(attempts[0].iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{attempts:?}");
}

#[tokio::test]
async fn requests_get_no_idempotency_key_without_the_grant() {
    let web = Web::start().await;
    let grants = json!({"network": [format!("http://{}", web.host())], "private_network": [web.host()]});
    let catalog = TestCatalog::new().with("browser").with_grants("browser", grants).catalog().await;
    let services = services(Scripted::new());
    services.sessions.create("app", "user", Some("session"), JsonMap::new()).await.unwrap();
    let (cx, _) = attempt(&catalog, &services, None).await;
    let post = json!({"method": "POST", "url": web.url("/echo")});
    assert_eq!(key_of_request(&cx, &catalog, &web, post).await, None);
}
