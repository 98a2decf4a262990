//! All routes below `server.base_path`.

use hatchery::ServerConfig;
use reqwest::{Client, Method, Response, redirect};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::auth::{OPERATOR, keys};
use crate::support::{Host, problem, run_body};

const BASE: &str = "/team/agents";

fn config() -> ServerConfig {
    ServerConfig { base_path: Some(BASE.parse().unwrap()), ..ServerConfig::default() }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

/// Returns a client that does not follow redirects.
fn direct(host: &Host, method: Method, path: &str) -> reqwest::RequestBuilder {
    let client = Client::builder().no_proxy().redirect(redirect::Policy::none()).build().unwrap();
    client.request(method, format!("http://{}{path}", host.address))
}

#[tokio::test]
async fn runs_are_below_the_base_path_and_nowhere_else() {
    let host = Host::with(config()).await;
    let session = "/apps/says/users/u/sessions/s";
    host.post_json(&format!("{BASE}{session}"), &json!({})).await;
    let stream = host.post(&format!("{BASE}/run_sse"), &run_body("says", "hi")).await;
    assert!(stream.text().await.unwrap().contains("You said: hi"));
    let events = host.get_json(&format!("{BASE}{session}?numRecentEvents=1")).await;
    assert!(events.to_string().contains("You said: hi"), "{events}");

    for path in ["/list-apps", "/", "/team", "/team/agentsx/list-apps", session, "/dev-ui/", "/team/Agents/run"] {
        let problem = problem(host.get(path).await, 404, "ROUTE_NOT_FOUND").await;
        let expected = format!("no route for GET {path}: this server is at `{BASE}`, as in {BASE}/list-apps");
        assert_eq!(problem["detail"], expected);
    }
    let missing = problem(host.get(&format!("{BASE}/nothing")).await, 404, "ROUTE_NOT_FOUND").await;
    assert_eq!(missing["detail"], format!("no route for GET {BASE}/nothing"));
    let wrong = host.request(Method::PUT, &format!("{BASE}/health")).send().await.unwrap();
    let wrong = problem(wrong, 405, "METHOD_NOT_ALLOWED").await;
    assert!(wrong["detail"].as_str().unwrap().starts_with(&format!("{BASE}/health does not support PUT")), "{wrong}");
}

#[tokio::test]
async fn a_refused_request_has_an_id_and_the_headers_of_all_responses() {
    let host = Host::with(config()).await;
    let response = host.request(Method::GET, "/health").header("x-request-id", "r-1").send().await.unwrap();
    assert_eq!((header(&response, "x-request-id"), header(&response, "x-content-type-options")), ("r-1", "nosniff"));
}

#[tokio::test]
async fn redirects_and_links_of_the_page_stay_below_the_base_path() {
    let host = Host::with(config()).await;
    for (path, status, location) in
        [("", 308, "agents/"), ("?app=x", 308, "agents/?app=x"), ("/", 307, "./dev-ui/"), ("/dev-ui", 307, "dev-ui/")]
    {
        let response = direct(&host, Method::GET, &format!("{BASE}{path}")).send().await.unwrap();
        assert_eq!((response.status().as_u16(), header(&response, "location")), (status, location), "{path}");
    }
    let page = host.get(BASE).await;
    assert_eq!((page.status().as_u16(), page.url().path()), (200, "/team/agents/dev-ui/"));
    let (url, html) = (page.url().clone(), page.text().await.unwrap());
    let script = html.split('"').find(|word| word.starts_with("./assets/") && word.ends_with(".js")).unwrap();
    let script = host.get(url.join(script).unwrap().path()).await;
    assert_eq!(header(&script, "content-type"), "text/javascript; charset=utf-8");
    // The page asks for the routes relative to the folder above.
    assert_eq!(host.get(url.join("../list-apps").unwrap().path()).await.status(), 200);
}

#[tokio::test]
async fn a_background_run_is_where_its_location_says() {
    let host = Host::with(config()).await;
    host.post_json(&format!("{BASE}/apps/says/users/u/sessions/s"), &json!({})).await;
    let mut body = run_body("says", "hi");
    body["background"] = true.into();
    let accepted = host.post(&format!("{BASE}/run"), &body).await;
    assert_eq!(accepted.status(), 202);
    let location = header(&accepted, "location").to_owned();
    assert!(location.starts_with("/team/agents/apps/says/"), "{location}");
    assert_eq!(host.get_json(&location).await["sessionId"], "s");
}

#[tokio::test]
async fn an_artifact_is_where_its_canonical_uri_says() {
    let host = Host::with(config()).await;
    let session = format!("{BASE}/apps/says/users/u/sessions/s");
    host.post_json(&session, &json!({})).await;
    let artifact = json!({"filename": "a.txt", "artifact": {"text": "x"}});
    let saved = host.post_json(&format!("{session}/artifacts"), &artifact).await;
    let uri = saved["canonicalUri"].as_str().unwrap();
    assert_eq!(uri, format!("{session}/artifacts/a.txt/versions/0"));
    assert_eq!(host.get_json(uri).await, json!({"text": "x"}));
}

#[tokio::test]
async fn the_document_names_the_base_path_as_the_server() {
    let host = Host::with(config()).await;
    assert_eq!(host.get_json(&format!("{BASE}/openapi.json")).await["servers"], json!([{"url": BASE}]));
    let at_root = Host::start().await;
    assert_eq!(at_root.get_json("/openapi.json").await["servers"], json!([{"url": "."}]));
}

#[tokio::test]
async fn a_login_is_for_the_base_path() {
    let host = Host::with(ServerConfig { auth: Some(keys()), ..config() }).await;
    // Without credentials, responses do not reveal which paths outside exist either.
    problem(host.get("/list-apps").await, 404, "ROUTE_NOT_FOUND").await;
    problem(host.get(&format!("{BASE}/list-apps")).await, 401, "UNAUTHENTICATED").await;
    let page = host.request(Method::GET, &format!("{BASE}/dev-ui/apps/says")).header("accept", "text/html");
    let html = page.send().await.unwrap().text().await.unwrap();
    assert!(html.contains("<form method=\"post\" action=\"../../login\">"), "{html}");
    let login = direct(&host, Method::POST, &format!("{BASE}/login")).body(format!("key={OPERATOR}"));
    let login = login.send().await.unwrap();
    assert_eq!((login.status().as_u16(), header(&login, "location")), (303, "./dev-ui/"));
    let (cookie, flags) = header(&login, "set-cookie").split_once("; ").unwrap();
    assert_eq!(flags, "Path=/team/agents; HttpOnly; SameSite=Strict; Max-Age=43200");
    let listed = host.request(Method::GET, &format!("{BASE}/list-apps")).header("cookie", cookie);
    assert_eq!(listed.send().await.unwrap().status(), 200);
    let logout = direct(&host, Method::POST, &format!("{BASE}/logout")).header("cookie", cookie).send().await.unwrap();
    let cleared = "hatchery_login=; Path=/team/agents; HttpOnly; SameSite=Strict; Max-Age=0";
    assert_eq!(header(&logout, "set-cookie"), cleared);
}

#[tokio::test]
async fn web_sockets_open_below_the_base_path_only() {
    let host = Host::with(config()).await;
    let open = async |path: &str| {
        let request = format!("ws://{}{path}", host.address).into_client_request().unwrap();
        let stream = TcpStream::connect(host.address).await.unwrap();
        tokio_tungstenite::client_async(request, stream).await
    };
    assert!(open("/team/agents/ws").await.is_ok());
    let error = open("/ws").await.err().unwrap().to_string();
    assert!(error.contains("404"), "{error}");
}

#[tokio::test]
async fn another_ui_is_told_where_the_routes_are() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "<p>another page").unwrap();
    let host = Host::with(ServerConfig { dev_ui_folder: Some(folder.path().into()), ..config() }).await;
    let settings = host.get_json(&format!("{BASE}/dev-ui/assets/config/runtime-config.json")).await;
    assert_eq!(settings["backendUrl"], BASE);
}

#[tokio::test]
async fn rules_for_other_origins_have_the_paths_of_the_routes() {
    let cors = hatchery::CorsConfig {
        mapping: "/list-apps".into(),
        origins: vec!["https://app.example".into()],
        ..hatchery::CorsConfig::default()
    };
    let host = Host::with(ServerConfig { cors: vec![cors], ..config() }).await;
    let ask = |path: &str| host.request(Method::GET, path).header("origin", "https://app.example").send();
    let shared = ask("/team/agents/list-apps").await.unwrap();
    assert_eq!(header(&shared, "access-control-allow-origin"), "https://app.example");
    problem(ask("/team/agents/components").await.unwrap(), 403, "ORIGIN_NOT_ALLOWED").await;
}
