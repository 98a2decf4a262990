//! The messages of `/ws` match their schema.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::{SinkExt, StreamExt};
use hatchery::ServerConfig;
use hatchery_core::{
    RunService, RunTransition, SessionKey, SessionService, StoreError, StoredRun, WrapperRunService,
    WrapperSessionService,
};
use hatchery_stores::MemorySessions;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::support::{Host, TIMEOUT, problem, run_body, wait_for};

/// A connection to `/ws`.
pub struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    pub async fn open(host: &Host, key: Option<&str>) -> Self {
        let mut request = format!("ws://{}/ws", host.address).into_client_request().unwrap();
        if let Some(key) = key {
            request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        }
        let stream = TcpStream::connect(host.address).await.unwrap();
        Self(tokio_tungstenite::client_async(request, stream).await.unwrap().0)
    }

    pub async fn send(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// Returns the next message.
    pub async fn next(&mut self) -> Value {
        loop {
            let frame = tokio::time::timeout(TIMEOUT, self.0.next()).await.expect("no message");
            match frame.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                frame => panic!("{frame:?}"),
            }
        }
    }

    /// Returns the next message of this type.
    pub async fn until(&mut self, kind: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["type"] == kind {
                return message;
            }
        }
    }
}

/// Checks messages of one direction.
fn validator(schema: &Value, name: &str) -> jsonschema::Validator {
    let schema = json!({"$ref": format!("#/$defs/{name}"), "$defs": schema["$defs"]});
    jsonschema::validator_for(&schema).unwrap()
}

#[tokio::test]
async fn all_messages_have_the_schema_that_is_served() {
    let host = Host::start().await;
    for app in ["waits", "streams", "fails"] {
        host.session(app).await;
    }
    let schema = host.get_json("/ws/schema").await;
    let (requests, messages) = (validator(&schema, "SocketRequest"), validator(&schema, "SocketMessage"));
    let session = |app: &str| json!({"appName": app, "userId": "u", "sessionId": "s"});
    let streamed = {
        let mut body = run_body("streams", "hi");
        body["streaming"] = json!(true);
        body
    };
    let mut waits = run_body("waits", "hi");
    waits["runId"] = json!("r");
    let mut socket = Socket::open(&host, None).await;
    for (request, ends) in [
        (json!({"type": "start", "id": "waits", "run": waits}), false),
        (json!({"type": "start", "id": "streams", "run": streamed}), true),
        (json!({"type": "start", "id": "fails", "run": run_body("fails", "hi")}), true),
        (
            json!({"type": "answer", "id": "e", "session": session("fails"), "callId": "c", "name": "f", "response": {}}),
            true,
        ),
        (json!({"type": "confirm", "id": "e", "session": session("fails"), "callId": "c", "confirmed": false}), true),
        (json!({"type": "ping"}), true),
        (json!({"type": "follow", "id": "f", "session": session("waits"), "runId": "r", "after": 1}), false),
        (json!({"type": "cancel", "id": "f"}), true),
    ] {
        assert!(requests.is_valid(&request), "{request}");
        socket.send(&request).await;
        if !ends {
            assert_eq!(socket.until("started").await["id"], request["id"]);
            continue;
        }
        loop {
            let message = socket.next().await;
            assert!(messages.is_valid(&message), "{message}");
            if ["end", "error", "pong"].contains(&message["type"].as_str().unwrap()) {
                break;
            }
        }
    }
    wait_for(&host.signals.cancelled).await;
    for wrong in [json!({}), json!({"type": "fly"}), json!({"type": "cancel"}), json!({"type": "start", "id": "a"})] {
        assert!(!requests.is_valid(&wrong), "{wrong}");
    }
}

#[tokio::test]
async fn events_that_are_read_late_are_all_there_and_the_memory_of_their_request_is_free() {
    let host = Host::start().await;
    host.session("floods").await;
    let mut socket = Socket::open(&host, None).await;
    let whole = host.state.available_body_memory();
    socket.send(&json!({"type": "start", "id": "a", "run": run_body("floods", "hi")})).await;
    assert_eq!(socket.next().await["type"], "started");
    assert!(host.state.available_body_memory() < whole, "the message is held until its run ends");
    host.signals.resume.add_permits(1);
    // 24 events of a megabyte, read late.
    let mut revisions = Vec::new();
    loop {
        let message = socket.next().await;
        match message["type"].as_str().unwrap() {
            "event" => revisions.push(message["revision"].as_u64().unwrap()),
            "end" => break,
            _ => panic!("{message}"),
        }
    }
    assert_eq!(revisions, (2..26).collect::<Vec<_>>());
    assert_eq!(host.state.available_body_memory(), whole);
}

#[tokio::test]
async fn a_run_that_is_followed_holds_no_memory_of_the_message() {
    let host = Host::start().await;
    host.session("waits").await;
    let mut socket = Socket::open(&host, None).await;
    let whole = host.state.available_body_memory();
    let session = json!({"appName": "waits", "userId": "u", "sessionId": "s"});
    let mut run = run_body("waits", "hi");
    (run["runId"], run["background"]) = (json!("r"), json!(true));
    let padding = "x".repeat(1 << 20);
    for request in [
        json!({"type": "start", "id": "background", "run": run, "padding": padding}),
        json!({"type": "follow", "id": "follow", "session": session, "runId": "r", "padding": padding}),
    ] {
        socket.send(&request).await;
        assert_eq!(socket.until("started").await["id"], request["id"]);
        assert_eq!(host.state.available_body_memory(), whole);
    }
    host.signals.resume.add_permits(1);
    assert_eq!(socket.until("end").await["run"]["state"], "done");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped_and_its_run_is_cancelled_if_it_wants_that() {
    let config = ServerConfig { write_timeout: Duration::from_millis(100), ..ServerConfig::default() };
    let host = Host::with(config).await;
    host.session("floods").await;
    let mut socket = Socket::open(&host, None).await;
    let mut run = run_body("floods", "hi");
    run["cancelOnDisconnect"] = json!(true);
    socket.send(&json!({"type": "start", "id": "a", "run": run})).await;
    wait_for(&host.signals.cancelled).await;
    assert_eq!(host.get_json("/health").await, json!({"status": "ok"}));
    drop(socket);
}

#[tokio::test]
async fn a_run_goes_on_without_its_connection_also_where_another_ui_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let dev_ui_folder = Some(folder.path().into());
    let host = Host::with(ServerConfig { max_connections: 1, dev_ui_folder, ..ServerConfig::default() }).await;
    host.session_closing("waits").await;
    let mut socket = Socket::open(&host, None).await;
    let mut run = run_body("waits", "hi");
    run["runId"] = json!("r");
    socket.send(&json!({"type": "start", "id": "a", "run": run})).await;
    wait_for(&host.signals.started).await;
    drop(socket);
    // The next connection is accepted once the host has noticed the end of the last one.
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(host.exchange(get("/health").as_bytes()).await.starts_with(b"HTTP/1.1 200"));
    host.signals.resume.add_permits(1);
    let followed = host.exchange(get("/apps/waits/users/u/sessions/s/runs/r/events").as_bytes()).await;
    assert!(String::from_utf8(followed).unwrap().contains("Done."));
}

/// Sessions whose first requests to cancel a run fail.
struct FailingSessions {
    inner: MemorySessions,
    failures: AtomicUsize,
}

impl WrapperSessionService for FailingSessions {
    fn inner(&self) -> &dyn SessionService {
        &self.inner
    }

    fn runs(&self) -> Option<&dyn RunService> {
        Some(self)
    }
}

#[async_trait]
impl WrapperRunService for FailingSessions {
    fn inner(&self) -> &dyn RunService {
        self.inner.runs().unwrap()
    }

    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        let decrement = |left: usize| left.checked_sub(1);
        if *transition == RunTransition::RequestCancel
            && self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_ok()
        {
            return Err(StoreError::backend("change", "the plug was pulled"));
        }
        WrapperRunService::inner(self).change(session, run, fence, transition).await
    }
}

#[tokio::test]
async fn a_run_whose_cancellation_has_failed_can_be_cancelled_again() {
    let sessions = FailingSessions { inner: MemorySessions::new(), failures: AtomicUsize::new(1) };
    let host = Host::with_sessions(Arc::new(sessions)).await;
    host.session("waits").await;
    let mut socket = Socket::open(&host, None).await;
    socket.send(&json!({"type": "start", "id": "a", "run": run_body("waits", "hi")})).await;
    wait_for(&host.signals.started).await;
    let cancel = json!({"type": "cancel", "id": "a"});
    socket.send(&cancel).await;
    let refused = socket.until("error").await;
    assert_eq!((&refused["id"], &refused["code"]), (&json!("a"), &json!("STORE_FAILED")));
    socket.send(&cancel).await;
    wait_for(&host.signals.cancelled).await;
    assert_eq!(socket.until("end").await["run"]["state"], "cancelled");
}

#[tokio::test]
async fn a_request_without_a_websocket_gets_the_version_to_use() {
    let host = Host::start().await;
    for path in ["/ws", "/run_live?app_name=says&user_id=u&session_id=s"] {
        let response = host.get(path).await;
        assert_eq!(response.headers()["upgrade"], "websocket", "{path}");
        assert_eq!(response.headers()["sec-websocket-version"], "13", "{path}");
        problem(response, 426, "UPGRADE_REQUIRED").await;
    }
}
