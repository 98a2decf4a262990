//! Limits of request bodies: bytes per route, JSON values, and total memory.

use hatchery::{ByteSize, ServerConfig};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::support::{Host, post_bytes, problem, run_body, success, wait_for};

const SESSIONS: &str = "/apps/says/users/u/sessions";

#[tokio::test]
async fn only_routes_with_content_accept_more_than_a_megabyte() {
    let host = Host::with(ServerConfig { allow_import: true, ..ServerConfig::default() }).await;
    host.session("says").await;
    let large = "x".repeat(2 << 20);
    let detail = "the body is larger than 1 MiB (1048576 bytes)";
    let changed = host.request(Method::PATCH, &format!("{SESSIONS}/s")).json(&json!({"stateDelta": {"k": large}}));
    let created = host.request(Method::POST, &format!("{SESSIONS}/other")).json(&json!({"k": large}));
    for request in [changed, created] {
        let body = problem(request.send().await.unwrap(), 413, "BODY_TOO_LARGE").await;
        assert_eq!(body["detail"], detail);
    }
    let artifact = json!({"filename": "a.txt", "artifact": {"text": large}});
    success(host.post(&format!("{SESSIONS}/s/artifacts"), &artifact).await).await;
    let events = json!([{"author": "user", "content": {"role": "user", "parts": [{"text": large}]}}]);
    success(host.post(SESSIONS, &json!({"events": events})).await).await;
    // The agent copies it to the state, which has another limit.
    problem(host.post("/run", &run_body("says", &large)).await, 413, "QUOTA_EXCEEDED").await;
}

#[tokio::test]
async fn a_body_of_many_small_values_is_rejected() {
    let host = Host::start().await;
    let zeros = format!("{{\"stateDelta\":{{\"k\":[{}0]}}}}", "0,".repeat(1_000_000));
    let request = host.request(Method::POST, "/run").header("content-type", "application/json").body(zeros);
    let body = problem(request.send().await.unwrap(), 413, "TOO_MANY_VALUES").await;
    assert_eq!(body["detail"], "the body has more than 1000000 JSON values; send fewer per request");
}

#[tokio::test]
async fn bodies_reserve_shared_memory_until_their_requests_end() {
    let budget = 1 << 20;
    let host = Host::with(ServerConfig { body_memory: ByteSize(budget), ..ServerConfig::default() }).await;
    host.session("waits").await;
    host.session("says").await;
    let available = || host.state.available_body_memory();
    assert_eq!(available(), budget);
    // Received and parsed, it uses most of the budget.
    let text = "x".repeat(450 << 10);
    let mut first = host.connect(&post_bytes("/run", &run_body("waits", &text))).await;
    wait_for(&host.signals.started).await;
    let held = budget - available();
    assert!((900 << 10..920 << 10).contains(&held), "{held} bytes are held");

    let response = host.post("/run", &run_body("says", &text)).await;
    assert_eq!(response.headers()["retry-after"], "1");
    let body = problem(response, 503, "BODY_MEMORY").await;
    assert_eq!(body["detail"], "other requests use all memory for bodies; try again");
    success(host.post("/run", &run_body("says", "a small one")).await).await;

    host.signals.resume.add_permits(1);
    let mut answer = String::new();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    while available() < budget {
        tokio::task::yield_now().await;
    }
    success(host.post("/run", &run_body("says", &text)).await).await;
}

#[tokio::test]
async fn a_stream_keeps_the_reservation_of_its_request_until_it_ends() {
    let host = Host::start().await;
    host.session("waits").await;
    let whole = host.state.available_body_memory();
    let mut stream = host.connect(&post_bytes("/run_sse", &run_body("waits", &"x".repeat(100 << 10)))).await;
    wait_for(&host.signals.started).await;
    assert!(host.state.available_body_memory() <= whole - (200 << 10));
    host.signals.resume.add_permits(1);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("Done."), "{answer}");
    while host.state.available_body_memory() < whole {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_body_that_can_never_fit_is_too_large() {
    let host = Host::with(ServerConfig { body_memory: ByteSize(64 << 10), ..ServerConfig::default() }).await;
    let body: Value =
        problem(host.post("/run", &run_body("says", &"x".repeat(70 << 10))).await, 413, "BODY_TOO_LARGE").await;
    assert_eq!(body["detail"], "the body needs more memory than all request bodies may use, 64 KiB (65536 bytes)");
}
