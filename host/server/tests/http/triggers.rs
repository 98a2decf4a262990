//! Triggers: messages of Pub/Sub and CloudEvents that start runs.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use hatchery::{ServerConfig, TriggerSource};
use hatchery_core::{
    Agent, AgentContext, AgentKind, CustomAgent, CustomAgentSpec, ModelError, ModelErrorKind, RunError, Services,
    SessionKey, SessionService, StoreError, WrapperSessionService,
};
use hatchery_engine::{App, Runner};
use hatchery_server::{AppState, Server};
use hatchery_stores::MemorySessions;
use hatchery_test_support::services;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;

use crate::auth::{OPERATOR, USER, keys};
use crate::support::{FakeSource, Host, client, post_bytes, problem, success, wait_for};

const PUBSUB: &str = "/apps/says/trigger/pubsub";
const EVENTARC: &str = "/apps/says/trigger/eventarc";
const SUBSCRIPTION: &str = "projects/p/subscriptions/orders";
/// The user of runs of this subscription.
const SUBSCRIBER: &str = "projects--p--subscriptions--orders";

fn enabled() -> ServerConfig {
    let triggers = vec![TriggerSource::Pubsub, TriggerSource::Eventarc];
    ServerConfig { triggers, trigger_retry_delay: Duration::from_millis(1), ..ServerConfig::default() }
}

/// Returns a message as Pub/Sub sends it.
fn message(data: &[u8]) -> Value {
    let message = json!({
        "data": STANDARD.encode(data), "attributes": {"kind": "new"}, "messageId": "7", "message_id": "7",
        "publishTime": "2026-01-02T03:04:05Z", "publish_time": "2026-01-02T03:04:05Z",
    });
    json!({"message": message, "subscription": SUBSCRIPTION, "deliveryAttempt": 1})
}

/// Returns the only session of a user.
async fn session(host: &Host, app: &str, user: &str) -> Value {
    let sessions = host.get_json(&format!("/apps/{app}/users/{user}/sessions")).await;
    let [session] = sessions.as_array().unwrap().as_slice() else { panic!("{sessions}") };
    host.get_json(&format!("/apps/{app}/users/{user}/sessions/{}", session["id"].as_str().unwrap())).await
}

/// Returns the user's message of a session, as JSON.
fn received(session: &Value) -> Value {
    serde_json::from_str(session["events"][0]["content"]["parts"][0]["text"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_message_of_pubsub_is_the_users_message_of_a_new_session() {
    let host = Host::with(enabled()).await;
    let answer = host.post_json(PUBSUB, &message(br#"{"order": 10000000000000000000001}"#)).await;
    assert_eq!(answer, json!({"status": "success"}));
    let session = session(&host, "says", SUBSCRIBER).await;
    let text = r#"{"data":{"order": 10000000000000000000001},"attributes":{"kind":"new"}}"#;
    assert_eq!(session["events"][0]["content"], json!({"role": "user", "parts": [{"text": text}]}));
    assert_eq!(session["events"][1]["content"]["parts"][0]["text"], format!("You said: {text}"));
    let delivery = json!({
        "source": "pubsub", "id": "7", "subscription": SUBSCRIPTION, "publish_time": "2026-01-02T03:04:05Z",
    });
    assert_eq!(session["state"]["trigger_delivery"], delivery);
}

#[tokio::test]
async fn data_that_are_not_json_are_a_text() {
    for (data, expected) in [
        (json!(STANDARD.encode("two \"eggs\"\n")), json!("two \"eggs\"\n")),
        (json!(STANDARD.encode("7")), json!(7)),
        (json!(STANDARD.encode("{\"a\": 1} x")), json!("{\"a\": 1} x")),
        (json!(""), Value::Null),
        (Value::Null, Value::Null),
    ] {
        let host = Host::with(enabled()).await;
        host.post_json(PUBSUB, &json!({"message": {"data": data}, "subscription": ""})).await;
        let session = session(&host, "says", "pubsub-caller").await;
        assert_eq!(received(&session), json!({"data": expected, "attributes": {}}), "{data}");
    }
}

#[tokio::test]
async fn a_malformed_message_starts_no_run() {
    let host = Host::with(enabled()).await;
    let binary = STANDARD.encode([0xff, 0xfe]);
    for (data, reason) in [("%%%", "`message.data` is not Base64"), (&*binary, "`message.data` is not text in UTF-8")] {
        let answer = host.post(PUBSUB, &json!({"message": {"data": data}})).await;
        let detail = problem(answer, 400, "BAD_INPUT").await["detail"].clone();
        assert!(detail.as_str().unwrap().starts_with(reason), "{detail}");
    }
    for path in [PUBSUB, EVENTARC] {
        let request = host.request(Method::POST, path).header("content-type", "application/json");
        problem(request.body("{\"message\": ").send().await.unwrap(), 400, "MALFORMED_JSON").await;
        problem(host.post(path, &json!([])).await, 422, "INVALID_REQUEST").await;
    }
    problem(host.post(PUBSUB, &json!({"subscription": SUBSCRIPTION})).await, 422, "INVALID_REQUEST").await;
    problem(host.post(PUBSUB, &json!({"message": {}, "subscription": "A2A_PUSH"})).await, 404, "USER_RESERVED").await;
    let long = json!({"message": {}, "subscription": "x".repeat(257)});
    problem(host.post(PUBSUB, &long).await, 400, "INVALID_NAME").await;
    for user in ["pubsub-caller", "eventarc-caller", SUBSCRIBER] {
        assert_eq!(host.get_json(&format!("/apps/says/users/{user}/sessions")).await, json!([]));
    }
}

/// Sends an event with these headers, and returns the session of its run.
async fn event(headers: &[(&'static str, &str)], body: Value, user: &str) -> Value {
    let host = Host::with(enabled()).await;
    let request = host.request(Method::POST, EVENTARC);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    assert_eq!(success(request.json(&body).send().await.unwrap()).await, json!({"status": "success"}));
    session(&host, "says", user).await
}

#[tokio::test]
async fn a_cloud_event_in_the_body_is_its_data_and_attributes() {
    let body = json!({"specversion": "1.0", "id": "e1", "type": "sold", "source": "//shop/a/", "data": {"pears": 2}});
    let session = event(&[("content-type", "application/cloudevents+json")], body, "shop--a").await;
    let attributes = json!({"ce-id": "e1", "ce-type": "sold", "ce-source": "//shop/a/", "ce-specversion": "1.0"});
    assert_eq!(received(&session), json!({"data": {"pears": 2}, "attributes": attributes}));
    let delivery = json!({"source": "eventarc", "id": "e1", "event_source": "//shop/a/", "type": "sold"});
    assert_eq!(session["state"]["trigger_delivery"], delivery);
}

#[tokio::test]
async fn a_cloud_event_in_headers_has_the_whole_body_as_its_data() {
    let headers = [("ce-specversion", "1.0"), ("ce-id", "e1"), ("ce-type", "stored"), ("ce-source", "//storage/b")];
    let file = json!({"id": "b/menu.pdf/1", "name": "menu.pdf"});
    let session = event(&headers, file.clone(), "storage--b").await;
    let attributes = json!({"ce-id": "e1", "ce-type": "stored", "ce-source": "//storage/b", "ce-specversion": "1.0"});
    assert_eq!(received(&session), json!({"data": file, "attributes": attributes}));
    assert_eq!(session["state"]["trigger_delivery"]["id"], "e1");
}

#[tokio::test]
async fn a_cloud_event_with_a_message_of_pubsub_is_that_message() {
    let message = message(b"{\"order\":1}");
    let expected = json!({"data": {"order": 1}, "attributes": {"kind": "new"}});
    let in_body = event(&[("ce-source", "//pubsub/t")], message.clone(), "pubsub--t").await;
    assert_eq!((received(&in_body), &in_body["state"]["trigger_delivery"]["id"]), (expected.clone(), &json!("7")));
    let in_data = event(&[], json!({"data": message, "id": "e1"}), "eventarc-caller").await;
    assert_eq!((received(&in_data), &in_data["state"]["trigger_delivery"]["id"]), (expected, &json!("e1")));
    let undecoded = event(&[], json!({"message": {"data": "%%%"}}), "eventarc-caller").await;
    assert_eq!(received(&undecoded), json!({"data": "%%%", "attributes": {}}));
}

#[tokio::test]
async fn a_failed_run_is_answered_with_500_and_each_delivery_has_its_own_session() {
    let host = Host::with(enabled()).await;
    for _ in 0..2 {
        let answer = problem(host.post("/apps/fails/trigger/pubsub", &message(b"hi")).await, 500, "AGENT_FAILED").await;
        assert_eq!(answer["detail"], "agent `fails`: the oven is cold");
    }
    let sessions = host.get_json(&format!("/apps/fails/users/{SUBSCRIBER}/sessions")).await;
    assert_eq!(sessions.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_host_without_room_for_runs_says_when_to_send_again() {
    let host = Host::with(ServerConfig { max_concurrent_runs: 0, ..enabled() }).await;
    let answer = host.post(PUBSUB, &message(b"hi")).await;
    assert_eq!(answer.headers()["retry-after"], "1");
    problem(answer, 503, "BUSY").await;
}

#[tokio::test]
async fn triggers_are_off_unless_they_are_enabled() {
    let host = Host::start().await;
    for path in [PUBSUB, EVENTARC] {
        problem(host.post(path, &message(b"hi")).await, 404, "TRIGGER_DISABLED").await;
    }
    let host = Host::with(ServerConfig { triggers: vec![TriggerSource::Eventarc], ..ServerConfig::default() }).await;
    problem(host.post(PUBSUB, &message(b"hi")).await, 404, "TRIGGER_DISABLED").await;
    host.post_json(EVENTARC, &message(b"hi")).await;
    problem(host.post("/apps/missing/trigger/eventarc", &message(b"hi")).await, 404, "APP_NOT_FOUND").await;
}

#[tokio::test]
async fn triggers_need_credentials_whose_user_is_the_user_of_the_run() {
    let host = Host::with(ServerConfig { auth: Some(keys()), ..enabled() }).await;
    problem(host.post(PUBSUB, &message(b"hi")).await, 401, "UNAUTHENTICATED").await;
    let post = async |key: &str, path: &str| {
        host.request(Method::POST, path).bearer_auth(key).json(&message(b"hi")).send().await.unwrap()
    };
    problem(post(USER, "/apps/streams/trigger/pubsub").await, 404, "APP_NOT_FOUND").await;
    success(post(USER, PUBSUB).await).await;
    success(post(OPERATOR, PUBSUB).await).await;
    for user in ["u", SUBSCRIBER] {
        let path = format!("/apps/says/users/{user}/sessions");
        let sessions = host.request(Method::GET, &path).bearer_auth(OPERATOR).send().await.unwrap();
        assert_eq!(success(sessions).await.as_array().unwrap().len(), 1, "{user}");
    }
}

/// Says something, then fails because of too many requests, until it was called more often than it fails.
struct LimitedAgent {
    failures: usize,
    retry_after: Option<Duration>,
    calls: AtomicUsize,
}

#[async_trait]
impl CustomAgent for LimitedAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("I begin.").await?;
        if self.calls.fetch_add(1, Ordering::SeqCst) < self.failures {
            let error = ModelError::new(ModelErrorKind::RateLimited, "m", "slow down");
            return Err(ModelError { retry_after: self.retry_after, ..error }.into());
        }
        cx.say("I am done.").await.map(|_| ())
    }
}

/// Sends `count` messages to an app with this agent at the same time. Returns the answers, and the state of the server.
async fn send(
    agent: Arc<dyn CustomAgent>,
    services: Services,
    config: ServerConfig,
    count: usize,
) -> (Vec<Response>, AppState) {
    let spec = CustomAgentSpec { code: agent, model: None, tools: Vec::new() };
    let app = App::new("says", Agent::new("says", "", AgentKind::Custom(spec))).unwrap();
    let state = AppState::new(Runner::new(services), Arc::new(FakeSource(vec![Arc::new(app)])), config);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), state.clone()).await.unwrap();
    let url = format!("http://{}{PUBSUB}", server.local_addr().unwrap());
    tokio::spawn(server.serve(std::future::pending()));
    let client = client();
    let answers = (0..count).map(|_| async { client.post(&url).json(&message(b"hi")).send().await.unwrap() });
    (join_all(answers).await, state)
}

async fn send_to_limited(failures: usize, retry_after: Option<Duration>) -> (Response, usize, Vec<String>) {
    let agent = LimitedAgent { failures, retry_after, calls: AtomicUsize::new(0) };
    send_one(Arc::new(agent), services()).await
}

/// Sends a message. Returns the answer, how often the agent was called, and the events of the session.
async fn send_one(agent: Arc<LimitedAgent>, services: Services) -> (Response, usize, Vec<String>) {
    let (mut answers, state) = send(agent.clone(), services, enabled(), 1).await;
    let sessions = &state.services().sessions;
    let listed = sessions.list("says", SUBSCRIBER).await.unwrap();
    assert_eq!(listed.len(), 1);
    let session = sessions.get(&listed[0].key, hatchery_core::EventWindow::All).await.unwrap().unwrap();
    let events = session.events.iter().map(|event| hatchery_test_support::brief(event)).collect();
    (answers.remove(0), agent.calls.load(Ordering::SeqCst), events)
}

#[tokio::test]
async fn a_run_with_too_many_requests_is_continued_after_a_while() {
    let (answer, calls, events) = send_to_limited(2, None).await;
    assert_eq!((success(answer).await, calls), (json!({"status": "success"}), 3));
    let is_failure = |event: &&String| event.contains("MODEL_RATE_LIMITED");
    assert_eq!(events.iter().filter(is_failure).count(), 2);
    let others: Vec<_> = events.iter().filter(|event| !is_failure(event)).skip(1).collect();
    assert_eq!(others, ["says: I begin.", "says: I am done."], "nothing is repeated: {events:?}");
}

/// Refuses the second request for a run.
struct RefusingSessions {
    inner: MemorySessions,
    requests: AtomicUsize,
}

#[async_trait]
impl WrapperSessionService for RefusingSessions {
    fn inner(&self) -> &dyn SessionService {
        &self.inner
    }

    async fn admit_run(&self, key: &SessionKey, active: usize) -> Result<(), StoreError> {
        if self.requests.fetch_add(1, Ordering::SeqCst) == 1 {
            let message = "the user has too many events".into();
            return Err(StoreError::QuotaExceeded { message, key: "quotas.user_events", is_request: false });
        }
        self.inner.admit_run(key, active).await
    }
}

#[tokio::test]
async fn a_run_whose_continuation_was_refused_is_still_continued() {
    let sessions = Arc::new(RefusingSessions { inner: MemorySessions::new(), requests: AtomicUsize::new(0) });
    let agent = LimitedAgent { failures: 1, retry_after: None, calls: AtomicUsize::new(0) };
    let (answer, calls, events) = send_one(Arc::new(agent), Services { sessions, ..services() }).await;
    assert_eq!((success(answer).await, calls), (json!({"status": "success"}), 2));
    assert_eq!(events.len(), 4, "{events:?}");
    assert_eq!([&*events[1], &*events[3]], ["says: I begin.", "says: I am done."], "nothing is repeated: {events:?}");
}

/// Fails as if its model had not answered in time.
struct SlowAgent;

#[async_trait]
impl CustomAgent for SlowAgent {
    async fn run(&self, _: AgentContext) -> Result<(), RunError> {
        Err(ModelError::new(ModelErrorKind::Timeout, "m", "no answer").into())
    }
}

#[tokio::test]
async fn a_run_that_fails_because_of_a_server_keeps_its_status() {
    let (mut answers, _) = send(Arc::new(SlowAgent), services(), enabled(), 1).await;
    problem(answers.remove(0), 504, "MODEL_TIMEOUT").await;
}

#[tokio::test]
async fn a_run_that_still_has_too_many_requests_after_three_retries_has_failed() {
    let (answer, calls, _) = send_to_limited(9, None).await;
    problem(answer, 500, "MODEL_RATE_LIMITED").await;
    assert_eq!(calls, 4);
}

#[tokio::test]
async fn a_run_that_would_wait_long_is_left_to_the_sender() {
    let (answer, calls, _) = send_to_limited(1, Some(Duration::from_secs(60))).await;
    assert_eq!(answer.headers()["retry-after"], "60");
    problem(answer, 500, "MODEL_RATE_LIMITED").await;
    assert_eq!(calls, 1);
}

/// Counts its runs in progress. Each waits for a permit before it ends.
struct CountingAgent {
    active: AtomicUsize,
    most: AtomicUsize,
    started: Semaphore,
    leave: Semaphore,
}

#[async_trait]
impl CustomAgent for CountingAgent {
    async fn run(&self, _: AgentContext) -> Result<(), RunError> {
        let active = self.active.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(active, Ordering::SeqCst);
        self.started.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
        self.active.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn runs_above_the_limit_of_triggers_wait() {
    let (active, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (started, leave) = (Semaphore::new(0), Semaphore::new(0));
    let agent = Arc::new(CountingAgent { active, most, started, leave });
    let config = ServerConfig { max_concurrent_triggers: NonZeroUsize::new(2).unwrap(), ..enabled() };
    let release = async {
        wait_for(&agent.started).await;
        wait_for(&agent.started).await;
        // Lets further runs begin.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        agent.leave.add_permits(5);
    };
    let ((answers, _), ()) = tokio::join!(send(agent.clone(), services(), config, 5), release);
    assert!(answers.iter().all(|answer| answer.status() == 200), "{answers:?}");
    assert_eq!(agent.most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_event_whose_sender_disconnects_while_it_waits_starts_no_run() {
    // A connection is accepted once the host has noticed the end of an earlier one.
    let config = ServerConfig { max_connections: 3, max_concurrent_triggers: NonZeroUsize::MIN, ..enabled() };
    let host = Host::with(config).await;
    let event = post_bytes("/apps/waits/trigger/pubsub", &message(b"hi"));
    let health = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut first = host.connect(&event).await;
    wait_for(&host.signals.started).await;
    let waiting = host.connect(&event).await;
    assert!(host.exchange(health).await.starts_with(b"HTTP/1.1 200"));
    let _idle = host.connect(b"").await;
    drop(waiting);
    assert!(host.exchange(health).await.starts_with(b"HTTP/1.1 200"));
    host.signals.resume.add_permits(3);
    let mut answer = Vec::new();
    first.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    // Events are run in order, so an earlier one would have its session now.
    assert!(host.exchange(&event).await.starts_with(b"HTTP/1.1 200"));
    assert_eq!(host.services.sessions.list("waits", SUBSCRIBER).await.unwrap().len(), 2);
}
