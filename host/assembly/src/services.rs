//! Opens the services and models that a configuration names.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery_core::{ModelResolver, Services, StoreError};
use hatchery_models::{BaseUrl, ModelProviders, Settings, WritableFolders};
use hatchery_stores::private;
use thiserror::Error;

use crate::config::{Config, ModelsConfig};
use crate::quotas;

const SESSIONS_FILE: &str = "sessions.db";
const ARTIFACTS_FOLDER: &str = "artifacts";

/// The file that marks a data folder that the host has made, and what it holds.
const IGNORE_FILE: &str = ".gitignore";
const IGNORE_ALL: &str = "*\n";
use crate::trust::Authority;

/// Where services keep their data when the configuration does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In files of this folder, which is made when needed.
    Directory(PathBuf),
    /// Nowhere: it is gone with the process.
    InMemory,
}

/// Why services cannot be opened.
#[derive(Debug, Error)]
pub enum ServicesError {
    /// The data folder cannot be made.
    #[error("data folder {}: {source}; choose another one with --data-dir, or --memory to keep nothing", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A service cannot be opened.
    #[error("{key} `{uri}`: {source}")]
    Service {
        /// The setting's name.
        key: &'static str,
        /// Its value, without a password.
        uri: String,
        /// Why.
        source: StoreError,
    },
}

/// Where scripts of scripted models are found.
#[derive(Debug, Clone, Default)]
pub struct Scripts {
    /// Relative names start here.
    pub directory: PathBuf,
    /// Nothing in these folders is a script.
    pub written: WritableFolders,
}

impl Scripts {
    /// Those of a served folder, but for what components may write there.
    pub fn of_folder(directory: impl Into<PathBuf>, config: &Config) -> Self {
        let scripts = Self { directory: directory.into(), written: WritableFolders::default() };
        scripts.update(config);
        scripts
    }

    /// Takes over which folders components may write now.
    pub fn update(&self, config: &Config) {
        self.written.set(crate::catalog::settings(config).written());
    }
}

/// Opens what `config` names, behind its quotas, and for the rest SQLite and files in `storage`.
///
/// # Errors
/// When a service cannot be opened.
pub async fn open(config: &Config, storage: &Storage, scripts: &Scripts) -> Result<Services, ServicesError> {
    let sessions = config.session_service.clone().unwrap_or_else(|| default_uri(storage, "sqlite", SESSIONS_FILE));
    let artifacts = config.artifact_service.clone().unwrap_or_else(|| default_uri(storage, "file", ARTIFACTS_FOLDER));
    let memory = config.memory_service.as_deref().unwrap_or("memory:");
    if let Storage::Directory(folder) = storage
        && (config.session_service.is_none() || config.artifact_service.is_none())
    {
        make_data_folder(folder).map_err(|source| ServicesError::Folder { folder: folder.clone(), source })?;
    }
    let failed = |key, uri: &str| {
        let uri = without_password(uri);
        move |source| ServicesError::Service { key, uri, source }
    };
    let durability = config.durability.into();
    let services = Services {
        sessions: hatchery_stores::open_sessions_with(&sessions, durability)
            .await
            .map_err(failed("session_service", &sessions))?,
        artifacts: hatchery_stores::open_artifacts(&artifacts).await.map_err(failed("artifact_service", &artifacts))?,
        memory: hatchery_stores::open_memory(memory).await.map_err(failed("memory_service", memory))?,
        models: models(config, scripts),
    };
    Ok(quotas::app_quotas(config).enforce(services))
}

/// The hosted and scripted models that a configuration and the environment give.
pub fn models(config: &Config, scripts: &Scripts) -> Arc<dyn ModelResolver> {
    Arc::new(ModelProviders::with_defaults(settings(Settings::from_env(), config, scripts)))
}

/// Makes the folder for its owner only if it is missing, with a `.gitignore` that keeps all of it out of the repository that it may be
/// in. A folder that was made so before, by a version that let others read it, is closed to them; of any other folder that others
/// may read there is a warning.
///
/// # Errors
/// When it cannot be made.
pub fn make_data_folder(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        private::create_dir_all(folder)?;
        return std::fs::write(folder.join(IGNORE_FILE), IGNORE_ALL);
    }
    let has_mark = std::fs::read_to_string(folder.join(IGNORE_FILE)).is_ok_and(|text| text == IGNORE_ALL);
    let has_data = [SESSIONS_FILE, ARTIFACTS_FOLDER].iter().any(|name| folder.join(name).exists());
    let is_closed = has_mark && has_data && private::restrict_dir(folder).is_ok();
    if !is_closed {
        private::warn_if_readable(folder);
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

fn settings(env: Settings, config: &Config, scripts: &Scripts) -> Settings {
    let configured = |url: &Option<String>| match config.authority {
        Authority::Operator => url.clone().map(BaseUrl::from),
        Authority::Folder => url.clone().map(BaseUrl::from_folder_config),
    };
    let ModelsConfig { gemini_base_url, openai_base_url } = &config.models;
    Settings {
        gemini_base_url: env.gemini_base_url.or_else(|| configured(gemini_base_url)),
        openai_base_url: env.openai_base_url.or_else(|| configured(openai_base_url)),
        scripts_dir: scripts.directory.clone(),
        writable_folders: scripts.written.clone(),
        ..env
    }
}

/// `scheme://user:password@host/…` without the user and the password.
pub(crate) fn without_password(uri: &str) -> String {
    match (uri.split_once("://"), uri.rfind('@')) {
        (Some((scheme, _)), Some(at)) => format!("{scheme}://…{}", uri.get(at..).unwrap_or_default()),
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::EventWindow;

    use super::*;

    #[tokio::test]
    async fn without_configuration_sessions_are_kept_in_the_data_folder() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::Directory(folder.path().join("data"));
        let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
        let session = services.sessions.create("app", "user", None, Default::default()).await.unwrap();
        drop(services);
        let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
        assert!(services.sessions.get(&session.key, EventWindow::All).await.unwrap().is_some());
        assert!(folder.path().join("data/sessions.db").is_file());
    }

    #[tokio::test]
    async fn a_data_folder_that_is_made_is_kept_out_of_repositories() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("agents/.hatchery");
        open(&Config::default(), &Storage::Directory(made.clone()), &Scripts::default()).await.unwrap();
        assert_eq!(std::fs::read_to_string(made.join(".gitignore")).unwrap(), "*\n");
        let found = Storage::Directory(folder.path().to_owned());
        open(&Config::default(), &found, &Scripts::default()).await.unwrap();
        assert!(folder.path().join("sessions.db").is_file() && !folder.path().join(".gitignore").exists());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn the_data_of_users_is_closed_to_others_also_in_a_folder_of_an_older_version() {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let open_to_all = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join(".hatchery");
        for _ in 0..2 {
            open(
                &Config::default(),
                &Storage::Directory(made.clone()),
                &Scripts { directory: folder.path().to_owned(), ..Scripts::default() },
            )
            .await
            .unwrap();
            assert_eq!(mode(&made), 0o700);
            assert_eq!((mode(&made.join("sessions.db")), mode(&made.join("artifacts"))), (0o600, 0o700));
            open_to_all(&made);
        }
        // A folder that somebody else has made stays as it is.
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
    async fn services_are_behind_the_quotas_of_the_file() {
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
    async fn in_memory_storage_makes_no_files() {
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
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let env = Settings { gemini_base_url: Some("http://env".into()), ..Settings::default() };
        let config = configured(Authority::Operator);
        let settings = settings(env, &config, &Scripts::of_folder("/srv", &config));
        assert_eq!(settings.gemini_base_url, Some("http://env".into()));
        assert_eq!(settings.openai_base_url, Some("http://file".into()));
        assert_eq!(settings.scripts_dir, Path::new("/srv"));
    }

    #[test]
    fn a_base_url_of_a_file_that_nobody_trusts_is_given_no_key() {
        let settings = settings(Settings::default(), &configured(Authority::Folder), &Scripts::default());
        for url in [settings.gemini_base_url, settings.openai_base_url] {
            assert!(!url.unwrap().allows_keys());
        }
    }

    fn configured(authority: Authority) -> Config {
        let url = || Some("http://file".into());
        Config {
            models: ModelsConfig { gemini_base_url: url(), openai_base_url: url() },
            authority,
            ..Config::default()
        }
    }
}
