//! Push notifications: their limits, and their end with the task or the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::routing::post;
use axum::serve::ListenerExt;
use hatchery_a2a::{PushLimits, ServerSettings};
use hatchery_core::{EventWindow, JsonMap, Session, SessionKey, SessionService, StoreError, WrapperSessionService};
use hatchery_test_support::services;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::support::{APP, Anywhere, Notification, Options, Server, answer, state, webhook};

fn options(push_limits: PushLimits) -> Options {
    let settings = ServerSettings { push: Some(Arc::new(Anywhere)), push_limits, ..ServerSettings::default() };
    Options { settings, ..Options::default() }
}

/// Returns the parameters for a text with a push configuration.
fn with_push(server: &Server, text: &str, config: Value) -> Value {
    let mut params = server.params(json!([{ "text": text }]), json!({}));
    params["configuration"] = json!({ "taskPushNotificationConfig": config });
    params
}

/// Returns the subject of a notification: the text of an artifact, or a state.
fn brief(notification: &Notification) -> String {
    let body = &notification.body;
    match body.get("artifactUpdate") {
        Some(update) => update["artifact"]["parts"][0]["text"].as_str().unwrap().into(),
        None => state(&body["statusUpdate"]).into(),
    }
}

#[tokio::test]
async fn the_texts_of_a_configuration_have_limits() {
    let server = Server::new(options(PushLimits::default()));
    let task = server.send("ask a", json!({})).await;
    let url = "http://127.0.0.1:1/hook";
    let authentication = |scheme: &str, credentials: &str| json!({"scheme": scheme, "credentials": credentials});
    for (key, value, limit) in [
        ("id", json!("x".repeat(129)), "`id` of a push notification has at most 128 bytes"),
        ("url", json!(format!("{url}?{}", "x".repeat(2048))), "`url` of a push notification has at most 2048 bytes"),
        ("token", json!("x".repeat(4097)), "`token` of a push notification has at most 4096 bytes"),
        (
            "authentication",
            authentication(&"x".repeat(65), ""),
            "`authentication.scheme` of a push notification has at most 64 bytes",
        ),
        (
            "authentication",
            authentication("Bearer", &"x".repeat(8193)),
            "`authentication.credentials` of a push notification has at most 8192 bytes",
        ),
        (
            "token",
            json!("a\nb"),
            "`token` of a push notification is sent in a header, so it is ASCII without line breaks",
        ),
    ] {
        let mut config = json!({"taskId": task["id"], "url": url});
        config[key] = value;
        let refused = server.error("CreateTaskPushNotificationConfig", config.clone()).await;
        assert_eq!(refused, (-32602, limit.into()));
        let mut params = server.params(answer("a"), json!({"taskId": task["id"]}));
        params["configuration"] = json!({ "taskPushNotificationConfig": config });
        assert_eq!(server.error("SendMessage", params).await, (-32602, limit.into()));
    }
    // Nothing of the refused messages has begun.
    assert_eq!(state(&server.task(&task).await), "INPUT_REQUIRED");
    for number in 0..9 {
        let config = json!({"taskId": task["id"], "id": number.to_string(), "url": url});
        match number {
            8 => {
                let refused = server.error("CreateTaskPushNotificationConfig", config).await;
                assert_eq!(refused, (-32602, "a task has at most 8 push configurations".into()));
            }
            _ => drop(server.result("CreateTaskPushNotificationConfig", config).await),
        }
    }
}

#[tokio::test]
async fn an_ended_task_keeps_only_configurations_that_are_set_after_its_end() {
    let (url, mut received) = webhook().await;
    let server = Server::new(options(PushLimits::default()));
    let secret = json!({"scheme": "Bearer", "credentials": "secret"});
    let task =
        server.result("SendMessage", with_push(&server, "hello", json!({"url": url, "authentication": secret}))).await;
    assert_eq!(brief(&received.recv().await.unwrap()), "You said hello.");
    assert_eq!(brief(&received.recv().await.unwrap()), "COMPLETED");
    let sessions = &server.runner.services().sessions;
    while !sessions.list(APP, "A2A_PUSH").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let config = json!({"taskId": task["task"]["id"], "id": "late", "url": url});
    server.result("CreateTaskPushNotificationConfig", config.clone()).await;
    assert_eq!(server.result("GetTaskPushNotificationConfig", config).await["url"], url);
    // After a restart they are of no use, and nothing is sent.
    let restarted = Server::new(Options { sessions: Some(sessions.clone()), ..options(PushLimits::default()) });
    restarted.service.resume_push_notifications();
    while !sessions.list(APP, "A2A_PUSH").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(received.is_empty());
}

#[tokio::test]
async fn an_attempt_has_a_timeout_in_all() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let limits = PushLimits {
        timeout: Duration::from_millis(100),
        retry_delay: Duration::from_millis(1),
        ..PushLimits::default()
    };
    let server = Server::new(options(limits));
    server.result("SendMessage", with_push(&server, "hello", json!({"url": url}))).await;
    // Three attempts for the artifact, three for the state.
    for _ in 0..6 {
        let (mut connection, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(10));
            let mut line: &[u8] = b"HTTP/1.1 200 OK\r\n";
            while connection.write_all(line).await.is_ok() {
                line = b"x-more: x\r\n";
                ticks.tick().await;
            }
        });
    }
}

#[tokio::test]
async fn requests_in_flight_are_limited() {
    let (url, mut received) = webhook().await;
    let server = Server::new(options(PushLimits { max_in_flight: 1, ..PushLimits::default() }));
    for _ in 0..4 {
        server.result("SendMessage", with_push(&server, "hello", json!({"url": url}))).await;
    }
    for _ in 0..8 {
        let notification = received.recv().await.unwrap();
        assert!(received.is_empty(), "a second request");
        drop(notification);
    }
}

#[tokio::test]
async fn notifications_to_a_url_use_its_connection_again() {
    let (sender, mut received) = mpsc::unbounded_channel();
    let receive = move |body: String| {
        // The test may have ended.
        let _ = sender.send(body);
        std::future::ready(())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let opened = connections.clone();
    let listener = listener.tap_io(move |_| {
        opened.fetch_add(1, Ordering::SeqCst);
    });
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", post(receive))).await });
    let server = Server::new(options(PushLimits::default()));
    for _ in 0..8 {
        server.result("SendMessage", with_push(&server, "hello", json!({"url": url}))).await;
        received.recv().await.unwrap();
        received.recv().await.unwrap();
    }
    assert!(connections.load(Ordering::SeqCst) < 16, "each notification has opened a connection");
}

/// A session service that fails the first reads of push configurations once the test arms it.
struct FailingSessions {
    inner: Arc<dyn SessionService>,
    failures: AtomicUsize,
}

#[async_trait]
impl WrapperSessionService for FailingSessions {
    fn inner(&self) -> &dyn SessionService {
        &*self.inner
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        let decrement = |left: usize| left.checked_sub(1);
        if &*key.user == "A2A_PUSH" && self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_ok()
        {
            return Err(StoreError::Backend { context: "reading".into(), source: "broken".into() });
        }
        self.inner.get(key, window).await
    }
}

#[tokio::test]
async fn a_task_is_followed_further_after_errors_of_the_store() {
    let (url, mut received) = webhook().await;
    let sessions = Arc::new(FailingSessions { inner: services().sessions, failures: AtomicUsize::new(0) });
    let limits = PushLimits { retry_delay: Duration::from_millis(1), ..PushLimits::default() };
    let server = Server::new(Options { sessions: Some(sessions.clone()), ..options(limits) });
    waiting(&server, &url).await;
    sessions.failures.store(3, Ordering::SeqCst);
    server.agent.released.add_permits(1);
    assert_eq!(brief(&received.recv().await.unwrap()), "waited");
    assert_eq!(brief(&received.recv().await.unwrap()), "COMPLETED");
    assert_eq!(sessions.failures.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_answer_before_the_question_is_delivered_is_followed_too() {
    let (url, mut received) = webhook().await;
    let server = Server::new(options(PushLimits::default()));
    let asking = server.result("SendMessage", with_push(&server, "ask a", json!({"url": url}))).await;
    let mut question = received.recv().await.unwrap();
    // The call is a remark about the work at first.
    while brief(&question) != "INPUT_REQUIRED" {
        question = received.recv().await.unwrap();
    }
    let done = server.send_parts(answer("a"), json!({"taskId": asking["task"]["id"]})).await;
    assert_eq!(state(&done), "COMPLETED");
    drop(question);
    assert_eq!(brief(&received.recv().await.unwrap()), "got a");
    assert_eq!(brief(&received.recv().await.unwrap()), "COMPLETED");
}

#[tokio::test]
async fn a_further_configuration_of_a_task_that_waits_is_alone_told_the_state() {
    let (first, mut of_first) = webhook().await;
    let (second, mut of_second) = webhook().await;
    let server = Server::new(options(PushLimits::default()));
    let asking = server.result("SendMessage", with_push(&server, "ask a", json!({"id": "one", "url": first}))).await;
    let id = &asking["task"]["id"];
    while brief(&of_first.recv().await.unwrap()) != "INPUT_REQUIRED" {}
    let config = json!({"taskId": id, "id": "two", "url": second});
    server.result("CreateTaskPushNotificationConfig", config).await;
    assert_eq!(brief(&of_second.recv().await.unwrap()), "INPUT_REQUIRED");
    let done = server.send_parts(answer("a"), json!({"taskId": id})).await;
    assert_eq!(state(&done), "COMPLETED");
    for expected in ["got a", "COMPLETED"] {
        assert_eq!(brief(&of_first.recv().await.unwrap()), expected);
        assert_eq!(brief(&of_second.recv().await.unwrap()), expected);
    }
}

/// Sends `wait` with a push configuration, and returns the task when it has come to its stop.
async fn waiting(server: &Server, url: &str) -> Value {
    let mut params = with_push(server, "wait", json!({"url": url}));
    params["configuration"]["returnImmediately"] = json!(true);
    let sent = server.result("SendMessage", params).await;
    server.stopped().await;
    sent["task"].clone()
}

#[tokio::test]
async fn a_task_under_way_sends_each_notification_once_after_the_policy_has_changed() {
    let (url, mut received) = webhook().await;
    let server = Server::new(options(PushLimits::default()));
    waiting(&server, &url).await;
    server.service.reconfigure(options(PushLimits::default()).settings, true);
    // A background task continues them.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    server.agent.released.add_permits(1);
    assert_eq!(brief(&received.recv().await.unwrap()), "waited");
    assert_eq!(brief(&received.recv().await.unwrap()), "COMPLETED");
    while !server.runner.services().sessions.list(APP, "A2A_PUSH").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(received.is_empty());
}

#[tokio::test]
async fn what_was_not_sent_while_notifications_were_disabled_is_sent_afterwards() {
    let (url, mut received) = webhook().await;
    let server = Server::new(options(PushLimits::default()));
    let task = waiting(&server, &url).await;
    server.service.reconfigure(ServerSettings::default(), true);
    server.agent.released.add_permits(1);
    while state(&server.task(&task).await) != "COMPLETED" {
        tokio::task::yield_now().await;
    }
    server.service.reconfigure(options(PushLimits::default()).settings, true);
    assert_eq!(brief(&received.recv().await.unwrap()), "waited");
    assert_eq!(brief(&received.recv().await.unwrap()), "COMPLETED");
}

#[tokio::test]
async fn a_message_that_is_refused_leaves_the_configuration_that_it_would_replace() {
    let settings = ServerSettings { max_runs: 1, ..options(PushLimits::default()).settings };
    let server = Server::new(Options { settings, ..Options::default() });
    let task = server.send("ask a", json!({})).await;
    let config = |url: &str| json!({"id": "one", "url": url});
    let mut first = config("http://127.0.0.1:1/first");
    first["taskId"] = task["id"].clone();
    server.result("CreateTaskPushNotificationConfig", first).await;
    server.begin("wait", json!({})).await;
    server.stopped().await;
    let mut params = server.params(json!([{"text": "more"}]), json!({"taskId": task["id"]}));
    let second = config("http://127.0.0.1:1/second");
    params["configuration"] = json!({ "taskPushNotificationConfig": second });
    assert_eq!(server.error("SendMessage", params).await.1, "the maximum of 1 run is active; try again later");
    let kept = server.result("GetTaskPushNotificationConfig", json!({"taskId": task["id"], "id": "one"})).await;
    assert_eq!(kept["url"], "http://127.0.0.1:1/first");
    server.agent.released.add_permits(1);
}

#[tokio::test]
async fn a_stored_configuration_that_is_invalid_is_not_used() {
    let server = Server::new(options(PushLimits::default()));
    let task = server.send("ask a", json!({})).await;
    let config = |id: &str, token: &str| json!({"id": id, "url": "http://127.0.0.1:1/hook", "token": token});
    let configs = json!({"good": config("good", "t"), "bad": config("bad", "a\nb")});
    let sessions = &server.runner.services().sessions;
    let state = JsonMap::from_iter([("configs".to_owned(), configs)]);
    sessions.create(APP, "A2A_PUSH", task["id"].as_str(), state).await.unwrap();
    let list = server.result("ListTaskPushNotificationConfigs", json!({"taskId": task["id"]})).await;
    assert_eq!(list["configs"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["configs"][0]["id"], "good");

    let other = server.send("ask a", json!({})).await;
    let state = JsonMap::from_iter([("configs".to_owned(), json!({"x": 7}))]);
    sessions.create(APP, "A2A_PUSH", other["id"].as_str(), state).await.unwrap();
    let list = server.result("ListTaskPushNotificationConfigs", json!({"taskId": other["id"]})).await;
    assert_eq!(list["configs"], json!([]));
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn what_was_not_delivered_is_sent_after_a_restart() {
    let (hook_runtime, sessions) = (runtime(), services().sessions);
    let (url, mut received) = hook_runtime.block_on(webhook());
    let server = |sessions: &Arc<dyn SessionService>| {
        Server::new(Options { sessions: Some(sessions.clone()), ..options(PushLimits::default()) })
    };
    let first = runtime();
    let unanswered = first.block_on(async {
        let server = server(&sessions);
        let asking = server.result("SendMessage", with_push(&server, "ask a", json!({"url": url}))).await;
        while brief(&received.recv().await.unwrap()) != "INPUT_REQUIRED" {}
        let done = server.send_parts(answer("a"), json!({"taskId": asking["task"]["id"]})).await;
        assert_eq!(state(&done), "COMPLETED");
        received.recv().await.unwrap()
    });
    assert_eq!(brief(&unanswered), "got a");
    // The host dies before the webhook has answered.
    first.shutdown_timeout(Duration::from_secs(10));
    drop(unanswered);
    let second = runtime();
    second.block_on(async {
        let server = server(&sessions);
        server.service.resume_push_notifications();
        assert_eq!(brief(&received.recv().await.unwrap()), "got a");
        assert_eq!(brief(&received.recv().await.unwrap()), "COMPLETED");
    });
}
