//! API keys: their permissions, and the responses to refused requests.

use hatchery::{ClientKeyConfig, CorsConfig, Role, ServerAuthConfig, ServerConfig};
use hatchery_engine::Runner;
use hatchery_server::{AppState, Server};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Host, TIMEOUT, problem, run_body, success};
use crate::ws::Socket;

pub const OPERATOR: &str = "operator-key-0123456789";
/// May use `says` and `streams` for any user.
const BACKEND: &str = "backend-key-0123456789";
/// May use `says` for the user `u`.
pub const USER: &str = "user-key-0123456789";

fn key(name: &str, text: &str) -> ClientKeyConfig {
    let sha256 = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    ClientKeyConfig { name: name.into(), sha256: Some(sha256), ..ClientKeyConfig::default() }
}

pub fn keys() -> ServerAuthConfig {
    let keys = vec![
        ClientKeyConfig { role: Role::Operate, ..key("operator", OPERATOR) },
        ClientKeyConfig { apps: vec!["says".into(), "str*".into()], ..key("backend", BACKEND) },
        ClientKeyConfig { apps: vec!["says".into()], user: Some("u".into()), ..key("u", USER) },
    ];
    ServerAuthConfig { keys, ..ServerAuthConfig::default() }
}

async fn host() -> Host {
    Host::with(ServerConfig { auth: Some(keys()), ..ServerConfig::default() }).await
}

fn request(host: &Host, key: &str, method: Method, path: &str) -> RequestBuilder {
    host.request(method, path).bearer_auth(key)
}

async fn get(host: &Host, key: &str, path: &str) -> Response {
    request(host, key, Method::GET, path).send().await.unwrap()
}

async fn post(host: &Host, key: &str, path: &str, body: &Value) -> Response {
    request(host, key, Method::POST, path).json(body).send().await.unwrap()
}

#[tokio::test]
async fn every_route_but_the_health_check_needs_credentials() {
    let host = host().await;
    for (method, path) in [
        (Method::GET, "/list-apps"),
        (Method::GET, "/version"),
        (Method::POST, "/run"),
        (Method::POST, "/run_sse"),
        (Method::GET, "/apps/says/users/u/sessions"),
        (Method::GET, "/apps/missing/users/u/sessions"),
        (Method::GET, "/components"),
        (Method::GET, "/dev-ui/"),
        (Method::GET, "/metrics"),
        (Method::GET, "/events"),
        (Method::GET, "/openapi.json"),
        (Method::GET, "/debug/trace/session/s"),
        (Method::GET, "/dev/apps/says/debug/trace/session/s"),
        (Method::GET, "/run_live?app_name=says&user_id=u&session_id=s"),
        (Method::POST, "/mcp"),
        (Method::POST, "/a2a/says"),
        (Method::GET, "/.well-known/agent-card.json"),
        (Method::GET, "/no/such/route"),
        (Method::OPTIONS, "/list-apps"),
    ] {
        let response = host.request(method.clone(), path).send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"hatchery\"", "{method} {path}");
        let body = problem(response, 401, "UNAUTHENTICATED").await;
        let detail = "credentials are missing; send an API key or a token in the header `Authorization: Bearer …`";
        assert_eq!(body["detail"], detail);
    }
    assert_eq!(host.get_json("/health").await, json!({"status": "ok"}));
    assert_eq!(host.get_json("/ready").await, json!({"status": "ready"}));
    assert_eq!(host.state.refused_credentials(), 19);
}

#[tokio::test]
async fn a_key_is_accepted_in_two_headers_and_nothing_else_is() {
    let host = host().await;
    assert_eq!(success(get(&host, USER, "/list-apps").await).await, json!(["says"]));
    let request = || host.request(Method::GET, "/list-apps");
    assert_eq!(success(request().header("x-api-key", USER).send().await.unwrap()).await, json!(["says"]));
    let hash = keys().keys[0].sha256.clone().unwrap();
    for request in [
        request().bearer_auth("user-key-0123456788"),
        request().bearer_auth(&USER[1..]),
        request().bearer_auth(format!("{USER}0")),
        request().bearer_auth(""),
        request().bearer_auth(&hash),
        request().bearer_auth("a.b.c"),
        request().header("authorization", USER),
        request().basic_auth("u", Some(USER)),
        request().header("x-api-key", "no"),
        request().header("cookie", format!("hatchery_login={USER}")),
        request().bearer_auth("no").header("x-api-key", USER),
    ] {
        let response = request.send().await.unwrap();
        let challenge = response.headers()["www-authenticate"].to_str().unwrap().to_owned();
        assert_eq!(challenge, "Bearer realm=\"hatchery\", error=\"invalid_token\"");
        assert_eq!(response.status(), 401);
        let body: Value = response.json().await.unwrap();
        assert!(["INVALID_CREDENTIALS", "LOGGED_OUT"].contains(&body["code"].as_str().unwrap()), "{body}");
        assert!(!body.to_string().contains("user-key"), "{body}");
    }
    let in_query = host.get(&format!("/list-apps?key={USER}&api_key={USER}")).await;
    problem(in_query, 401, "UNAUTHENTICATED").await;
    assert_eq!(host.state.refused_credentials(), 12);
}

#[tokio::test]
async fn other_apps_are_as_if_they_did_not_exist() {
    let host = host().await;
    assert_eq!(success(get(&host, BACKEND, "/list-apps").await).await, json!(["says", "streams"]));
    let detailed = success(get(&host, BACKEND, "/list-apps?detailed=true").await).await;
    assert_eq!(detailed["apps"].as_array().unwrap().len(), 2);
    for name in ["waits", "nothing"] {
        let expected = format!("App not found: {name}; GET /list-apps names those that you may use");
        let session = format!("/apps/{name}/users/u/sessions/s");
        for response in [
            get(&host, BACKEND, &session).await,
            post(&host, BACKEND, &session, &json!({})).await,
            post(&host, BACKEND, "/run", &run_body(name, "hi")).await,
            post(&host, BACKEND, "/run_sse", &run_body(name, "hi")).await,
            post(&host, BACKEND, &format!("/a2a/{name}"), &json!({})).await,
            get(&host, BACKEND, &format!("/apps/{name}/users/u/memory?query=x")).await,
        ] {
            assert_eq!(problem(response, 404, "APP_NOT_FOUND").await["detail"], expected);
        }
    }
    // A pattern covers names that do not exist.
    let missing = problem(get(&host, BACKEND, "/apps/str/users/u/sessions/s").await, 404, "APP_NOT_FOUND").await;
    assert_eq!(missing["detail"], "App not found: str; GET /list-apps names those that you may use");
    // Routes that name no app could mean any.
    problem(get(&host, BACKEND, "/.well-known/agent-card.json").await, 404, "APP_NOT_FOUND").await;
    problem(post(&host, BACKEND, "/a2a/remote/v1/message:send", &json!({})).await, 404, "APP_NOT_FOUND").await;
    assert_eq!(post(&host, BACKEND, "/apps/says/users/anybody/sessions/s", &json!({})).await.status(), 200);
}

#[tokio::test]
async fn a_key_of_a_user_acts_for_no_other() {
    let host = host().await;
    assert_eq!(post(&host, USER, "/apps/says/users/u/sessions/s", &json!({})).await.status(), 200);
    assert_eq!(post(&host, USER, "/run", &run_body("says", "hi")).await.status(), 200);
    assert_eq!(post(&host, OPERATOR, "/apps/says/users/other/sessions/s", &json!({})).await.status(), 200);
    let mut run = run_body("says", "hi");
    run["userId"] = json!("other");
    let mut background = run.clone();
    background["background"] = json!(true);
    let session = "/apps/says/users/other/sessions/s";
    let artifact = json!({"filename": "a", "artifact": {"text": "x"}});
    for response in [
        get(&host, USER, "/apps/says/users/other/sessions").await,
        get(&host, USER, session).await,
        get(&host, USER, "/apps/says/users/%6Fther/sessions/s").await,
        get(&host, USER, "/apps/says/users/missing/sessions/s").await,
        request(&host, USER, Method::DELETE, session).send().await.unwrap(),
        request(&host, USER, Method::PATCH, session).json(&json!({"stateDelta": {}})).send().await.unwrap(),
        post(&host, USER, &format!("{session}/artifacts"), &artifact).await,
        get(&host, USER, "/apps/says/users/other/memory?query=x").await,
        get(&host, USER, &format!("{session}/runs")).await,
        post(&host, USER, &format!("{session}/runs/r/cancel"), &json!({})).await,
        post(&host, USER, "/run", &run).await,
        post(&host, USER, "/run", &background).await,
        post(&host, USER, "/run_sse", &run).await,
        post(&host, USER, "/run-sse", &run).await,
    ] {
        let body = problem(response, 403, "USER_NOT_ALLOWED").await;
        assert_eq!(body["detail"], "these credentials are for the user `u` only; name this user, or send others");
    }
    assert_eq!(get(&host, OPERATOR, session).await.status(), 200, "nothing was deleted");
}

#[tokio::test]
async fn only_operators_may_do_what_concerns_more_than_one_user() {
    let host = host().await;
    for path in [
        "/components",
        "/components/kitchen",
        "/dev-ui/",
        "/",
        "/apps/says/eval_sets",
        "/dev/apps/says/graph",
        "/metrics",
        "/events",
        "/debug/trace/session/s",
        "/dev/apps/says/debug/trace/session/s",
        "/x",
    ] {
        let refused = problem(get(&host, BACKEND, path).await, 403, "ROLE_REQUIRED").await;
        assert_eq!(refused["detail"], "this needs credentials with the role `operate`");
    }
    for path in ["/components", "/dev-ui/", "/apps/says/eval_sets", "/dev/apps/says/graph", "/list-apps", "/version"] {
        assert_eq!(get(&host, OPERATOR, path).await.status(), 200, "{path}");
    }
    problem(get(&host, OPERATOR, "/x").await, 404, "ROUTE_NOT_FOUND").await;
    let document = success(get(&host, BACKEND, "/openapi.json").await).await;
    assert_eq!(document["security"], json!([{"bearer": []}, {"apiKey": []}, {}]));
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    let event = json!({"author": "says", "content": {"role": "model", "parts": [{"text": "I promise."}]}});
    let import = json!({"sessionId": "imported", "events": [event]});
    let path = "/apps/says/users/u/sessions";
    problem(post(&host, BACKEND, path, &import).await, 403, "IMPORT_NOT_ALLOWED").await;
    assert_eq!(post(&host, OPERATOR, path, &import).await.status(), 200);
}

#[tokio::test]
async fn credentials_of_push_notifications_are_read_by_nobody() {
    let host = host().await;
    let path = "/apps/says/users/A2A_PUSH/sessions";
    for key in [BACKEND, OPERATOR] {
        problem(get(&host, key, path).await, 404, "USER_RESERVED").await;
    }
}

#[tokio::test]
async fn state_of_all_users_is_set_by_operators_only() {
    let host = host().await;
    let session = "/apps/says/users/u/sessions/s";
    assert_eq!(post(&host, USER, session, &json!({"state": {"user:a": 1, "b": 2}})).await.status(), 200);
    let shared = json!({"app:price": 0});
    let mut run = run_body("says", "hi");
    run["stateDelta"] = shared.clone();
    let patch = |key: &'static str| request(&host, key, Method::PATCH, session).json(&json!({"stateDelta": shared}));
    for response in [
        post(&host, USER, "/apps/says/users/u/sessions", &json!({"state": shared})).await,
        post(&host, USER, "/apps/says/users/u/sessions/t", &json!({"state": shared})).await,
        patch(BACKEND).send().await.unwrap(),
        post(&host, USER, "/run", &run).await,
    ] {
        let refused = problem(response, 403, "STATE_NOT_ALLOWED").await;
        assert_eq!(refused["detail"], "`app:price` belongs to all users of the app; only operators may set it");
    }
    assert_eq!(success(patch(OPERATOR).send().await.unwrap()).await["state"]["app:price"], 0);
}

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
    // The head of the response is there, and its stream goes on.
    let stream = post(&host, BACKEND, "/run_sse", &run_body("waits", "hi")).await;
    assert_eq!(stream.status(), 200);
    let refused = get(&host, BACKEND, "/list-apps").await;
    assert_eq!(refused.headers()["retry-after"], "1");
    let body = problem(refused, 429, "CONCURRENCY_LIMITED").await;
    assert_eq!(body["detail"], "these credentials are for 1 requests at a time; wait until one has ended");
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

/// A browser at the developer UI.
struct Browser<'a> {
    host: &'a Host,
    cookie: Option<String>,
}

impl Browser<'_> {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.host.request(method, path).header("accept", "text/html,*/*;q=0.8");
        let request = request.header("origin", format!("http://{}", self.host.address));
        self.cookie.iter().fold(request, |request, cookie| request.header("cookie", cookie))
    }

    async fn open(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    async fn log_in(&self, key: &str) -> Response {
        let form = format!("key={}", key.replace('-', "%2D"));
        let request = self.request(Method::POST, "/login").header("content-type", "application/x-www-form-urlencoded");
        request.body(form).send().await.unwrap()
    }
}

#[tokio::test]
async fn a_browser_logs_in_with_the_key_of_an_operator_and_out_again() {
    let host = host().await;
    let mut browser = Browser { host: &host, cookie: None };
    let page = browser.open("/dev-ui/apps/says").await;
    assert_eq!(page.status(), 401);
    assert_eq!(page.headers()["referrer-policy"], "same-origin");
    assert!(page.headers()["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    let html = page.text().await.unwrap();
    assert!(html.contains("<form method=\"post\" action=\"../../login\">"), "{html}");
    problem(browser.open("/list-apps").await, 401, "UNAUTHENTICATED").await;

    let refused = browser.log_in("wrong-key-0123456789").await;
    assert_eq!((refused.status().as_u16(), refused.headers().get("set-cookie")), (401, None));
    let html = refused.text().await.unwrap();
    assert!(html.contains("Not logged in: the API key or token is not valid."), "{html}");
    let refused = browser.log_in(USER).await;
    assert_eq!((refused.status().as_u16(), refused.headers().get("set-cookie")), (401, None));
    let html = refused.text().await.unwrap();
    assert!(html.contains("Not logged in: this needs credentials with the role `operate`."), "{html}");

    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let login = browser.log_in(OPERATOR).await;
    assert_eq!(login.status(), 401, "the redirect was followed without the cookie");
    let login = client.post(format!("http://{}/login", host.address)).body(format!("key={OPERATOR}"));
    let login = login.header("x-forwarded-proto", "https").send().await.unwrap();
    assert_eq!((login.status().as_u16(), &login.headers()["location"]), (303, &"./dev-ui/".parse().unwrap()));
    let cookie = login.headers()["set-cookie"].to_str().unwrap().to_owned();
    let (pair, flags) = cookie.split_once("; ").unwrap();
    assert_eq!(flags, "Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure");
    assert!(!cookie.contains(OPERATOR));
    browser.cookie = Some(pair.to_owned());
    for path in ["/dev-ui/", "/components", "/list-apps"] {
        assert_eq!(browser.open(path).await.status(), 200, "{path}");
    }
    // A page of another site cannot use the login, even if a browser sent the cookie.
    let foreign = host.request(Method::POST, "/run").header("cookie", pair).header("origin", "https://evil.example");
    problem(foreign.json(&run_body("says", "hi")).send().await.unwrap(), 403, "ORIGIN_NOT_ALLOWED").await;

    let logout = client.post(format!("http://{}/logout", host.address)).header("cookie", pair).send().await.unwrap();
    assert_eq!(logout.status(), 303);
    assert!(logout.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    problem(browser.open("/list-apps").await, 401, "LOGGED_OUT").await;
    assert_eq!(browser.open("/dev-ui/").await.status(), 401);
}

/// Logs in, and returns the cookie as browsers send it.
async fn login_cookie(host: &Host, key: &str) -> String {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let login = client.post(format!("http://{}/login", host.address)).body(format!("key={key}")).send().await.unwrap();
    assert_eq!(login.status(), 303);
    login.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_browser_that_comes_back_from_an_oauth_server_sends_its_cookie_with_a_second_request() {
    let host = host().await;
    let open = async |path: &str, cookie: &str| {
        let request = host.request(Method::GET, path).header("accept", "text/html").header("cookie", cookie);
        let request = request.header("sec-fetch-site", "cross-site").header("sec-fetch-mode", "navigate");
        request.header("sec-fetch-dest", "document").send().await.unwrap()
    };
    // The cookie of a login is not sent after a form on another site.
    let page = open("/dev-ui/?code=c%22&state=s", "").await;
    assert_eq!(page.status(), 200);
    let text = page.text().await.unwrap();
    assert!(text.contains(r#"<meta http-equiv="refresh" content="0; url=?code=c%22&amp;state=s&amp;">"#), "{text}");
    // The second request is one of a page of this server.
    for query in ["?code=c&state=s&", "?code=c", "?state=s", ""] {
        let page = open(&format!("/dev-ui/{query}"), "").await;
        assert_eq!(page.status(), 401, "{query}");
        assert!(page.text().await.unwrap().contains("API key"));
    }
    let cookie = login_cookie(&host, OPERATOR).await;
    assert_eq!(open("/dev-ui/?code=c&state=s&", &cookie).await.status(), 200);
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_uses_the_login_of_a_browser_only_if_it_may_send_credentials() {
    let origin = "http://localhost:4200";
    for (allow_credentials, status) in [(false, 401), (true, 200)] {
        let cors = CorsConfig { origins: vec![origin.into()], allow_credentials, ..CorsConfig::default() };
        let host = Host::with(ServerConfig { auth: Some(keys()), cors: vec![cors], ..ServerConfig::default() }).await;
        let cookie = login_cookie(&host, OPERATOR).await;
        // Browsers send cookies to all ports of a host.
        let list = host.request(Method::GET, "/list-apps").header("origin", origin).header("cookie", &cookie);
        assert_eq!(list.send().await.unwrap().status(), status);
    }
    let cors = CorsConfig { origins: vec!["*".into()], ..CorsConfig::default() };
    let host = Host::with(ServerConfig { auth: Some(keys()), cors: vec![cors], ..ServerConfig::default() }).await;
    let cookie = login_cookie(&host, OPERATOR).await;
    let own = format!("http://{}", host.address);
    for (origin, status) in [(&*own, 200), ("https://app.example", 401)] {
        let list = host.request(Method::GET, "/list-apps").header("origin", origin).header("cookie", &cookie);
        assert_eq!(list.send().await.unwrap().status(), status, "{origin}");
    }
}

#[tokio::test]
async fn keys_are_replaced_while_the_server_runs() {
    let host = host().await;
    let cookie = login_cookie(&host, OPERATOR).await;
    let with_login = || host.request(Method::GET, "/components").header("cookie", &cookie);
    assert_eq!(with_login().send().await.unwrap().status(), 200);
    const NEXT: &str = "next-operator-key-0123456789";
    let mut auth = keys();
    auth.keys[0] = ClientKeyConfig { role: Role::Operate, ..key("operator", NEXT) };
    auth.keys[2].user = Some("v".into());
    let replace = |auth: &ServerAuthConfig| {
        host.state
            .prepare(ServerConfig { auth: Some(auth.clone()), ..ServerConfig::default() }, true)
            .map(|apply| apply())
    };
    replace(&auth).unwrap();
    problem(get(&host, OPERATOR, "/components").await, 401, "INVALID_CREDENTIALS").await;
    problem(with_login().send().await.unwrap(), 401, "LOGGED_OUT").await;
    assert_eq!(get(&host, NEXT, "/components").await.status(), 200);
    problem(get(&host, USER, "/apps/says/users/u/sessions").await, 403, "USER_NOT_ALLOWED").await;
    assert_eq!(get(&host, USER, "/apps/says/users/v/sessions").await.status(), 200);
    // An invalid configuration changes nothing.
    auth.keys[0].sha256 = None;
    auth.keys[0].from = Some("HATCHERY_TESTS_NO_SUCH_KEY".into());
    let error = replace(&auth).unwrap_err();
    assert!(error.starts_with("server.auth: the API key `operator` is missing"), "{error}");
    assert_eq!(get(&host, NEXT, "/components").await.status(), 200);
}

#[tokio::test]
async fn authentication_is_switched_on_and_off_while_the_server_runs() {
    let host = Host::start().await;
    let apply = |auth: Option<ServerAuthConfig>| {
        host.state.prepare(ServerConfig { auth, ..ServerConfig::default() }, false).unwrap()();
    };
    assert_eq!(host.get("/components").await.status(), 200);
    apply(Some(keys()));
    problem(host.get("/components").await, 401, "UNAUTHENTICATED").await;
    assert_eq!(get(&host, OPERATOR, "/components").await.status(), 200);
    apply(None);
    assert_eq!(host.get("/components").await.status(), 200);
}

#[tokio::test]
async fn without_authentication_there_is_no_login() {
    let host = Host::start().await;
    problem(host.post("/login", &json!({})).await, 404, "ROUTE_NOT_FOUND").await;
    problem(host.post("/logout", &json!({})).await, 404, "ROUTE_NOT_FOUND").await;
}

#[tokio::test]
async fn pages_of_allowed_origins_send_credentials_and_read_why_they_are_refused() {
    let origin = "https://app.example";
    let cors = CorsConfig { origins: vec![origin.into()], ..CorsConfig::default() };
    let host = Host::with(ServerConfig { auth: Some(keys()), cors: vec![cors], ..ServerConfig::default() }).await;
    let preflight = host.request(Method::OPTIONS, "/list-apps").header("origin", origin);
    let preflight = preflight.header("access-control-request-method", "GET");
    let preflight = preflight.header("access-control-request-headers", "authorization").send().await.unwrap();
    assert_eq!(preflight.status(), 204, "browsers send preflight requests without credentials");
    let refused = host.request(Method::GET, "/list-apps").header("origin", origin).send().await.unwrap();
    assert_eq!(refused.headers()["access-control-allow-origin"], origin);
    problem(refused, 401, "UNAUTHENTICATED").await;
    let list = request(&host, USER, Method::GET, "/list-apps").header("origin", origin).send().await.unwrap();
    assert_eq!(success(list).await, json!(["says"]));
}

#[tokio::test]
async fn a_server_without_one_of_its_keys_does_not_start() {
    let other = Host::start().await;
    let folder = tempfile::tempdir().unwrap();
    let error = async |keys: Vec<ClientKeyConfig>| {
        let config = ServerConfig {
            auth: Some(ServerAuthConfig { keys, ..ServerAuthConfig::default() }),
            ..ServerConfig::default()
        };
        let source = std::sync::Arc::new(crate::support::FakeSource(Vec::new()));
        let state = AppState::new(Runner::new(other.services.clone()), source, config);
        Server::bind("127.0.0.1:0".parse().unwrap(), state).await.map(|_| ()).unwrap_err().to_string()
    };
    let named = |name: &str| ClientKeyConfig { name: name.into(), ..ClientKeyConfig::default() };
    let missing = ClientKeyConfig { from: Some("HATCHERY_TESTS_NO_SUCH_KEY".into()), ..named("ci") };
    assert_eq!(
        error(vec![missing]).await,
        "server.auth: the API key `ci` is missing: the environment variable `HATCHERY_TESTS_NO_SUCH_KEY` is not set, or not a \
         text"
    );
    let file = folder.path().join("key");
    std::fs::write(&file, "0123456789\n").unwrap();
    let short = ClientKeyConfig { file: Some(file.clone()), ..named("ci") };
    let text = error(vec![short]).await;
    assert!(text.contains("has fewer than 16 characters, so it could be guessed"), "{text}");
    assert!(!text.contains("0123456789"), "{text}");
    std::fs::write(&file, format!("{OPERATOR}\r\n")).unwrap();
    let from_file = ClientKeyConfig { file: Some(file), ..named("ci") };
    let text = error(vec![from_file, key("other", OPERATOR)]).await;
    assert_eq!(text, "server.auth: the API key `other` is that of another name too; each name needs its own key");
}
