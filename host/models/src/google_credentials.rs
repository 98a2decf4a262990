//! Application default credentials of Google Cloud: a service account, a user, or the metadata server. Access tokens
//! are cached until shortly before they expire.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hatchery_core::{ModelError, ModelErrorKind};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Url};
use serde::{Deserialize, Serialize};

use crate::Secret;
use crate::failure::Origin;
use crate::http::{self, is_loopback};
use crate::settings::GoogleCloud;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
const METADATA_HOST: &str = "metadata.google.internal";
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
/// File name in the folder of `gcloud`.
const DEFAULT_FILE: &str = "application_default_credentials.json";
/// A token is replaced this long before it expires.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a token response.
const MAX_TOKEN_BYTES: usize = 64 * 1024;
/// Maximum lifetime that Google accepts for the assertion of a service account.
const ASSERTION_LIFETIME: Duration = Duration::from_secs(3_600);

/// Credentials of Google Cloud. The file is read when the first token is needed.
pub(crate) struct GoogleCredentials {
    settings: GoogleCloud,
    /// Held while a token is fetched, so that concurrent calls fetch one.
    refresh: tokio::sync::Mutex<()>,
    token: RwLock<Option<AccessToken>>,
}

#[derive(Clone)]
struct AccessToken {
    secret: Secret,
    expires: Instant,
}

/// The content of a credentials file.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CredentialsFile {
    ServiceAccount {
        client_email: String,
        private_key: Secret,
        private_key_id: Option<String>,
        token_uri: Option<String>,
    },
    AuthorizedUser {
        client_id: String,
        client_secret: Secret,
        refresh_token: Secret,
        token_uri: Option<String>,
    },
}

/// The project in a credentials file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FileProject {
    project_id: Option<String>,
    quota_project_id: Option<String>,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'static str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: Secret,
    expires_in: Option<u64>,
}

impl GoogleCredentials {
    pub(crate) fn new(settings: GoogleCloud) -> Self {
        Self { settings, refresh: tokio::sync::Mutex::default(), token: RwLock::default() }
    }

    /// Returns the origin of the credentials in words.
    pub(crate) fn origin(&self) -> String {
        match self.settings.credentials_file {
            Some(_) => "the credentials in GOOGLE_APPLICATION_CREDENTIALS".into(),
            None => "the application default credentials".into(),
        }
    }

    /// Returns the cached token, if there is one.
    pub(crate) fn current_token(&self) -> Option<Secret> {
        self.cached().map(|token| token.secret)
    }

    fn cached(&self) -> Option<AccessToken> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fresh(&self) -> Option<Secret> {
        self.cached().filter(|token| Instant::now() + EXPIRY_MARGIN < token.expires).map(|token| token.secret)
    }

    /// Returns an access token, and fetches it if needed.
    pub(crate) async fn token(&self, client: &Client, origin: &Arc<Origin>) -> Result<Secret, ModelError> {
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let _refresh = self.refresh.lock().await;
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let request = self.request(client, origin).await?;
        let TokenResponse { access_token, expires_in } = request.send(origin).await?;
        let expires = Instant::now() + Duration::from_secs(expires_in.unwrap_or_default());
        let token = AccessToken { secret: access_token.clone(), expires };
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(access_token)
    }

    /// Returns the project of the settings, or else that of the credentials file.
    pub(crate) async fn project(&self, origin: &Origin) -> Result<String, ModelError> {
        if let Some(project) = &self.settings.project {
            return Ok(project.clone());
        }
        let project = match self.file().await {
            Some(path) => {
                let json = read(&path, origin).await?;
                let FileProject { project_id, quota_project_id } = parse(&json, &path, origin)?;
                project_id.or(quota_project_id)
            }
            None => None,
        };
        project.ok_or_else(|| {
            let message = "no project: set GOOGLE_CLOUD_PROJECT; the credentials do not name one";
            origin.error(ModelErrorKind::Auth, message)
        })
    }

    /// Returns the credentials file that is used, if there is one.
    async fn file(&self) -> Option<PathBuf> {
        if let Some(path) = &self.settings.credentials_file {
            return Some(path.clone());
        }
        let path = self.settings.config_folder.as_ref()?.join(DEFAULT_FILE);
        tokio::fs::metadata(&path).await.is_ok_and(|metadata| metadata.is_file()).then_some(path)
    }

    async fn request(&self, client: &Client, origin: &Origin) -> Result<TokenRequest, ModelError> {
        let Some(path) = self.file().await else { return self.metadata_request(client, origin) };
        let json = read(&path, origin).await?;
        match parse(&json, &path, origin)? {
            CredentialsFile::ServiceAccount { client_email, private_key, private_key_id, token_uri } => {
                let url = token_url(token_uri.as_deref(), &path, origin)?;
                let assertion = assertion(&client_email, &private_key, private_key_id, url.as_str())
                    .map_err(|reason| unusable(&path, &reason, origin))?;
                let form =
                    [("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", assertion.as_str())];
                Ok(TokenRequest::new(client, url, &form, vec![assertion.as_str().into()]))
            }
            CredentialsFile::AuthorizedUser { client_id, client_secret, refresh_token, token_uri } => {
                let url = token_url(token_uri.as_deref(), &path, origin)?;
                let form = [
                    ("grant_type", "refresh_token"),
                    ("client_id", client_id.as_str()),
                    ("client_secret", client_secret.expose()),
                    ("refresh_token", refresh_token.expose()),
                ];
                Ok(TokenRequest::new(client, url, &form, vec![client_secret.clone(), refresh_token.clone()]))
            }
        }
    }

    fn metadata_request(&self, client: &Client, origin: &Origin) -> Result<TokenRequest, ModelError> {
        let host = self.settings.metadata_host.as_deref().unwrap_or(METADATA_HOST);
        let url = Url::parse(&format!("http://{host}{METADATA_PATH}")).map_err(|error| {
            origin.error(ModelErrorKind::Auth, format!("GCE_METADATA_HOST is not a usable host ({error})"))
        })?;
        let request = client.get(url.clone()).header("Metadata-Flavor", "Google");
        Ok(TokenRequest { request, url, secrets: Vec::new() })
    }
}

/// A request for an access token, with the secrets in it.
struct TokenRequest {
    request: RequestBuilder,
    url: Url,
    secrets: Vec<Secret>,
}

impl TokenRequest {
    fn new(client: &Client, url: Url, form: &[(&str, &str)], secrets: Vec<Secret>) -> Self {
        let mut encoded = url.clone();
        encoded.query_pairs_mut().clear().extend_pairs(form);
        let body = encoded.query().unwrap_or_default().to_owned();
        let request = client.post(url.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        Self { request, url, secrets }
    }

    async fn send(self, origin: &Origin) -> Result<TokenResponse, ModelError> {
        let secrets = origin.secrets.iter().cloned().chain(self.secrets).collect();
        let origin = Arc::new(Origin { secrets, ..origin.clone() });
        let failed = |error: ModelError| {
            let hint = "no access token: set GOOGLE_APPLICATION_CREDENTIALS to a credentials file, or run \
                        `gcloud auth application-default login`";
            let kind = if error.kind == ModelErrorKind::BadRequest { ModelErrorKind::Auth } else { error.kind };
            ModelError { kind, message: format!("{hint} ({})", error.message), ..error }
        };
        let response = http::send(self.request, &self.url, TIMEOUT, &origin).await.map_err(failed)?;
        let body = http::read_limited(response, MAX_TOKEN_BYTES, &origin).await.map_err(failed)?;
        serde_json::from_slice(&body).map_err(|_| failed(origin.bad_response("it is not an access token")))
    }
}

/// Returns the signed assertion that a service account exchanges for a token.
fn assertion(email: &str, private_key: &Secret, key_id: Option<String>, audience: &str) -> Result<String, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let claims = Claims { iss: email, scope: SCOPE, aud: audience, iat: now, exp: now + ASSERTION_LIFETIME.as_secs() };
    let key = EncodingKey::from_rsa_pem(private_key.expose().as_bytes())
        .map_err(|_| "its `private_key` is not an RSA key in PEM".to_owned())?;
    let header = Header { kid: key_id, ..Header::new(Algorithm::RS256) };
    jsonwebtoken::encode(&header, &claims, &key).map_err(|_| "its `private_key` cannot sign".to_owned())
}

/// Returns the URL of the token server, which gets the assertion or the refresh token.
fn token_url(url: Option<&str>, path: &Path, origin: &Origin) -> Result<Url, ModelError> {
    let url = Url::parse(url.unwrap_or(TOKEN_URL)).ok().filter(|url| url.scheme() == "https" || is_loopback(url));
    url.ok_or_else(|| unusable(path, "its `token_uri` is not an https URL", origin))
}

async fn read(path: &Path, origin: &Origin) -> Result<Vec<u8>, ModelError> {
    tokio::fs::read(path).await.map_err(|error| unusable(path, &error.to_string(), origin))
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8], path: &Path, origin: &Origin) -> Result<T, ModelError> {
    // The error of the parser may show a part of the file.
    serde_json::from_slice(json)
        .map_err(|_| unusable(path, "it is not the JSON of a `service_account` or an `authorized_user`", origin))
}

fn unusable(path: &Path, reason: &str, origin: &Origin) -> ModelError {
    let message = format!("the credentials file {} is not usable: {reason}", path.display());
    origin.error(ModelErrorKind::Auth, message)
}
