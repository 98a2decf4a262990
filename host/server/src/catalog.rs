//! Apps from components and YAML files: the catalog of `hatchery-wasm` as an [`AppSource`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery_engine::App;
use hatchery_wasm::{
    Admission, Catalog, CatalogHandle, CodeCache, Component, ComponentSettings, Engine, EngineOptions, FileState,
    FileStatus, Limits, LoadError, LoadOptions, Settings,
};

use crate::config::Config;
use crate::source::{AppSource, CatalogReport, ComponentReport, DrainingReport, FileReport};

/// How to load components as a configuration says. Compiled code is kept in `cache`, if there is one.
///
/// # Errors
/// When components cannot run on this machine.
pub fn load_options(config: &Config, cache: Option<PathBuf>) -> Result<LoadOptions, LoadError> {
    let settings = settings(config);
    let mut options = EngineOptions {
        instances: config.engine.instances.get(),
        busy_wait: config.engine.busy_wait,
        busy_queue: config.engine.busy_queue,
        ..EngineOptions::default()
    };
    for limits in settings.limits() {
        options = options.fitting(limits);
    }
    let options = LoadOptions::new(Engine::new(&options)?);
    let drain_timeout = config.swapping.drain_timeout;
    Ok(LoadOptions { cache: CodeCache::new(cache), settings, drain_timeout, admission: admission(config), ..options })
}

/// What a configuration says of components.
pub fn settings(config: &Config) -> Settings {
    let limits = Limits::default().with(&config.limits);
    let components = config.components.iter().map(|(name, component)| {
        let settings = ComponentSettings {
            limits: limits.with(&component.limits),
            grants: Arc::new(component.grants.clone()),
            config: component.config.clone(),
            warm: component.warm.clone(),
            recorded: None,
        };
        (name.clone(), settings)
    });
    Settings { components: components.collect(), limits, rehearsal: None }
}

/// Lets in what a trusted key has signed, and other things only with a warning, or not at all when signatures are required.
fn admission(config: &Config) -> Option<Admission> {
    let trust = config.registry.trust();
    trust.judges_what_is_loaded().then(|| -> Admission {
        Arc::new(move |path, bytes| {
            if let Some(warning) = trust.admit(path, bytes).map_err(|error| error.to_string())? {
                tracing::warn!("{warning}");
            }
            Ok(())
        })
    })
}

impl AppSource for CatalogHandle {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        self.current().app(name).cloned()
    }

    fn app_names(&self) -> Vec<String> {
        self.current().apps.keys().cloned().collect()
    }

    fn report(&self) -> CatalogReport {
        let catalog = self.current();
        let draining = self.draining().into_iter().map(|old| DrainingReport {
            name: old.name,
            sha256: old.sha256,
            calls: old.calls,
            since: old.since,
            is_cut_off: old.is_cut_off,
        });
        CatalogReport {
            draining: draining.collect(),
            generation: catalog.generation,
            components: catalog.components.values().map(|it| component(it, &catalog.files, self.directory())).collect(),
            files: catalog.files.iter().map(|status| file(status, &catalog, self.directory())).collect(),
        }
    }
}

fn component(component: &Component, files: &[FileStatus], directory: &Path) -> ComponentReport {
    let serves = |status: &&FileStatus| {
        let is_component = status.path.extension().is_some_and(|extension| extension == "wasm");
        is_component && status.name == component.name() && !matches!(status.state, FileState::Conflict { .. })
    };
    let names = |names: &mut dyn Iterator<Item = &str>| names.map(Into::into).collect();
    ComponentReport {
        name: component.name().into(),
        file: files.iter().find(serves).map(|status| relative(&status.path, directory)).unwrap_or_default(),
        sha256: component.sha256().into(),
        calls: component.running(),
        waiting_instances: component.waiting(),
        agents: names(&mut component.agent_names()),
        tools: names(&mut component.tool_names()),
        callbacks: names(&mut component.callback_names()),
        plugins: names(&mut component.plugin_names()),
        code_executors: names(&mut component.code_executor_names()),
        summarizers: names(&mut component.summarizer_names()),
        examples: names(&mut component.example_names()),
        models: names(&mut component.model_names()),
    }
}

fn file(status: &FileStatus, catalog: &Catalog, directory: &Path) -> FileReport {
    let (state, previous_serves) = match status.state {
        FileState::Pending => ("pending", false),
        FileState::Loaded => ("loaded", false),
        FileState::Rejected { previous_serves, .. } => ("rejected", previous_serves),
        FileState::Conflict { .. } => ("conflict", false),
    };
    let is_component = status.path.extension().is_some_and(|extension| extension == "wasm");
    let serves = is_component && (status.state == FileState::Loaded || previous_serves);
    let revision = catalog.components.get(&status.name).filter(|_| serves);
    FileReport {
        path: relative(&status.path, directory),
        name: status.name.clone(),
        state: state.into(),
        reason: status.state.reason().map(Into::into),
        previous_serves,
        sha256: revision.map(|component| component.sha256().into()),
        since: status.since,
    }
}

fn relative(path: &Path, directory: &Path) -> String {
    path.strip_prefix(directory).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "name: greeter\nmodel: scripted:answers.yaml\ndescription: Greets.\ninstruction: Greet.\n";

    async fn open(directory: &Path) -> CatalogHandle {
        CatalogHandle::open(directory, load_options(&Config::default(), None).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_folder_with_a_root_agent_is_an_app() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("hello")).unwrap();
        std::fs::write(folder.path().join("hello/root_agent.yaml"), AGENT).unwrap();
        let source = open(folder.path()).await;
        assert_eq!(source.app_names(), ["hello"]);
        assert_eq!(source.app("hello").unwrap().root().name, "greeter");
        assert!(source.app("greeter").is_none());
        let report = source.report();
        assert_eq!(report.generation, 1);
        let file = report.files.iter().find(|file| file.path == "hello/root_agent.yaml").unwrap();
        assert_eq!((file.state.as_str(), &file.reason), ("loaded", &None));
    }

    #[tokio::test]
    async fn a_file_that_does_not_load_is_reported_with_its_reason() {
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
    fn limits_come_from_the_section_of_the_component_then_from_the_common_one() {
        let text = "limits: {memory: 1GiB, log: 10}\ncomponents: {search: {limits: {log: 20}, config: {depth: 3}}}\n";
        let config = Config::parse(text, Path::new("hatchery.yaml")).unwrap();
        let options = load_options(&config, None).unwrap();
        assert_eq!((options.settings.limits.memory, options.settings.limits.log), (1 << 30, 10));
        let search = &options.settings.components["search"];
        assert_eq!((search.limits.memory, search.limits.log), (1 << 30, 20));
        assert_eq!(search.config["depth"], 3);
    }
}
