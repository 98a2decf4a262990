//! Session, artifact, memory and model services: opened by URI from the configuration, or given as objects.

mod agent_engine;
mod firestore;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery_core::{
    ArtifactService, CredentialService, EventSigner, MemoryService, ModelResolver, Services, SessionService, StoreError,
};
use hatchery_models::{BaseUrl, HashedNgrams, ModelProviders, Settings, WritableFolders, scripted};
use hatchery_stores::{DirectoryCredentials, MemoryCredentials, SimilaritySearch, permissions};
use thiserror::Error;

use crate::catalog::component_settings;
use crate::config::{Authority, Config, without_credentials};
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
}

/// A service to use instead of the one in the configuration.
pub enum ServiceSource<S: ?Sized> {
    /// The URI of a service, as in `hatchery.yaml`.
    Uri(String),
    /// An implementation.
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

/// Services that replace those of the configuration. `None`: as configured.
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
    open_with(config, storage, models(config, scripts), &ServiceOverrides::default()).await
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

/// Returns the service for credentials that users grant to tools. They are in the data folder, encrypted with a key of the
/// host, unless sessions are in memory only.
pub(crate) fn credentials(config: &Config, storage: &Storage, signer: &EventSigner) -> Arc<dyn CredentialService> {
    match storage {
        Storage::Directory(folder) if config.session_service.as_deref() != Some("memory:") => {
            let key = signer.derive_key(CREDENTIALS_FOLDER, &[]);
            Arc::new(DirectoryCredentials::new(folder.join(CREDENTIALS_FOLDER), key))
        }
        Storage::Directory(_) | Storage::InMemory => Arc::new(MemoryCredentials::default()),
    }
}

/// Like [`open`], with objects instead of configured services. Quotas apply to them too.
pub(crate) async fn open_with(
    config: &Config,
    storage: &Storage,
    models: Arc<dyn ModelResolver>,
    overrides: &ServiceOverrides,
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
    let failed = |key, uri: &str| {
        let uri = without_credentials(uri);
        move |source| ServicesError::Service { key, uri, source }
    };
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
            None if agent_engine::is_agent_engine(&sessions) => {
                agent_engine::sessions(&sessions).map_err(failed("session_service", &sessions))?
            }
            None if firestore::is_firestore(&sessions) => {
                firestore::sessions(&sessions).await.map_err(failed("session_service", &sessions))?
            }
            None => hatchery_stores::open_sessions_with(&sessions, durability)
                .await
                .map_err(failed("session_service", &sessions))?,
        },
        artifacts: match artifact_object {
            Some(service) => service,
            None => {
                hatchery_stores::open_artifacts(&artifacts).await.map_err(failed("artifact_service", &artifacts))?
            }
        },
        memory: match memory_object {
            Some(service) => service,
            None if agent_engine::is_agent_engine(&memory) => {
                agent_engine::memory(&memory).map_err(failed("memory_service", &memory))?
            }
            None if firestore::is_firestore(&memory) => {
                firestore::memory(&memory).await.map_err(failed("memory_service", &memory))?
            }
            None => hatchery_stores::open_memory_with(&memory, durability, similarity)
                .await
                .map_err(failed("memory_service", &memory))?,
        },
        credentials: Arc::new(MemoryCredentials::default()),
        models,
    };
    let services = match encryption {
        Some(keys) => keys.encrypt(services),
        None => services,
    };
    Ok(config.app_quotas().enforce(services))
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
        "an embedding tells what an encrypted message is about; remove the key, or `encryption`"
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
mod tests {
    use hatchery_core::{Event, EventData, EventWindow};
    use hatchery_models::Service;

    use super::*;

    #[tokio::test]
    async fn sessions_are_stored_in_the_data_folder_by_default() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::Directory(folder.path().join("data"));
        let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
        let session = services.sessions.create("app", "user", None, Default::default()).await.unwrap();
        drop(services);
        let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
        assert!(services.sessions.get(&session.key, EventWindow::All).await.unwrap().is_some());
        assert!(folder.path().join("data/sessions.db").is_file());
    }

    #[cfg(feature = "firestore")]
    #[tokio::test]
    async fn firestore_services_are_opened_by_uri_and_connect_when_they_are_used() {
        let config = |sessions: &str, memory: &str| Config {
            session_service: Some(sessions.into()),
            memory_service: Some(memory.into()),
            ..Config::default()
        };
        let opened = async |config| open(&config, &Storage::InMemory, &Scripts::default()).await.map(drop);
        opened(config("firestore://p/d", "firestore://p?root=chats")).await.unwrap();
        let error = opened(config("firestore:p", "memory:")).await.unwrap_err().to_string();
        let expected =
            "session_service `firestore:p`: invalid name `firestore:p`: a Firestore service is `firestore://PROJECT`";
        assert!(error.starts_with(expected), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let uri = format!("firestore://p?properties={}/none", folder.path().display());
        let error = opened(config("memory:", &uri)).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("memory_service `{uri}`: read the properties ")), "{error}");
    }

    #[cfg(feature = "agent-engine")]
    #[tokio::test]
    async fn services_in_agent_engine_are_opened_by_uri_and_connect_when_they_are_used() {
        let config = |sessions: &str, memory: &str| Config {
            session_service: Some(sessions.into()),
            memory_service: Some(memory.into()),
            ..Config::default()
        };
        let opened = async |config| open(&config, &Storage::InMemory, &Scripts::default()).await.map(drop);
        opened(config("agentengine://p/l/7", "agentengine://p/l/7")).await.unwrap();
        for (sessions, memory, start) in [
            (
                "agentengine:7",
                "memory:",
                "session_service `agentengine:7`: invalid name `agentengine:…`: a session service is",
            ),
            (
                "memory:",
                "agentengine:7",
                "memory_service `agentengine:7`: invalid name `agentengine:…`: a memory service is",
            ),
        ] {
            let error = opened(config(sessions, memory)).await.unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[tokio::test]
    async fn services_encrypt_with_the_keys_of_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data.key");
        std::fs::write(&file, "01".repeat(32)).unwrap();
        let storage = Storage::Directory(folder.path().join("data"));
        let yaml = "encryption: {keys: [{id: k, file: data.key}]}";
        let config = Config::parse(yaml, &folder.path().join("hatchery.yaml")).unwrap();
        let services = open(&config, &storage, &Scripts::default()).await.unwrap();
        let content = Some(Arc::new(hatchery_core::Content::user("a secret")));
        let event = Event::new(EventData { content, ..EventData::default() });
        let key = services.sessions.create("app", "user", None, Default::default()).await.unwrap().key;
        services.sessions.append(&key, &event).await.unwrap();
        let read = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
        assert_eq!(read.events[0].json(), event.json());
        drop(services);
        let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
        let stored = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
        assert!(stored.events[0].content.is_none() && stored.events[0].id == event.id, "{:?}", stored.events[0]);

        std::fs::write(&file, "01").unwrap();
        let error = open(&config, &storage, &Scripts::default()).await.map(drop).unwrap_err().to_string();
        let expected = "encryption: the key `k` is not 64 hexadecimal digits; generate one with `openssl rand -hex 32`";
        assert_eq!(error, expected);
        let refused = Config { memory_service: Some("agentengine://p/l/7".into()), ..config };
        std::fs::write(&file, "01".repeat(32)).unwrap();
        let error = open(&refused, &storage, &Scripts::default()).await.map(drop).unwrap_err().to_string();
        let expected =
            "encryption: Agent Engine has to read the messages that it remembers; choose another `memory_service`";
        assert_eq!(error, expected);
    }

    #[tokio::test]
    async fn an_embedder_finds_messages_with_other_forms_of_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::Directory(folder.path().to_owned());
        let config = |yaml: &str| Config::parse(yaml, &folder.path().join("hatchery.yaml")).unwrap();
        let embedder = "memory: {embedder: 'local:hashed-ngrams'}";
        let services = open(&config(embedder), &storage, &Scripts::default()).await.unwrap();
        let key = hatchery_core::SessionKey::new("app", "user", "session");
        let content = Some(Arc::new(hatchery_core::Content::user("She repaired the lamps")));
        let event = Event::new(EventData { content, ..EventData::default() });
        services.memory.add_events(&key, &[event]).await.unwrap();
        let found =
            async |services: &Services| services.memory.search("app", "user", "repair a lamp").await.unwrap().len();
        assert_eq!(found(&services).await, 1);
        drop(services);
        let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
        assert_eq!(found(&services).await, 0);

        std::fs::write(folder.path().join("data.key"), "01".repeat(32)).unwrap();
        for (yaml, expected) in [
            (
                "memory_service: 'firestore://p/d'",
                "memory.embedder: only memory in SQLite and PostgreSQL compares embeddings; remove the key, or choose a \
                 `memory_service` such as `sqlite:memory.db`",
            ),
            (
                "encryption: {keys: [{id: k, file: data.key}]}",
                "memory.embedder: an embedding tells what an encrypted message is about; remove the key, or `encryption`",
            ),
        ] {
            let config = config(&format!("{embedder}\n{yaml}"));
            let error = open(&config, &storage, &Scripts::default()).await.map(drop).unwrap_err().to_string();
            assert_eq!(error, expected);
        }
        let unknown = config("memory: {embedder: 'local:none'}");
        let error = open(&unknown, &storage, &Scripts::default()).await.map(drop).unwrap_err().to_string();
        assert!(error.starts_with("memory.embedder: ") && error.contains("local:none"), "{error}");
    }

    #[tokio::test]
    async fn the_memory_is_stored_in_the_data_folder_by_default() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::Directory(folder.path().join("data"));
        let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
        let key = hatchery_core::SessionKey::new("app", "user", "session");
        let content = Some(Arc::new(hatchery_core::Content::user("red apples")));
        let event = Event::new(EventData { content, ..EventData::default() });
        services.memory.add_events(&key, &[event]).await.unwrap();
        drop(services);
        let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
        assert_eq!(services.memory.search("app", "user", "apples").await.unwrap().len(), 1);
        assert!(folder.path().join("data/memory.db").is_file());
    }

    #[tokio::test]
    async fn a_new_data_folder_is_ignored_by_git() {
        let folder = tempfile::tempdir().unwrap();
        let created = folder.path().join("agents/.hatchery");
        open(&Config::default(), &Storage::Directory(created.clone()), &Scripts::default()).await.unwrap();
        assert_eq!(std::fs::read_to_string(created.join(".gitignore")).unwrap(), "*\n");
        let existing = Storage::Directory(folder.path().to_owned());
        open(&Config::default(), &existing, &Scripts::default()).await.unwrap();
        assert!(folder.path().join("sessions.db").is_file() && !folder.path().join(".gitignore").exists());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_data_folder_is_private_also_if_an_older_version_created_it() {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let open_to_all = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let created = folder.path().join(".hatchery");
        for _ in 0..2 {
            open(
                &Config::default(),
                &Storage::Directory(created.clone()),
                &Scripts { directory: folder.path().to_owned(), ..Scripts::default() },
            )
            .await
            .unwrap();
            assert_eq!(mode(&created), 0o700);
            assert_eq!((mode(&created.join("sessions.db")), mode(&created.join("artifacts"))), (0o600, 0o700));
            open_to_all(&created);
        }
        // A folder that no host has created is unchanged.
        open_to_all(folder.path());
        open(
            &Config::default(),
            &Storage::Directory(folder.path().to_owned()),
            &Scripts { directory: folder.path().to_owned(), ..Scripts::default() },
        )
        .await
        .unwrap();
        assert_eq!(mode(folder.path()), 0o755);
    }

    #[tokio::test]
    async fn quotas_of_the_file_apply_to_services() {
        let folder = tempfile::tempdir().unwrap();
        let yaml = "quotas: {user_sessions: 1, session_artifacts: 1}";
        let config = Config::parse(yaml, &folder.path().join("hatchery.yaml")).unwrap();
        for storage in [Storage::InMemory, Storage::Directory(folder.path().join("data"))] {
            let services =
                open(&config, &storage, &Scripts { directory: folder.path().to_owned(), ..Scripts::default() })
                    .await
                    .unwrap();
            let session = services.sessions.create("app", "user", None, Default::default()).await.unwrap();
            let refused = services.sessions.create("app", "user", None, Default::default()).await.unwrap_err();
            assert_eq!(refused.code(), "QUOTA_EXCEEDED");
            services.artifacts.save(&session.key, "a", &hatchery_core::Part::text("x")).await.unwrap();
            let refused = services.artifacts.save(&session.key, "a", &hatchery_core::Part::text("x")).await;
            assert_eq!(refused.unwrap_err().code(), "QUOTA_EXCEEDED");
        }
    }

    #[tokio::test]
    async fn in_memory_storage_creates_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let services = open(&Config::default(), &Storage::InMemory, &Scripts::default()).await.unwrap();
        services.sessions.create("app", "user", None, Default::default()).await.unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn an_unknown_service_names_its_setting_and_hides_the_password() {
        let config = Config { session_service: Some("oracle://scott:tiger@db/x".into()), ..Config::default() };
        let error = open(&config, &Storage::InMemory, &Scripts::default()).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("session_service `oracle://…@db/x`: "), "{error}");
        assert!(!error.contains("tiger"), "{error}");
        let uri = "postgres://scott:tiger@db/x?schema=s&password=tiger";
        let config = Config { memory_service: Some(uri.into()), ..Config::default() };
        let error = open(&config, &Storage::InMemory, &Scripts::default()).await.map(|_| ()).unwrap_err().to_string();
        let shown = "memory_service `postgres://…@db/x?schema=s&password=…`: invalid name `postgres:…`: a PostgreSQL service is";
        assert!(error.starts_with(shown) && !error.contains("tiger"), "{error}");
    }

    #[test]
    fn the_environment_takes_precedence_over_the_file() {
        let env = Settings::default().with_base_url(Service::Gemini, "http://env").with_key(Service::OpenAi, "key");
        let config = configured(Authority::Operator);
        let settings = model_settings(env, &config, &Scripts::in_folder("/srv", &config));
        let expected = Settings::default()
            .with_base_url(Service::Gemini, "http://env")
            .with_base_url(Service::OpenAi, "http://file")
            .with_key(Service::OpenAi, "key");
        assert_eq!(settings.connections, expected.connections);
        assert_eq!(settings.fallbacks["gpt-5"], ["gemini-2.5-flash"]);
        assert_eq!(settings.scripts_dir, Path::new("/srv"));
    }

    #[test]
    fn a_base_url_of_an_untrusted_file_gets_no_key() {
        let settings = model_settings(Settings::default(), &configured(Authority::Folder), &Scripts::default());
        assert_eq!(settings.connections.len(), 2);
        for connection in settings.connections.into_values() {
            assert!(!connection.base_url.unwrap().allows_keys());
        }
    }

    fn configured(authority: Authority) -> Config {
        let models =
            "{openai_base_url: 'http://file', gemini_base_url: 'http://file', fallback: {gpt-5: [gemini-2.5-flash]}}";
        let config = Config::parse(&format!("models: {models}"), Path::new("hatchery.yaml")).unwrap();
        Config { authority, ..config }
    }
}
