//! Application default credentials of Google Cloud.

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router};
use hatchery_core::{Model, ModelErrorKind, ModelResolver, StreamingMode};
use hatchery_models::{BaseUrl, GoogleCloud, ModelProviders, Service, Settings};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};

use crate::support::{MockProvider, MockResponse, call_error, generate, texts, user_request};

/// A token server: returns this response, and records the forms that it receives.
#[derive(Clone)]
struct TokenServer {
    url: String,
    forms: Arc<Mutex<Vec<String>>>,
}

impl TokenServer {
    async fn start(status: u16, response: Value) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let forms = Arc::default();
        let state = (Arc::clone(&forms), StatusCode::from_u16(status).unwrap(), response);
        let respond = async |State((forms, status, response)): State<(Arc<Mutex<Vec<_>>>, _, Value)>, form: String| {
            forms.lock().unwrap().push(form);
            (status, Json(response)) as (StatusCode, _)
        };
        let router = Router::new().fallback(respond).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, forms }
    }

    async fn granting() -> Self {
        Self::start(200, json!({ "access_token": "granted", "token_type": "Bearer", "expires_in": 3_600 })).await
    }

    /// Returns the fields of the forms.
    fn forms(&self) -> Vec<Vec<(String, String)>> {
        let fields = |form: &String| {
            let url = reqwest::Url::parse(&format!("http://x/?{form}")).unwrap();
            url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
        };
        self.forms.lock().unwrap().iter().map(fields).collect()
    }
}

fn settings(credentials_file: &Path) -> GoogleCloud {
    GoogleCloud { credentials_file: Some(credentials_file.into()), ..GoogleCloud::default() }
}

fn model(provider: &MockProvider, google_cloud: GoogleCloud) -> Arc<dyn Model> {
    let settings = Settings { google_cloud, ..Settings::default() };
    let settings = settings.with_base_url(Service::Vertex, provider.url.as_str());
    ModelProviders::with_defaults(settings).model("vertex/gemini-2.5-flash").unwrap()
}

fn hello() -> MockResponse {
    MockResponse::json(json!({ "candidates": [{ "content": { "parts": [{ "text": "hello" }] } }] }))
}

fn write(folder: &tempfile::TempDir, json: Value) -> std::path::PathBuf {
    let path = folder.path().join("credentials.json");
    std::fs::write(&path, json.to_string()).unwrap();
    path
}

fn user_file(token_uri: &str) -> Value {
    json!({
        "type": "authorized_user", "client_id": "the-client", "client_secret": "client-s3cret",
        "refresh_token": "refresh-s3cret", "quota_project_id": "quota-project", "token_uri": token_uri,
    })
}

#[tokio::test]
async fn a_service_account_exchanges_a_signed_assertion_for_a_token() {
    let server = TokenServer::granting().await;
    let provider = MockProvider::start([hello(), hello()]).await;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = write(
        &folder,
        json!({
            "type": "service_account", "project_id": "file-project", "private_key_id": "key-1",
            "private_key": key.serialize_pem(), "client_email": "me@file-project.example", "token_uri": server.url,
        }),
    );
    let model = model(&provider, settings(&file));
    for _ in 0..2 {
        let response = generate(model.as_ref(), user_request("hi")).await.unwrap();
        assert_eq!(texts(&[response]), ["hello"]);
    }
    for request in provider.requests() {
        assert_eq!(request.headers["authorization"], "Bearer granted");
        let path =
            "/v1beta1/projects/file-project/locations/global/publishers/google/models/gemini-2.5-flash:generateContent";
        assert_eq!(request.target, path);
    }
    let forms = server.forms();
    assert_eq!(forms.len(), 1, "the token is cached");
    assert_eq!(forms[0][0].1, "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let mut validation = Validation::new(Algorithm::RS256);
    validation.set_audience(&[&server.url]);
    validation.set_issuer(&["me@file-project.example"]);
    let public_key = DecodingKey::from_rsa_pem(key.public_key_pem().as_bytes()).unwrap();
    let assertion = jsonwebtoken::decode::<Value>(&forms[0][1].1, &public_key, &validation).unwrap();
    assert_eq!(assertion.header.kid.as_deref(), Some("key-1"));
    assert_eq!(assertion.claims["scope"], "https://www.googleapis.com/auth/cloud-platform");
    assert_eq!(assertion.claims["exp"].as_u64().unwrap() - assertion.claims["iat"].as_u64().unwrap(), 3_600);
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_once() {
    let server = TokenServer::granting().await;
    let refusal = || MockResponse::json("{}").status(401);
    let provider = MockProvider::start([refusal(), hello(), refusal(), refusal()]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, user_file(&server.url));
    let model = model(&provider, settings(&path));
    let response = generate(model.as_ref(), user_request("hi")).await.unwrap();
    assert_eq!((texts(&[response]), server.forms().len()), (vec!["hello".to_owned()], 2));
    let error = generate(model.as_ref(), user_request("hi")).await.unwrap_err();
    assert_eq!((error.kind, server.forms().len(), provider.requests().len()), (ModelErrorKind::Auth, 3, 4));
}

#[tokio::test]
async fn a_user_exchanges_a_refresh_token_for_a_token() {
    let server = TokenServer::granting().await;
    let provider = MockProvider::start([hello()]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, user_file(&server.url));
    std::fs::rename(path, folder.path().join("application_default_credentials.json")).unwrap();
    // The file that `gcloud` writes.
    let google_cloud = GoogleCloud {
        config_folder: Some(folder.path().into()),
        project: Some("my-project".into()),
        ..GoogleCloud::default()
    };
    generate(model(&provider, google_cloud).as_ref(), user_request("hi")).await.unwrap();
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = [
        field("grant_type", "refresh_token"),
        field("client_id", "the-client"),
        field("client_secret", "client-s3cret"),
        field("refresh_token", "refresh-s3cret"),
    ];
    assert_eq!(server.forms(), [expected]);
    assert!(provider.requests()[0].target.contains("/projects/my-project/"));
}

#[tokio::test]
async fn a_token_that_has_expired_is_replaced() {
    let server = TokenServer::start(200, json!({ "access_token": "granted", "expires_in": 0 })).await;
    let provider = MockProvider::start([hello(), hello()]).await;
    let folder = tempfile::tempdir().unwrap();
    let model = model(&provider, settings(&write(&folder, user_file(&server.url))));
    for _ in 0..2 {
        generate(model.as_ref(), user_request("hi")).await.unwrap();
    }
    assert_eq!(server.forms().len(), 2);
    assert!(provider.requests()[0].target.contains("/projects/quota-project/"));
}

#[tokio::test]
async fn concurrent_calls_fetch_one_token() {
    let server = TokenServer::granting().await;
    let provider = MockProvider::start((0..8).map(|_| hello())).await;
    let folder = tempfile::tempdir().unwrap();
    let model = model(&provider, settings(&write(&folder, user_file(&server.url))));
    let calls = (0..8).map(|_| generate(model.as_ref(), user_request("hi")));
    futures::future::try_join_all(calls).await.unwrap();
    assert_eq!(server.forms().len(), 1);
}

#[tokio::test]
async fn a_refused_token_is_an_error_with_the_next_step() {
    for (status, kind) in [(400, ModelErrorKind::Auth), (401, ModelErrorKind::Auth)] {
        let error = json!({ "error": "invalid_grant: refresh-s3cret is revoked" });
        let server = TokenServer::start(status, error).await;
        let provider = MockProvider::start([]).await;
        let folder = tempfile::tempdir().unwrap();
        let model = model(&provider, settings(&write(&folder, user_file(&server.url))));
        let error = call_error(model.as_ref(), user_request("hi"), StreamingMode::On).await;
        assert_eq!(error.kind, kind);
        let start = "no access token: set GOOGLE_APPLICATION_CREDENTIALS to a credentials file, or run \
                     `gcloud auth application-default login` (Vertex AI answered HTTP ";
        assert!(error.message.starts_with(start), "{error}");
        assert!(error.message.contains("invalid_grant: [key] is revoked"), "{error}");
        assert!(provider.requests().is_empty());
    }
}

#[tokio::test]
async fn an_answer_of_the_token_server_that_is_no_token_is_an_error() {
    let huge = json!({ "access_token": "x".repeat(64 * 1024) });
    for (answer, reason) in
        [(huge, "it is longer than 65536 bytes"), (json!({ "token": "x" }), "it is not an access token")]
    {
        let server = TokenServer::start(200, answer).await;
        let folder = tempfile::tempdir().unwrap();
        let model = model(&MockProvider::start([]).await, settings(&write(&folder, user_file(&server.url))));
        let error = call_error(model.as_ref(), user_request("hi"), StreamingMode::On).await;
        assert!(
            error.message.ends_with(&format!("Vertex AI sent an answer that cannot be read: {reason})")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_rejected_token_names_the_credentials() {
    let refused = MockResponse::json(json!({ "error": { "message": "the-token lacks a permission" } })).status(403);
    let provider = MockProvider::start([refused]).await;
    let google_cloud = GoogleCloud {
        project: Some("p".into()),
        metadata_host: provider.url.strip_prefix("http://").map(Into::into),
        ..GoogleCloud::default()
    };
    let error = call_error(model(&provider, google_cloud).as_ref(), user_request("hi"), StreamingMode::Off).await;
    assert_eq!(
        error.message,
        "Vertex AI answered HTTP 403: [key] lacks a permission (check the access of the application default credentials)"
    );
}

#[tokio::test]
async fn an_unusable_credentials_file_is_named_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let account = |private_key: &str, token_uri: &str| {
        json!({
            "type": "service_account", "client_email": "me", "private_key": private_key, "token_uri": token_uri,
            "project_id": "p",
        })
    };
    let cases = [
        (json!("s3cret"), "it is not the JSON of a `service_account` or an `authorized_user`"),
        (json!({ "type": "external_account" }), "it is not the JSON of a `service_account` or an `authorized_user`"),
        (account("s3cret", "https://t.example"), "its `private_key` is not an RSA key in PEM"),
        (account("s3cret", "http://t.example"), "its `token_uri` is not an https URL"),
    ];
    let provider = MockProvider::start([]).await;
    for (json, reason) in cases {
        let file = write(&folder, json);
        let google_cloud = GoogleCloud { project: Some("p".into()), ..settings(&file) };
        let error = call_error(model(&provider, google_cloud).as_ref(), user_request("hi"), StreamingMode::Off).await;
        assert_eq!(error.kind, ModelErrorKind::Auth);
        assert_eq!(error.message, format!("the credentials file {} is not usable: {reason}", file.display()));
    }
    let missing = folder.path().join("missing.json");
    let error = call_error(model(&provider, settings(&missing)).as_ref(), user_request("hi"), StreamingMode::Off).await;
    assert!(
        error.message.starts_with(&format!("the credentials file {} is not usable: ", missing.display())),
        "{error}"
    );
    let file = write(&folder, json!({ "type": "authorized_user" }));
    let error = call_error(model(&provider, settings(&file)).as_ref(), user_request("hi"), StreamingMode::Off).await;
    assert_eq!(error.message, "no project: set GOOGLE_CLOUD_PROJECT; the credentials do not name one");
}

#[test]
fn the_location_and_the_project_are_part_of_the_address() {
    let served = |google_cloud: GoogleCloud, name: &str| {
        let providers = ModelProviders::with_defaults(Settings { google_cloud, ..Settings::default() });
        providers.model(name).map(|_| ()).map_err(|error| error.message)
    };
    let with_project = || GoogleCloud { project: Some("p".into()), ..GoogleCloud::default() };
    assert_eq!(
        served(GoogleCloud::default(), "vertex/gemini-2.5-flash").unwrap_err(),
        "no project: set GOOGLE_CLOUD_PROJECT, or GOOGLE_APPLICATION_CREDENTIALS to the file of a service account, or use \
         a model without one, `scripted:<file>`"
    );
    let vertex = || GoogleCloud { use_vertex: true, ..GoogleCloud::default() };
    assert!(served(vertex(), "gemini-2.5-flash").unwrap_err().starts_with("no project: "));
    assert_eq!(served(GoogleCloud { project: Some("p".into()), ..vertex() }, "models/gemini-2.5-flash"), Ok(()));
    let full = "projects/p/locations/l/publishers/google/models/gemini-2.5-flash";
    assert_eq!(served(GoogleCloud::default(), full), Ok(()));
    assert_eq!(
        served(with_project(), "projects/p/models/m").unwrap_err(),
        "the name is not of the form projects/PROJECT/locations/LOCATION/publishers/PUBLISHER/models/MODEL"
    );
    assert_eq!(
        served(with_project(), "projects/p/locations/l/publishers/meta/models/llama").unwrap_err(),
        "models of the publisher `meta` are not supported, only google and anthropic"
    );
}

#[test]
fn a_location_cannot_lead_to_another_host() {
    let error = |google_cloud: GoogleCloud, name: &str| {
        let providers = ModelProviders::with_defaults(Settings { google_cloud, ..Settings::default() });
        providers.model(name).map(|_| ()).unwrap_err()
    };
    let with_project = || GoogleCloud { project: Some("p".into()), ..GoogleCloud::default() };
    for location in ["evil.example?", "evil.example#", "evil.example\\", "u@evil.example:443?", ""] {
        let named = format!("projects/p/locations/{location}/publishers/google/models/gemini-2.5-flash");
        let set = GoogleCloud { location: Some(location.into()), ..with_project() };
        for error in [error(with_project(), &named), error(set, "vertex/gemini-2.5-flash")] {
            assert_eq!(error.kind, ModelErrorKind::UnknownModel, "{location}");
            let shown = location.escape_debug();
            let expected = format!("`{shown}` is not a location of Google Cloud; write one such as `europe-west4`");
            assert_eq!(error.message, expected);
        }
    }
}

#[tokio::test]
async fn labels_are_sent_to_vertex_ai_only() {
    let provider = MockProvider::start([hello(), hello()]).await;
    let google_cloud = GoogleCloud {
        project: Some("p".into()),
        metadata_host: provider.url.strip_prefix("http://").map(Into::into),
        ..GoogleCloud::default()
    };
    let mut request = user_request("hi");
    request.config.extra.insert("labels".into(), json!({ "team": "red" }));
    generate(model(&provider, google_cloud).as_ref(), request.clone()).await.unwrap();
    generate(provider.gemini().as_ref(), request).await.unwrap();
    let received = provider.requests();
    assert_eq!(received[0].body["labels"], json!({ "team": "red" }));
    assert_eq!(received[1].body.get("labels"), None);
}

#[test]
fn a_token_is_sent_neither_to_a_base_url_that_a_folder_names_nor_in_plain_text() {
    let error = |url: BaseUrl| {
        let google_cloud = GoogleCloud { project: Some("p".into()), ..GoogleCloud::default() };
        let settings = Settings { google_cloud, ..Settings::default() }.with_base_url(Service::Vertex, url);
        ModelProviders::with_defaults(settings).model("vertex/gemini-2.5-flash").map(|_| ()).unwrap_err().message
    };
    assert_eq!(
        error(BaseUrl::from_folder_config("https://evil.example")),
        "an access token of the application default credentials is not sent to the base URL that the folder's hatchery.yaml \
         names; set GOOGLE_VERTEX_BASE_URL, or let the operator look at the file and run `hatchery trust DIR`"
    );
    assert_eq!(
        error("http://proxy.example".into()),
        "an access token of the application default credentials is not sent in plain text to another machine; write \
         GOOGLE_VERTEX_BASE_URL with https"
    );
}
