//! Application default credentials of Google Cloud: a service account, a user, or the metadata server. Access tokens
//! are cached until shortly before they expire.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{ModelError, ModelErrorKind};
use hatchery_egress::{GoogleCredentials as CredentialsFile, TokenCache, TokenRequest, TokenResponse};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;

use crate::Secret;
use crate::failure::Origin;
use crate::http;
use crate::settings::GoogleCloud;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const METADATA_HOST: &str = "metadata.google.internal";
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
/// File name in the folder of `gcloud`.
const DEFAULT_FILE: &str = "application_default_credentials.json";
/// Fields of a token request that must not be shown.
const SECRET_FIELDS: [&str; 3] = ["assertion", "client_secret", "refresh_token"];
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a token response.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// Credentials of Google Cloud. The file is read when the first token is needed.
pub(crate) struct GoogleCredentials {
    settings: GoogleCloud,
    token: TokenCache,
}

/// The project in a credentials file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FileProject {
    project_id: Option<String>,
    quota_project_id: Option<String>,
}

impl GoogleCredentials {
    pub(crate) fn new(settings: GoogleCloud) -> Self {
        Self { settings, token: TokenCache::default() }
    }

    /// Returns the origin of the credentials as text.
    pub(crate) fn origin(&self) -> String {
        match self.settings.credentials_file {
            Some(_) => "the credentials in GOOGLE_APPLICATION_CREDENTIALS".into(),
            None => "the application default credentials".into(),
        }
    }

    /// Returns the cached token, if there is one.
    pub(crate) fn current_token(&self) -> Option<Secret> {
        self.token.last()
    }

    /// Returns an access token, and fetches it if needed.
    pub(crate) async fn token(&self, client: &Client, origin: &Arc<Origin>) -> Result<Secret, ModelError> {
        self.token.get_or_fetch(async { self.request(client, origin).await?.send(origin).await }).await
    }

    /// Forgets a token that was not accepted.
    pub(crate) fn forget(&self, token: &Secret) {
        self.token.forget(token);
    }

    /// Returns the project of the settings, or else of the credentials file.
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

    async fn request(&self, client: &Client, origin: &Origin) -> Result<PreparedRequest, ModelError> {
        let Some(path) = self.file().await else { return self.metadata_request(client, origin) };
        let json = read(&path, origin).await?;
        let request = CredentialsFile::parse(&json).and_then(|file| file.token_request(SCOPE));
        Ok(PreparedRequest::new(client, &request.map_err(|reason| unusable(&path, &reason, origin))?))
    }

    fn metadata_request(&self, client: &Client, origin: &Origin) -> Result<PreparedRequest, ModelError> {
        let host = self.settings.metadata_host.as_deref().unwrap_or(METADATA_HOST);
        let url = Url::parse(&format!("http://{host}{METADATA_PATH}")).map_err(|error| {
            origin.error(ModelErrorKind::Auth, format!("GCE_METADATA_HOST is not a usable host ({error})"))
        })?;
        let request = client.get(url).header("Metadata-Flavor", "Google");
        Ok(PreparedRequest { request, secrets: Vec::new() })
    }
}

/// A request for an access token, with the secrets in it.
struct PreparedRequest {
    request: RequestBuilder,
    secrets: Vec<Secret>,
}

impl PreparedRequest {
    fn new(client: &Client, token: &TokenRequest) -> Self {
        let request = client.post(token.url.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let secrets =
            token.form.iter().filter(|(name, _)| SECRET_FIELDS.contains(name)).map(|(_, value)| value.clone());
        Self { request: request.body(token.body()), secrets: secrets.collect() }
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
        let response = http::send(self.request, TIMEOUT, &origin).await.map_err(failed)?;
        let body = http::read_limited(response, MAX_TOKEN_BYTES, &origin).await.map_err(failed)?;
        serde_json::from_slice(&body).map_err(|_| failed(origin.bad_response("it is not an access token")))
    }
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
