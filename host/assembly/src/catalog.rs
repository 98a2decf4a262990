//! The catalog of `hatchery-wasm` as an [`AppSource`], and the conversion of the configuration to its settings.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{ItemKind, ItemResolver, Timestamp};
use hatchery_engine::App;
use hatchery_wasm::{
    Catalog, CatalogHandle, CodeCache, Compiler, Component, ComponentSettings, Engine, FileState, FileStatus,
    Inspection, Limits, LoadError, LoadOptions, LoadPolicy, Revisions, Settings, Worker,
};
use tokio::sync::watch;

use crate::app_files::AppFiles;
use crate::audit;
use crate::config::{Config, FILE_NAME};
use crate::source::{
    AppOrigin, AppSource, CatalogReport, ComponentDetail, ComponentLimits, ComponentReport, DrainingReport, FileReport,
    RestoreError,
};
use crate::storage::DATA_FOLDER;

/// Returns the options for loading components with a configuration. `cache` is the folder for compiled code; `None`
/// disables the cache.
///
/// # Errors
/// If components cannot run on this machine.
pub fn load_options(config: &Config, cache: Option<PathBuf>, worker: Worker) -> Result<LoadOptions, LoadError> {
    let settings = component_settings(config);
    let mut options = config.instances.options();
    for limits in settings.limits() {
        options = options.with_room_for(limits);
    }
    let options = LoadOptions::new(Engine::new(&options)?);
    Ok(LoadOptions {
        compiler: Compiler::new(worker, config.compile.clone()),
        cache: CodeCache::new(cache),
        settings,
        drain_timeout: config.hot_reload.drain_timeout,
        load_policy: load_policy(config),
        ..options
    })
}

/// Converts the component settings of a configuration.
pub fn component_settings(config: &Config) -> Settings {
    let limits = Limits::default().with(&config.limits);
    let components = config.components.iter().map(|(name, component)| {
        let settings = ComponentSettings {
            limits: limits.with(&component.limits),
            grants: Arc::new(component.grants.clone()),
            config: component.config.clone(),
            descriptions: component.descriptions.clone(),
            warm: component.warm.clone(),
            recorded: None,
            private: component.private,
            refusal: component.refusal.clone(),
        };
        (name.clone(), settings)
    });
    Settings { components: components.collect(), limits, deterministic: None }
}

/// Returns the stored revisions of the components of `folder`. `data` is the data folder if it is not the default.
pub fn revisions(folder: &Path, data: Option<&Path>, config: &Config) -> Revisions {
    let data = data.map_or_else(|| folder.join(DATA_FOLDER), Path::to_path_buf);
    Revisions::new(data.join("revisions"), config.hot_reload.keep)
}

/// Returns the signature check of a configuration. `None` if signatures are not checked when components are loaded.
pub(crate) fn load_policy(config: &Config) -> Option<LoadPolicy> {
    let verifier = config.signature_verifier();
    verifier.checks_loaded_components().then(|| -> LoadPolicy {
        Arc::new(move |path, bytes| {
            let admitted = verifier.check_file(path, bytes).map_err(|error| error.to_string());
            let warning = admitted.inspect_err(|refusal| audit::record_signature_refusal(path, "load", refusal))?;
            if let Some(warning) = warning {
                tracing::warn!("{warning}");
            }
            Ok(())
        })
    })
}

#[async_trait]
impl AppSource for CatalogHandle {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        self.current().app(name).cloned()
    }

    fn app_names(&self) -> Vec<String> {
        self.current().apps.keys().cloned().collect()
    }

    fn app_origin(&self, name: &str) -> AppOrigin {
        let is_of_component = self.current().app_file(name).is_some_and(is_component_file);
        if is_of_component { AppOrigin::Component } else { AppOrigin::Yaml }
    }

    fn loading(&self) -> Vec<String> {
        self.current().loading().map(Into::into).collect()
    }

    fn report(&self) -> CatalogReport {
        let catalog = self.current();
        let draining = self.draining().into_iter().map(|revision| DrainingReport {
            name: revision.name,
            sha256: revision.sha256,
            calls: revision.calls,
            since: revision.since,
            is_cut_off: revision.is_cut_off,
        });
        CatalogReport {
            warnings: Vec::new(),
            draining: draining.collect(),
            generation: catalog.generation,
            components: catalog
                .components
                .values()
                .map(|it| component_report(it, &catalog, self.directory()))
                .collect(),
            files: catalog.files.iter().map(|status| file_report(status, &catalog, self.directory())).collect(),
        }
    }

    fn component(&self, name: &str) -> Option<ComponentDetail> {
        let catalog = self.current();
        let component = catalog.components.get(name)?;
        let size = component_file(&catalog, name).and_then(|path| path.metadata().ok()).map_or(0, |file| file.len());
        let inspection = Inspection::from_component(component, size);
        // A folder that cannot be read has no revision to restore.
        let revisions = self.revisions().and_then(|store| store.list(name).ok()).unwrap_or_default();
        Some(ComponentDetail {
            missing_lines: inspection.grants.missing_lines(name),
            limits: component_limits(component.limits()),
            usage: component.usage(),
            revisions,
            inspection,
        })
    }

    fn restore_component(&self, name: &str, revision: &str) -> Result<(), RestoreError> {
        let catalog = self.current();
        let file = component_file(&catalog, name).ok_or_else(|| RestoreError::UnknownComponent(name.to_owned()))?;
        let unknown = || RestoreError::UnknownRevision { component: name.to_owned(), revision: revision.to_owned() };
        let store = self.revisions().ok_or_else(unknown)?;
        if !store.list(name)?.iter().any(|stored| stored.sha256 == revision) {
            return Err(unknown());
        }
        if let Some(policy) = &self.load_policy() {
            store.check(name, revision, policy)?.map_err(RestoreError::Refused)?;
        }
        store.restore(name, revision, file)?;
        tracing::info!(component = name, sha256 = revision, "an earlier revision replaces the file of a component");
        Ok(())
    }

    async fn inspect_revision(&self, name: &str, revision: &str) -> Result<Inspection, RestoreError> {
        let (handle, component, wanted) = (self.clone(), name.to_owned(), revision.to_owned());
        let bytes = tokio::task::spawn_blocking(move || read_revision(&handle, &component, &wanted)).await;
        let bytes = bytes.map_err(io::Error::other)??;
        let inspected = Self::inspect_revision(self, name, bytes).await;
        inspected.map_err(|error| RestoreError::Refused(error.to_string()))
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.subscribe_to_changes())
    }

    fn items(&self) -> Option<Arc<dyn ItemResolver>> {
        Some(self.current())
    }

    fn app_files(&self) -> Option<AppFiles> {
        Some(AppFiles::new(self.clone()))
    }
}

/// Returns the bytes of a stored revision that may be loaded.
fn read_revision(handle: &CatalogHandle, name: &str, revision: &str) -> Result<Vec<u8>, RestoreError> {
    let unknown = || RestoreError::UnknownRevision { component: name.to_owned(), revision: revision.to_owned() };
    if !handle.current().components.contains_key(name) {
        return Err(RestoreError::UnknownComponent(name.to_owned()));
    }
    let store = handle.revisions().ok_or_else(unknown)?;
    if !store.list(name)?.iter().any(|stored| stored.sha256 == revision) {
        return Err(unknown());
    }
    if let Some(policy) = &handle.load_policy() {
        store.check(name, revision, policy)?.map_err(RestoreError::Refused)?;
    }
    Ok(store.read(name, revision)?)
}

/// Returns the file of a component, also while it is rejected. `None` if there is none or files have a conflict.
fn component_file<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Path> {
    let is_it = |status: &&FileStatus| {
        let is_component = is_component_file(&status.path);
        is_component && status.name == name && !matches!(status.state, FileState::Conflict { .. })
    };
    catalog.files.iter().find(is_it).map(|status| status.path.as_path())
}

fn is_component_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "wasm")
}

fn component_limits(limits: &Limits) -> ComponentLimits {
    ComponentLimits {
        memory: limits.memory,
        cpu_seconds: limits.cpu.as_secs_f64(),
        wall_seconds: limits.wall.as_secs_f64(),
        agent_wall_seconds: limits.agent_wall.as_secs_f64(),
        result: limits.result,
        log: limits.log,
    }
}

fn component_report(component: &Component, catalog: &Catalog, directory: &Path) -> ComponentReport {
    let names = |kind| component.names(kind).map(Into::into).collect();
    ComponentReport {
        name: component.name().into(),
        file: component_file(catalog, component.name()).map(|path| relative(path, directory)).unwrap_or_default(),
        sha256: component.sha256().into(),
        calls: component.running_calls(),
        waiting_instances: component.pooled_instances(),
        agents: names(ItemKind::Agent),
        tools: names(ItemKind::Tool),
        callbacks: names(ItemKind::Callback),
        plugins: names(ItemKind::Plugin),
        code_executors: names(ItemKind::CodeExecutor),
        summarizers: names(ItemKind::Summarizer),
        examples: names(ItemKind::Examples),
        models: names(ItemKind::Model),
        conflicts: catalog.shadowed_items(component.name()).to_vec(),
    }
}

fn file_report(status: &FileStatus, catalog: &Catalog, directory: &Path) -> FileReport {
    let (state, previous_serves) = match status.state {
        FileState::Pending => ("pending", false),
        FileState::Compiling { previous_serves } => ("compiling", previous_serves),
        FileState::Loaded => ("loaded", false),
        FileState::Rejected { previous_serves, .. } => ("rejected", previous_serves),
        FileState::Conflict { .. } => ("conflict", false),
    };
    let is_component = is_component_file(&status.path);
    let is_active = is_component && (status.state == FileState::Loaded || previous_serves);
    let revision = catalog.components.get(&status.name).filter(|_| is_active);
    FileReport {
        path: relative(&status.path, directory),
        name: status.name.clone(),
        state: state.into(),
        reason: status.state.reason().map(|reason| redact_host_paths(reason, directory)),
        previous_serves,
        sha256: revision.map(|component| component.sha256().into()),
        since: status.since,
    }
}

/// Returns the state of a configuration file that cannot be used while the previous settings are in force. `directory`
/// is the served folder.
pub(crate) fn invalid_config_report(file: &Path, reason: &str, directory: &Path) -> FileReport {
    let folder = file.parent().unwrap_or(Path::new(""));
    FileReport {
        path: if folder == directory { FILE_NAME.into() } else { format!("…/{}", relative(file, folder)) },
        name: FILE_NAME.into(),
        state: "rejected".into(),
        reason: Some(redact_host_paths(&redact_host_paths(reason, directory), folder)),
        previous_serves: true,
        sha256: None,
        since: Timestamp::now(),
    }
}

/// Removes paths of the host from a reason. Paths in the served folder become relative; of others only the file name
/// is kept.
fn redact_host_paths(reason: &str, directory: &Path) -> String {
    let mut reason = reason.to_owned();
    for directory in [Some(directory.to_owned()), directory.canonicalize().ok()].into_iter().flatten() {
        let prefix = format!("{}/", directory.display());
        if prefix.len() > 1 && !prefix.starts_with("./") {
            reason = reason.replace(&prefix, "");
        }
    }
    let name = |path: &str| Path::new(path).file_name().map(|name| format!("…/{}", name.to_string_lossy()));
    let parts = reason.split('`').enumerate().map(|(index, text)| {
        if text.starts_with('/') && index % 2 == 1 {
            name(text).unwrap_or_else(|| "…".into())
        } else {
            text.to_owned()
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

fn relative(path: &Path, directory: &Path) -> String {
    path.strip_prefix(directory).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "name: greeter\nmodel: scripted:answers.yaml\ndescription: Greets.\ninstruction: Greet.\n";

    async fn open(directory: &Path) -> CatalogHandle {
        CatalogHandle::open(directory, load_options(&Config::default(), None, Worker::InProcess).unwrap())
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn a_folder_with_a_root_agent_is_an_app() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("hello")).unwrap();
        std::fs::write(folder.path().join("hello/root_agent.yaml"), AGENT).unwrap();
        let source = open(folder.path()).await;
        assert_eq!(source.app_names(), ["hello"]);
        assert_eq!(source.app("hello").unwrap().root().name, "greeter");
        assert_eq!(source.app_origin("hello"), AppOrigin::Yaml);
        assert!(source.app("greeter").is_none());
        let report = source.report();
        assert_eq!(report.generation, 1);
        let file = report.files.iter().find(|file| file.path == "hello/root_agent.yaml").unwrap();
        assert_eq!((file.state.as_str(), &file.reason), ("loaded", &None));
    }

    #[tokio::test]
    async fn a_file_that_fails_to_load_is_reported_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("broken.wasm"), "not wasm").unwrap();
        let source = open(folder.path()).await;
        assert!(source.app_names().is_empty());
        let report = source.report();
        assert_eq!(report.files[0].path, "broken.wasm");
        assert_eq!(report.files[0].state, "rejected");
        assert!(report.files[0].reason.as_ref().unwrap().contains("broken"), "{report:?}");
        assert!(!report.files[0].previous_serves);
    }

    #[test]
    fn clients_see_no_path_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display();
        let redacted = |reason: String| redact_host_paths(&reason, folder.path());
        assert_eq!(
            redacted(format!("`{root}/a/x.wasm` and `{root}/x.wasm` are components named `x`; rename or remove one")),
            "`a/x.wasm` and `x.wasm` are components named `x`; rename or remove one"
        );
        assert_eq!(redacted(format!("{root}/x.wasm: cannot be read: denied")), "x.wasm: cannot be read: denied");
        assert_eq!(
            redacted("component `x` cannot be given the folder `/home/ada/secret-plans` as /data: not found".into()),
            "component `x` cannot be given the folder `…/secret-plans` as /data: not found"
        );
        assert_eq!(redacted("`/` contains `a`".into()), "`…` contains `a`");
    }

    #[tokio::test]
    async fn a_component_with_untrusted_settings_is_rejected_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("web.wasm"), "not even read").unwrap();
        let mut config = Config::parse("components: {web: {}}", Path::new("hatchery.yaml")).unwrap();
        config.components.get_mut("web").unwrap().refusal = Some("it is not trusted".into());
        let source =
            CatalogHandle::open(folder.path(), load_options(&config, None, Worker::InProcess).unwrap()).await.unwrap();
        assert_eq!(source.report().files[0].reason.as_deref(), Some("it is not trusted"));
    }

    #[test]
    fn limits_of_a_component_override_the_common_limits() {
        let text = "limits: {memory: 1GiB, log: 10}\ncomponents: {search: {limits: {log: 20}, config: {depth: 3}}}\n";
        let config = Config::parse(text, Path::new("hatchery.yaml")).unwrap();
        let options = load_options(&config, None, Worker::InProcess).unwrap();
        assert_eq!((options.settings.limits.memory, options.settings.limits.log), (1 << 30, 10));
        let search = &options.settings.components["search"];
        assert_eq!((search.limits.memory, search.limits.log), (1 << 30, 20));
        assert_eq!(search.config["depth"], 3);
    }

    #[test]
    fn a_private_component_is_hidden_from_all_other_components() {
        let text = "components: {vault: {private: true}, search: {grants: {tools: ['*']}}}\n";
        let config = Config::parse(text, Path::new("hatchery.yaml")).unwrap();
        let settings = component_settings(&config);
        for other in ["search", "unlisted"] {
            assert!(settings.for_component(other).grants.private_components.contains("vault"), "{other}");
        }
        assert!(settings.for_component("vault").grants.private_components.is_empty());
    }
}
