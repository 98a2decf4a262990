//! HTTP/2 without TLS, on the port of HTTP/1.1. With TLS it is chosen by ALPN, which the tests of TLS cover.

use std::time::Duration;

use futures::future::join_all;
use hatchery::{ByteSize, ServerConfig};
use hatchery_core::JsonMap;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::{Client, Version};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::support::{Host, TIMEOUT, run_body, wait_for};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

fn client() -> Client {
    Client::builder().no_proxy().timeout(TIMEOUT).http2_prior_knowledge().build().unwrap()
}

/// Connects without a window that a client grants again by itself: it is granted when the response is read.
pub async fn connect(host: &Host) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(host.address).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(64 << 10).initial_connection_window_size(1 << 20);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub fn get(authority: &str, path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://{authority}{path}")).body(Full::default()).unwrap()
}

fn post(path: &str, body: &Value) -> Request<Full<Bytes>> {
    let request = Request::post(format!("http://localhost{path}")).header("content-type", "application/json");
    request.body(Full::from(body.to_string())).unwrap()
}

/// Returns the unread body of a successful response.
fn ok(response: Response<Incoming>) -> Incoming {
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

#[tokio::test]
async fn many_runs_share_one_connection() {
    let host = Host::with(ServerConfig { max_connections: 1, ..ServerConfig::default() }).await;
    let (client, root) = (client(), format!("http://{}", host.address));
    let runs = (0..20).map(async |number| {
        let session = format!("{root}/apps/says/users/u/sessions/s{number}");
        assert_eq!(client.post(session).json(&json!({})).send().await.unwrap().status(), 200);
        let mut body = run_body("says", &format!("hi {number}"));
        body["sessionId"] = format!("s{number}").into();
        let answer = client.post(format!("{root}/run_sse")).json(&body).send().await.unwrap();
        assert_eq!(answer.version(), Version::HTTP_2);
        assert!(answer.text().await.unwrap().contains(&format!("You said: hi {number}")));
    });
    join_all(runs).await;
}

#[tokio::test]
async fn both_versions_are_served_on_one_port() {
    let host = Host::start().await;
    let old = host.get("/version").await;
    let new = client().get(format!("http://{}/version", host.address)).send().await.unwrap();
    assert_eq!((old.version(), new.version()), (Version::HTTP_11, Version::HTTP_2));
    assert_eq!(old.text().await.unwrap(), new.text().await.unwrap());
}

#[tokio::test]
async fn the_limit_of_a_peer_counts_requests_and_not_only_connections() {
    let host = Host::with(ServerConfig { max_connections_per_peer: 2, ..ServerConfig::default() }).await;
    let mut sender = connect(&host).await;
    let mut waiting = Vec::new();
    for user in ["a", "b"] {
        host.services.sessions.create("waits", user, Some("s"), JsonMap::new()).await.unwrap();
        let mut run = run_body("waits", "hi");
        run["userId"] = user.into();
        waiting.push(ok(sender.send_request(post("/run_sse", &run)).await.unwrap()));
        wait_for(&host.signals.started).await;
    }
    let refused = sender.send_request(get("localhost", "/version")).await.unwrap();
    assert_eq!(
        (refused.status(), &refused.headers()["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    assert_eq!(refused.headers()["x-content-type-options"], "nosniff");
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["code"], "TOO_MANY_STREAMS", "{body}");
    assert_eq!(body["detail"], "this peer has the maximum number of requests in progress; wait until some have ended");
    // A cancelled response releases its stream.
    drop(waiting.pop());
    let served =
        async { while sender.send_request(get("localhost", "/version")).await.unwrap().status() != StatusCode::OK {} };
    tokio::time::timeout(TIMEOUT, served).await.expect("the place stays taken");
}

#[tokio::test]
async fn a_request_beyond_the_total_is_not_blamed_on_its_peer() {
    let limits = ServerConfig { max_connections: 1, max_connections_per_peer: 1, ..ServerConfig::default() };
    let host = Host::with(limits).await;
    host.services.sessions.create("waits", "u", Some("s"), JsonMap::new()).await.unwrap();
    let mut sender = connect(&host).await;
    let _waiting = ok(sender.send_request(post("/run_sse", &run_body("waits", "hi"))).await.unwrap());
    let refused = sender.send_request(get("localhost", "/version")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["code"], "TOO_MANY_STREAMS", "{body}");
    assert_eq!(body["detail"], "the server has the maximum number of requests in progress; try again");
}

#[tokio::test]
async fn large_responses_that_are_not_read_do_not_fill_the_memory() {
    let host = Host::with(ServerConfig { body_memory: ByteSize(50 << 20), ..ServerConfig::default() }).await;
    host.session("floods").await;
    host.signals.resume.add_permits(1);
    let whole = host.state.available_body_memory();
    // The session has 24 MiB then.
    let answer = host.post("/run", &run_body("floods", "go")).await.bytes().await.unwrap();
    assert!(answer.len() > 24 << 20);
    let released = async {
        while host.state.available_body_memory() < whole {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, released).await.expect("the memory of the run is not released");
    let mut sender = connect(&host).await;
    let session = || get("localhost", "/apps/floods/users/u/sessions/s");
    let unread = [ok(sender.send_request(session()).await.unwrap()), ok(sender.send_request(session()).await.unwrap())];
    let refused = sender.send_request(session()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("BODY_MEMORY"), "{body:?}");
    drop(unread);
    let served = async { while sender.send_request(session()).await.unwrap().status() != StatusCode::OK {} };
    tokio::time::timeout(TIMEOUT, served).await.expect("the memory is not released");
}

#[tokio::test]
async fn a_foreign_authority_is_refused_like_a_foreign_host() {
    let host = Host::start().await;
    let mut sender = connect(&host).await;
    let answer = sender.send_request(get("rebound.example", "/list-apps")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("HOST_NOT_ALLOWED"), "{body:?}");
    assert_eq!(sender.send_request(get("localhost", "/list-apps")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_response_that_is_not_read_is_reset_and_others_on_its_connection_go_on() {
    let config = ServerConfig {
        write_timeout: Duration::from_millis(100),
        cancel_on_disconnect: Some(true),
        ..ServerConfig::default()
    };
    let host = Host::with(config).await;
    host.session("floods").await;
    let mut sender = connect(&host).await;
    let run = Request::post("http://localhost/run_sse").header("content-type", "application/json");
    let run = run.body(Full::from(run_body("floods", "hello").to_string())).unwrap();
    let mut unread = sender.send_request(run).await.unwrap().into_body();
    // The run is cancelled with its response.
    wait_for(&host.signals.cancelled).await;
    assert_eq!(sender.send_request(get("localhost", "/health")).await.unwrap().status(), StatusCode::OK);
    let mut received = 0;
    let end = async {
        while let Some(Ok(frame)) = unread.frame().await {
            received += frame.into_data().map_or(0, |data| data.len());
        }
    };
    tokio::time::timeout(TIMEOUT, end).await.expect("the response is not reset");
    assert!(received < 1 << 20, "{received} bytes of 24 MiB arrived");
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let config = ServerConfig {
        head_timeout: Duration::from_millis(200),
        write_timeout: Duration::from_millis(200),
        ..ServerConfig::default()
    };
    let host = Host::with(config).await;
    let with_settings = [PREFACE, EMPTY_SETTINGS].concat();
    for sent in [&b"PRI * HT"[..], PREFACE, &with_settings] {
        let mut stream = host.connect(sent).await;
        let mut answer = Vec::new();
        tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("it stays open").unwrap();
    }
}

#[tokio::test]
async fn a_run_in_progress_ends_before_the_server_stops() {
    let mut host = Host::start().await;
    host.session("waits").await;
    let answer = client().post(format!("http://{}/run_sse", host.address)).json(&run_body("waits", "hi"));
    let answer = answer.send().await.unwrap();
    wait_for(&host.signals.started).await;
    host.stop();
    host.signals.resume.add_permits(1);
    assert!(answer.text().await.unwrap().contains("Done."));
    host.stopped().await;
}
