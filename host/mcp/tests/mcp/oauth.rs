//! Servers that demand a token: logins, the host's own credentials, and where requests for tokens may go.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hatchery_core::{ConfigValue, CredentialId};
use hatchery_mcp::{
    Browser, Egress, HttpServer, McpError, OAuthConfig, OAuthGrant, ServerConfig, StoredTokens, Transport, Url,
};
use hatchery_test_support::services;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use crate::support::{CallingApp, call, configured, erratic, toolset};

const TOKEN: &str = "the-token-of-the-host";

/// An MCP server and its authorization server.
#[derive(Clone)]
struct Guarded {
    address: SocketAddr,
    /// The authorization server that the MCP server names.
    issuer: String,
    /// The challenge of the last login.
    challenge: Arc<Mutex<String>>,
    /// True if the handshake needs no token.
    has_open_handshake: bool,
}

impl Guarded {
    async fn start(issuer: Option<String>) -> Self {
        Self::start_with(issuer, false).await
    }

    async fn start_with(issuer: Option<String>, has_open_handshake: bool) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let issuer = issuer.unwrap_or_else(|| format!("http://{address}"));
        let server = Self { address, issuer, challenge: Arc::default(), has_open_handshake };
        let router = Router::new()
            .route("/mcp", post(mcp))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource))
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    fn config(&self, change: impl FnOnce(&mut OAuthConfig)) -> ServerConfig {
        let url = format!("http://{}/mcp", self.address);
        let mut config = ServerConfig::new(Transport::Http(HttpServer { url, ..HttpServer::default() }));
        let mut oauth = OAuthConfig::new(Arc::new(Only(self.address)));
        change(&mut oauth);
        config.oauth = Some(oauth);
        config
    }
}

async fn mcp(State(server): State<Guarded>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    let has_token =
        headers.get("authorization").and_then(|value| value.to_str().ok()) == Some(&format!("Bearer {TOKEN}"));
    let is_handshake = matches!(message["method"].as_str(), Some("initialize" | "notifications/initialized"));
    let is_open = is_handshake && server.has_open_handshake;
    if !has_token && !is_open {
        let metadata = format!("http://{}/.well-known/oauth-protected-resource/mcp", server.address);
        let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    }
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "g", "version": "1"},
        }),
        Some("tools/list") => json!({"tools": [{"name": "open", "inputSchema": {"type": "object"}}]}),
        Some("tools/call") => json!({"content": [{"type": "text", "text": "opened"}]}),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}

async fn resource(State(server): State<Guarded>) -> Json<Value> {
    Json(json!({
        "resource": format!("http://{}/mcp", server.address), "authorization_servers": [server.issuer],
    }))
}

async fn metadata(State(server): State<Guarded>) -> Json<Value> {
    let url = |path: &str| format!("http://{}/{path}", server.address);
    Json(json!({
        "issuer": server.issuer, "authorization_endpoint": url("authorize"), "token_endpoint": url("token"),
        "registration_endpoint": url("register"), "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
    }))
}

async fn register(Json(request): Json<Value>) -> Response {
    let body = json!({"client_id": "registered", "redirect_uris": request["redirect_uris"]});
    (StatusCode::CREATED, Json(body)).into_response()
}

async fn authorize(State(server): State<Guarded>, Query(query): Query<Map<String, Value>>) -> Redirect {
    assert_eq!((&query["client_id"], &query["code_challenge_method"]), (&json!("registered"), &json!("S256")));
    *server.challenge.lock().unwrap() = query["code_challenge"].as_str().unwrap().into();
    let (redirect, state) = (query["redirect_uri"].as_str().unwrap(), query["state"].as_str().unwrap());
    Redirect::to(&format!("{redirect}?code=granted&state={state}"))
}

async fn token(State(server): State<Guarded>, form: String) -> Response {
    let form = Url::parse(&format!("http://localhost/?{form}")).unwrap();
    let text = |key: &str| form.query_pairs().find(|(name, _)| name == key).map(|(_, value)| value.into_owned());
    let text = |key: &str| text(key).unwrap_or_default();
    let is_granted = match text("grant_type").as_str() {
        "authorization_code" => {
            let verifier = URL_SAFE_NO_PAD.encode(Sha256::digest(text("code_verifier")));
            text("code") == "granted" && verifier == *server.challenge.lock().unwrap()
        }
        "client_credentials" => text("client_id") == "host" && text("client_secret") == "secret",
        _ => false,
    };
    if is_granted {
        Json(json!({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600})).into_response()
    } else {
        (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response()
    }
}

/// Allows connections to one address.
struct Only(SocketAddr);

impl Egress for Only {
    fn check_url(&self, url: &Url) -> Result<(), String> {
        let is_known = url.host_str() == Some("127.0.0.1") && url.port() == Some(self.0.port());
        is_known.then_some(()).ok_or_else(|| format!("requests to `{url}` are not allowed"))
    }

    fn check_address(&self, _: &Url, _: IpAddr) -> Result<(), String> {
        Ok(())
    }
}

/// A person who grants every request.
struct Granting;

#[async_trait]
impl Browser for Granting {
    fn redirect_uri(&self) -> String {
        "http://127.0.0.1:9/callback".into()
    }

    async fn authorize(&self, url: &str) -> Result<String, String> {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let answer = client.get(url).send().await.unwrap();
        Ok(answer.headers()["location"].to_str().unwrap().to_owned())
    }
}

/// A person who grants nothing.
struct Refusing;

#[async_trait]
impl Browser for Refusing {
    fn redirect_uri(&self) -> String {
        "http://127.0.0.1:9/callback".into()
    }

    async fn authorize(&self, _: &str) -> Result<String, String> {
        Err("nobody has logged in".into())
    }
}

#[tokio::test]
async fn a_person_logs_in_once_and_agents_never_see_the_token() {
    let server = Guarded::start(None).await;
    let (service, id) = (services().credentials, CredentialId::for_host("guarded"));
    let tokens = StoredTokens { service: service.clone(), id: id.clone() };
    let config = || server.config(|oauth| oauth.tokens = Some(tokens.clone()));
    let guarded = toolset(config());
    let error = CallingApp::error(guarded.clone()).await.to_string();
    assert!(error.contains("it requires authorization, and answered `Bearer resource_metadata="), "{error}");
    assert!(error.ends_with("log in again with `hatchery login`"), "{error}");
    let refused = guarded.login(&Refusing).await.unwrap_err();
    assert_eq!(refused, McpError::Authorization("nobody has logged in".into()));
    guarded.login(&Granting).await.unwrap();
    assert!(service.load(&id).await.unwrap().is_some());
    // As another process does.
    let app = CallingApp::new(toolset(config()), &[("open", json!({}))]).await;
    let events = app.harness.run("go").await;
    let seen = format!("{}{:?}", json!(events), app.model.requests());
    assert!(seen.contains("opened") && !seen.contains(TOKEN), "{seen}");
}

#[tokio::test]
async fn a_login_at_an_unknown_server_names_the_configured_servers() {
    let (servers, _) = configured(erratic(&[]), json!({"server": "erratic"}));
    let error = servers.login("files", &Refusing).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "hatchery.yaml has no MCP server `files`; available: `erratic`; add it there below `mcp.servers`"
    );
}

#[tokio::test]
async fn a_person_logs_in_to_a_server_that_demands_it_for_its_tools_only() {
    let server = Guarded::start_with(None, true).await;
    let guarded = toolset(server.config(|_| ()));
    let error = CallingApp::error(guarded.clone()).await.to_string();
    assert!(error.contains("it requires authorization, and answered `Bearer resource_metadata="), "{error}");
    guarded.login(&Granting).await.unwrap();
    assert_eq!(call(guarded, "open", json!({})).await["text_output"][0]["text"], "opened");
}

#[tokio::test]
async fn the_host_has_credentials_of_its_own() {
    let server = Guarded::start(None).await;
    let config = |secret: &str| {
        server.config(|oauth| {
            oauth.grant = OAuthGrant::ClientCredentials;
            oauth.client_id = Some(ConfigValue::Text("host".into()));
            oauth.client_secret = Some(ConfigValue::Text(secret.into()));
        })
    };
    let response = call(toolset(config("secret")), "open", json!({})).await;
    assert_eq!(response["text_output"][0]["text"], "opened");
    let error = CallingApp::error(toolset(config("wrong"))).await.to_string();
    assert!(error.contains("the host is not authorized") && !error.contains("wrong"), "{error}");
}

#[tokio::test]
async fn a_server_cannot_send_the_host_elsewhere_for_a_token() {
    let elsewhere = Guarded::start(None).await;
    let server = Guarded::start(Some(format!("http://{}", elsewhere.address))).await;
    let config = server.config(|oauth| {
        oauth.grant = OAuthGrant::ClientCredentials;
        oauth.client_id = Some(ConfigValue::Text("host".into()));
        oauth.client_secret = Some(ConfigValue::Text("secret".into()));
    });
    let error = CallingApp::error(toolset(config)).await.to_string();
    assert!(error.contains("the host is not authorized"), "{error}");
    let login = toolset(server.config(|_| ())).login(&Granting).await.unwrap_err();
    assert!(matches!(login, McpError::Authorization(_)), "{login}");
    assert_eq!(*elsewhere.challenge.lock().unwrap(), "");
}
