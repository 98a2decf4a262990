//! Session, artifact, memory and model services: opened by URI from the configuration, or given as objects.

mod agent_engine;
mod firestore;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery_core::{
    ArtifactService, CredentialService, EventSigner, MemoryService, ModelError, ModelResolver, Services,
    SessionService, StoreError,
};
use hatchery_models::{BaseUrl, HashedNgrams, ModelProviders, Settings, WritableFolders, scripted};
use hatchery_stores::{DirectoryCredentials, Durability, LiveQuotas, MemoryCredentials, SimilaritySearch, permissions};
use thiserror::Error;

use crate::catalog::component_settings;
use crate::config::{Authority, Config, path_of_uri, without_credentials};
use crate::storage::Storage;

pub(crate) const SESSIONS_FILE: &str = "sessions.db";
pub(crate) const ARTIFACTS_FOLDER: &str = "artifacts";
pub(crate) const MEMORY_FILE: &str = "memory.db";
pub(crate) const CREDENTIALS_FOLDER: &str = "credentials";

/// The file that marks a data folder that was created by a host, and its content.
const IGNORE_FILE: &str = ".gitignore";
const IGNORE_ALL: &str = "*\n";

/// Reasons why services cannot be opened.
#[derive(Debug, Error)]
pub enum ServicesError {
    /// The data folder cannot be created.
    #[error("data folder {}: {source}; choose another data folder, or store data in memory", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    /// A service cannot be opened.
    #[error("{key} `{uri}`: {source}")]
    Service {
        /// The key in the configuration.
        key: &'static str,
        /// The value, without credentials.
        uri: String,
        source: StoreError,
    },
    /// The keys cannot be read, or a service does not support encryption.
    #[error("encryption: {0}")]
    Encryption(String),
    /// Messages cannot be found by their embeddings.
    #[error("memory.embedder: {0}")]
    Embedder(String),
    /// Passages of a folder cannot be found by their embeddings.
    #[error("retrieval.{name}.embedder: {source}")]
    RetrievalEmbedder { name: String, source: ModelError },
}

/// A service to use instead of the one in the configuration.
pub enum ServiceSource<S: ?Sized> {
    /// The URI of a service, as in `hatchery.yaml`.
    Uri(String),
    /// An implementation of the service.
    Object(Arc<S>),
}

impl<S: ?Sized> From<&str> for ServiceSource<S> {
    fn from(uri: &str) -> Self {
        Self::Uri(uri.into())
    }
}

impl<S: ?Sized> From<String> for ServiceSource<S> {
    fn from(uri: String) -> Self {
        Self::Uri(uri)
    }
}

impl<S: ?Sized> From<Arc<S>> for ServiceSource<S> {
    fn from(service: Arc<S>) -> Self {
        Self::Object(service)
    }
}

/// Services that replace the services of the configuration. `None`: as configured.
#[derive(Default)]
pub(crate) struct ServiceOverrides {
    pub(crate) sessions: Option<ServiceSource<dyn SessionService>>,
    pub(crate) artifacts: Option<ServiceSource<dyn ArtifactService>>,
    pub(crate) memory: Option<ServiceSource<dyn MemoryService>>,
}

impl ServiceOverrides {
    /// Writes the URIs into `config`. Objects stay.
    pub(crate) fn apply_uris(&self, config: &mut Config) {
        set_uri(&mut config.session_service, &self.sessions);
        set_uri(&mut config.artifact_service, &self.artifacts);
        set_uri(&mut config.memory_service, &self.memory);
    }
}

fn set_uri<S: ?Sized>(uri: &mut Option<String>, source: &Option<ServiceSource<S>>) {
    if let Some(ServiceSource::Uri(new)) = source {
        *uri = Some(new.clone());
    }
}

fn object<S: ?Sized>(source: &Option<ServiceSource<S>>) -> Option<Arc<S>> {
    match source {
        Some(ServiceSource::Object(service)) => Some(service.clone()),
        Some(ServiceSource::Uri(_)) | None => None,
    }
}

/// The folders of scripts for scripted models.
#[derive(Debug, Clone, Default)]
pub struct Scripts {
    /// The folder against which relative paths are resolved.
    pub directory: PathBuf,
    /// Folders that components can write to. Files in them are not accepted as scripts.
    pub written: WritableFolders,
}

impl Scripts {
    /// Scripts in a served folder, except in folders that components may write to.
    pub fn in_folder(directory: impl Into<PathBuf>, config: &Config) -> Self {
        let scripts = Self { directory: directory.into(), written: WritableFolders::default() };
        scripts.update(config);
        scripts
    }

    /// Returns the file of the model `scripted:NAME`.
    pub fn file(&self, name: &str) -> PathBuf {
        scripted::script_file(&self.directory, name)
    }

    /// Checks the script of the model `scripted:NAME` without running it.
    ///
    /// # Errors
    /// If it cannot be read or is not a valid script. The error is for the operator: it contains parts of the file.
    pub fn check(&self, name: &str) -> Result<(), String> {
        scripted::check_script(&self.file(name))
    }

    /// Applies the write grants of a changed configuration.
    pub(crate) fn update(&self, config: &Config) {
        self.written.set(component_settings(config).writable_folders());
    }
}

/// Opens the services of `config` and wraps them in its quotas. Services without a URI use `storage`: SQLite for
/// sessions and memory, files for artifacts.
pub async fn open(config: &Config, storage: &Storage, scripts: &Scripts) -> Result<Services, ServicesError> {
    let quotas = LiveQuotas::from(Arc::new(config.app_quotas()));
    open_with(config, storage, models(config, scripts), &ServiceOverrides::default(), &quotas).await
}

/// Like [`open`] for what is stored: nothing is created. A service that would keep its data on this disk, and has none yet,
/// is an empty one in memory. `None` if all three are.
///
/// # Errors
/// As [`open`].
pub async fn open_stored(
    config: &Config,
    storage: &Storage,
    scripts: &Scripts,
) -> Result<Option<Services>, ServicesError> {
    let mut stored = config.clone();
    let keys = [&mut stored.session_service, &mut stored.artifact_service, &mut stored.memory_service];
    let mut has_data = false;
    for (uri, key) in uris(config, storage).iter().zip(keys) {
        if path_of_uri(uri).is_some_and(|path| matches!(path.try_exists(), Ok(false))) {
            *key = Some("memory:".into());
        } else {
            has_data = true;
        }
    }
    if !has_data {
        return Ok(None);
    }
    open(&stored, storage, scripts).await.map(Some)
}

/// Returns the URIs of the session, artifact and memory service.
pub(crate) fn uris(config: &Config, storage: &Storage) -> [String; 3] {
    let or_default = |uri: &Option<String>, scheme, name| match uri {
        Some(uri) => uri.clone(),
        None => default_uri(storage, scheme, name),
    };
    [
        or_default(&config.session_service, "sqlite", SESSIONS_FILE),
        or_default(&config.artifact_service, "file", ARTIFACTS_FOLDER),
        or_default(&config.memory_service, "sqlite", MEMORY_FILE),
    ]
}

/// Returns the service for credentials that users grant to tools. They are in the data folder, encrypted with a key of
/// the host, unless sessions are in memory only.
pub(crate) fn credentials(config: &Config, storage: &Storage, signer: &EventSigner) -> Arc<dyn CredentialService> {
    match storage {
        Storage::Directory(folder) if config.session_service.as_deref() != Some("memory:") => {
            let key = signer.derive_key(CREDENTIALS_FOLDER, &[]);
            Arc::new(DirectoryCredentials::new(folder.join(CREDENTIALS_FOLDER), key))
        }
        Storage::Directory(_) | Storage::InMemory => Arc::new(MemoryCredentials::default()),
    }
}

/// Like [`open`], with objects instead of configured services. The quotas apply to them too.
pub(crate) async fn open_with(
    config: &Config,
    storage: &Storage,
    models: Arc<dyn ModelResolver>,
    overrides: &ServiceOverrides,
    quotas: &LiveQuotas,
) -> Result<Services, ServicesError> {
    let [sessions, artifacts, memory] = uris(config, storage);
    let (session_object, artifact_object) = (object(&overrides.sessions), object(&overrides.artifacts));
    let memory_object = object(&overrides.memory);
    let needs_folder = (config.session_service.is_none() && session_object.is_none())
        || (config.artifact_service.is_none() && artifact_object.is_none())
        || (config.memory_service.is_none() && memory_object.is_none());
    if let Storage::Directory(folder) = storage
        && needs_folder
    {
        create_data_folder(folder).map_err(|source| ServicesError::Folder { folder: folder.clone(), source })?;
    }
    let encryption = config.encryption.read(|name| std::env::var(name).ok()).map_err(ServicesError::Encryption)?;
    if encryption.is_some() && memory_object.is_none() && agent_engine::is_agent_engine(&memory) {
        let reason = "Agent Engine has to read the messages that it remembers; choose another `memory_service`";
        return Err(ServicesError::Encryption(reason.into()));
    }
    let similarity = similarity(config, &*models)?;
    if similarity.is_some() {
        check_similarity(&memory, memory_object.is_some(), encryption.is_some())?;
    }
    let durability = config.durability.into();
    let services = Services {
        sessions: match session_object {
            Some(service) => service,
            None => open_sessions(&sessions, durability).await.map_err(unusable("session_service", &sessions))?,
        },
        artifacts: match artifact_object {
            Some(service) => service,
            None => {
                hatchery_stores::open_artifacts(&artifacts).await.map_err(unusable("artifact_service", &artifacts))?
            }
        },
        memory: match memory_object {
            Some(service) => service,
            None => open_memory(&memory, durability, similarity).await.map_err(unusable("memory_service", &memory))?,
        },
        credentials: Arc::new(MemoryCredentials::default()),
        models,
    };
    let services = match encryption {
        Some(keys) => keys.encrypt(services),
        None => services,
    };
    Ok(quotas.enforce(services))
}

async fn open_sessions(uri: &str, durability: Durability) -> Result<Arc<dyn SessionService>, StoreError> {
    if agent_engine::is_agent_engine(uri) {
        agent_engine::sessions(uri)
    } else if firestore::is_firestore(uri) {
        firestore::sessions(uri).await
    } else {
        hatchery_stores::open_sessions_with(uri, durability).await
    }
}

async fn open_memory(
    uri: &str,
    durability: Durability,
    similarity: Option<SimilaritySearch>,
) -> Result<Arc<dyn MemoryService>, StoreError> {
    if agent_engine::is_agent_engine(uri) {
        agent_engine::memory(uri)
    } else if firestore::is_firestore(uri) {
        firestore::memory(uri).await
    } else {
        hatchery_stores::open_memory_with(uri, durability, similarity).await
    }
}

/// Returns the conversion of a service's error, which names the key in the configuration.
fn unusable(key: &'static str, uri: &str) -> impl FnOnce(StoreError) -> ServicesError {
    let uri = without_credentials(uri);
    move |source| ServicesError::Service { key, uri, source }
}

/// Returns the search by meaning of a configuration.
fn similarity(config: &Config, models: &dyn ModelResolver) -> Result<Option<SimilaritySearch>, ServicesError> {
    let Some(name) = &config.memory.embedder else { return Ok(None) };
    let embedder = models.embedder(name).map_err(|error| ServicesError::Embedder(error.to_string()))?;
    let similarity = SimilaritySearch::new(name, embedder);
    Ok(Some(match config.memory.min_similarity {
        Some(min_similarity) => similarity.with_min_similarity(min_similarity),
        None => similarity,
    }))
}

/// Checks that the messages of a memory service can be embedded.
fn check_similarity(uri: &str, is_object: bool, is_encrypted: bool) -> Result<(), ServicesError> {
    let reason = if is_object {
        "this program has a memory service of its own, which does not use it; remove the key"
    } else if is_encrypted {
        "an embedding reveals the content of an encrypted message; remove the key, or `encryption`"
    } else if !["sqlite:", "memory:", "postgres:", "postgresql:"].iter().any(|scheme| uri.starts_with(scheme)) {
        "only memory in SQLite and PostgreSQL compares embeddings; remove the key, or choose a `memory_service` such as \
         `sqlite:memory.db`"
    } else {
        return Ok(());
    };
    Err(ServicesError::Embedder(reason.into()))
}

/// Returns the hosted and scripted models of a configuration and the environment.
pub fn models(config: &Config, scripts: &Scripts) -> Arc<dyn ModelResolver> {
    Arc::new(model_providers(config, scripts))
}

/// The name of the embedder that needs no provider.
pub const DEFAULT_EMBEDDER: &str = HashedNgrams::NAME;

/// Returns the providers of hosted and scripted models.
pub fn model_providers(config: &Config, scripts: &Scripts) -> ModelProviders {
    ModelProviders::with_defaults(model_settings(Settings::from_env(), config, scripts))
}

/// Returns the providers of a changed configuration, with the providers in `before` that were registered.
pub(crate) fn replaced_providers(before: &ModelProviders, config: &Config, scripts: &Scripts) -> ModelProviders {
    before.with_settings(model_settings(Settings::from_env(), config, scripts))
}

/// Creates the data folder, with access for its owner only and a `.gitignore` that covers its content. If the folder
/// exists and was created by a host that let others read it, access is restricted. For any other folder that others can
/// read, a warning is logged.
pub fn create_data_folder(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        permissions::create_dir_all(folder)?;
        return std::fs::write(folder.join(IGNORE_FILE), IGNORE_ALL);
    }
    let has_mark = std::fs::read_to_string(folder.join(IGNORE_FILE)).is_ok_and(|text| text == IGNORE_ALL);
    let has_data = [SESSIONS_FILE, ARTIFACTS_FOLDER, MEMORY_FILE].iter().any(|name| folder.join(name).exists());
    let is_restricted = has_mark && has_data && permissions::restrict_dir(folder).is_ok();
    if !is_restricted {
        permissions::warn_if_readable(folder);
    }
    Ok(())
}

fn default_uri(storage: &Storage, scheme: &str, name: &str) -> String {
    match storage {
        Storage::Directory(folder) if folder.is_absolute() => format!("{scheme}://{}", folder.join(name).display()),
        Storage::Directory(folder) => format!("{scheme}:{}", folder.join(name).display()),
        Storage::InMemory => "memory:".into(),
    }
}

fn model_settings(env: Settings, config: &Config, scripts: &Scripts) -> Settings {
    let base_url = |url: &str| match config.authority {
        Authority::Operator => BaseUrl::from(url),
        Authority::Folder => BaseUrl::from_folder_config(url),
    };
    let mut connections = env.connections;
    for (service, _, url) in config.models.base_urls() {
        connections.entry(service).or_default().base_url.get_or_insert_with(|| base_url(url));
    }
    Settings {
        connections,
        fallbacks: config.models.fallback.clone(),
        scripts_dir: scripts.directory.clone(),
        writable_folders: scripts.written.clone(),
        ..env
    }
}

#[cfg(test)]
mod tests;
