//! Provider for Vertex AI: models of Google and Anthropic in a project of Google Cloud, with its credentials.

mod embeddings;

use std::sync::Arc;

use hatchery_core::{Embedder, Model, ModelCapabilities, ModelError, ModelErrorKind, excerpt};
use reqwest::Url;

use self::embeddings::VertexEmbedder;
use crate::capabilities::{gemini_capabilities, vertex_claude_capabilities};
use crate::google_credentials::GoogleCredentials;
use crate::http::{Authentication, Endpoint, Http, MODEL_WITHOUT_SETTINGS};
use crate::provider::ModelProvider;
use crate::service::Service;
use crate::settings::{Connection, GoogleCloud, Settings};
use crate::{anthropic, gemini};

pub(crate) const DEFAULT_LOCATION: &str = "global";
/// The version of the API for models of Google.
pub(crate) const GOOGLE_VERSION: &str = "v1beta1";
/// The version of the API for models of Anthropic.
const ANTHROPIC_VERSION: &str = "v1";
const MISSING: &str = "GOOGLE_CLOUD_PROJECT, or GOOGLE_APPLICATION_CREDENTIALS to the file of a service account";

/// Serves `vertex/*` and `projects/*`, and `gemini-*` if Vertex AI is preferred.
#[derive(Clone)]
pub(crate) struct VertexProvider {
    connection: Connection,
    settings: GoogleCloud,
    credentials: Arc<GoogleCredentials>,
    http: Http,
}

/// The path of a model in Vertex AI.
pub(crate) struct VertexPath {
    version: String,
    /// `None` uses the project of the credentials.
    project: Option<String>,
    location: String,
    publisher: &'static str,
    pub(crate) model: String,
    credentials: Arc<GoogleCredentials>,
}

impl VertexPath {
    async fn project(&self, endpoint: &Endpoint) -> Result<String, ModelError> {
        match &self.project {
            Some(project) => Ok(project.clone()),
            None => self.credentials.project(&endpoint.origin).await,
        }
    }

    /// Returns the full name of the model.
    pub(crate) async fn resource(&self, endpoint: &Endpoint) -> Result<String, ModelError> {
        let Self { location, publisher, model, .. } = self;
        let project = self.project(endpoint).await?;
        Ok(format!("projects/{project}/locations/{location}/publishers/{publisher}/models/{model}"))
    }

    /// Returns the URL of a method of the model.
    pub(crate) async fn url(&self, endpoint: &Endpoint, method: &str) -> Result<Url, ModelError> {
        let project = self.project(endpoint).await?;
        let method = format!("{}:{method}", self.model);
        endpoint.url([
            self.version.as_str(),
            "projects",
            &project,
            "locations",
            &self.location,
            "publishers",
            self.publisher,
            "models",
            &method,
        ])
    }
}

/// Returns true for a text that can be the name of a location. Any other one could make [`regional_url`] lead to
/// another host, which would get the access token.
fn is_location(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn regional_url(location: &str) -> String {
    match location {
        // Multi-region locations.
        "eu" | "us" => format!("https://aiplatform.{location}.rep.googleapis.com"),
        region => format!("https://{region}-aiplatform.googleapis.com"),
    }
}

impl VertexProvider {
    pub(crate) fn new(settings: &Settings, http: Http) -> Self {
        Self {
            connection: settings.connection(Service::Vertex),
            credentials: Arc::new(GoogleCredentials::new(settings.google_cloud.clone())),
            settings: settings.google_cloud.clone(),
            http,
        }
    }

    /// Returns true if `gemini-*` is served by Vertex AI.
    pub(crate) fn is_preferred(&self) -> bool {
        self.settings.use_vertex
    }

    /// Returns the authentication of requests.
    pub(crate) fn authentication(&self) -> Authentication {
        Authentication::Google(self.credentials.clone())
    }

    /// Returns the path of a model by its name without a prefix, or by its full name.
    pub(crate) fn path(&self, name: &str, version: Option<&str>) -> Result<VertexPath, ModelError> {
        let mut path = VertexPath {
            version: String::new(),
            project: self.settings.project.clone(),
            location: self.settings.location.clone().unwrap_or_else(|| DEFAULT_LOCATION.to_owned()),
            publisher: "google",
            model: name.to_owned(),
            credentials: self.credentials.clone(),
        };
        if name.starts_with("projects/") {
            let segments: Vec<_> = name.split('/').collect();
            let ["projects", project, "locations", location, "publishers", publisher, "models", model] = segments[..]
            else {
                let message =
                    "the name is not of the form projects/PROJECT/locations/LOCATION/publishers/PUBLISHER/models/MODEL";
                return Err(ModelError::new(ModelErrorKind::UnknownModel, name, message));
            };
            path.project = Some(project.to_owned());
            path.location = location.to_owned();
            path.model = model.to_owned();
            path.publisher = match publisher {
                "google" => "google",
                "anthropic" => "anthropic",
                publisher => {
                    let message =
                        format!("models of the publisher `{publisher}` are not supported, only google and anthropic");
                    return Err(ModelError::new(ModelErrorKind::UnknownModel, name, message));
                }
            };
        } else if name.starts_with("claude-") {
            path.publisher = "anthropic";
        }
        if !is_location(&path.location) {
            let location = excerpt(&path.location, 60);
            let message = format!("`{location}` is not a location of Google Cloud; write one such as `europe-west4`");
            return Err(ModelError::new(ModelErrorKind::UnknownModel, name, message));
        }
        let is_google = path.publisher == "google";
        path.version = version.unwrap_or(if is_google { GOOGLE_VERSION } else { ANTHROPIC_VERSION }).to_owned();
        Ok(path)
    }

    /// Returns the path of a model and its endpoint.
    fn locate(&self, name: &str, connection: &Connection) -> Result<(VertexPath, Endpoint), ModelError> {
        let path = self.path(name.strip_prefix("vertex/").unwrap_or(name), None)?;
        self.check_project(name, &path)?;
        let endpoint = Endpoint::new(name, Service::Vertex, connection, self.authentication(), &self.http)?;
        let endpoint = match path.location.as_str() {
            DEFAULT_LOCATION => endpoint,
            location => endpoint.with_default_url(connection, regional_url(location)),
        };
        Ok((path, endpoint))
    }

    /// Returns an error if the project can be known neither from the settings nor from the credentials.
    fn check_project(&self, name: &str, path: &VertexPath) -> Result<(), ModelError> {
        let can_be_known = path.project.is_some() || self.settings.credentials_file.is_some();
        let error = || {
            let message = format!("no project: set {MISSING}, {MODEL_WITHOUT_SETTINGS}");
            ModelError::new(ModelErrorKind::Auth, name, message)
        };
        if can_be_known { Ok(()) } else { Err(error()) }
    }
}

impl ModelProvider for VertexProvider {
    fn label(&self) -> &'static str {
        Service::Vertex.info().name
    }

    fn patterns(&self) -> &[&'static str] {
        &["vertex/*", "projects/*"]
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        if name.contains("claude-") {
            vertex_claude_capabilities()
        } else {
            gemini_capabilities(name).unwrap_or_default()
        }
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.create_with(name, &Connection::default())
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let (path, endpoint) = self.locate(name, &connection.or(&self.connection))?;
        match path.publisher {
            "anthropic" => Ok(anthropic::on_vertex(path, endpoint)),
            _ => Ok(gemini::on_vertex(path, endpoint, self.capabilities(name))),
        }
    }

    fn embedder_patterns(&self) -> &[&'static str] {
        &["vertex/*", "projects/*"]
    }

    fn create_embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        let (path, endpoint) = self.locate(name, &self.connection)?;
        Ok(Arc::new(VertexEmbedder::new(path, endpoint)))
    }

    fn missing_variables(&self) -> Option<String> {
        let is_set = self.settings.project.is_some() || self.settings.credentials_file.is_some();
        (!is_set).then(|| MISSING.to_owned())
    }

    fn base_url(&self) -> Option<String> {
        let regional = || match self.settings.location.as_deref() {
            None | Some(DEFAULT_LOCATION) => Service::Vertex.info().base_url(&Connection::default()),
            Some(location) => Some(regional_url(location)),
        };
        self.connection.base_url.as_ref().map(|url| url.as_str().to_owned()).or_else(regional)
    }
}
