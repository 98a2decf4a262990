//! Apps from components and YAML files: the catalog of `hatchery-wasm` as an [`AppSource`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery_engine::App;
use hatchery_wasm::{
    Admission, CatalogHandle, CodeCache, Component, ComponentSettings, Engine, EngineOptions, FileState, FileStatus,
    Limits, LoadError, LoadOptions,
};

use crate::config::Config;
use crate::source::{AppSource, CatalogReport, ComponentReport, FileReport};

/// How to load components as a configuration says. Compiled code is kept in `cache`, if there is one.
///
/// # Errors
/// When components cannot run on this machine.
pub fn load_options(config: &Config, cache: Option<PathBuf>) -> Result<LoadOptions, LoadError> {
    let limits = Limits::default().with(&config.limits);
    let settings = config.components.iter().map(|(name, component)| {
        let settings = ComponentSettings {
            limits: limits.with(&component.limits),
            grants: Arc::new(component.grants.clone()),
            config: component.config.clone(),
        };
        (name.clone(), settings)
    });
    let components: std::collections::BTreeMap<_, _> = settings.collect();
    let mut options = EngineOptions::default();
    for limits in components.values().map(|settings| &settings.limits).chain([&limits]) {
        options.max_memory = options.max_memory.max(limits.memory);
        options.max_tables = options.max_tables.max(limits.tables);
    }
    let options = LoadOptions::new(Engine::new(&options)?);
    Ok(LoadOptions { cache: CodeCache::new(cache), limits, components, admission: admission(config), ..options })
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
        CatalogReport {
            generation: catalog.generation,
            components: catalog.components.values().map(|it| component(it, &catalog.files, self.directory())).collect(),
            files: catalog.files.iter().map(|status| file(status, self.directory())).collect(),
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

fn file(status: &FileStatus, directory: &Path) -> FileReport {
    let (state, previous_serves) = match status.state {
        FileState::Pending => ("pending", false),
        FileState::Loaded => ("loaded", false),
        FileState::Rejected { previous_serves, .. } => ("rejected", previous_serves),
        FileState::Conflict { .. } => ("conflict", false),
    };
    FileReport {
        path: relative(&status.path, directory),
        name: status.name.clone(),
        state: state.into(),
        reason: status.state.reason().map(Into::into),
        previous_serves,
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
        assert_eq!((options.limits.memory, options.limits.log), (1 << 30, 10));
        let search = &options.components["search"];
        assert_eq!((search.limits.memory, search.limits.log), (1 << 30, 20));
        assert_eq!(search.config["depth"], 3);
    }
}
