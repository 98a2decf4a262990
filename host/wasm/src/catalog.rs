//! The catalog: everything that is loaded, at one moment. A change makes a new one with the next generation number; a run keeps the
//! parts of the one that it began with.

pub(crate) mod draining;
pub mod inspect;
pub mod loader;
pub mod models;
pub(crate) mod names;
pub(crate) mod revisions;
mod scan;
pub mod settings;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery_core::{
    Agent, Callback, CodeExecutor, ExampleProvider, ItemKind, ItemResolver, JsonMap, Model, ModelError, Plugin,
    ResolveError, Summarizer, Timestamp, Tool, Toolset,
};
use hatchery_engine::{App, LayeredResolver};
use serde::Serialize;

use crate::catalog::names::{Components, NameOwners, Names, Shadowed, roots};
use crate::contract::component::Component;

/// Everything that is loaded. Immutable.
#[derive(Default)]
pub struct Catalog {
    /// Counts up with each change.
    pub generation: u64,
    /// Components by name.
    pub components: BTreeMap<String, Arc<Component>>,
    /// Apps by name.
    pub apps: BTreeMap<String, Arc<App>>,
    /// What became of each file.
    pub files: Vec<FileStatus>,
    /// Which file each app is from.
    pub(crate) app_files: BTreeMap<String, PathBuf>,
    /// Which component an item's name alone means.
    pub(crate) owners: NameOwners,
    /// What components offer under names that others had first.
    pub(crate) shadowed: Shadowed,
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileStatus {
    /// The file.
    pub path: PathBuf,
    /// The component, or the app of a `root_agent.yaml`.
    pub name: String,
    /// Its state.
    #[serde(flatten)]
    pub state: FileState,
    /// Since when.
    pub since: Timestamp,
}

/// The state of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum FileState {
    /// It was seen and is about to be loaded.
    Pending,
    /// It is being compiled, in a process of its own.
    Compiling {
        /// True when the version before it serves.
        previous_serves: bool,
    },
    /// It serves.
    Loaded,
    /// It cannot be used. What it was before goes on serving, if it was any good.
    Rejected {
        /// Why.
        reason: String,
        /// True when the version before it serves.
        previous_serves: bool,
    },
    /// Another file has the same name.
    Conflict {
        /// Which.
        reason: String,
    },
}

impl FileState {
    /// Why it does not serve.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Pending | Self::Compiling { .. } | Self::Loaded => None,
            Self::Rejected { reason, .. } | Self::Conflict { reason } => Some(reason),
        }
    }
}

impl Catalog {
    /// The app of this name.
    pub fn app(&self, name: &str) -> Option<&Arc<App>> {
        self.apps.get(name)
    }

    /// What `component` offers under names that others had first, a sentence each.
    pub fn shadowed(&self, component: &str) -> &[String] {
        self.shadowed.get(component).map(Vec::as_slice).unwrap_or_default()
    }

    fn names(&self) -> Names<'_> {
        Names(&self.components, &self.owners)
    }

    /// Names of components and apps that have never served and are still on their way.
    pub fn loading(&self) -> impl Iterator<Item = &str> {
        let is_loading =
            |state: &FileState| matches!(state, FileState::Pending | FileState::Compiling { previous_serves: false });
        self.files.iter().filter(move |file| is_loading(&file.state)).map(|file| file.name.as_str())
    }

    /// The same with other states of files.
    pub(crate) fn with_files(&self, files: Vec<FileStatus>) -> Self {
        Self {
            generation: self.generation,
            components: self.components.clone(),
            apps: self.apps.clone(),
            files,
            app_files: self.app_files.clone(),
            owners: self.owners.clone(),
            shadowed: self.shadowed.clone(),
        }
    }

    /// The status of a file.
    pub fn file(&self, path: &Path) -> Option<&FileStatus> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The model that a component offers as `component:NAME/model`.
    ///
    /// # Errors
    /// When none does.
    pub fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.names().model(name)
    }
}

impl ItemResolver for Catalog {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        self.names().tool(name)
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError> {
        self.names().callback(name)
    }

    fn agent(&self, name: &str) -> Result<Agent, ResolveError> {
        self.names().agent(name)
    }

    fn toolset(&self, name: &str) -> Result<Arc<dyn Toolset>, ResolveError> {
        self.names().toolset(name)
    }

    fn plugin(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Plugin>, ResolveError> {
        self.names().plugin(name, args)
    }

    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, ResolveError> {
        self.names().code_executor(name)
    }

    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, ResolveError> {
        self.names().summarizer(name)
    }

    fn examples(&self, name: &str) -> Result<Arc<dyn ExampleProvider>, ResolveError> {
        self.names().examples(name)
    }
}

/// What a new catalog is made from.
#[derive(Default)]
pub(crate) struct Sources {
    /// Components that serve.
    pub(crate) components: Components,
    /// The file of each of them.
    pub(crate) component_files: BTreeMap<String, PathBuf>,
    /// Components that are there and do not serve, by their files: they are still being loaded, or cannot be. What is theirs waits for them.
    pub(crate) awaited: BTreeMap<PathBuf, String>,
    /// The `root_agent.yaml` files; false for those that are being changed. What such a file was before goes on serving.
    pub(crate) root_agents: BTreeMap<PathBuf, bool>,
    /// Folders that components may write.
    pub(crate) written: Vec<PathBuf>,
    /// Items that YAML agents find before those of components.
    pub(crate) native_items: Option<Arc<dyn ItemResolver>>,
}

/// An app that wants to be in the catalog.
struct AppCandidate {
    name: String,
    file: PathBuf,
    app: Result<Arc<App>, String>,
}

/// The files whose apps cannot serve, with their states.
pub(crate) type LoadIssues = BTreeMap<PathBuf, FileState>;

impl Catalog {
    /// The catalog after this one. Its `files` are still to be filled in; the states of files whose apps fail are given apart. Reads the
    /// YAML files: not for async threads.
    pub(crate) fn next(&self, sources: Sources) -> (Self, LoadIssues) {
        let awaited = sources.awaited.values().map(String::as_str).collect();
        let (owners, shadowed) = self.owners.next(&sources.components, &awaited);
        let changing = sources.root_agents.iter().filter(|(_, is_settled)| !**is_settled).map(|(file, _)| file);
        let awaited: BTreeSet<PathBuf> = sources.awaited.keys().chain(changing).cloned().collect();
        let names = Names(&sources.components, &owners);
        let mut candidates = Vec::new();
        let mut issues = LoadIssues::new();
        for (name, component) in &sources.components {
            let Some(file) = sources.component_files.get(name) else { continue };
            let roots = roots(component);
            if roots.is_empty() && component.names(ItemKind::Agent).next().is_some() {
                let reason = "its agents are all below each other, so none of them is an app".into();
                issues.insert(file.clone(), FileState::Rejected { reason, previous_serves: false });
            }
            candidates.extend(roots.into_iter().map(|root| AppCandidate {
                name: root.into(),
                file: file.clone(),
                app: names.build(component, root).map_err(|error| error.to_string()).and_then(|agent| app(root, agent)),
            }));
        }
        let mut layers: Vec<&dyn ItemResolver> = vec![&names];
        if let Some(native) = &sources.native_items {
            layers.insert(0, native.as_ref());
        }
        let items = LayeredResolver::new(layers);
        candidates.extend(sources.root_agents.into_iter().filter_map(|(file, is_settled)| {
            let name = folder_name(&file);
            if !is_settled {
                let incumbent = self.apps.get(&name).filter(|_| self.app_files.get(&name) == Some(&file))?;
                return Some(AppCandidate { name, app: Ok(incumbent.clone()), file });
            }
            let loaded = hatchery_engine::yaml::load_agent_outside(&file, &items, &sources.written);
            let loaded = loaded.map_err(|error| error.to_string());
            let app = loaded.and_then(|loaded| app(&name, loaded.agent));
            Some(AppCandidate { name, file, app })
        }));
        let generation = self.generation + 1;
        let mut next = Self { generation, components: sources.components, owners, shadowed, ..Self::default() };
        self.choose(candidates, &awaited, &mut next, &mut issues);
        (next, issues)
    }

    /// Settles which candidate serves under each name. Names of `awaited` files stay theirs, although they have no candidate.
    fn choose(
        &self,
        candidates: Vec<AppCandidate>,
        awaited: &BTreeSet<PathBuf>,
        next: &mut Self,
        issues: &mut LoadIssues,
    ) {
        // A grant may have been taken back: nothing serves on with what is not granted any more.
        let keeps_grants = self.components.iter().all(|(name, before)| {
            let now = next.components.get(name);
            now.is_none_or(|now| now.settings().grants == before.settings().grants)
        });
        let kept = self.app_files.iter().filter(|(_, file)| awaited.contains(*file));
        next.app_files = kept.map(|(name, file)| (name.clone(), file.clone())).collect();
        let mut by_name: BTreeMap<String, Vec<AppCandidate>> = BTreeMap::new();
        for candidate in candidates {
            by_name.entry(candidate.name.clone()).or_default().push(candidate);
        }
        for (name, mut rivals) in by_name {
            let incumbent = self.app_files.get(&name);
            let absent = incumbent.filter(|file| awaited.contains(*file));
            let files: BTreeSet<PathBuf> = rivals.iter().map(|rival| &rival.file).chain(absent).cloned().collect();
            if files.len() > 1 {
                let reason = conflict("apps", &name, &files);
                for rival in rivals.extract_if(.., |rival| Some(&rival.file) != incumbent) {
                    issues.insert(rival.file, FileState::Conflict { reason: reason.clone() });
                }
            }
            let Some(AppCandidate { name, file, app, .. }) = rivals.pop() else { continue };
            let served = match app {
                Ok(app) => Some(app),
                Err(reason) => {
                    let previous = self.apps.get(&name).filter(|_| keeps_grants && incumbent == Some(&file)).cloned();
                    let previous_serves = previous.is_some();
                    issues.insert(file.clone(), FileState::Rejected { reason, previous_serves });
                    previous
                }
            };
            if served.is_some() || incumbent == Some(&file) {
                next.app_files.insert(name.clone(), file);
            }
            if let Some(app) = served {
                next.apps.insert(name, app);
            }
        }
    }
}

fn app(name: &str, agent: Agent) -> Result<Arc<App>, String> {
    App::new(name, agent).map(Arc::new).map_err(|error| error.to_string())
}

/// Says that files share a name.
pub(crate) fn conflict(what: &str, name: &str, files: &BTreeSet<PathBuf>) -> String {
    let files: Vec<_> = files.iter().map(|file| format!("`{}`", file.display())).collect();
    format!("{} are {what} named `{name}`; rename or remove one", files.join(" and "))
}

/// The name of the folder that a file is in.
pub(crate) fn folder_name(file: &Path) -> String {
    let folder = file.parent().unwrap_or(Path::new(""));
    let named = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    named
        .or_else(|| folder.canonicalize().ok()?.file_name().map(|name| name.to_string_lossy().into_owned()))
        .unwrap_or_default()
}
