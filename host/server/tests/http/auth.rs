//! API keys: their permissions, and the responses to refused requests.

use hatchery::{ClientKeyConfig, Role, ServerAuthConfig, ServerConfig};
use hatchery_engine::Runner;
use hatchery_server::{AppState, Server};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Host, problem, run_body, success};

mod client_limits;
mod logins;

use logins::login_cookie;

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
    assert_eq!(success(get(&host, BACKEND, "/apps/says/app-info").await).await["name"], "says");
    for name in ["waits", "nothing"] {
        let expected = format!("App not found: {name}; GET /list-apps names those that you may use");
        let session = format!("/apps/{name}/users/u/sessions/s");
        for response in [
            get(&host, BACKEND, &session).await,
            get(&host, BACKEND, &format!("/apps/{name}/app-info")).await,
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
    let messages = success(get(&host, BACKEND, "/ws/schema").await).await;
    assert!(messages["$defs"]["SocketRequest"].is_object(), "{messages}");
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
        "server.auth: the API key `ci` is missing: the environment variable `HATCHERY_TESTS_NO_SUCH_KEY` is not set, or is not \
         valid UTF-8"
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
    assert_eq!(text, "server.auth: the API key `other` is also the key of another name; each name needs its own key");
}
