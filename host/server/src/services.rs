//! Opens the services and models that a configuration names.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery_core::{ModelRegistry, Services, StoreError};
use hatchery_models::{Registry, Settings};
use thiserror::Error;

use crate::config::{Config, ModelsConfig};

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

/// Opens what `config` names, and for the rest SQLite and files in `storage`. Scripts of scripted models are found below `directory`.
///
/// # Errors
/// When a service cannot be opened.
pub async fn open(config: &Config, storage: &Storage, directory: &Path) -> Result<Services, ServicesError> {
    let sessions = config.session_service.clone().unwrap_or_else(|| default_uri(storage, "sqlite", "sessions.db"));
    let artifacts = config.artifact_service.clone().unwrap_or_else(|| default_uri(storage, "file", "artifacts"));
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
    Ok(Services {
        sessions: hatchery_stores::open_sessions(&sessions).await.map_err(failed("session_service", &sessions))?,
        artifacts: hatchery_stores::open_artifacts(&artifacts).await.map_err(failed("artifact_service", &artifacts))?,
        memory: hatchery_stores::open_memory(memory).await.map_err(failed("memory_service", memory))?,
        models: models(config, directory),
    })
}

/// The hosted and scripted models that a configuration and the environment give. Scripts are found below `directory`.
pub fn models(config: &Config, directory: &Path) -> Arc<dyn ModelRegistry> {
    Arc::new(Registry::with_defaults(settings(Settings::from_env(), &config.models, directory)))
}

/// Makes the folder when it is missing, with a `.gitignore` that keeps all of it out of the repository that it may be in.
fn make_data_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(".gitignore"), "*\n")
}

fn default_uri(storage: &Storage, scheme: &str, name: &str) -> String {
    match storage {
        Storage::Directory(folder) if folder.is_absolute() => format!("{scheme}://{}", folder.join(name).display()),
        Storage::Directory(folder) => format!("{scheme}:{}", folder.join(name).display()),
        Storage::InMemory => "memory:".into(),
    }
}

fn settings(env: Settings, config: &ModelsConfig, directory: &Path) -> Settings {
    Settings {
        gemini_base_url: env.gemini_base_url.or_else(|| config.gemini_base_url.clone()),
        openai_base_url: env.openai_base_url.or_else(|| config.openai_base_url.clone()),
        scripts_dir: directory.to_owned(),
        ..env
    }
}

/// `scheme://user:password@host/…` without the user and the password.
fn without_password(uri: &str) -> String {
    match (uri.split_once("://"), uri.rfind('@')) {
        (Some((scheme, _)), Some(at)) => format!("{scheme}://…{}", uri.get(at..).unwrap_or_default()),
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::session::EventWindow;

    use super::*;

    #[tokio::test]
    async fn without_configuration_sessions_are_kept_in_the_data_folder() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::Directory(folder.path().join("data"));
        let services = open(&Config::default(), &storage, folder.path()).await.unwrap();
        let session = services.sessions.create("app", "user", None, Default::default()).await.unwrap();
        drop(services);
        let services = open(&Config::default(), &storage, folder.path()).await.unwrap();
        assert!(services.sessions.get(&session.key, EventWindow::All).await.unwrap().is_some());
        assert!(folder.path().join("data/sessions.db").is_file());
    }

    #[tokio::test]
    async fn a_data_folder_that_is_made_is_kept_out_of_repositories() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("agents/.hatchery");
        open(&Config::default(), &Storage::Directory(made.clone()), folder.path()).await.unwrap();
        assert_eq!(std::fs::read_to_string(made.join(".gitignore")).unwrap(), "*\n");
        let found = Storage::Directory(folder.path().to_owned());
        open(&Config::default(), &found, folder.path()).await.unwrap();
        assert!(folder.path().join("sessions.db").is_file() && !folder.path().join(".gitignore").exists());
    }

    #[tokio::test]
    async fn in_memory_storage_makes_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let services = open(&Config::default(), &Storage::InMemory, folder.path()).await.unwrap();
        services.sessions.create("app", "user", None, Default::default()).await.unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn an_unknown_service_names_its_setting_and_hides_the_password() {
        let config = Config { session_service: Some("oracle://scott:tiger@db/x".into()), ..Config::default() };
        let error = open(&config, &Storage::InMemory, Path::new(".")).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("session_service `oracle://…@db/x`: "), "{error}");
        assert!(!error.contains("tiger"), "{error}");
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let env = Settings { gemini_base_url: Some("http://env".into()), ..Settings::default() };
        let config =
            ModelsConfig { gemini_base_url: Some("http://file".into()), openai_base_url: Some("http://file".into()) };
        let settings = settings(env, &config, Path::new("/srv"));
        assert_eq!(settings.gemini_base_url.as_deref(), Some("http://env"));
        assert_eq!(settings.openai_base_url.as_deref(), Some("http://file"));
        assert_eq!(settings.scripts_dir, Path::new("/srv"));
    }
}
