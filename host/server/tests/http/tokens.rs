//! Tokens of an issuer whose keys change, and everything that is not such a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response as AxumResponse};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hatchery::{OidcConfig, ServerAuthConfig, ServerConfig, TokenAlgorithm};
use hatchery_test_services::serve_http;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, get_current_timestamp};
use rcgen::KeyPair;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::support::{Host, problem, run_body, success};

const ISSUER: &str = "https://id.example";
const AUDIENCE: &str = "hatchery";

/// A key of the issuer.
pub struct Key {
    id: String,
    algorithm: Algorithm,
    signer: EncodingKey,
    pair: KeyPair,
}

impl Key {
    pub fn new(id: &str, algorithm: Algorithm) -> Self {
        let kind = match algorithm {
            Algorithm::RS256 => &rcgen::PKCS_RSA_SHA256,
            Algorithm::ES256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            _ => &rcgen::PKCS_ED25519,
        };
        let pair = KeyPair::generate_for(kind).unwrap();
        let pem = pair.serialize_pem();
        let signer = match algorithm {
            Algorithm::RS256 => EncodingKey::from_rsa_pem(pem.as_bytes()),
            Algorithm::ES256 => EncodingKey::from_ec_pem(pem.as_bytes()),
            _ => Ok(EncodingKey::from_ed_der(&pair.serialize_der())),
        };
        Self { id: id.into(), algorithm, signer: signer.unwrap(), pair }
    }

    fn public(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let raw = self.pair.public_key_raw();
        match self.algorithm {
            Algorithm::RS256 => {
                let mut key = Jwk::from_encoding_key(&self.signer, self.algorithm).unwrap();
                key.common.key_id = Some(self.id.clone());
                serde_json::to_value(key).unwrap()
            }
            // A byte that says that both coordinates follow, then 32 bytes each.
            Algorithm::ES256 => {
                let (x, y) = (encode(&raw[1..33]), encode(&raw[33..]));
                json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "x": x, "y": y})
            }
            _ => json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "alg": "EdDSA", "x": encode(raw)}),
        }
    }

    fn header(&self) -> Header {
        Header { kid: Some(self.id.clone()), ..Header::new(self.algorithm) }
    }

    pub fn sign(&self, claims: &Value) -> String {
        jsonwebtoken::encode(&self.header(), claims, &self.signer).unwrap()
    }
}

/// An issuer that serves its public keys.
#[derive(Clone, Default)]
pub struct Issuer {
    url: String,
    /// `None` while it is out of order.
    keys: Arc<Mutex<Option<Vec<Value>>>>,
    requests: Arc<AtomicUsize>,
}

impl Issuer {
    /// Starts an issuer, and a server that accepts its tokens.
    pub async fn start(keys: &[&Key], config: OidcConfig) -> (Self, Host) {
        let mut issuer = Self::default();
        issuer.publish(keys).await;
        let routes = Router::new().route("/keys", get(Self::serve_keys)).with_state(issuer.clone());
        issuer.url = serve_http(routes).await;
        let host = Host::with(issuer.server_config(config)).await;
        (issuer, host)
    }

    /// Returns the configuration of a server that accepts its tokens.
    pub fn server_config(&self, config: OidcConfig) -> ServerConfig {
        let jwks_url = format!("{}/keys", self.url);
        let oidc = OidcConfig { issuer: ISSUER.into(), audience: vec![AUDIENCE.into()], jwks_url, ..config };
        let auth = ServerAuthConfig { oidc: Some(oidc), ..ServerAuthConfig::default() };
        ServerConfig { auth: Some(auth), ..ServerConfig::default() }
    }

    async fn publish(&self, keys: &[&Key]) {
        *self.keys.lock().await = Some(keys.iter().map(|key| key.public()).collect());
    }

    async fn break_down(&self) {
        *self.keys.lock().await = None;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    async fn serve_keys(State(issuer): State<Self>) -> AxumResponse {
        issuer.requests.fetch_add(1, Ordering::SeqCst);
        match &*issuer.keys.lock().await {
            Some(keys) => Json(json!({"keys": keys})).into_response(),
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "u", "exp": get_current_timestamp() + 600})
}

/// Returns valid claims with one that is different. `null` removes it.
pub fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

async fn list_apps(host: &Host, token: &str) -> Response {
    host.request(Method::GET, "/list-apps").bearer_auth(token).send().await.unwrap()
}

async fn assert_refused(host: &Host, token: &str, what: &str) {
    let response = list_apps(host, token).await;
    assert_eq!(response.status(), 401, "{what}");
    let body = problem(response, 401, "INVALID_CREDENTIALS").await;
    assert_eq!(body["detail"], "the API key or token is not valid", "{what}");
}

fn encode(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

#[tokio::test]
async fn tokens_of_all_three_algorithms_act_for_their_user_only() {
    let keys = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA].map(|algorithm| Key::new("k", algorithm));
    for key in &keys {
        let (issuer, host) =
            Issuer::start(&[key], OidcConfig { apps: vec!["says".into()], ..OidcConfig::default() }).await;
        let token = key.sign(&claims());
        assert_eq!(success(list_apps(&host, &token).await).await, json!(["says"]), "{:?}", key.algorithm);
        let post = async |path: &str, body: &Value| {
            host.request(Method::POST, path).bearer_auth(&token).json(body).send().await.unwrap()
        };
        assert_eq!(post("/apps/says/users/u/sessions/s", &json!({})).await.status(), 200);
        assert_eq!(post("/run", &run_body("says", "hi")).await.status(), 200);
        problem(post("/apps/says/users/other/sessions/s", &json!({})).await, 403, "USER_NOT_ALLOWED").await;
        problem(post("/apps/waits/users/u/sessions/s", &json!({})).await, 404, "APP_NOT_FOUND").await;
        problem(post("/components/x/rollback", &json!({})).await, 403, "ROLE_REQUIRED").await;
        assert_eq!(issuer.requests(), 1, "the keys are kept");
    }
}

#[tokio::test]
async fn a_token_is_refused_unless_everything_about_it_is_right() {
    let key = Key::new("k", Algorithm::RS256);
    let (_issuer, host) = Issuer::start(&[&key], OidcConfig::default()).await;
    let now = get_current_timestamp();
    for (name, value) in [
        ("aud", json!("another")),
        ("aud", json!(["another"])),
        ("aud", Value::Null),
        ("iss", json!("https://evil.example")),
        ("iss", Value::Null),
        ("exp", Value::Null),
        ("exp", json!("tomorrow")),
        ("nbf", json!(now + 600)),
        ("sub", Value::Null),
        ("sub", json!("")),
        ("sub", json!(7)),
        ("sub", json!("x".repeat(257))),
        ("sub", json!("a\nb")),
        ("sub", json!("A2A_PUSH")),
        ("sub", json!("A2A_USER_c")),
        ("sub", json!("mcp")),
        ("sub", json!("MCP_CLIENT_key_backend")),
    ] {
        assert_refused(&host, &key.sign(&claims_with(name, value.clone())), &format!("{name}: {value}")).await;
    }
    let expired = list_apps(&host, &key.sign(&claims_with("exp", json!(now - 600)))).await;
    assert_eq!(problem(expired, 401, "TOKEN_EXPIRED").await["detail"], "the token has expired; get a new one");

    let valid = key.sign(&claims());
    let [header, payload, signature] = valid.split('.').collect::<Vec<_>>()[..] else { panic!("{valid}") };
    let none = |alg: &str| encode(&json!({"alg": alg, "kid": "k", "typ": "JWT"}));
    // The public key is known to everybody, so it must not work as a secret.
    let secret = EncodingKey::from_secret(key.pair.public_key_pem().as_bytes());
    let hs256 = Header { kid: Some("k".into()), ..Header::new(Algorithm::HS256) };
    let confused = jsonwebtoken::encode(&hs256, &claims(), &secret).unwrap();
    let impostor = Key::new("k", Algorithm::RS256);
    let stranger = Key::new("unknown", Algorithm::RS256);
    let critical = Header { crit: Some(vec!["exp".into()]), ..key.header() };
    let critical = jsonwebtoken::encode(&critical, &claims(), &key.signer).unwrap();
    let other_payload = encode(&claims_with("sub", json!("admin")));
    for (what, token) in [
        ("no signature", format!("{}.{payload}.", none("none"))),
        ("a signature of none", format!("{}.{payload}.{signature}", none("None"))),
        ("no signature under the algorithm of the key", format!("{header}.{payload}.")),
        ("the public key as a secret", confused),
        ("a changed payload", format!("{header}.{other_payload}.{signature}")),
        ("another header", format!("{}.{payload}.{signature}", none("ES256"))),
        ("a key of somebody else with a known id", impostor.sign(&claims())),
        ("an unknown key", stranger.sign(&claims())),
        ("a critical extension", critical),
        ("nothing", "..".into()),
        ("no JSON", "YQ.YQ.YQ".into()),
        ("four parts", format!("{valid}.{signature}")),
        ("too long", format!("{valid}{}", "A".repeat(8 << 10))),
    ] {
        assert_refused(&host, &token, what).await;
    }
    assert_eq!(list_apps(&host, &valid).await.status(), 200, "the token that the others were made of");
}

#[tokio::test]
async fn clocks_may_differ_by_the_configured_time_and_audiences_may_be_several() {
    let key = Key::new("k", Algorithm::EdDSA);
    let config = OidcConfig { clock_skew: Duration::from_secs(120), ..OidcConfig::default() };
    let (_issuer, host) = Issuer::start(&[&key], config).await;
    let now = get_current_timestamp();
    for (name, value) in [("exp", json!(now - 60)), ("nbf", json!(now + 60)), ("aud", json!(["another", AUDIENCE]))] {
        assert_eq!(list_apps(&host, &key.sign(&claims_with(name, value))).await.status(), 200, "{name}");
    }
    let expired = list_apps(&host, &key.sign(&claims_with("exp", json!(now - 240)))).await;
    problem(expired, 401, "TOKEN_EXPIRED").await;
}

#[tokio::test]
async fn an_algorithm_that_is_not_configured_is_refused() {
    let (rsa, ed) = (Key::new("r", Algorithm::RS256), Key::new("e", Algorithm::EdDSA));
    let config = OidcConfig { algorithms: vec![TokenAlgorithm::EdDsa], ..OidcConfig::default() };
    let (_issuer, host) = Issuer::start(&[&rsa, &ed], config).await;
    assert_eq!(list_apps(&host, &ed.sign(&claims())).await.status(), 200);
    assert_refused(&host, &rsa.sign(&claims()), "RS256").await;
}

#[tokio::test]
async fn tokens_of_users_who_are_not_named_are_refused() {
    let key = Key::new("k", Algorithm::EdDSA);
    let config = OidcConfig { users: vec!["u".into(), "v".into()], ..OidcConfig::default() };
    let (_issuer, host) = Issuer::start(&[&key], config).await;
    for user in ["u", "v"] {
        assert_eq!(list_apps(&host, &key.sign(&claims_with("sub", json!(user)))).await.status(), 200, "{user}");
    }
    assert_refused(&host, &key.sign(&claims_with("sub", json!("w"))), "another user").await;
}

#[tokio::test]
async fn claims_are_the_user_and_the_role() {
    let key = Key::new("k", Algorithm::EdDSA);
    let config = OidcConfig {
        user_claim: "email".into(),
        role_claim: Some("/realm_access/roles".into()),
        ..OidcConfig::default()
    };
    let (_issuer, host) = Issuer::start(&[&key], config).await;
    let token = |roles: Value| {
        let mut claims = claims_with("email", json!("u@app.example"));
        claims["realm_access"] = json!({"roles": roles});
        key.sign(&claims)
    };
    let get = async |roles: Value, path: &str| {
        host.request(Method::GET, path).bearer_auth(token(roles)).send().await.unwrap()
    };
    let (own, other) = ("/apps/says/users/u@app.example/sessions", "/apps/says/users/u/sessions");
    assert_eq!(get(json!(["use"]), own).await.status(), 200);
    problem(get(json!(["use"]), other).await, 403, "USER_NOT_ALLOWED").await;
    problem(get(json!(["use"]), "/components").await, 403, "ROLE_REQUIRED").await;
    assert_eq!(get(json!(["x", "operate"]), other).await.status(), 200);
    assert_eq!(get(json!(["operate"]), "/components").await.status(), 200);
    let refused = problem(get(json!(["x"]), own).await, 403, "ROLE_REQUIRED").await;
    assert_eq!(
        refused["detail"],
        "the token has no role that this server knows; its issuer must add `use` or `operate`"
    );
}

#[tokio::test]
async fn keys_of_an_issuer_are_replaced_while_the_server_runs() {
    let (old, new) = (Key::new("old", Algorithm::ES256), Key::new("new", Algorithm::ES256));
    let (issuer, host) = Issuer::start(&[&old], OidcConfig::default()).await;
    assert_eq!(list_apps(&host, &old.sign(&claims())).await.status(), 200);
    issuer.publish(&[&new]).await;
    assert_eq!(list_apps(&host, &new.sign(&claims())).await.status(), 200);
    assert_eq!(issuer.requests(), 2);
    assert_refused(&host, &old.sign(&claims()), "a key that the issuer has withdrawn").await;
}

#[tokio::test]
async fn made_up_key_ids_cause_no_flood_of_requests_to_the_issuer() {
    let key = Key::new("k", Algorithm::EdDSA);
    let (issuer, host) = Issuer::start(&[&key], OidcConfig::default()).await;
    let stranger = Key::new("", Algorithm::EdDSA);
    let tokens = (0..40).map(|number| {
        let header = Header { kid: Some(format!("made-up-{number}")), ..Header::new(Algorithm::EdDSA) };
        jsonwebtoken::encode(&header, &claims(), &stranger.signer).unwrap()
    });
    let answers = futures::future::join_all(tokens.map(|token| {
        let host = &host;
        async move { list_apps(host, &token).await.status() }
    }))
    .await;
    assert!(answers.iter().all(|status| *status == 401), "{answers:?}");
    assert!((1..=5).contains(&issuer.requests()), "{} requests", issuer.requests());
    assert_eq!(list_apps(&host, &key.sign(&claims())).await.status(), 200);
    assert_eq!(host.state.refused_credentials(), 40);
}

#[tokio::test]
async fn while_the_keys_of_the_issuer_cannot_be_read_known_ones_are_used() {
    let (key, new) = (Key::new("k", Algorithm::EdDSA), Key::new("new", Algorithm::EdDSA));
    let (issuer, host) = Issuer::start(&[&key], OidcConfig::default()).await;
    issuer.break_down().await;
    let unknown = list_apps(&host, &key.sign(&claims())).await;
    assert_eq!(unknown.headers()["retry-after"], "30");
    let body = problem(unknown, 503, "ISSUER_UNAVAILABLE").await;
    let detail = "tokens cannot be checked now, since the keys of their issuer cannot be read; try again";
    assert_eq!(body["detail"], detail);
    issuer.publish(&[&key]).await;
    assert_eq!(list_apps(&host, &key.sign(&claims())).await.status(), 200);
    issuer.break_down().await;
    assert_refused(&host, &new.sign(&claims()), "a key that cannot be looked up").await;
    assert_eq!(list_apps(&host, &key.sign(&claims())).await.status(), 200);
}
