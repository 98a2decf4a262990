//! Limits of clients: requests per minute, and requests in progress.

use hatchery::ServerConfig;
use serde_json::json;

use super::{BACKEND, OPERATOR, USER, get, keys, post};
use crate::support::{Host, TIMEOUT, problem, run_body};
use crate::ws::Socket;

#[tokio::test]
async fn a_client_with_too_many_requests_waits_while_others_are_served() {
    let mut auth = keys();
    auth.requests_per_minute = 2;
    auth.keys[2].requests_per_minute = Some(3);
    let host = Host::with(ServerConfig { auth: Some(auth), ..ServerConfig::default() }).await;
    for (key, max) in [(BACKEND, 2), (USER, 3)] {
        for _ in 0..max {
            assert_eq!(get(&host, key, "/list-apps").await.status(), 200);
        }
        let refused = get(&host, key, "/list-apps").await;
        let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=30).contains(&wait), "{wait}");
        let detail = problem(refused, 429, "RATE_LIMITED").await["detail"].clone();
        assert_eq!(detail, format!("these credentials are for {max} requests per minute; send fewer"));
    }
    for _ in 0..5 {
        assert_eq!(get(&host, OPERATOR, "/list-apps").await.status(), 200);
    }
}

#[tokio::test]
async fn a_client_with_too_many_requests_in_progress_waits_while_others_are_served() {
    let mut auth = keys();
    auth.concurrent_requests = 1;
    auth.keys[1].apps.push("waits".into());
    auth.keys[2].concurrent_requests = Some(2);
    let host = Host::with(ServerConfig { auth: Some(auth), ..ServerConfig::default() }).await;
    assert_eq!(post(&host, OPERATOR, "/apps/waits/users/u/sessions/s", &json!({})).await.status(), 200);
    // The head of the response has arrived, and its stream is open.
    let stream = post(&host, BACKEND, "/run_sse", &run_body("waits", "hi")).await;
    assert_eq!(stream.status(), 200);
    let refused = get(&host, BACKEND, "/list-apps").await;
    assert_eq!(refused.headers()["retry-after"], "1");
    let body = problem(refused, 429, "CONCURRENCY_LIMITED").await;
    assert_eq!(body["detail"], "these credentials are for 1 request at a time; wait until one has ended");
    for key in [USER, OPERATOR] {
        assert_eq!(get(&host, key, "/list-apps").await.status(), 200);
    }
    host.signals.resume.add_permits(1);
    assert!(stream.text().await.unwrap().contains("Done."));
    // The host may see a moment later that everything is sent.
    let served = async { while get(&host, BACKEND, "/list-apps").await.status() != 200 {} };
    tokio::time::timeout(TIMEOUT, served).await.expect("the place is not given back");
}

#[tokio::test]
async fn a_websocket_and_each_of_its_runs_are_requests_in_progress() {
    let mut auth = keys();
    auth.concurrent_requests = 2;
    auth.keys[1].apps.push("waits".into());
    let host = Host::with(ServerConfig { auth: Some(auth), ..ServerConfig::default() }).await;
    for session in ["s", "t"] {
        let path = format!("/apps/waits/users/u/sessions/{session}");
        assert_eq!(post(&host, OPERATOR, &path, &json!({})).await.status(), 200);
    }
    let mut socket = Socket::open(&host, Some(BACKEND)).await;
    socket.send(&json!({"type": "start", "id": "a", "run": run_body("waits", "hi")})).await;
    assert_eq!(socket.next().await["type"], "started");
    problem(get(&host, BACKEND, "/list-apps").await, 429, "CONCURRENCY_LIMITED").await;
    socket.send(&json!({"type": "start", "id": "b", "run": run_body("waits", "hi")})).await;
    let refused = socket.until("error").await;
    assert_eq!((&refused["code"], &refused["retryAfter"]), (&json!("CONCURRENCY_LIMITED"), &json!(1)));
    // To cancel is no further request in progress.
    socket.send(&json!({"type": "cancel", "id": "a"})).await;
    assert_eq!(socket.until("end").await["run"]["state"], "cancelled");
    assert_eq!(get(&host, BACKEND, "/list-apps").await.status(), 200);
    drop(socket);
}
