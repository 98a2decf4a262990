//! Arguments that commands share: the configuration and the storage of a served folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use hatchery::trust::{ConfigSource, LoadedConfig, ProtectedPaths, TrustStore};
use hatchery::{AppSource, CONFIG_FILE, Config, Host, HostBuilder, Setting, Storage, protected_paths, user_code_cache};
use hatchery_engine::App;
use sha2::{Digest, Sha256};

use crate::compiler;
use crate::files::require_folder;
use crate::flags::TRUST_FLAGS;
use crate::languages::Language;
use crate::progress::LoadProgress;
use crate::projects::explain_unbuilt;
use crate::terminal::list_names;

/// The configuration of a served folder.
#[derive(Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// Use this configuration file instead of DIR/hatchery.yaml, and trust it; its paths are relative to its folder
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Returns the configuration source of a served folder.
    pub fn source(&self, folder: &Path) -> ConfigSource {
        ConfigSource::new(folder).with_trust_store(trust_store()).with_file(self.config.clone())
    }
}

/// Returns the untrusted access and how to trust it. `None` if all of it is trusted.
pub fn explain_trust(loaded: &LoadedConfig) -> Option<String> {
    loaded.explanation().map(|explanation| format!("{explanation} ({TRUST_FLAGS})"))
}

/// Returns the user's list of trusted folders. `None` if there is no home or configuration folder.
pub fn trust_store() -> Option<TrustStore> {
    TrustStore::for_user(|name| std::env::var_os(name))
}

/// Services and where they store their data. Arguments override `hatchery.yaml`.
#[derive(Debug, Default, clap::Args)]
pub struct StorageArgs {
    /// Where to store sessions: `memory:`, `sqlite:relative.db`, `sqlite:///absolute.db`,
    /// `postgres://user@host/database`, `firestore://PROJECT/DATABASE` or `agentengine://PROJECT/LOCATION/ENGINE`
    #[arg(long, value_name = "URI")]
    session_service: Option<String>,
    /// Where to store artifacts: `memory:`, `file:relative`, `file:///absolute`, `s3://bucket/prefix`,
    /// `gs://bucket/prefix` or `az://container/prefix`
    #[arg(long, value_name = "URI")]
    artifact_service: Option<String>,
    /// Where to store long-term memory: `memory:`, `sqlite:relative.db`, `sqlite:///absolute.db`,
    /// `postgres://user@host/database`, `firestore://PROJECT/DATABASE` or `agentengine://PROJECT/LOCATION/ENGINE`
    #[arg(long, value_name = "URI")]
    memory_service: Option<String>,
    /// Folder for the data of services without a URI (default: DIR/.hatchery) and for compiled code (default: the
    /// user's cache folder)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Keep sessions, artifacts and compiled code in memory only; they are lost on exit
    #[arg(long, conflicts_with = "data_dir")]
    memory: bool,
}

impl StorageArgs {
    /// Returns arguments that keep sessions and artifacts in memory and override `hatchery.yaml`. Compiled code is
    /// cached.
    pub fn in_memory() -> Self {
        let memory = || Some("memory:".to_owned());
        Self {
            session_service: memory(),
            artifact_service: memory(),
            memory_service: memory(),
            data_dir: None,
            memory: false,
        }
    }

    /// Returns arguments that use the services of `hatchery.yaml`, with this data folder if there is one.
    pub fn in_directory(data_dir: Option<PathBuf>) -> Self {
        Self { data_dir, ..Self::default() }
    }

    /// Applies these arguments to a host.
    pub fn apply(&self, mut builder: HostBuilder, folder: &Path) -> HostBuilder {
        if let Some(uri) = &self.session_service {
            builder = builder.session_service(uri.as_str());
        }
        if let Some(uri) = &self.artifact_service {
            builder = builder.artifact_service(uri.as_str());
        }
        if let Some(uri) = &self.memory_service {
            builder = builder.memory_service(uri.as_str());
        }
        if self.memory {
            builder = builder.names_file(names_file_in_cache(folder, |name| std::env::var_os(name)));
        }
        builder.storage(self.storage(folder)).code_cache(self.code_cache(|name| std::env::var_os(name)))
    }

    /// Returns the settings of these arguments.
    pub fn settings(&self, folder: &Path) -> Vec<Setting> {
        let services = [
            ("session_service", "--session-service", &self.session_service),
            ("artifact_service", "--artifact-service", &self.artifact_service),
            ("memory_service", "--memory-service", &self.memory_service),
        ];
        let services =
            services.into_iter().filter_map(|(key, flag, uri)| Some(Setting::from_flag(key, flag, uri.as_ref()?)));
        let data = match &self.data_dir {
            _ if self.memory => Setting::from_flag("data_dir", "--memory", "none: data is kept in memory"),
            Some(data) => Setting::from_flag("data_dir", "--data-dir", &data.display().to_string()),
            None => match Storage::in_folder(folder) {
                Storage::Directory(data) => Setting::from_default("data_dir", data.display().to_string()),
                Storage::InMemory => Setting::from_default("data_dir", "none: data is kept in memory"),
            },
        };
        services.chain([data]).collect()
    }

    /// Returns the storage of services without a URI.
    pub fn storage(&self, folder: &Path) -> Storage {
        match &self.data_dir {
            _ if self.memory => Storage::InMemory,
            Some(data) => Storage::Directory(data.clone()),
            None => Storage::in_folder(folder),
        }
    }

    /// Returns the paths of the host that no component may access.
    pub fn protected_paths(&self, source: &ConfigSource, config: &Config) -> ProtectedPaths {
        let cache = self.code_cache(|name| std::env::var_os(name));
        protected_paths(Some(source), &self.storage(source.folder()), cache.as_deref(), config)
    }

    /// Returns the folder for compiled code, or `None` if there is none. It is never in the served folder by default:
    /// everyone who can write to it can make the host execute native code.
    pub fn code_cache(&self, environment: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        match &self.data_dir {
            _ if self.memory => None,
            Some(data) => Some(data.join("code")),
            None => user_code_cache(environment),
        }
    }
}

/// Returns the file in the user's cache folder that records the owners of names, for a folder that is served without a
/// data folder.
fn names_file_in_cache(folder: &Path, environment: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    let hash: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    Some(user_code_cache(environment)?.with_file_name("names").join(format!("{hash}.json")))
}

/// Returns the builder of a host with the storage of `args`, which compiles components in child processes.
pub fn builder(source: ConfigSource, args: &StorageArgs) -> HostBuilder {
    let folder = source.folder().to_owned();
    args.apply(Host::builder().config_source(source).worker(compiler::worker()), &folder)
}

/// Opens a host, with a progress bar while components are loaded. It is cleared before this function returns, so that it
/// clears nothing that is printed later.
pub async fn open(builder: HostBuilder) -> anyhow::Result<Host> {
    let progress = LoadProgress::start();
    let host = builder.progress(progress.listener()).start().await?;
    host.finish_loading().await?;
    drop(progress);
    Ok(host)
}

/// Starts a host, with a progress bar until its components are loaded.
pub async fn start(builder: HostBuilder) -> anyhow::Result<Host> {
    let progress = LoadProgress::start();
    let host = builder.progress(progress.listener()).start().await?;
    let loaded = host.wait_until_loaded();
    tokio::spawn(async move {
        loaded.await;
        drop(progress);
    });
    Ok(host)
}

/// Returns the app with a name in a served folder.
///
/// # Errors
/// If it does not exist, with the names that do and the projects that are not built, or cannot be used, with the reason.
pub fn find_app(source: &dyn AppSource, folder: &Path, name: &str) -> anyhow::Result<Arc<App>> {
    source.app(name).ok_or_else(|| match source.report().reason_for_missing_app(name) {
        Some(reason) => anyhow!("app `{name}` cannot be used: {reason}"),
        None => {
            let unbuilt = explain_unbuilt(folder, Some(name)).map(|unbuilt| format!("; {unbuilt}"));
            let available = list_names(&source.app_names());
            anyhow!("app `{name}` not found; available: {available}{}", unbuilt.unwrap_or_default())
        }
    })
}

/// Returns true for the folder of a YAML app or of a component's crate, and false for a workspace of crates.
fn is_app_folder(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let is_crate = manifest.lines().any(|line| line.trim() == "[package]");
    let is_python_or_js = matches!(Language::detect(folder), Ok(Language::Python | Language::JavaScript));
    folder.join("root_agent.yaml").is_file() || is_crate || is_python_or_js
}

/// Returns the folder to load for `folder`, and the name of the app if `folder` is the folder of one app or component.
/// Such a folder is loaded with its neighbours, unless it has a configuration of its own.
pub fn find_served_folder(folder: &Path) -> anyhow::Result<(PathBuf, Option<String>)> {
    require_folder(folder)?;
    if !is_app_folder(folder) {
        return Ok((folder.to_owned(), None));
    }
    let absolute = folder.canonicalize().with_context(|| folder.display().to_string())?;
    match (absolute.parent(), absolute.file_name().and_then(|name| name.to_str())) {
        (_, Some(name)) if folder.join(CONFIG_FILE).is_file() => Ok((folder.to_owned(), Some(name.to_owned()))),
        (Some(parent), Some(name)) => Ok((parent.to_owned(), Some(name.to_owned()))),
        _ => bail!("{}: the folder's name cannot be the name of an app; rename the folder", absolute.display()),
    }
}

/// Returns the folder, and also the served folder around it if it is the folder of one app.
pub fn app_and_served_folder(folder: &Path) -> Vec<PathBuf> {
    let served = find_served_folder(folder).ok().map(|(served, _)| served);
    std::iter::once(folder.to_owned()).chain(served.filter(|served| served != folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn arguments_override_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let yaml = "session_service: 'sqlite:sessions.db'\nartifact_service: 'file:files'\n";
        std::fs::write(folder.path().join("hatchery.yaml"), yaml).unwrap();
        let args = StorageArgs { session_service: Some("memory:".into()), ..StorageArgs::default() };
        let host = builder(ConfigSource::new(folder.path()), &args).open().await.unwrap();
        assert_eq!(host.config().session_service.as_deref(), Some("memory:"));
        let files = format!("file://{}", folder.path().join("files").display());
        assert_eq!(host.config().artifact_service, Some(files));
    }

    #[test]
    fn data_is_stored_in_the_served_folder_by_default() {
        let folder = Path::new("agents");
        let storage = |args: StorageArgs| args.storage(folder);
        assert_eq!(storage(StorageArgs::default()), Storage::Directory("agents/.hatchery".into()));
        let elsewhere = StorageArgs { data_dir: Some("/data".into()), ..StorageArgs::default() };
        assert_eq!(storage(elsewhere), Storage::Directory("/data".into()));
        let in_memory = StorageArgs { memory: true, ..StorageArgs::default() };
        assert_eq!(storage(in_memory), Storage::InMemory);
    }

    #[test]
    fn compiled_code_is_in_the_users_cache_folder_by_default() {
        let cache = |args: &StorageArgs, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            args.code_cache(find)
        };
        let default = StorageArgs::default();
        let both = [("XDG_CACHE_HOME", "/caches"), ("HOME", "/home/ada")];
        assert_eq!(cache(&default, &both), Some("/caches/hatchery/code".into()));
        assert_eq!(cache(&default, &both[1..]), Some("/home/ada/.cache/hatchery/code".into()));
        let relative = [("XDG_CACHE_HOME", "agents"), ("HOME", "")];
        assert_eq!(cache(&default, &relative), None, "a relative path could be in the served folder");
        assert_eq!(cache(&StorageArgs::in_memory(), &both), Some("/caches/hatchery/code".into()));
        let elsewhere = StorageArgs { data_dir: Some("/data".into()), ..StorageArgs::default() };
        assert_eq!(cache(&elsewhere, &both), Some("/data/code".into()));
        let in_memory = StorageArgs { memory: true, ..StorageArgs::default() };
        assert_eq!(cache(&in_memory, &both), None);
    }

    #[test]
    fn the_folder_of_one_app_is_served_with_its_neighbours() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for (file, text) in [
            ("yaml/root_agent.yaml", ""),
            ("crate/Cargo.toml", "[package]\n"),
            ("many/Cargo.toml", "[workspace]\n"),
            ("python/pyproject.toml", "[tool.hatchery]\n"),
            ("js/package.json", "{\"hatchery\": {}}"),
        ] {
            std::fs::create_dir(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), text).unwrap();
        }
        assert_eq!(find_served_folder(&root.join("yaml")).unwrap(), (root.clone(), Some("yaml".into())));
        assert_eq!(find_served_folder(&root.join("crate")).unwrap(), (root.clone(), Some("crate".into())));
        assert_eq!(find_served_folder(&root.join("python")).unwrap(), (root.clone(), Some("python".into())));
        assert_eq!(find_served_folder(&root.join("js")).unwrap(), (root.clone(), Some("js".into())));
        assert_eq!(find_served_folder(&root.join("many")).unwrap(), (root.join("many"), None));
        assert_eq!(find_served_folder(&root).unwrap(), (root, None));
    }

    #[test]
    fn the_folder_of_one_app_with_its_own_configuration_is_served_alone() {
        let root = tempfile::tempdir().unwrap();
        let dice = root.path().join("dice");
        std::fs::create_dir(&dice).unwrap();
        std::fs::write(dice.join("package.json"), "{\"hatchery\": {}}").unwrap();
        std::fs::write(dice.join(CONFIG_FILE), "").unwrap();
        assert_eq!(find_served_folder(&dice).unwrap(), (dice.clone(), Some("dice".into())));
        assert_eq!(app_and_served_folder(&dice), [dice]);
    }

    #[test]
    fn a_missing_folder_is_named() {
        assert_eq!(find_served_folder(Path::new("/no/such")).unwrap_err().to_string(), "/no/such is not a folder");
    }
}
