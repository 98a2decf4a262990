//! WebSockets over HTTP/2, as browsers open them to a server over TLS: extended `CONNECT` (RFC 8441).

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use hatchery::ServerConfig;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::auth;
use crate::http2::{connect, get};
use crate::support::{Host, TIMEOUT, run_body, wait_for};

type Sender = SendRequest<Full<Bytes>>;

/// Connects, and waits for the settings of the server, before which no protocol may be asked for.
async fn open_connection(host: &Host) -> Sender {
    let mut sender = connect(host).await;
    assert_eq!(sender.send_request(get("localhost", "/health")).await.unwrap().status(), StatusCode::OK);
    sender
}

/// Asks for a protocol on a path, with these headers.
async fn request(
    sender: &mut Sender,
    protocol: &'static str,
    path: &str,
    headers: &[(&str, &str)],
) -> Response<Incoming> {
    let mut request = Request::connect(format!("http://localhost{path}")).header("sec-websocket-version", "13");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Full::default()).unwrap();
    request.extensions_mut().insert(Protocol::from_static(protocol));
    sender.send_request(request).await.unwrap()
}

struct Socket(WebSocketStream<TokioIo<Upgraded>>);

impl Socket {
    async fn open(sender: &mut Sender, path: &str, headers: &[(&str, &str)]) -> Self {
        let response = request(sender, "websocket", path, headers).await;
        assert_eq!(response.status(), StatusCode::OK);
        for name in ["connection", "upgrade", "sec-websocket-accept", "content-length"] {
            assert!(!response.headers().contains_key(name), "{name} belongs to HTTP/1.1");
        }
        let stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        Self(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
    }

    async fn send(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// Returns the next text or close frame.
    async fn next(&mut self) -> Message {
        loop {
            let frame = tokio::time::timeout(TIMEOUT, self.0.next()).await.expect("no message");
            match frame.expect("the stream has ended").unwrap() {
                Message::Ping(_) | Message::Pong(_) => {}
                frame => return frame,
            }
        }
    }

    /// Returns the messages up to the first one of this type.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let message: Value = serde_json::from_str(self.next().await.to_text().unwrap()).unwrap();
            let is_last = message["type"] == kind;
            messages.push(message);
            if is_last {
                return messages;
            }
        }
    }
}

async fn code(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    body["code"].as_str().unwrap().to_owned()
}

fn start(app: &str) -> Value {
    json!({"type": "start", "id": "a", "run": run_body(app, "hi")})
}

#[tokio::test]
async fn websockets_and_requests_share_one_connection() {
    let host = Host::with(ServerConfig { max_connections: 2, ..ServerConfig::default() }).await;
    host.session("says").await;
    let mut sender = open_connection(&host).await;
    let (mut first, mut second) =
        (Socket::open(&mut sender, "/ws", &[]).await, Socket::open(&mut sender, "/ws", &[]).await);
    first.send(&start("says")).await;
    let messages = first.until("end").await;
    assert!(messages.iter().any(|message| message.to_string().contains("You said: hi")), "{messages:?}");
    second.send(&json!({"type": "ping", "id": "p"})).await;
    assert_eq!(second.until("pong").await, [json!({"type": "pong", "id": "p"})]);
    assert_eq!(sender.send_request(get("localhost", "/health")).await.unwrap().status(), StatusCode::OK);
    first.0.close(None).await.unwrap();
    assert!(matches!(first.next().await, Message::Close(_)));
    second.send(&json!({"type": "ping", "id": "q"})).await;
    second.until("pong").await;
}

#[tokio::test]
async fn live_runs_are_served_over_http2() {
    let host = Host::start().await;
    host.session("says").await;
    let mut sender = open_connection(&host).await;
    let mut live = Socket::open(&mut sender, "/run_live?app_name=says&user_id=u&session_id=s", &[]).await;
    live.send(&json!({"content": {"role": "user", "parts": [{"text": "hello"}]}})).await;
    let event = live.next().await;
    assert!(event.to_text().unwrap().contains("You said: hello"), "{event:?}");
    let mut live = Socket::open(&mut sender, "/run_live?app_name=missing&user_id=u&session_id=s", &[]).await;
    let Message::Close(Some(frame)) = live.next().await else { panic!("no close frame") };
    assert!(frame.reason.contains("missing"), "{frame:?}");
}

#[tokio::test]
async fn what_is_no_websocket_is_refused() {
    let host = Host::start().await;
    let mut sender = open_connection(&host).await;
    for (protocol, path, headers, status, expected) in [
        ("connect-udp", "/ws", vec![], 405, "METHOD_NOT_ALLOWED"),
        ("connect-udp", "/health", vec![], 405, "METHOD_NOT_ALLOWED"),
        ("websocket", "/nowhere", vec![], 404, "ROUTE_NOT_FOUND"),
        ("websocket", "/ws", vec![("origin", "https://evil.example")], 403, "ORIGIN_NOT_ALLOWED"),
    ] {
        let response = request(&mut sender, protocol, path, &headers).await;
        assert_eq!(response.status(), status, "{protocol} {path}");
        assert_eq!(code(response).await, expected, "{protocol} {path}");
    }
    let response = sender.send_request(get("localhost", "/ws")).await.unwrap();
    assert_eq!(response.status(), StatusCode::UPGRADE_REQUIRED);
    assert_eq!(code(response).await, "UPGRADE_REQUIRED");
}

#[tokio::test]
async fn credentials_are_checked_at_the_start_and_with_every_message() {
    let host = Host::with(ServerConfig { auth: Some(auth::keys()), ..ServerConfig::default() }).await;
    let mut sender = open_connection(&host).await;
    let response = request(&mut sender, "websocket", "/ws", &[]).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let bearer = format!("Bearer {}", auth::USER);
    let mut socket = Socket::open(&mut sender, "/ws", &[("authorization", &bearer)]).await;
    let mut body = run_body("says", "hi");
    body["userId"] = json!("other");
    socket.send(&json!({"type": "start", "id": "a", "run": body})).await;
    let refusal = socket.next().await;
    assert!(refusal.to_text().unwrap().contains("USER_NOT_ALLOWED"), "{refusal:?}");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_messages_loses_its_websocket_and_nothing_else() {
    let config = ServerConfig {
        write_timeout: Duration::from_millis(100),
        cancel_on_disconnect: Some(true),
        ..ServerConfig::default()
    };
    let host = Host::with(config).await;
    host.session("floods").await;
    let mut sender = open_connection(&host).await;
    let mut unread = Socket::open(&mut sender, "/ws", &[]).await;
    unread.send(&start("floods")).await;
    // The run is cancelled with its connection.
    wait_for(&host.signals.cancelled).await;
    assert_eq!(sender.send_request(get("localhost", "/health")).await.unwrap().status(), StatusCode::OK);
    let end = async { while unread.0.next().await.is_some_and(|frame| frame.is_ok()) {} };
    tokio::time::timeout(TIMEOUT, end).await.expect("the stream is not reset");
}

#[tokio::test]
async fn a_server_that_stops_closes_websockets() {
    let mut host = Host::start().await;
    let mut sender = open_connection(&host).await;
    let mut socket = Socket::open(&mut sender, "/ws", &[]).await;
    host.stop();
    let Message::Close(Some(frame)) = socket.next().await else { panic!("no close frame") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1001, "the server stops; connect again"));
    while socket.0.next().await.is_some_and(|frame| frame.is_ok()) {}
    drop((socket, sender));
    host.stopped().await;
}
