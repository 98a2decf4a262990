//! Credentials that users grant: requested from the client in the wire shape of ADK, exchanged, refreshed and kept.

mod kept_tokens;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hatchery_core::{
    Agent, AuthKeyLocation, AuthScheme, ConfigValue, Content, CredentialId, Event, FunctionResponse, OAuthFlow,
    OAuthFlows, Part, PartData,
};
use hatchery_egress::Url;
use hatchery_engine::App;
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_openapi::{ClientPlacement, Credentials, UserClient, UserCredentials};
use hatchery_test_support::{Harness, llm_on};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::*;

const SECRET: &str = "cl13nt-s3cret";
const REDIRECT: &str = "http://localhost:4200/callback";

type Interruption = Box<dyn FnOnce() + Send>;

/// An OAuth server at `/token` and an API at `/v1/x` that accepts the tokens `access-N` from `valid` on. A code is good
/// once.
#[derive(Clone, Default)]
struct Login {
    issued: Arc<AtomicUsize>,
    valid: Arc<AtomicUsize>,
    lifetime: Arc<AtomicUsize>,
    /// Answers to the next requests for tokens.
    failures: Arc<Mutex<VecDeque<(StatusCode, &'static str)>>>,
    /// Runs before the answer to the next request for tokens.
    meanwhile: Arc<Mutex<Option<Interruption>>>,
}

impl Login {
    async fn start() -> (Self, Server) {
        let login = Self::default();
        login.lifetime.store(3_600, Ordering::SeqCst);
        let state = login.clone();
        let server = Server::start(move |request| state.answer(&request)).await;
        (login, server)
    }

    fn answer(&self, request: &Value) -> Response {
        let body = request["body"].as_str().unwrap_or_default();
        let is_token_request = request["path"] == "/token";
        if let Some(meanwhile) = is_token_request.then(|| self.meanwhile.lock().unwrap().take()).flatten() {
            meanwhile();
        }
        if let Some((status, error)) = is_token_request.then(|| self.failures.lock().unwrap().pop_front()).flatten() {
            return (status, axum::Json(json!({"error": error}))).into_response();
        }
        match request["path"].as_str() {
            Some("/token") if body.contains("code=good") || body.contains("refresh_token=refresh-") => {
                let number = self.issued.fetch_add(1, Ordering::SeqCst);
                axum::Json(json!({
                    "access_token": format!("access-{number}"), "refresh_token": format!("refresh-{number}"),
                    "expires_in": self.lifetime.load(Ordering::SeqCst), "token_type": "Bearer",
                }))
                .into_response()
            }
            Some("/token") => (StatusCode::BAD_REQUEST, axum::Json(json!({"error": "invalid_grant"}))).into_response(),
            Some("/.well-known/openid-configuration") => {
                let host = request["headers"]["host"].as_str().unwrap();
                axum::Json(json!({
                    "authorization_endpoint": format!("http://{host}/authorize"),
                    "token_endpoint": format!("http://{host}/token"),
                }))
                .into_response()
            }
            _ => {
                let header = request["headers"]["authorization"].as_str().unwrap_or_default();
                let number = header.strip_prefix("Bearer access-").and_then(|number| number.parse::<usize>().ok());
                if number.is_some_and(|number| number >= self.valid.load(Ordering::SeqCst)) {
                    axum::Json(json!({"orders": [1, 2]})).into_response()
                } else {
                    StatusCode::UNAUTHORIZED.into_response()
                }
            }
        }
    }
}

fn oauth2(server: &Server) -> Credentials {
    let flow = OAuthFlow {
        authorization_url: Some(server.url("/authorize")),
        token_url: server.url("/token"),
        scopes: [("orders.read".to_owned(), String::new())].into(),
    };
    let flows = OAuthFlows { authorization_code: Some(flow), ..OAuthFlows::default() };
    user(AuthScheme::OAuth2 { flows }, Some(client()))
}

fn client() -> UserClient {
    UserClient {
        id: ConfigValue::Text("me".into()),
        secret: Some(ConfigValue::Text(SECRET.into())),
        redirect_uri: None,
        placement: ClientPlacement::Body,
    }
}

fn user(scheme: AuthScheme, client: Option<UserClient>) -> Credentials {
    Credentials::User(Box::new(UserCredentials { scheme, client }))
}

/// Returns an app whose model calls the operation after each message, and then says something.
async fn app(server: &Server, credentials: Credentials) -> (Harness, Api) {
    app_of(server, credentials, asking_model()).await
}

fn asking_model() -> Scripted {
    Scripted::new().on_tool("op", "one moment").default_reply(Reply::call("op", json!({})))
}

async fn app_of(server: &Server, credentials: Credentials, model: Scripted) -> (Harness, Api) {
    let mut api = server.api(&operation(json!({})));
    api.config.credentials = credentials;
    (Harness::new(clerk(&api, model)).await, api)
}

/// Returns an agent that uses an API.
fn clerk(api: &Api, model: Scripted) -> Agent {
    let toolset = api.toolset();
    llm_on("clerk", &Arc::new(model), |llm| llm.toolsets.push(toolset))
}

/// Returns the app of a [`Harness`] with an agent that uses an API.
fn calling(api: &Api, model: Scripted) -> Arc<App> {
    Arc::new(App::new("app", clerk(api, model)).unwrap())
}

/// Returns the id and the arguments of the request for a credential.
fn request(events: &[Arc<Event>]) -> (String, Value) {
    let event = events.iter().find(|event| !event.long_running_tool_ids.is_empty()).expect("a request");
    let call = event.function_calls().next().unwrap();
    assert_eq!(call.name, "adk_request_credential");
    let id = call.id.clone().unwrap();
    assert_eq!(event.long_running_tool_ids, std::slice::from_ref(&id));
    (id, Value::Object(call.args.clone()))
}

fn no_request(events: &[Arc<Event>]) -> bool {
    events.iter().flat_map(|event| event.function_calls()).all(|call| call.name != "adk_request_credential")
}

/// Returns a client's answer: the `authConfig` of the request, changed by `change`.
fn answer(id: &str, args: &Value, change: impl FnOnce(&mut Value)) -> Content {
    let mut config = args["authConfig"].clone();
    change(&mut config["exchangedAuthCredential"]);
    let response = FunctionResponse {
        id: Some(id.into()),
        name: "adk_request_credential".into(),
        response: config.as_object().unwrap().clone(),
        ..FunctionResponse::default()
    };
    Content::new("user", vec![Part::from(PartData::FunctionResponse(response))])
}

fn parameter(uri: &str, name: &str) -> String {
    let url = Url::parse(uri).unwrap();
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
}

/// Returns the answer of a client whose user has logged in with this result in the query of the redirect.
fn logged_in(id: &str, args: &Value, result: &str) -> Content {
    answer(id, args, |credential| {
        let state = parameter(credential["oauth2"]["authUri"].as_str().unwrap(), "state");
        credential["oauth2"]["authResponseUri"] = format!("{REDIRECT}?state={state}&{result}").into();
        credential["oauth2"]["redirectUri"] = REDIRECT.into();
    })
}

fn tool_result(events: &[Arc<Event>]) -> Value {
    response(events)
}

/// Returns the requests for tokens.
fn token_requests(server: &Server) -> Vec<String> {
    let requests = server.requests().into_iter().filter(|request| request["path"] == "/token");
    requests.map(|request| request["body"].as_str().unwrap().to_owned()).collect()
}

/// Returns everything that the session stores.
async fn stored(app: &Harness) -> String {
    let session = app.session().await;
    let events: Vec<_> =
        session.events.iter().map(|event| String::from_utf8_lossy(event.json()).into_owned()).collect();
    format!("{} {}", events.join("\n"), serde_json::to_string(&session.state).unwrap())
}

#[tokio::test]
async fn a_user_logs_in_and_the_call_is_made_again() {
    let (_, server) = Login::start().await;
    let (app, _api) = app(&server, oauth2(&server)).await;
    let events = app.run("orders?").await;
    let (id, args) = request(&events);
    let call = events[0].function_calls().next().unwrap().id.clone().unwrap();
    assert_eq!(args["functionCallId"], call);
    let config = &args["authConfig"];
    assert_eq!(config["authScheme"]["type"], "oauth2");
    assert_eq!(config["authScheme"]["flows"]["authorizationCode"]["tokenUrl"], server.url("/token"));
    assert_eq!(config["rawAuthCredential"], json!({"authType": "oauth2", "oauth2": {"clientId": "me"}}));
    let key = config["credentialKey"].as_str().unwrap();
    assert!(key.starts_with("openapi:shop:adk_oauth2_") && key.ends_with(&format!(":{}", server.url(""))), "{key}");
    let uri = config["exchangedAuthCredential"]["oauth2"]["authUri"].as_str().unwrap();
    assert!(uri.starts_with(&server.url("/authorize?")), "{uri}");
    let expected = [("response_type", "code"), ("client_id", "me"), ("scope", "orders.read"), ("redirect_uri", "")];
    for (name, value) in expected.into_iter().chain([("code_challenge_method", "S256")]) {
        assert_eq!(parameter(uri, name), value, "{name}");
    }
    assert_eq!(config["exchangedAuthCredential"]["oauth2"]["state"], parameter(uri, "state"));
    assert_eq!(
        tool_result(&events),
        json!({"pending": true, "message": "Needs your authorization to access your data."})
    );
    let actions: Vec<_> =
        events.iter().flat_map(|event| event.actions.requested_auth_configs.keys().cloned()).collect();
    assert_eq!(actions, std::slice::from_ref(&call));

    let events = app.send(logged_in(&id, &args, "code=good")).await;
    let answered = events[0].function_responses().next().unwrap();
    assert_eq!((answered.id.as_ref(), tool_result(&events)), (Some(&call), json!({"orders": [1, 2]})));
    let form: Vec<(String, String)> = Url::parse(&format!("http://x?{}", token_requests(&server)[0]))
        .unwrap()
        .query_pairs()
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    let field = |name: &str| form.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap();
    assert_eq!((field("grant_type"), field("code")), ("authorization_code".into(), "good".into()));
    assert_eq!(
        (field("redirect_uri"), field("client_id"), field("client_secret")),
        (REDIRECT.into(), "me".into(), SECRET.into())
    );
    use base64::Engine;
    let challenge = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(field("code_verifier")));
    assert_eq!(challenge, parameter(uri, "code_challenge"));
}

#[tokio::test]
async fn the_session_stores_neither_codes_nor_tokens_nor_secrets() {
    let (_, server) = Login::start().await;
    let (app, _api) = app(&server, oauth2(&server)).await;
    let (id, args) = request(&app.run("orders?").await);
    app.send(logged_in(&id, &args, "code=good")).await;
    let stored = stored(&app).await;
    for secret in ["code=good", "access-0", "refresh-0", SECRET, "authResponseUri"] {
        assert!(!stored.contains(secret), "{secret}: {stored}");
    }
    assert!(stored.contains(r#""response":{"status":"received"}"#), "{stored}");
}

#[tokio::test]
async fn a_refused_login_is_an_error_for_the_model_and_the_next_call_asks_again() {
    for (result, expected) in [
        ("error=access_denied", "the OAuth server refuses access: access_denied"),
        ("code=bad", "the OAuth server refuses access: invalid_grant"),
        ("error=S3cret%20text", "the OAuth server refuses access: it gives no reason"),
    ] {
        let (_, server) = Login::start().await;
        let (app, _api) = app(&server, oauth2(&server)).await;
        let (id, args) = request(&app.run("orders?").await);
        let error = tool_result(&app.send(logged_in(&id, &args, result)).await)["error"].clone();
        assert_eq!(error, format!("the call of `op` of the API `shop` failed: {expected}"));
        let (other, _) = request(&app.run("again?").await);
        assert_ne!(other, id);
    }
}

#[tokio::test]
async fn the_answer_of_another_login_is_not_accepted() {
    let (_, server) = Login::start().await;
    let (app, _api) = app(&server, oauth2(&server)).await;
    let (id, args) = request(&app.run("orders?").await);
    let forged = answer(&id, &args, |credential| {
        credential["oauth2"]["authResponseUri"] = format!("{REDIRECT}?state=other&code=good").into();
    });
    let error = tool_result(&app.send(forged).await)["error"].clone();
    let reason = "the answer to the request for a credential cannot be used: the `state` of its `authResponseUri` does \
                  not match the request; the next call asks again";
    assert_eq!(error, format!("the call of `op` of the API `shop` failed: {reason}"));
    assert!(token_requests(&server).is_empty());
}

#[tokio::test]
async fn an_answer_to_nothing_is_not_kept_and_an_answer_counts_once() {
    let (_, server) = Login::start().await;
    let (app, _api) = app(&server, oauth2(&server)).await;
    let (id, args) = request(&app.run("orders?").await);
    let good = logged_in(&id, &args, "code=good");
    app.send(good.clone()).await;
    let key = args["authConfig"]["credentialKey"].as_str().unwrap();
    let kept = CredentialId::for_user(&app.session().await.key, key);
    let credentials = app.runner.services().credentials.clone();
    credentials.delete(&kept).await.unwrap();
    for content in [good, logged_in("adk-unknown", &args, "code=good")] {
        let run = app.runner.run(app.app.clone(), app.request(content)).await;
        if let Ok(run) = run {
            let _ = run.collect().await;
        }
        assert_eq!(credentials.load(&kept).await.unwrap(), None);
    }
}

#[tokio::test]
async fn an_openid_provider_is_discovered() {
    let (_, server) = Login::start().await;
    let scheme = AuthScheme::OpenIdConnect {
        configuration_url: Some(server.url("/.well-known/openid-configuration")),
        authorization_endpoint: None,
        token_endpoint: None,
        scopes: vec!["openid".into(), "email".into()],
    };
    let (app, _api) = app(&server, user(scheme, Some(client()))).await;
    let (id, args) = request(&app.run("orders?").await);
    let uri = args["authConfig"]["exchangedAuthCredential"]["oauth2"]["authUri"].as_str().unwrap();
    assert_eq!(parameter(uri, "scope"), "openid email");
    let events = app.send(logged_in(&id, &args, "code=good")).await;
    assert_eq!(tool_result(&events), json!({"orders": [1, 2]}));
}

#[tokio::test]
async fn a_key_a_password_and_a_token_of_a_user_are_where_the_scheme_says() {
    let key = AuthScheme::ApiKey { location: AuthKeyLocation::Header, name: "X-Key".into() };
    let http = |scheme: &str| AuthScheme::Http { scheme: scheme.into() };
    let credentials = |value: Value| json!({"authType": "http", "http": {"scheme": "", "credentials": value}});
    let cases = [
        (key, json!({"authType": "apiKey", "apiKey": "us3r-key"}), "x-key", "us3r-key"),
        (http("basic"), credentials(json!({"username": "ada", "password": "pw"})), "authorization", "Basic YWRhOnB3"),
        (http("bearer"), credentials(json!({"token": "us3r-token"})), "authorization", "Bearer us3r-token"),
    ];
    for (scheme, credential, header, expected) in cases {
        let server = Server::echo().await;
        let (app, _api) = app(&server, user(scheme, None)).await;
        let (id, args) = request(&app.run("orders?").await);
        app.send(answer(&id, &args, |exchanged| *exchanged = credential)).await;
        assert_eq!(server.requests().last().unwrap()["headers"][header], expected);
        assert!(!stored(&app).await.contains("us3r-"));
    }
}

#[tokio::test]
async fn what_a_user_has_granted_is_for_one_server_and_one_client_only() {
    let scheme = || AuthScheme::ApiKey { location: AuthKeyLocation::Header, name: "X-Key".into() };
    let (first, second) = (Server::echo().await, Server::echo().await);
    let (mut shop, api) = app(&first, user(scheme(), None)).await;
    let (id, args) = request(&shop.run("orders?").await);
    let key = json!({"authType": "apiKey", "apiKey": "us3r-key"});
    shop.send(answer(&id, &args, |exchanged| *exchanged = key)).await;
    assert_eq!(first.requests().last().unwrap()["headers"]["x-key"], "us3r-key");

    // As after a restart with other settings under the same name.
    let reopen = |server: &Server, credentials: Credentials| {
        let mut api = server.api(&operation(json!({})));
        api.config.credentials = credentials;
        api
    };
    let moved = reopen(&second, user(scheme(), None));
    let bearer = reopen(&first, user(AuthScheme::Http { scheme: "bearer".into() }, None));
    for (api, server) in [(&moved, &second), (&bearer, &first)] {
        let before = server.requests().len();
        shop.app = calling(api, asking_model());
        request(&shop.run("orders?").await);
        assert_eq!(server.requests().len(), before, "nothing is sent before the user has granted it");
    }
    shop.app = calling(&api, asking_model());
    let events = shop.run("orders?").await;
    assert!(no_request(&events));
    assert_eq!(first.requests().last().unwrap()["headers"]["x-key"], "us3r-key");
}

#[tokio::test]
async fn another_client_of_the_same_server_gets_no_tokens_of_the_first() {
    let (_, server) = Login::start().await;
    let (mut shop, mut api) = app(&server, oauth2(&server)).await;
    let (id, args) = request(&shop.run("orders?").await);
    shop.send(logged_in(&id, &args, "code=good")).await;
    let Credentials::User(user) = &mut api.config.credentials else { panic!("a user's credentials") };
    user.client.as_mut().unwrap().id = ConfigValue::Text("other".into());
    shop.app = calling(&api, asking_model());
    let sent = server.requests().len();
    let (_, args) = request(&shop.run("orders?").await);
    assert_eq!(args["authConfig"]["rawAuthCredential"]["oauth2"]["clientId"], "other");
    assert_eq!(server.requests().len(), sent);
}

#[tokio::test]
async fn a_user_who_declines_is_not_asked_again_by_the_same_call_and_the_model_is_told() {
    let (_, server) = Login::start().await;
    let model =
        Scripted::sequence([Reply::call("op", json!({})), Reply::from("one moment"), Reply::from("as you like")]);
    let (app, _api) = app_of(&server, oauth2(&server), model).await;
    let (id, args) = request(&app.run("orders?").await);
    let events = app.send(answer(&id, &args, |_| {})).await;
    assert!(no_request(&events));
    let error = tool_result(&events)["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.starts_with("the user has not granted the credential that `op` needs"), "{error}");
}

#[tokio::test]
async fn a_resumable_run_waits_for_the_login_and_continues() {
    let (_, server) = Login::start().await;
    let (mut app, _api) = app(&server, oauth2(&server)).await;
    app.resumable();
    let events = app.run("orders?").await;
    let (id, args) = request(&events);
    let run = events[0].invocation_id.clone();
    let events = app.send(logged_in(&id, &args, "code=good")).await;
    assert_eq!(tool_result(&events), json!({"orders": [1, 2]}));
    assert!(events.iter().all(|event| event.invocation_id == run));
}
