//! What `serve`, `run` and `test` share: a folder with its configuration, services and apps.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hatchery::services::Scripts;
use hatchery::trust::HostPaths;
use hatchery::{
    AppSource, Config, ConfigSource, ConfiguredApps, LoadedConfig, Storage, TrustStore, host_key, services,
};
use hatchery_core::{ItemResolver, Services};
use hatchery_engine::Runner;
use hatchery_engine::plugins::ConfiguredPlugins;
use hatchery_engine::plugins::config::Loaded;
use hatchery_wasm::{CatalogHandle, CatalogModels, DeterministicMode, Revisions};
use tokio::sync::watch;

use crate::compiler;
use crate::languages::Language;
use crate::progress::LoadProgress;
use crate::settings::{Follower, Watched};

/// Where the data folder is when nobody says.
const DATA_FOLDER: &str = ".hatchery";

/// The file in the data folder that says who has which name.
const KNOWN_NAMES: &str = "names.json";
/// Which configuration counts.
#[derive(Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// Use this configuration in place of DIR/hatchery.yaml, and trust it whatever it asks for; relative paths in it start at its own
    /// folder
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Where the configuration of a served folder is.
    pub fn source(&self, folder: &Path) -> ConfigSource {
        ConfigSource::of_folder(folder).trusting(trust_store()).named(self.config.clone())
    }
}

/// The user's list of trusted folders. `None` if there is no place for one.
pub fn trust_store() -> Option<TrustStore> {
    TrustStore::of_user(|name| std::env::var_os(name))
}

/// Which services to use, and where they keep their data. What is not said here is as `hatchery.yaml` says.
#[derive(Debug, Default, clap::Args)]
pub struct StorageArgs {
    /// Where sessions are kept: `memory:`, `sqlite:relative.db`, `sqlite:///absolute.db`
    #[arg(long, value_name = "URI")]
    session_service: Option<String>,
    /// Where artifacts are kept: `memory:`, `file:relative`, `file:///absolute`
    #[arg(long, value_name = "URI")]
    artifact_service: Option<String>,
    /// Where memory is kept: `memory:`
    #[arg(long, value_name = "URI")]
    memory_service: Option<String>,
    /// The folder for data of services that name no place, DIR/.hatchery by default, and for compiled code, which is otherwise in the
    /// user's cache
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Keep nothing: sessions, artifacts and compiled code are gone when the process ends
    #[arg(long, conflicts_with = "data_dir")]
    memory: bool,
}

impl StorageArgs {
    /// No session and no artifact is kept, whatever `hatchery.yaml` says; compiled code is.
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

    /// As `hatchery.yaml` says, with the data in this folder if there is one.
    pub fn in_directory(data_dir: Option<PathBuf>) -> Self {
        Self { data_dir, ..Self::default() }
    }

    fn override_in(&self, config: &mut Config) {
        let replace = |setting: &mut Option<String>, given: &Option<String>| {
            if given.is_some() {
                setting.clone_from(given);
            }
        };
        replace(&mut config.session_service, &self.session_service);
        replace(&mut config.artifact_service, &self.artifact_service);
        replace(&mut config.memory_service, &self.memory_service);
    }

    /// Where data of a served folder is kept that no service says a place for.
    pub fn storage(&self, folder: &Path) -> Storage {
        match &self.data_dir {
            _ if self.memory => Storage::InMemory,
            Some(data) => Storage::Directory(data.clone()),
            None => Storage::Directory(folder.join(DATA_FOLDER)),
        }
    }

    /// What of the host's own is on the disk, which no component may reach.
    pub fn host_paths(&self, source: &ConfigSource, config: &Config) -> HostPaths {
        let folder = source.folder();
        let mut paths = HostPaths::new()
            .private("the data of the host (`--data-dir`)", folder.join(DATA_FOLDER))
            .with_services(config);
        if let Storage::Directory(data) = self.storage(folder) {
            paths = paths.private("the data of the host (`--data-dir`)", data);
        }
        if let Some(cache) = self.code_cache(|name| std::env::var_os(name)) {
            paths = paths.private("the cache of compiled code and its key", cache);
        }
        match source.store().and_then(|store| store.file().parent()) {
            Some(folder) => paths.read_only("the list of trusted folders", folder),
            None => paths,
        }
    }

    /// Where compiled components are kept: with the data if somebody says where that is, else in the user's cache, because whoever may
    /// write to the served folder must not be able to put native code there. `None` when there is no such place.
    pub fn code_cache(&self, environment: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        match &self.data_dir {
            _ if self.memory => None,
            Some(data) => Some(data.join("code")),
            None => {
                let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
                let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
                caches.map(|caches| caches.join("hatchery").join("code"))
            }
        }
    }
}

/// Whether changes of files are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// As they come.
    Yes,
    /// Never.
    No,
}

/// A configuration that was read, and how its changes are noticed.
pub struct ReadConfig {
    source: ConfigSource,
    loaded: LoadedConfig,
    watched: Option<Watched>,
}

impl ReadConfig {
    /// Reads the configuration of a folder.
    ///
    /// # Errors
    /// When there is no such folder, or a host could not start with what is left of the configuration.
    pub fn read(source: ConfigSource, watch: Watch) -> anyhow::Result<Self> {
        if !source.folder().is_dir() {
            bail!("{} is not a folder", source.folder().display());
        }
        // Looked at before it is read, so that no change is missed.
        let watched = (watch == Watch::Yes).then(|| Watched::new(&source));
        let loaded = source.load()?.require_host_rights()?;
        Ok(Self { source, loaded, watched })
    }

    /// What was read.
    pub fn loaded(&self) -> &LoadedConfig {
        &self.loaded
    }
}

/// A folder, loaded.
pub struct Host {
    /// What `hatchery.yaml` and the command line say.
    pub config: Config,
    /// Names of the plugins that every run passes, in order.
    pub plugins: Vec<String>,
    /// Its apps, with their settings.
    pub source: Arc<dyn AppSource>,
    /// Runs them.
    pub runner: Runner,
    /// Where scripts of models are.
    pub scripts: Scripts,
    loaded: CatalogHandle,
    file: PathBuf,
}

impl Host {
    /// Loads the folder of a configuration.
    pub async fn open(read: ReadConfig, storage: &StorageArgs) -> anyhow::Result<Self> {
        Self::open_with(read, storage, None).await
    }

    /// Begins to load the folder of a configuration. [`Host::finish_loading`] waits for its components.
    pub async fn start(read: ReadConfig, storage: &StorageArgs) -> anyhow::Result<Self> {
        Self::with_config(read, storage, None).await
    }

    async fn open_with(
        read: ReadConfig,
        storage: &StorageArgs,
        deterministic: Option<DeterministicMode>,
    ) -> anyhow::Result<Self> {
        let mut host = Self::with_config(read, storage, deterministic).await?;
        host.finish_loading().await?;
        Ok(host)
    }

    /// True while something is loaded for the first time.
    pub fn is_loading(&self) -> bool {
        self.loaded.current().loading().next().is_some()
    }

    /// Waits until all components are loaded or rejected.
    ///
    /// # Errors
    /// When a plugin that every run has to pass is not there then.
    pub async fn finish_loading(&mut self) -> anyhow::Result<()> {
        self.loaded.loaded().await;
        let plugins = ConfiguredPlugins::new(&self.config.plugins, current(self.loaded.clone()))
            .with_context(|| self.file.display().to_string())?;
        self.plugins = plugins.names();
        Ok(())
    }

    /// Loads a folder for runs that are recorded, or have to go as they went before.
    pub async fn open_repeatable(source: ConfigSource) -> anyhow::Result<Self> {
        let mut read = ReadConfig::read(source, Watch::No)?;
        make_repeatable(&mut read.loaded.config);
        Self::open_with(read, &StorageArgs::in_memory(), None).await
    }

    /// Loads a folder for tests, whose components meet the same world each time.
    pub async fn open_rehearsal(source: ConfigSource, deterministic: DeterministicMode) -> anyhow::Result<Self> {
        let mut read = ReadConfig::read(source.for_rehearsal(), Watch::No)?;
        make_repeatable(&mut read.loaded.config);
        Self::open_with(read, &StorageArgs::in_memory(), Some(deterministic)).await
    }

    async fn with_config(
        read: ReadConfig,
        storage: &StorageArgs,
        deterministic: Option<DeterministicMode>,
    ) -> anyhow::Result<Self> {
        let ReadConfig { source, loaded: LoadedConfig { mut config, file, .. }, watched } = read;
        let folder = source.folder();
        let written = config.clone();
        storage.override_in(&mut config);
        let paths = storage.host_paths(&source, &config);
        paths.check(&config, &file)?;
        let scripts = Scripts::of_folder(folder, &config);
        let services = services::open(&config, &storage.storage(folder), &scripts).await?;
        let signer = host_key::open(&config, &storage.storage(folder), |name| std::env::var_os(name))?;
        let mut options = compiler::load_options(&config, storage.code_cache(|name| std::env::var_os(name)))?;
        options.settings.deterministic = deterministic;
        let progress = LoadProgress::start();
        options.progress = Some(progress.listener());
        if let (Some(_), Storage::Directory(data)) = (&watched, storage.storage(folder)) {
            options.names_file = Some(data.join(KNOWN_NAMES));
            options.revisions = Some(revisions(folder, Some(&data), &config));
        }
        let loaded = CatalogHandle::start(folder, options).await?;
        let shown = loaded.clone();
        tokio::spawn(async move {
            shown.loaded().await;
            drop(progress);
        });
        let models = CatalogModels { catalog: loaded.clone(), rest: services.models.clone() };
        let services = Services { models: Arc::new(models), ..services };
        let current = current(loaded.clone());
        let plugins = ConfiguredPlugins::while_loading(&config.plugins, current.clone())
            .with_context(|| file.display().to_string())?;
        let names = plugins.names();
        let apps: Arc<dyn AppSource> = Arc::new(ConfiguredApps::new(loaded.clone(), &config, current));
        let runner = Runner::with_signer(services, plugins, signer);
        if let Some(watched) = watched {
            loaded.watch();
            let follower =
                Follower { source, opened: written, catalog: loaded.clone(), scripts: scripts.clone(), paths };
            tokio::spawn(follower.follow(watched));
            tokio::spawn(follow_changes(loaded.changed(), apps.clone(), runner.clone()));
        }
        Ok(Self { plugins: names, source: apps, runner, config, scripts, loaded, file })
    }

    /// Waits until nothing is under way, then closes the plugins and the toolsets of the apps.
    pub async fn close(self) {
        self.runner.close().await;
        for app in self.source.app_names().iter().filter_map(|name| self.source.app(name)) {
            app.close().await;
        }
    }
}

/// The revisions that are kept of the components of `folder`, with the data that is in `data`, if not in the usual place.
pub fn revisions(folder: &Path, data: Option<&Path>, config: &Config) -> Revisions {
    let data = data.map_or_else(|| folder.join(DATA_FOLDER), Path::to_path_buf);
    Revisions::new(data.join("revisions"), config.hot_reload.keep)
}

/// Takes out compaction, since a summary is in a prompt or not yet as it happens, and the recorder, which would add to the recordings that
/// are played.
fn make_repeatable(config: &mut Config) {
    config.plugins.retain(|plugin| plugin.name != "recorder");
    for app in config.apps.values_mut().chain([&mut config.app_defaults]) {
        app.compaction = None;
    }
}

/// Tells what is loaded whenever it is asked: runs use the plugins and summarizers of components that are there when they begin.
pub fn current(loaded: CatalogHandle) -> impl Fn() -> Loaded + Clone + Send + Sync + 'static {
    move || {
        let catalog = loaded.current();
        (catalog.generation, catalog as Arc<dyn ItemResolver>)
    }
}

/// Writes a line whenever something else serves; what became of single files, the loader says. Then has everything looked up that is kept
/// between runs, so that what was replaced can go.
async fn follow_changes(mut changed: watch::Receiver<u64>, source: Arc<dyn AppSource>, runner: Runner) {
    changed.mark_unchanged();
    while changed.changed().await.is_ok() {
        let generation = *changed.borrow_and_update();
        let apps = source.app_names();
        tracing::info!(generation, apps = apps.join(", "), "changes are loaded");
        apps.iter().for_each(|app| drop(source.app(app)));
        // What is missing has been logged.
        let _ = runner.refresh_plugins();
    }
}

/// True for the folder of a YAML app and for that of a component's crate, but not for a workspace of crates.
fn is_of_one_app(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let is_crate = manifest.lines().any(|line| line.trim() == "[package]");
    let is_other = matches!(Language::of(folder), Ok(Language::Python | Language::JavaScript));
    folder.join("root_agent.yaml").is_file() || is_crate || is_other
}

/// The folder to load for `folder`, and the app if `folder` is that of one app or component only.
pub fn served_folder(folder: &Path) -> anyhow::Result<(PathBuf, Option<String>)> {
    if !folder.is_dir() {
        bail!("{} is not a folder", folder.display());
    }
    if !is_of_one_app(folder) {
        return Ok((folder.to_owned(), None));
    }
    let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
    match (folder.parent(), folder.file_name().and_then(|name| name.to_str())) {
        (Some(parent), Some(name)) => Ok((parent.to_owned(), Some(name.to_owned()))),
        _ => bail!("{} cannot be an app: its name cannot be used", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use hatchery::CatalogReport;
    use hatchery_core::{CallContext, Callback, Plugin, RunError, Tool, Toolset};
    use hatchery_engine::build::llm;
    use hatchery_engine::{App, Plugins};

    use super::*;

    fn read(folder: &Path) -> anyhow::Result<ReadConfig> {
        ReadConfig::read(ConfigSource::of_folder(folder), Watch::No)
    }

    /// A plugin and a toolset that note, under their names, when they are closed.
    struct Closes(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Callback for Closes {
        fn name(&self) -> &str {
            self.0
        }
    }

    #[async_trait]
    impl Plugin for Closes {
        async fn close(&self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[async_trait]
    impl Toolset for Closes {
        fn name(&self) -> &str {
            self.0
        }

        async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
            Ok(Vec::new())
        }

        async fn close(&self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    /// Apps `dice` and `trip`, each with a toolset of its name.
    struct Apps(Arc<Mutex<Vec<&'static str>>>);

    impl AppSource for Apps {
        fn app(&self, name: &str) -> Option<Arc<App>> {
            let name = ["dice", "trip"].into_iter().find(|known| *known == name)?;
            let agent = llm("root").instruction("x").toolset(Arc::new(Closes(name, self.0.clone()))).build().unwrap();
            Some(Arc::new(App::new(name, agent).unwrap()))
        }

        fn app_names(&self) -> Vec<String> {
            vec!["dice".into(), "trip".into()]
        }

        fn report(&self) -> CatalogReport {
            CatalogReport::default()
        }
    }

    #[tokio::test]
    async fn plugins_and_then_the_toolsets_of_all_apps_are_closed_with_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::open(read(folder.path()).unwrap(), &StorageArgs::in_memory()).await.unwrap();
        let closed = Arc::new(Mutex::new(Vec::new()));
        let plugins = Plugins::new(vec![Arc::new(Closes("plugin", closed.clone()))]).unwrap();
        let runner = Runner::with_plugins(host.runner.services().clone(), plugins);
        Host { runner, source: Arc::new(Apps(closed.clone())), ..host }.close().await;
        assert_eq!(*closed.lock().unwrap(), ["plugin", "dice", "trip"]);
    }

    #[tokio::test]
    async fn what_is_repeated_is_not_compacted_and_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let yaml = "plugins: [{name: recorder, args: {folder: recorded}}, logging]\n\
                    app_defaults: {max_llm_calls: 9, compaction: {interval: 1, overlap: 0}}\n\
                    apps: {dice: {compaction: {token_threshold: 1, retention: 1}}}\n";
        std::fs::write(folder.path().join("hatchery.yaml"), yaml).unwrap();
        let host = Host::open_repeatable(ConfigSource::of_folder(folder.path())).await.unwrap();
        assert_eq!(host.plugins, ["logging_plugin"]);
        assert_eq!(host.config.app_defaults.to_string(), "max_llm_calls: 9");
        assert_eq!(host.config.apps["dice"].to_string(), "");
    }

    #[test]
    fn flags_win_over_the_file() {
        let mut config =
            Config { session_service: Some("a".into()), artifact_service: Some("b".into()), ..Config::default() };
        let args = StorageArgs { session_service: Some("memory:".into()), ..StorageArgs::default() };
        args.override_in(&mut config);
        assert_eq!(config.session_service.as_deref(), Some("memory:"));
        assert_eq!(config.artifact_service.as_deref(), Some("b"));
    }

    #[test]
    fn data_is_kept_in_the_served_folder_unless_told_otherwise() {
        let folder = Path::new("agents");
        let storage = |args: StorageArgs| args.storage(folder);
        assert_eq!(storage(StorageArgs::default()), Storage::Directory("agents/.hatchery".into()));
        let elsewhere = StorageArgs { data_dir: Some("/data".into()), ..StorageArgs::default() };
        assert_eq!(storage(elsewhere), Storage::Directory("/data".into()));
        let nothing = StorageArgs { memory: true, ..StorageArgs::default() };
        assert_eq!(storage(nothing), Storage::InMemory);
    }

    #[test]
    fn compiled_code_is_kept_in_the_users_cache_unless_told_otherwise() {
        let cache = |args: &StorageArgs, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            args.code_cache(find)
        };
        let default = StorageArgs::default();
        let both = [("XDG_CACHE_HOME", "/caches"), ("HOME", "/home/ada")];
        assert_eq!(cache(&default, &both), Some("/caches/hatchery/code".into()));
        assert_eq!(cache(&default, &both[1..]), Some("/home/ada/.cache/hatchery/code".into()));
        let relative = [("XDG_CACHE_HOME", "agents"), ("HOME", "")];
        assert_eq!(cache(&default, &relative), None, "it must not lie in the served folder by accident");
        assert_eq!(cache(&StorageArgs::in_memory(), &both), Some("/caches/hatchery/code".into()));
        let elsewhere = StorageArgs { data_dir: Some("/data".into()), ..StorageArgs::default() };
        assert_eq!(cache(&elsewhere, &both), Some("/data/code".into()));
        let nothing = StorageArgs { memory: true, ..StorageArgs::default() };
        assert_eq!(cache(&nothing, &both), None);
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
        assert_eq!(served_folder(&root.join("yaml")).unwrap(), (root.clone(), Some("yaml".into())));
        assert_eq!(served_folder(&root.join("crate")).unwrap(), (root.clone(), Some("crate".into())));
        assert_eq!(served_folder(&root.join("python")).unwrap(), (root.clone(), Some("python".into())));
        assert_eq!(served_folder(&root.join("js")).unwrap(), (root.clone(), Some("js".into())));
        assert_eq!(served_folder(&root.join("many")).unwrap(), (root.join("many"), None));
        assert_eq!(served_folder(&root).unwrap(), (root, None));
    }

    #[test]
    fn a_folder_that_is_none_is_named() {
        let error = read(Path::new("/no/such")).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "/no/such is not a folder");
        assert_eq!(served_folder(Path::new("/no/such")).unwrap_err().to_string(), "/no/such is not a folder");
    }
}
