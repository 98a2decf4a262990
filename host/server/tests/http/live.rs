//! Connections of live runs.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use hatchery::ServerConfig;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Host, TIMEOUT, wait_for};

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
