//! Errors as problem details.

use std::time::Duration;

use hatchery::{ByteSize, ServerConfig};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Host, post_bytes, problem, run_body, success};

#[tokio::test]
async fn an_unknown_route_is_named() {
    let host = Host::start().await;
    let body = problem(host.get("/apps/says/nothing").await, 404, "ROUTE_NOT_FOUND").await;
    assert_eq!(body["detail"], "no route for GET /apps/says/nothing");
    assert_eq!(body["title"], "Not Found");
}

#[tokio::test]
async fn a_wrong_method_is_an_error_with_the_allowed_ones() {
    let host = Host::start().await;
    for path in ["/run", "/a2a/says"] {
        let response = host.get(path).await;
        assert_eq!(response.headers()["allow"], "POST");
        let body = problem(response, 405, "METHOD_NOT_ALLOWED").await;
        let detail = format!("{path} does not support GET; the Allow header lists the supported methods");
        assert_eq!(body["detail"], detail);
    }
}

#[tokio::test]
async fn malformed_json_is_400_with_its_position() {
    let host = Host::start().await;
    let post = |body: &'static str| {
        host.request(Method::POST, "/run").header("content-type", "application/json").body(body).send()
    };
    let body = problem(post("{\n  \"appName\": oops}").await.unwrap(), 400, "MALFORMED_JSON").await;
    assert_eq!(body["detail"], "the body is not valid JSON: expected value at line 2 column 14");
    let body = problem(post("{\"appName\": \"says\"").await.unwrap(), 400, "MALFORMED_JSON").await;
    assert!(body["detail"].as_str().unwrap().contains("EOF"), "{body}");
    let body = problem(post("").await.unwrap(), 400, "MALFORMED_JSON").await;
    assert_eq!(body["detail"], "the body is empty; it must be a JSON object");
}

#[tokio::test]
async fn deeply_nested_json_is_rejected() {
    let host = Host::start().await;
    let request = host.request(Method::POST, "/run").header("content-type", "application/json");
    let body = problem(request.body("[".repeat(100_000)).send().await.unwrap(), 422, "INVALID_REQUEST").await;
    assert!(body["detail"].is_string());
    let nested = format!("{{\"stateDelta\":{{\"k\":{}", "[".repeat(100_000));
    let request = host.request(Method::POST, "/run").header("content-type", "application/json");
    let body = problem(request.body(nested).send().await.unwrap(), 400, "MALFORMED_JSON").await;
    assert!(body["detail"].as_str().unwrap().contains("recursion limit exceeded"), "{body}");
}

#[tokio::test]
async fn a_value_of_the_wrong_type_is_422_with_its_position() {
    let host = Host::start().await;
    for (key, value, expected) in [
        ("appName", json!(1), "expected a string"),
        ("streaming", json!("yes"), "expected a boolean"),
        ("stateDelta", json!([]), "expected an object"),
        ("newMessage", json!("hello"), "expected an object"),
        ("newMessage", json!({"parts": [{"inlineData": {"mimeType": "image/png", "data": "not base64!"}}]}), "base64"),
    ] {
        let mut body = run_body("says", "hello");
        body[key] = value;
        let body = problem(host.post("/run", &body).await, 422, "INVALID_REQUEST").await;
        let detail = body["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("invalid body: {key}")), "{body}");
        assert!(detail.contains(expected) && detail.contains(" at line 1 column "), "{body}");
    }
}

#[tokio::test]
async fn a_body_that_is_an_array_is_422() {
    let host = Host::start().await;
    host.session("says").await;
    let message = json!({"parts": [{"text": "hello"}]});
    let run = json!(["says", "u", "s", message, null, null, null, null, null, null]);
    let sessions = "/apps/says/users/u/sessions";
    let fork = format!("{sessions}/s/fork");
    for (path, body) in [("/run", run), (sessions, json!([])), (fork.as_str(), json!([]))] {
        let body = problem(host.post(path, &body).await, 422, "INVALID_REQUEST").await;
        assert_eq!(body["detail"], "invalid body: it must be a JSON object, not an array", "{path}");
    }
    assert_eq!(host.get_json(sessions).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_body_with_another_content_type_is_415() {
    let host = Host::start().await;
    let request = host.request(Method::POST, "/run").header("content-type", "text/plain").body("{}");
    let body = problem(request.send().await.unwrap(), 415, "UNSUPPORTED_MEDIA_TYPE").await;
    assert_eq!(
        body["detail"],
        "the body must be JSON: send the header `Content-Type: application/json` (got `text/plain`)"
    );
    let body =
        problem(host.request(Method::POST, "/run").body("{}").send().await.unwrap(), 415, "UNSUPPORTED_MEDIA_TYPE")
            .await;
    assert!(body["detail"].as_str().unwrap().ends_with("(got none)"), "{body}");
    for fine in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.adk+json"] {
        let request = host.request(Method::POST, "/run").header("content-type", fine).body("{}");
        problem(request.send().await.unwrap(), 400, "BAD_INPUT").await;
    }
}

#[tokio::test]
async fn a_compressed_body_is_415() {
    let host = Host::start().await;
    host.session("says").await;
    for (method, path) in [(Method::POST, "/run"), (Method::PUT, "/apps/says/users/u/sessions/s/artifacts/a.json")] {
        let request = |coding: &'static str| {
            let request = host.request(method.clone(), path).header("content-type", "application/json");
            request.header("content-encoding", coding).body("{}").send()
        };
        let body = problem(request("gzip").await.unwrap(), 415, "UNSUPPORTED_MEDIA_TYPE").await;
        let expected = "the body is encoded as `gzip`; send it unencoded, without the header `Content-Encoding`";
        assert_eq!(body["detail"], expected, "{path}");
        assert_ne!(request("identity").await.unwrap().status(), 415, "{path}");
    }
}

#[tokio::test]
async fn twenty_megabytes_exceed_the_default_limit() {
    let host = Host::start().await;
    let body = run_body("says", &"a".repeat(20 << 20));
    let body = problem(host.post("/run", &body).await, 413, "BODY_TOO_LARGE").await;
    assert_eq!(body["detail"], "the body is larger than 16 MiB (16777216 bytes)");
}

#[tokio::test]
async fn the_body_limit_applies_to_bodies_of_unknown_length() {
    let host = Host::with(ServerConfig { body_limit: ByteSize(1000), ..ServerConfig::default() }).await;
    let chunk = || Ok::<_, std::io::Error>(vec![b' '; 400]);
    for (chunks, status) in [(2, 400), (3, 413)] {
        let body = reqwest::Body::wrap_stream(futures::stream::iter((0..chunks).map(move |_| chunk())));
        let request = host.request(Method::POST, "/run").header("content-type", "application/json").body(body);
        assert_eq!(request.send().await.unwrap().status(), status, "{chunks} chunks");
    }
}

#[tokio::test]
async fn a_client_that_expects_100_continue_is_rejected_at_once() {
    let host = Host::start().await;
    let head = "POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20971520\r\n\
                Expect: 100-continue\r\n\r\n";
    let mut stream = host.connect(head.as_bytes()).await;
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_body_that_ends_early_affects_no_other_client() {
    let host = Host::start().await;
    let mut stream = host.connect(b"POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"app").await;
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    // The response depends on the HTTP library; other clients must still be served.
    let _ = stream.read_to_end(&mut answer).await;
    assert_eq!(host.get_json("/health").await, json!({"status": "ok"}));
}

#[tokio::test]
async fn missing_fields_of_a_run_are_named() {
    let host = Host::start().await;
    host.session("says").await;
    for key in ["appName", "userId", "sessionId", "newMessage"] {
        for value in [None, Some(Value::Null)] {
            let mut body = run_body("says", "hello");
            match value {
                None => drop(body.as_object_mut().unwrap().remove(key)),
                Some(value) => body[key] = value,
            }
            for path in ["/run", "/run_sse"] {
                let body = problem(host.post(path, &body).await, 400, "BAD_INPUT").await;
                assert_eq!(body["detail"], format!("`{key}` is missing or empty"));
            }
        }
    }
    let mut body = run_body("says", "hello");
    body["sessionId"] = json!(" ");
    problem(host.post("/run", &body).await, 400, "BAD_INPUT").await;
    body = run_body("says", "hello");
    body["newMessage"] = json!({"role": "user", "parts": []});
    let body = problem(host.post("/run", &body).await, 422, "INVALID_MESSAGE").await;
    assert!(body["detail"].as_str().unwrap().contains("parts"), "{body}");
}

#[tokio::test]
async fn a_panic_is_a_500_without_internals() {
    let host = Host::start().await;
    let body = problem(host.get("/apps/panics/users/u/sessions").await, 500, "INTERNAL").await;
    assert_eq!(body["detail"], "the server failed; its log has the cause, with the id in x-request-id");
    assert_eq!(host.get_json("/health").await, json!({"status": "ok"}));
}

#[tokio::test]
async fn every_response_has_a_request_id() {
    let host = Host::start().await;
    let response = host.get("/nowhere").await;
    assert_eq!(response.headers()["x-request-id"].len(), 36);
    let response = host.request(Method::GET, "/health").header("x-request-id", "mine").send().await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "mine");
}

#[tokio::test]
async fn pages_of_other_sites_cannot_reach_a_server_on_loopback() {
    let host = Host::start().await;
    let own = format!("http://{}", host.address);
    let request = host.request(Method::GET, "/list-apps").header("host", "evil.example:80");
    let body = problem(request.send().await.unwrap(), 403, "HOST_NOT_ALLOWED").await;
    assert!(body["detail"].as_str().unwrap().starts_with("Forbidden: host `evil.example:80` not allowed"), "{body}");
    let request = host.request(Method::POST, "/run").header("origin", "https://evil.example").json(&json!({}));
    let body = problem(request.send().await.unwrap(), 403, "ORIGIN_NOT_ALLOWED").await;
    assert!(body["detail"].as_str().unwrap().starts_with("Forbidden: origin `https://evil.example`"), "{body}");
    success(host.request(Method::GET, "/list-apps").header("origin", own).send().await.unwrap()).await;
    // Requests for images and scripts have no origin, but browsers mark them as cross-site.
    let request = host.request(Method::GET, "/list-apps").header("sec-fetch-site", "cross-site");
    let body = problem(request.send().await.unwrap(), 403, "SITE_NOT_ALLOWED").await;
    assert_eq!(
        body["detail"],
        "Forbidden: a `cross-site` browser request is not allowed; only pages of this server may send requests"
    );
}

#[tokio::test]
async fn a_server_on_the_network_accepts_its_configured_names() {
    let config = ServerConfig { allowed_hosts: vec!["agents.example".into()], ..ServerConfig::default() };
    let host = Host::bind(config, "0.0.0.0:0").await;
    let get = async |headers: &str| {
        let request = format!("GET /health HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n");
        String::from_utf8(host.exchange(request.as_bytes()).await).unwrap()
    };
    let own = get("Host: agents.example").await;
    assert!(own.starts_with("HTTP/1.1 200"), "{own}");
    let page = get("Host: agents.example\r\nOrigin: https://agents.example").await;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let rebound = get("Host: evil.example").await;
    assert!(rebound.starts_with("HTTP/1.1 403"), "{rebound}");
    assert!(
        rebound.contains("Forbidden: host `evil.example` not allowed; it is not a name of this server"),
        "{rebound}"
    );
    assert!(!rebound.contains("hatchery.yaml"), "{rebound}");
    let foreign = get("Host: agents.example\r\nOrigin: https://evil.example").await;
    assert!(foreign.starts_with("HTTP/1.1 403") && foreign.contains("ORIGIN_NOT_ALLOWED"), "{foreign}");
}

#[tokio::test]
async fn a_request_over_http_1_1_names_its_host_once() {
    let host = Host::start().await;
    let missing = "the header `Host` is missing; send the name of this server";
    let several = "the request has several headers `Host`; send one";
    for (head, status, detail) in [
        ("HTTP/1.1", 400, missing),
        ("HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", 400, several),
        ("HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 400, several),
        ("HTTP/1.1\r\nHost: localhost", 200, "ok"),
        ("HTTP/1.0", 200, "ok"),
    ] {
        let request = format!("GET /health {head}\r\nConnection: close\r\n\r\n");
        let answer = String::from_utf8(host.exchange(request.as_bytes()).await).unwrap();
        assert!(answer.contains(&format!(" {status} ")) && answer.contains(detail), "{head}: {answer}");
    }
}

#[tokio::test]
async fn a_body_that_is_never_sent_times_out() {
    let host =
        Host::with(ServerConfig { body_idle_timeout: Duration::from_millis(50), ..ServerConfig::default() }).await;
    for length in [100, 100 << 20] {
        let request = format!(
            "POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{{"
        );
        let answer = String::from_utf8(host.exchange(request.as_bytes()).await).unwrap();
        if length == 100 {
            assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("\"code\":\"BODY_TIMEOUT\""), "{answer}");
            assert!(answer.contains("no data of the body was received for 0.05 s; send it without pauses"), "{answer}");
        } else {
            assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_connection_without_a_complete_head_is_closed() {
    let host = Host::with(ServerConfig { head_timeout: Duration::from_millis(50), ..ServerConfig::default() }).await;
    for start in ["", "GET /health HTTP/1.1\r\nHost: local"] {
        assert_eq!(host.exchange(start.as_bytes()).await, b"", "{start}");
    }
    let idle = host.exchange(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(idle.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_connection_above_the_limit_waits_until_another_one_ends() {
    let host = Host::with(ServerConfig { max_connections: 1, ..ServerConfig::default() }).await;
    host.exchange(&post_bytes("/apps/waits/users/u/sessions/s", &json!({}))).await;
    let mut first = host.connect(&post_bytes("/run", &run_body("waits", "hello"))).await;
    crate::support::wait_for(&host.signals.started).await;
    let mut second = host.connect(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), second.read_exact(&mut byte)).await;
    assert!(early.is_err(), "it was answered at once");
    host.signals.resume.add_permits(1);
    let mut answer = String::new();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(first);
    answer.clear();
    second.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn an_address_in_use_is_an_error_with_the_next_step() {
    let host = Host::start().await;
    let address_in_use = host.address;
    let other = Host::start().await;
    let state = hatchery_server::AppState::new(
        hatchery_engine::Runner::new(other.services.clone()),
        std::sync::Arc::new(NoApps),
        ServerConfig::default(),
    );
    let error = hatchery_server::Server::bind(address_in_use, state).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {address_in_use}: ")), "{error}");
    assert!(error.ends_with("another program uses this port: choose another one, or 0 for any free port"), "{error}");
}

struct NoApps;

impl hatchery::AppSource for NoApps {
    fn app(&self, _: &str) -> Option<std::sync::Arc<hatchery_engine::App>> {
        None
    }

    fn app_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn report(&self) -> hatchery::CatalogReport {
        hatchery::CatalogReport::default()
    }
}

#[tokio::test]
async fn runs_above_the_limit_are_rejected_with_retry_after() {
    let host = Host::with(ServerConfig { max_concurrent_runs: 1, ..ServerConfig::default() }).await;
    host.session("waits").await;
    host.session("says").await;
    let mut first = host.connect(&post_bytes("/run", &run_body("waits", "hello"))).await;
    crate::support::wait_for(&host.signals.started).await;
    for path in ["/run", "/run_sse"] {
        let response = host.post(path, &run_body("says", "hello")).await;
        assert_eq!(response.headers()["retry-after"], "1");
        let body = problem(response, 503, "BUSY").await;
        assert_eq!(body["detail"], "the maximum of 1 run is active; try again");
    }
    host.signals.resume.add_permits(1);
    let mut answer = String::new();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn an_app_that_cannot_be_loaded_says_why() {
    let host = Host::start().await;
    for path in ["/run", "/run_sse"] {
        let body = problem(host.post(path, &run_body("broken", "hello")).await, 500, "APP_NOT_LOADED").await;
        assert_eq!(body["detail"], "App cannot be loaded: broken; not a component");
    }
}
