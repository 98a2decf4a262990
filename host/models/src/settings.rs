//! Settings of providers: base URLs, API keys, projects and the scripts folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use hatchery_egress::Secret;

use crate::service::{Service, ServiceInfo};
use crate::{libraries, vertex};

/// A provider's base URL with its origin. API keys are only sent to a URL that the operator chose.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BaseUrl {
    url: String,
    is_from_folder: bool,
}

impl BaseUrl {
    /// Creates a URL from the configuration of an untrusted folder. No key is sent to it.
    pub fn from_folder_config(url: impl Into<String>) -> Self {
        Self { url: url.into(), is_from_folder: true }
    }

    /// Returns the URL.
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns true if API keys may be sent to this URL, because the operator chose it.
    pub fn allows_keys(&self) -> bool {
        !self.is_from_folder
    }
}

/// A URL that the operator chose, in the environment or in a trusted configuration.
impl From<String> for BaseUrl {
    fn from(url: String) -> Self {
        Self { url, is_from_folder: false }
    }
}

/// A URL that the operator chose, in the environment or in a trusted configuration.
impl From<&str> for BaseUrl {
    fn from(url: &str) -> Self {
        url.to_owned().into()
    }
}

/// Folders that components may write to. Files in them are not read as scripts. Clones share the list, which can change
/// at any time.
#[derive(Debug, Clone, Default)]
pub struct WritableFolders(Arc<ArcSwap<Vec<PathBuf>>>);

impl WritableFolders {
    /// Replaces the list. The paths are canonical.
    pub fn set(&self, folders: Vec<PathBuf>) {
        self.0.store(Arc::new(folders));
    }

    /// Returns true if `path`, with links resolved, is inside one of the folders. Accesses the file system unless the
    /// list is empty.
    pub fn contain(&self, path: &Path) -> bool {
        let folders = self.0.load();
        let is_inside = |path: PathBuf| folders.iter().any(|folder| path.starts_with(folder));
        !folders.is_empty() && path.canonicalize().is_ok_and(is_inside)
    }
}

impl PartialEq for WritableFolders {
    fn eq(&self, other: &Self) -> bool {
        *self.0.load() == *other.0.load()
    }
}

impl Eq for WritableFolders {}

/// Connection settings of a provider. Fields that are `None` have the provider's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Connection {
    pub base_url: Option<BaseUrl>,
    pub api_key: Option<Secret>,
    /// Headers of every request, by name.
    pub headers: BTreeMap<String, Secret>,
}

impl Connection {
    /// Returns this connection, with the values of `other` where this one has none.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let mut headers = other.headers.clone();
        headers.extend(self.headers.clone());
        Self {
            base_url: self.base_url.clone().or_else(|| other.base_url.clone()),
            api_key: self.api_key.clone().or_else(|| other.api_key.clone()),
            headers,
        }
    }
}

/// Access to Google Cloud for Vertex AI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoogleCloud {
    /// The project. Default: the project of the credentials file.
    pub project: Option<String>,
    /// The location. Default: `global`.
    pub location: Option<String>,
    /// The file with the credentials of a service account or a user. Default: the file of `gcloud`, else the metadata
    /// server.
    pub credentials_file: Option<PathBuf>,
    /// The folder of `gcloud`.
    pub config_folder: Option<PathBuf>,
    /// The host of the metadata server. Default: `metadata.google.internal`.
    pub metadata_host: Option<String>,
    /// True if `gemini-*` is served by Vertex AI.
    pub use_vertex: bool,
}

/// Settings of all providers. The default has no keys, the providers' own URLs, and the current directory for scripts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Connections by service.
    pub connections: BTreeMap<Service, Connection>,
    /// Connections of providers that only the model libraries have, by the beginning of their variables, such as
    /// `GROQ`.
    pub libraries: BTreeMap<String, Connection>,
    /// Access to Google Cloud.
    pub google_cloud: GoogleCloud,
    /// The names of fallback models by model name. They are tried in order if the model fails before it has answered.
    pub fallbacks: BTreeMap<String, Vec<String>>,
    /// The folder of the files in `scripted:<file>`. Empty for the current directory.
    pub scripts_dir: PathBuf,
    /// Folders below `scripts_dir` whose files are not read as scripts.
    pub writable_folders: WritableFolders,
}

impl Settings {
    /// Reads the variables of all providers from the environment. An empty variable counts as unset.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads the same variables from `variable`.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let connection = |info: &ServiceInfo| Connection {
            base_url: value(info.url_variable).map(BaseUrl::from),
            api_key: info.key_variables.iter().find_map(|name| value(name)).map(Secret::from),
            headers: BTreeMap::new(),
        };
        let connection_of = |service: Service| {
            let headers = match service {
                Service::Apigee => value("APIGEE_HEADERS").map(|headers| read_headers(&headers)).unwrap_or_default(),
                _ => BTreeMap::new(),
            };
            Connection { headers, ..connection(service.info()) }
        };
        let is_true = |value: String| matches!(value.to_ascii_lowercase().as_str(), "true" | "1");
        let home = || value("HOME").map(|home| PathBuf::from(home).join(".config/gcloud"));
        Self {
            connections: Service::ALL
                .into_iter()
                .map(|service| (service, connection_of(service)))
                .filter(|(_, connection)| *connection != Connection::default())
                .collect(),
            libraries: libraries::services()
                .map(|info| (libraries::prefix(info).to_owned(), connection(info)))
                .filter(|(_, connection)| *connection != Connection::default())
                .collect(),
            google_cloud: GoogleCloud {
                project: value("GOOGLE_CLOUD_PROJECT"),
                location: value("GOOGLE_CLOUD_LOCATION"),
                credentials_file: value("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from),
                config_folder: value("CLOUDSDK_CONFIG").map(PathBuf::from).or_else(home),
                metadata_host: value("GCE_METADATA_HOST"),
                use_vertex: value("GOOGLE_GENAI_USE_VERTEXAI").is_some_and(is_true),
            },
            ..Self::default()
        }
    }

    /// Sets the API key of a service.
    #[must_use]
    pub fn with_key(mut self, service: Service, key: impl Into<Secret>) -> Self {
        self.connections.entry(service).or_default().api_key = Some(key.into());
        self
    }

    /// Sets the base URL of a service.
    #[must_use]
    pub fn with_base_url(mut self, service: Service, url: impl Into<BaseUrl>) -> Self {
        self.connections.entry(service).or_default().base_url = Some(url.into());
        self
    }

    /// Returns the API key that calls of a service use. `None` without one.
    pub fn api_key(&self, service: Service) -> Option<&Secret> {
        self.connections.get(&service)?.api_key.as_ref()
    }

    /// Returns the location of models in Vertex AI.
    pub fn location(&self) -> &str {
        self.google_cloud.location.as_deref().unwrap_or(vertex::DEFAULT_LOCATION)
    }

    /// Returns the connection of a service.
    pub(crate) fn connection(&self, service: Service) -> Connection {
        self.connections.get(&service).cloned().unwrap_or_default()
    }
}

/// Reads headers, one per line as `name: value`.
fn read_headers(lines: &str) -> BTreeMap<String, Secret> {
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().into()))
    };
    lines.lines().filter_map(header).collect()
}
