//! Connections of live runs.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use hatchery::{ServerAuthConfig, ServerConfig};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::auth::{OPERATOR, USER, keys};
use crate::support::{Host, TIMEOUT, success, wait_for};

#[tokio::test]
async fn a_client_that_leaves_while_nothing_more_is_read_cancels_its_turn() {
    let config = ServerConfig { keep_alive: Duration::from_millis(50), ..ServerConfig::default() };
    let host = Host::with(config).await;
    host.session("waits").await;
    let stream = TcpStream::connect(host.address).await.unwrap();
    let url = format!("ws://{}/run_live?app_name=waits&user_id=u&session_id=s", host.address);
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let message = json!({"content": {"parts": [{"text": "Hi"}]}}).to_string();
    socket.send(Message::text(message.clone())).await.unwrap();
    wait_for(&host.signals.started).await;
    // More than the queue has places for.
    for _ in 0..20 {
        socket.send(Message::text(message.clone())).await.unwrap();
    }
    // The queue is full, and the client is pinged nevertheless.
    let ping = async { while !matches!(socket.next().await, Some(Ok(Message::Ping(_)))) {} };
    tokio::time::timeout(TIMEOUT, ping).await.unwrap();
    drop(socket);
    wait_for(&host.signals.cancelled).await;
}

/// Opens a live run in the session `s` of the user `u` with the app `says`.
async fn open(host: &Host, key: &str) -> WebSocketStream<TcpStream> {
    let url = format!("ws://{}/run_live?app_name=says&user_id=u&session_id=s", host.address);
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    let stream = TcpStream::connect(host.address).await.unwrap();
    tokio_tungstenite::client_async(request, stream).await.unwrap().0
}

/// Returns the next frame that is no ping.
async fn next_frame(socket: &mut WebSocketStream<TcpStream>) -> Message {
    loop {
        let frame = tokio::time::timeout(TIMEOUT, socket.next()).await.expect("no frame").unwrap().unwrap();
        if !matches!(frame, Message::Ping(_) | Message::Pong(_)) {
            return frame;
        }
    }
}

/// Returns the state of the session.
async fn state(host: &Host) -> Value {
    let session = host.request(Method::GET, "/apps/says/users/u/sessions/s").bearer_auth(OPERATOR);
    success(session.send().await.unwrap()).await["state"].take()
}

#[tokio::test]
async fn state_of_all_users_is_set_by_live_runs_of_operators_only() {
    let host = Host::with(ServerConfig { auth: Some(keys()), ..ServerConfig::default() }).await;
    let create = host.request(Method::POST, "/apps/says/users/u/sessions/s").bearer_auth(USER);
    assert_eq!(create.send().await.unwrap().status(), 200);
    let request =
        |state: Value| Message::text(json!({"content": {"parts": [{"text": "Hi"}]}, "stateDelta": state}).to_string());
    let mut socket = open(&host, USER).await;
    socket.send(request(json!({"user:a": 1, "app:price": 0}))).await.unwrap();
    match next_frame(&mut socket).await {
        Message::Close(Some(close)) => {
            assert_eq!(u16::from(close.code), 1008);
            assert_eq!(close.reason.as_str(), "`app:price` belongs to all users of the app; only operators may set it");
        }
        frame => panic!("{frame:?}"),
    }
    assert_eq!(state(&host).await, json!({}));

    let mut socket = open(&host, OPERATOR).await;
    socket.send(request(json!({"user:a": 1, "app:price": 0}))).await.unwrap();
    loop {
        let Message::Text(text) = next_frame(&mut socket).await else { panic!("the run has ended") };
        let event: Value = serde_json::from_str(&text).unwrap();
        if event["turnComplete"] == true {
            break;
        }
    }
    let state = state(&host).await;
    assert_eq!((&state["user:a"], &state["app:price"]), (&json!(1), &json!(0)));
}

/// Sends a message. Returns the code and the reason of the close frame; `None` once the turn has ended.
async fn say(socket: &mut WebSocketStream<TcpStream>) -> Option<(u16, String)> {
    let message = json!({"content": {"parts": [{"text": "Hi"}]}}).to_string();
    socket.send(Message::text(message)).await.unwrap();
    loop {
        match next_frame(socket).await {
            Message::Text(text) => {
                let event: Value = serde_json::from_str(&text).unwrap();
                if event["turnComplete"] == true {
                    return None;
                }
            }
            Message::Close(Some(close)) => return Some((close.code.into(), close.reason.to_string())),
            frame => panic!("{frame:?}"),
        }
    }
}

/// Starts a server with a session of the user `u` in the app `says`.
async fn host_with_session(auth: Option<ServerAuthConfig>) -> Host {
    let host = Host::with(ServerConfig { auth, ..ServerConfig::default() }).await;
    let create = host.request(Method::POST, "/apps/says/users/u/sessions/s").bearer_auth(OPERATOR);
    assert_eq!(create.send().await.unwrap().status(), 200);
    host
}

#[tokio::test]
async fn the_messages_of_a_live_run_count_as_requests() {
    let mut auth = keys();
    auth.keys[2].requests_per_minute = Some(2);
    let host = host_with_session(Some(auth)).await;
    let mut socket = open(&host, USER).await;
    assert_eq!(say(&mut socket).await, None);
    let reason = "these credentials are for 2 requests per minute; send fewer";
    assert_eq!(say(&mut socket).await, Some((1013, reason.to_owned())));
}

#[tokio::test]
async fn a_live_run_takes_no_message_of_a_client_that_has_lost_its_permissions() {
    let mut without_key = keys();
    without_key.keys.pop();
    let mut of_others = keys();
    of_others.keys[2].user = Some("v".into());
    let mut of_other_apps = keys();
    of_other_apps.keys[2].apps = vec!["streams".into()];
    for (before, after, code, reason) in [
        (Some(keys()), without_key, 1008, "the API key or token is not valid"),
        (Some(keys()), of_others, 1008, "these credentials are for the user `v` only; name this user, or send others"),
        (Some(keys()), of_other_apps, 1011, "Runner unavailable: App not found: says"),
        (None, keys(), 1008, "credentials are missing; send an API key or a token"),
    ] {
        let host = host_with_session(before).await;
        let mut socket = open(&host, USER).await;
        assert_eq!(say(&mut socket).await, None);
        let config = ServerConfig { auth: Some(after), ..ServerConfig::default() };
        host.state.prepare(config, false).unwrap()();
        let (closed, shown) = say(&mut socket).await.expect("the message was answered");
        assert_eq!(closed, code, "{shown}");
        assert!(shown.starts_with(reason), "{shown}");
    }
}
