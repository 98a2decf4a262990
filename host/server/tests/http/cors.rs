//! Requests of pages of other origins.

use hatchery::{CorsConfig, ServerConfig};
use reqwest::header::HeaderMap;
use reqwest::{Method, Response};
use serde_json::json;

use crate::support::{Host, problem};

const APP: &str = "https://app.example";

async fn host(rules: Vec<CorsConfig>) -> Host {
    Host::with(ServerConfig { cors: rules, ..ServerConfig::default() }).await
}

fn rule(origin: &str) -> CorsConfig {
    CorsConfig { origins: vec![origin.into()], ..CorsConfig::default() }
}

/// Sends what a browser sends before a request of a page.
async fn preflight(host: &Host, path: &str, origin: &str, method: &str, headers: &str) -> Response {
    let request = host.request(Method::OPTIONS, path).header("origin", origin).header("sec-fetch-site", "cross-site");
    let request = request.header("sec-fetch-mode", "cors").header("access-control-request-method", method);
    request.header("access-control-request-headers", headers).send().await.unwrap()
}

async fn get(host: &Host, path: &str, origin: &str) -> Response {
    let request = host.request(Method::GET, path).header("origin", origin).header("sec-fetch-site", "cross-site");
    request.send().await.unwrap()
}

fn shared_with(headers: &HeaderMap) -> Option<&str> {
    headers.get("access-control-allow-origin").map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_preflight_request_of_an_allowed_origin_is_answered_with_all_six_properties() {
    let rule = CorsConfig {
        mapping: "/apps/**".into(),
        methods: vec!["GET".into(), "POST".into()],
        headers: vec!["content-type".into(), "authorization".into()],
        allow_credentials: true,
        max_age: std::time::Duration::from_secs(90),
        ..rule(APP)
    };
    let host = host(vec![rule]).await;
    let path = "/apps/says/users/u/sessions";
    let answer = preflight(&host, path, APP, "POST", "Content-Type, Authorization").await;
    assert_eq!(answer.status(), 204);
    let headers = answer.headers();
    for (name, expected) in [
        ("access-control-allow-origin", APP),
        ("access-control-allow-methods", "GET, POST"),
        ("access-control-allow-headers", "Content-Type, Authorization"),
        ("access-control-allow-credentials", "true"),
        ("access-control-max-age", "90"),
        ("vary", "Origin"),
    ] {
        assert_eq!(headers[name], expected, "{name}");
    }
    let refused = preflight(&host, path, APP, "DELETE", "").await;
    assert_eq!(shared_with(refused.headers()), Some(APP), "the page can read why");
    let detail = problem(refused, 403, "CORS_NOT_ALLOWED").await["detail"].clone();
    assert_eq!(detail, "Forbidden: pages of other origins may not send DELETE requests to this path");
    let refused = preflight(&host, path, APP, "POST", "content-type, x-other").await;
    let detail = problem(refused, 403, "CORS_NOT_ALLOWED").await["detail"].clone();
    assert_eq!(detail, "Forbidden: pages of other origins may not send the header `x-other`");
    problem(preflight(&host, "/run", APP, "POST", "").await, 403, "ORIGIN_NOT_ALLOWED").await;
}

#[tokio::test]
async fn a_preflight_request_of_a_foreign_origin_is_refused() {
    let host = host(vec![rule(APP)]).await;
    for origin in ["https://evil.example", "https://app.example.evil.example", "http://app.example", "null"] {
        let answer = preflight(&host, "/list-apps", origin, "GET", "").await;
        assert_eq!(shared_with(answer.headers()), None, "{origin}");
        assert_eq!(answer.headers()["vary"], "Origin");
        problem(answer, 403, "ORIGIN_NOT_ALLOWED").await;
        let answer = get(&host, "/list-apps", origin).await;
        assert_eq!(shared_with(answer.headers()), None, "{origin}");
        problem(answer, 403, "ORIGIN_NOT_ALLOWED").await;
    }
}

#[tokio::test]
async fn pages_of_an_allowed_origin_send_requests_and_read_answers_and_errors() {
    let host = host(vec![rule(APP)]).await;
    let answer = get(&host, "/list-apps", APP).await;
    assert_eq!((answer.status().as_u16(), shared_with(answer.headers())), (200, Some(APP)));
    assert!(!answer.headers().contains_key("access-control-allow-credentials"));
    let exposed = answer.headers()["access-control-expose-headers"].to_str().unwrap().to_owned();
    assert!(exposed.contains("x-hatchery-run"), "{exposed}");
    let created = host.request(Method::POST, "/apps/says/users/u/sessions/s").header("origin", APP).json(&json!({}));
    assert_eq!(created.send().await.unwrap().status(), 200);
    let missing = get(&host, "/apps/says/users/u/sessions/t", APP).await;
    assert_eq!(shared_with(missing.headers()), Some(APP));
    problem(missing, 404, "SESSION_NOT_FOUND").await;
    // Images of other pages have no origin.
    let image = host.request(Method::GET, "/list-apps").header("sec-fetch-site", "cross-site").send().await.unwrap();
    problem(image, 403, "SITE_NOT_ALLOWED").await;
    // A page that has rebound its own name to this server is of that name's origin.
    let rebound = host.request(Method::GET, "/list-apps").header("host", "rebound.example").header("origin", APP);
    problem(rebound.send().await.unwrap(), 403, "HOST_NOT_ALLOWED").await;
}

#[tokio::test]
async fn an_asterisk_lets_every_origin_in_without_credentials() {
    let host = host(vec![CorsConfig { methods: vec!["*".into()], ..rule("*") }]).await;
    let answer = preflight(&host, "/run", "https://anything.example", "PATCH", "x-api-key").await;
    assert_eq!((answer.status().as_u16(), shared_with(answer.headers())), (204, Some("*")));
    assert_eq!(answer.headers()["access-control-allow-methods"], "PATCH");
    assert_eq!(answer.headers()["access-control-allow-headers"], "x-api-key");
    assert!(!answer.headers().contains_key("access-control-allow-credentials"));
    assert_eq!(get(&host, "/list-apps", "https://anything.example").await.status(), 200);
}

#[tokio::test]
async fn without_rules_no_page_of_another_origin_gets_in() {
    let host = Host::start().await;
    let answer = preflight(&host, "/list-apps", APP, "GET", "").await;
    assert!(!answer.headers().contains_key("vary"));
    problem(answer, 403, "ORIGIN_NOT_ALLOWED").await;
}

#[tokio::test]
async fn rules_do_not_restrict_the_pages_of_the_server_itself() {
    let host = host(vec![CorsConfig { methods: vec!["GET".into()], ..rule("*") }]).await;
    let own = format!("http://{}", host.address);
    let created = host.request(Method::POST, "/apps/says/users/u/sessions/s").header("origin", own);
    let created = created.header("sec-fetch-site", "same-origin").json(&json!({})).send().await.unwrap();
    assert_eq!((created.status().as_u16(), shared_with(created.headers())), (200, None));
    let foreign = host.request(Method::POST, "/apps/says/users/u/sessions/t").header("origin", APP);
    problem(foreign.json(&json!({})).send().await.unwrap(), 403, "CORS_NOT_ALLOWED").await;
}
