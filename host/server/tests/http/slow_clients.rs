//! Slow clients: they lose their connection, and other clients are served meanwhile.

use std::time::Duration;

use hatchery::{ByteSize, ServerConfig};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Host, TIMEOUT, post_bytes, run_body, wait_for};

const HEAD: &str =
    "POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{";

/// Sends single spaces until the server closes the connection. Returns the response.
async fn drip(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let drip = async {
        let mut pause = tokio::time::interval(Duration::from_millis(5));
        loop {
            tokio::select! {
                read = stream.read_buf(&mut answer) => if read.unwrap_or(0) == 0 { break },
                _ = pause.tick() => if stream.write_all(b" ").await.is_err() {
                    // The host has answered and closed the connection. The answer may not be read completely yet.
                    let _ = stream.read_to_end(&mut answer).await;
                    break;
                },
            }
        }
    };
    tokio::time::timeout(TIMEOUT, drip).await.expect("it may go on for ever");
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_slow_body_times_out_while_other_clients_are_served() {
    let config = ServerConfig {
        // A pause of the machine that is as long would look like a client that sends nothing.
        body_idle_timeout: Duration::from_secs(2),
        min_body_rate: ByteSize(1 << 20),
        ..ServerConfig::default()
    };
    let host = Host::with(config).await;
    let mut drips = Vec::new();
    for _ in 0..20 {
        drips.push(tokio::spawn(drip(host.connect(HEAD.as_bytes()).await)));
    }
    assert_eq!(host.get_json("/health").await, json!({"status": "ok"}));
    for drip in drips {
        let answer = drip.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("\"code\":\"BODY_TIMEOUT\""), "{answer}");
        assert!(
            answer.contains("the body is sent too slowly, ")
                && answer.contains("send at least 1048576 bytes per second")
        );
    }
    assert_eq!(host.get_json("/health").await, json!({"status": "ok"}));
}

#[tokio::test]
async fn a_slow_head_and_a_silent_client_are_dropped() {
    let config =
        ServerConfig { head_timeout: Duration::from_millis(200), max_connections: 20, ..ServerConfig::default() };
    let host = Host::with(config).await;
    let head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    let mut drips = Vec::new();
    for _ in 0..19 {
        drips.push(tokio::spawn(drip(host.connect(head).await)));
    }
    let mut silent = host.connect(b"").await;
    for drip in drips {
        assert!(!drip.await.unwrap().starts_with("HTTP/1.1 200"), "a head that is not complete was answered");
    }
    let mut answer = Vec::new();
    tokio::time::timeout(TIMEOUT, silent.read_to_end(&mut answer)).await.expect("it stays open").unwrap();
    // All connections were in use, and are free again.
    assert_eq!(host.get_json("/health").await, json!({"status": "ok"}));
}

#[tokio::test]
async fn a_body_has_a_timeout_at_any_rate() {
    let config = ServerConfig {
        body_idle_timeout: TIMEOUT,
        min_body_rate: ByteSize(1),
        body_timeout: Duration::from_millis(100),
        ..ServerConfig::default()
    };
    let host = Host::with(config).await;
    let answer = drip(host.connect(HEAD.as_bytes()).await).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("send at least 1 bytes per second and the whole body within 0.1 s"), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_stream_is_dropped() {
    let config = ServerConfig {
        write_timeout: Duration::from_millis(100),
        cancel_on_disconnect: Some(true),
        ..ServerConfig::default()
    };
    let host = Host::with(config).await;
    host.session("floods").await;
    let stream = host.connect(&post_bytes("/run_sse", &run_body("floods", "hello"))).await;
    // The run is cancelled with the connection.
    wait_for(&host.signals.cancelled).await;
    assert_eq!(host.get_json("/health").await, json!({"status": "ok"}));
    drop(stream);
}

#[tokio::test]
async fn a_client_that_does_not_read_a_large_response_is_dropped() {
    let config =
        ServerConfig { write_timeout: Duration::from_millis(100), max_connections: 1, ..ServerConfig::default() };
    let host = Host::with(config).await;
    host.exchange(&post_bytes("/apps/floods/users/u/sessions/s", &json!({}))).await;
    host.signals.resume.add_permits(1);
    let idle = host.connect(&post_bytes("/run", &run_body("floods", "hello"))).await;
    // The only permitted connection is free again.
    let answer = host.exchange(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    drop(idle);
}

#[tokio::test]
async fn one_peer_cannot_use_all_connections() {
    let config = ServerConfig { max_connections_per_peer: 3, ..ServerConfig::default() };
    let host = Host::with(config).await;
    let ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut dripping = Vec::new();
    for _ in 0..3 {
        dripping.push(host.connect_from("127.0.0.2", HEAD.as_bytes()).await);
    }
    let mut refused = host.connect_from("127.0.0.2", b"").await;
    let mut answer = String::new();
    refused.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["code"], "TOO_MANY_CONNECTIONS");
    assert_eq!(body["detail"], "this peer has the maximum number of connections; close some, or reuse them");

    let mut other = host.connect_from("127.0.0.3", ask).await;
    answer.clear();
    other.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    // The permits are free again when the connections are closed.
    drop(dripping);
    let again = async {
        loop {
            let mut stream = host.connect_from("127.0.0.2", ask).await;
            let mut answer = String::new();
            if stream.read_to_string(&mut answer).await.is_ok() && answer.starts_with("HTTP/1.1 200") {
                return;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, again).await.expect("the share is not given back");
}
