//! Answers of an API, good and bad.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hatchery_core::SessionKey;
use hatchery_test_support::{SESSION, USER};
use serde_json::json;

use crate::support::*;

fn body(media_type: &'static str, body: &'static str) -> Response {
    ([(header::CONTENT_TYPE, media_type)], body).into_response()
}

/// Returns an API with one operation, whose answers are these.
async fn answering(answer: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Api {
    Server::start(move |_| answer()).await.api(&operation(json!({})))
}

#[tokio::test]
async fn json_is_the_result_and_a_text_is_a_text() {
    let op = |answer: fn() -> Response| async move { answering(answer).await.call("op", json!({})).await };
    assert_eq!(op(|| body("application/json", "{\"a\": [1]}")).await, json!({"a": [1]}));
    assert_eq!(op(|| body("application/vnd.shop+json; charset=utf-8", "[1]")).await, json!({"result": [1]}));
    assert_eq!(op(|| body("text/plain", "12")).await, json!({"result": "12"}));
    assert_eq!(op(|| body("application/xml", "<a/>")).await, json!({"result": "<a/>"}));
    assert_eq!(op(|| StatusCode::NO_CONTENT.into_response()).await, json!({"status": 204}));
}

#[tokio::test]
async fn a_file_becomes_an_artifact() {
    let api = answering(|| body("image/png", "PNG")).await;
    let calls = Calls::new(api.toolset(), &[("op", json!({}))]).await;
    let expected = json!({"artifact": "openapi/shop/op.png", "version": 0, "mimeType": "image/png", "bytes": 3});
    assert_eq!(calls.response().await, expected);
    let key = SessionKey::new("app", USER, SESSION);
    let stored = calls.harness.runner.services().artifacts.load(&key, "openapi/shop/op.png", None).await.unwrap();
    assert!(stored.is_some());
}

#[tokio::test]
async fn an_error_has_the_status_and_the_beginning_of_the_body() {
    let api = answering(|| (StatusCode::NOT_FOUND, "{\"detail\": \"no pet 7\"}").into_response()).await;
    assert_eq!(
        api.error("op", json!({})).await,
        "`op` of the API `shop` answered with the status 404 Not Found: {\\\"detail\\\": \\\"no pet 7\\\"}"
    );
    let api = answering(|| (StatusCode::BAD_GATEWAY, "x".repeat(10_000)).into_response()).await;
    let error = api.error("op", json!({})).await;
    assert!(error.ends_with("xxx…") && error.len() < 2_100, "{}", error.len());
    let api = answering(|| StatusCode::FORBIDDEN.into_response()).await;
    assert_eq!(
        api.error("op", json!({})).await,
        "`op` of the API `shop` answered with the status 403 Forbidden: without a body"
    );
}

#[tokio::test]
async fn json_that_is_none_is_an_error_with_the_beginning_of_it() {
    let api = answering(|| body("application/json", "<html>Sorry</html>")).await;
    assert_eq!(
        api.error("op", json!({})).await,
        "`op` of the API `shop` answered with `application/json` that is not JSON (expected value at line 1 column 1): \
         <html>Sorry</html>"
    );
}

#[tokio::test]
async fn an_answer_is_read_up_to_its_limit() {
    let endless = || {
        let chunks = futures::stream::repeat_with(|| Ok::<_, std::io::Error>("x".repeat(65_536)));
        axum::body::Body::from_stream(chunks).into_response()
    };
    let api = answering(endless).await;
    assert_eq!(
        api.error("op", json!({})).await,
        "the call of `op` of the API `shop` failed: its answer is larger than 1048576 bytes; ask for less, such as one page \
         or fewer fields"
    );
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut api = Server::echo().await.api(&operation(json!({})));
    let address = silent.local_addr().unwrap().to_string();
    api.config.base_url = Some(format!("http://{address}"));
    api.config.egress = std::sync::Arc::new(Only(address));
    api.config.limits.call_timeout = Duration::from_millis(50);
    assert_eq!(
        api.error("op", json!({})).await,
        "the call of `op` of the API `shop` failed: it did not answer within 0.05 s, so the request was given up; it may have \
         had an effect"
    );
}

#[tokio::test]
async fn requests_go_only_where_the_policy_allows_it() {
    let (server, other) = (Server::echo().await, Server::echo().await);
    let mut api = server.api(&operation(json!({})));
    api.config.base_url = Some(other.url(""));
    let refused = "the call of `op` of the API `shop` failed: the host may not connect there; the log of the host holds the cause";
    assert_eq!(api.error("op", json!({})).await, refused);
    assert_eq!(other.requests(), Vec::<serde_json::Value>::new());
    let mut api = server.api(&operation(json!({})));
    api.config.base_url = Some(other.url("").replace("127.0.0.1", "localhost"));
    api.config.egress = std::sync::Arc::new(NoAddress);
    assert_eq!(api.error("op", json!({})).await, refused);
}

#[tokio::test]
async fn redirects_are_followed_to_the_same_server_only() {
    let inside = Server::echo().await;
    let target = inside.url("/secret");
    let server = Server::start(move |request| {
        let to = |location: &str| (StatusCode::FOUND, [(header::LOCATION, location.to_owned())]).into_response();
        match request["path"].as_str().unwrap() {
            "/v1/near" => to("/v1/end?a=1"),
            "/v1/far" => to(&target),
            "/v1/cycle" => to("/v1/cycle"),
            _ => axum::Json(request).into_response(),
        }
    })
    .await;
    let api = server.api(&document(json!({
        "/near": {"get": {"operationId": "near"}, "post": {"operationId": "write"}},
        "/far": {"get": {"operationId": "far"}},
        "/cycle": {"get": {"operationId": "cycle"}},
    })));
    let request = api.call("near", json!({})).await;
    assert_eq!((&request["path"], &request["query"]), (&json!("/v1/end"), &json!("a=1")));
    let refused = |operation: &str, to: &str| {
        format!(
            "the call of `{operation}` of the API `shop` failed: it redirects to `{to}`; the host follows redirects only for \
             read requests to the same server"
        )
    };
    assert_eq!(api.error("far", json!({})).await, refused("far", &inside.url("/secret")));
    assert_eq!(api.error("write", json!({})).await, refused("write", "/v1/end?a=1"));
    assert_eq!(api.error("cycle", json!({})).await, refused("cycle", &server.url("/v1/cycle")));
    assert_eq!(inside.requests(), Vec::<serde_json::Value>::new());
}
