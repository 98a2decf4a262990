//! WebSockets of clients that break the protocol, or fall silent: they lose their connection, and its place is free
//! again.

use std::time::Duration;

use hatchery::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Host, TIMEOUT};

const PATHS: [&str; 2] = ["/ws", "/run_live?app_name=says&user_id=u&session_id=s"];

fn handshake(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// Sends a handshake and these bytes. Returns what the server sends until it closes the connection.
async fn exchange(host: &Host, path: &str, frames: &[u8]) -> Vec<u8> {
    let mut stream = host.connect(handshake(path).as_bytes()).await;
    stream.write_all(frames).await.unwrap();
    let mut answer = Vec::new();
    // The server may have closed the connection before it has read everything.
    let _ = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("it stays open");
    answer
}

/// The server has one connection: an answer shows that it is free.
async fn check_free(host: &Host) {
    let answer = host.exchange(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn frames_that_break_the_protocol_end_the_connection() {
    let host = Host::with(ServerConfig { max_connections: 1, ..ServerConfig::default() }).await;
    host.session_closing("says").await;
    let huge = [&[0x81, 0xff][..], &(u64::MAX >> 1).to_be_bytes(), &[0; 4]].concat();
    let frames: [(&str, &[u8], Option<u16>); 8] = [
        ("without a mask", &[0x81, 0x01, b'x'], None),
        ("a reserved opcode", &[0x83, 0x80, 0, 0, 0, 0], None),
        ("reserved bits", &[0xf1, 0x80, 0, 0, 0, 0], None),
        ("a continuation of nothing", &[0x80, 0x80, 0, 0, 0, 0], None),
        ("a fragmented ping", &[0x09, 0x80, 0, 0, 0, 0], None),
        ("more bytes than there are", huge.as_slice(), Some(1009)),
        ("a text that is none", &[0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28], Some(1003)),
        ("bytes", &[0x82, 0x81, 0, 0, 0, 0, 1], Some(1003)),
    ];
    for path in PATHS {
        for (what, frame, code) in frames {
            let answer = exchange(&host, path, frame).await;
            let text = String::from_utf8_lossy(&answer);
            assert!(text.starts_with("HTTP/1.1 101"), "{path}: {what}: {text}");
            if let Some(code) = code {
                // A close frame of the server has the code after two bytes.
                let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
                let close = &answer[end..];
                assert_eq!((close[0], u16::from_be_bytes([close[2], close[3]])), (0x88, code), "{path}: {what}");
            }
            check_free(&host).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_falls_silent_loses_its_connection() {
    let config = ServerConfig { max_connections: 1, keep_alive: Duration::from_millis(30), ..ServerConfig::default() };
    let host = Host::with(config).await;
    host.session_closing("says").await;
    for path in PATHS {
        // It answers no ping, as a machine that is gone.
        let answer = exchange(&host, path, b"").await;
        assert!(answer.starts_with(b"HTTP/1.1 101") && answer.ends_with(&[0x89, 0]), "{path}: {answer:?}");
        // Half of a frame, and nothing more.
        exchange(&host, path, &[0x81, 0xfe, 0x01]).await;
        check_free(&host).await;
    }
}
