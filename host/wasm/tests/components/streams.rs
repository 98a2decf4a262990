//! Event streams of custom agents: order, backpressure and author.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{AgentContext, CallContext, Event, EventSink, RunConfig, RunError};
use hatchery_models::scripted::Scripted;
use serde_json::{Value, json};

use crate::support::{TestCatalog, context_of, run_app, run_custom_in, transcript};

#[tokio::test]
async fn a_thousand_events_arrive_in_order() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let (events, error) = run_app(&catalog, "streamer", "1000", Scripted::new(), RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let expected: Vec<_> = (1..=1000).map(|number| ("streamer".to_owned(), number.to_string())).collect();
    assert_eq!(transcript(&events), expected);
}

#[tokio::test]
async fn a_guest_that_emits_forever_is_stopped_by_the_limit_of_the_run() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let config = RunConfig { max_events: 10, ..RunConfig::default() };
    let (events, error) = run_app(&catalog, "streamer", "1000000", Scripted::new(), config).await;
    assert_eq!(
        error.expect("a failure").to_string(),
        "the limit of events in one run of 10 reached by agent `streamer`; raise `max_events` to allow more"
    );
    assert_eq!(events.len(), 10 + 1);
    assert_eq!(events[10].error_code.as_deref(), Some("LIMIT_REACHED"));
}

#[tokio::test]
async fn a_failure_is_stored_also_if_the_guest_reports_it_in_a_partial_event() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    for message in ["2 broken", "2 broken partial"] {
        let (events, error) = run_app(&catalog, "streamer", message, Scripted::new(), RunConfig::default()).await;
        assert_eq!(error.expect("a failure").code(), "BROKEN");
        let stored: Vec<_> = events.iter().filter(|event| !event.partial).collect();
        let codes: Vec<_> = stored.iter().map(|event| event.error_code.as_deref()).collect();
        assert_eq!(codes, [Some("BROKEN")], "{message}");
    }
}

#[tokio::test]
async fn a_guest_waits_until_its_event_is_taken() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let call = context_of(&catalog, "1000 noted");
    let watcher = Arc::new(Watcher { call: call.clone(), seen: Mutex::default() });
    run_custom_in(&catalog, "streamer", AgentContext { call, sink: watcher.clone() }).await.unwrap();
    let seen = watcher.seen.lock().unwrap();
    assert_eq!(seen.len(), 1000);
    for (number, seen) in (1..).zip(seen.iter()) {
        assert_eq!(seen.text, number.to_string());
        assert_eq!(seen.noted, Some(json!(number)));
        assert_eq!(seen.ahead, None, "the guest continued while event {number} was held");
    }
}

#[tokio::test]
async fn a_guest_may_be_a_few_partial_events_ahead() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let call = context_of(&catalog, "1000 partial noted");
    let watcher = Arc::new(Watcher { call: call.clone(), seen: Mutex::default() });
    run_custom_in(&catalog, "streamer", AgentContext { call, sink: watcher.clone() }).await.unwrap();
    let seen = watcher.seen.lock().unwrap();
    let texts: Vec<_> = seen.iter().map(|seen| seen.text.clone()).collect();
    assert_eq!(texts, (1..=1000).map(|number| number.to_string()).collect::<Vec<_>>());
    let lead = |(number, seen): (i64, &Seen)| seen.noted.as_ref().and_then(Value::as_i64).unwrap() - number;
    let leads: Vec<_> = (1..).zip(seen.iter()).map(lead).collect();
    assert!(leads.iter().any(|lead| *lead > 0), "the guest waits for each event");
    // 16 in the queue, one that is emitted, one that the guest is about to write.
    assert!(leads.iter().all(|lead| *lead <= 18), "{leads:?}");
}

#[tokio::test]
async fn an_agent_that_emits_events_as_the_user_ends_the_run() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let (events, error) = run_app(&catalog, "forger", "hello", Scripted::new(), RunConfig::default()).await;
    assert_eq!(error.expect("a failure").code(), "AGENT_FAILED");
    assert!(events.iter().all(|event| event.author != "user"), "{:?}", transcript(&events));
}

/// Delays each event, and records how far the guest has come in the meantime.
struct Watcher {
    call: CallContext,
    seen: Mutex<Vec<Seen>>,
}

struct Seen {
    text: String,
    /// The number in the run's state when the event arrived.
    noted: Option<Value>,
    /// The number that the guest set while the event was delayed.
    ahead: Option<Value>,
}

#[async_trait]
impl EventSink for Watcher {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        let noted = self.call.state("temp:at");
        // Each yield gives a guest that does not wait the chance to continue.
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        let ahead = self.call.actions().state_delta.get("temp:at").cloned();
        let text = event.content.as_ref().map(|content| content.text()).unwrap_or_default();
        self.seen.lock().unwrap().push(Seen { text, noted, ahead });
        Ok(event)
    }
}
