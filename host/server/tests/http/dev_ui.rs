//! Routes of the developer UI.

use hatchery::{DevUi, ServerConfig};
use reqwest::{Method, Response};
use serde_json::json;

use crate::support::{Host, problem, success};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    media-src 'self' blob:; connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

#[tokio::test]
async fn the_root_redirects_to_the_developer_ui() {
    let host = Host::start().await;
    for (path, location) in [("/", "./dev-ui/"), ("/dev-ui", "dev-ui/"), ("/dev-ui?app=x", "dev-ui/?app=x")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = String::from_utf8(host.exchange(request.as_bytes()).await).unwrap().to_lowercase();
        assert!(answer.starts_with("http/1.1 307"), "{answer}");
        assert!(answer.contains(&format!("location: {location}\r\n")), "{answer}");
    }
}

#[tokio::test]
async fn every_place_in_the_page_is_the_page_with_a_strict_policy() {
    let host = Host::start().await;
    for (path, base) in [("", "./"), ("components", "./"), ("apps/dice/users/me", "../../../")] {
        let response = host.get(&format!("/dev-ui/{path}")).await;
        assert_eq!(header(&response, "content-type"), "text/html; charset=utf-8");
        assert_eq!(header(&response, "cache-control"), "no-cache");
        assert_eq!(header(&response, "content-security-policy"), POLICY);
        let html = response.text().await.unwrap();
        assert!(html.contains(&format!("<base href=\"{base}\">")), "{html}");
        assert!(html.contains("<meta name=\"hatchery-mode\" content=\"read\">"), "{html}");
    }
}

#[tokio::test]
async fn files_of_the_page_are_cached_for_good() {
    let host = Host::start().await;
    let html = host.get("/dev-ui/").await.text().await.unwrap();
    let files: Vec<_> = html.split('"').filter_map(|word| word.strip_prefix("./assets/")).collect();
    assert!(
        files.iter().any(|file| file.ends_with(".js")) && files.iter().any(|file| file.ends_with(".css")),
        "{html}"
    );
    for file in files {
        let path = format!("/dev-ui/assets/{file}");
        let response = host.get(&path).await;
        let expected = if file.ends_with(".js") { "text/javascript; charset=utf-8" } else { "text/css; charset=utf-8" };
        assert_eq!(header(&response, "content-type"), expected);
        assert_eq!(header(&response, "cache-control"), "public, max-age=31536000, immutable");
        let tag = header(&response, "etag").to_owned();
        let again = host.request(Method::GET, &path).header("if-none-match", &tag).send().await.unwrap();
        assert_eq!((again.status().as_u16(), again.bytes().await.unwrap().len()), (304, 0));
    }
    let missing = host.get("/dev-ui/assets/missing.js").await;
    assert_eq!((missing.status().as_u16(), header(&missing, "content-type")), (404, "application/problem+json"));
}

#[tokio::test]
async fn a_host_without_the_ui_has_no_page() {
    let host = Host::with(ServerConfig { dev_ui: Some(DevUi::Off), ..ServerConfig::default() }).await;
    for path in ["/", "/dev-ui", "/dev-ui/", "/dev-ui/components"] {
        let response = host.get(path).await;
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(response.json::<serde_json::Value>().await.unwrap()["code"], "ROUTE_NOT_FOUND");
    }
}

#[tokio::test]
async fn a_page_that_only_shows_cannot_roll_back() {
    let host = Host::with(ServerConfig { dev_ui: Some(DevUi::Read), ..ServerConfig::default() }).await;
    let html = host.get("/dev-ui/").await.text().await.unwrap();
    assert!(html.contains("<meta name=\"hatchery-mode\" content=\"read\">"), "{html}");
    let response = host.post("/components/kitchen/rollback", &json!({"to": "c0ffee"})).await;
    assert_eq!(response.status(), 403);
    assert_eq!(response.json::<serde_json::Value>().await.unwrap()["code"], "ROLLBACK_NOT_ALLOWED");
}

#[tokio::test]
async fn settings_are_shown_by_a_page_with_all_functions_only() {
    let host = Host::with(ServerConfig { dev_ui: Some(DevUi::Read), ..ServerConfig::default() }).await;
    let response = host.get("/config").await;
    assert_eq!(response.status(), 403);
    let problem = response.json::<serde_json::Value>().await.unwrap();
    assert_eq!(problem["code"], "CONFIG_NOT_SHOWN");
    assert!(problem["detail"].as_str().unwrap().ends_with("; read hatchery.yaml"), "{problem}");
}

#[tokio::test]
async fn adks_client_may_not_report_its_use() {
    let host = Host::with(ServerConfig::default()).await;
    assert_eq!(host.get_json("/config/telemetry").await, json!({"telemetry": false}));
    let consent = host.post("/config/telemetry", &json!({"telemetry": true})).await;
    assert_eq!(success(consent).await, json!({"telemetry": false}));
}

#[tokio::test]
async fn adks_deployment_dialog_shows_the_ways_to_deploy() {
    let host = Host::start().await;
    let config = json!({"region": "europe-west1", "serviceName": "says"});
    let deployed = host.post("/dev/apps/says/deploy/cloud_run", &config).await;
    for response in [host.get("/dev/apps/says/deploy/defaults").await, deployed] {
        let shown = problem(response, 501, "DEPLOYMENT_NOT_SUPPORTED").await;
        assert!(shown["detail"].as_str().unwrap().contains("`hatchery serve FOLDER`"), "{shown}");
    }
    problem(host.post("/dev/apps/missing/deploy/gke", &config).await, 404, "APP_NOT_FOUND").await;
}

#[tokio::test]
async fn an_unknown_component_is_an_error() {
    let host = Host::with(ServerConfig { dev_ui: Some(DevUi::Full), ..ServerConfig::default() }).await;
    let detail = host.get("/components/nobody").await;
    let rollback = host.post("/components/nobody/rollback", &json!({"to": "c0ffee"})).await;
    for response in [detail, rollback] {
        assert_eq!(response.status(), 404);
        assert_eq!(response.json::<serde_json::Value>().await.unwrap()["code"], "COMPONENT_NOT_FOUND");
    }
}

#[tokio::test]
async fn another_ui_is_served_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "<p>another page").unwrap();
    std::fs::write(folder.path().join("main.js"), "'a script'").unwrap();
    let config = ServerConfig { dev_ui_folder: Some(folder.path().into()), ..ServerConfig::default() };
    let host = Host::with(config).await;
    for (path, content_type, expected) in [
        ("", "text/html", "<p>another page"),
        ("some/place", "text/html", "<p>another page"),
        ("main.js", "text/javascript", "'a script'"),
        ("assets/config/runtime-config.json", "application/json", "{\"backendUrl\":\"\",\"telemetry\":false}"),
    ] {
        let response = host.get(&format!("/dev-ui/{path}")).await;
        assert_eq!(header(&response, "content-type"), content_type, "{path}");
        assert_eq!(response.text().await.unwrap(), expected);
    }
    let outside = host.get("/dev-ui/..%2f..%2fetc%2fpasswd").await;
    assert!(!outside.text().await.unwrap().contains("root:"));
}
