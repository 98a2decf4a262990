//! The catalog: an immutable snapshot of all loaded components and apps. Each change publishes a new snapshot with the
//! next generation number. A run keeps using the components and apps that it started with.

pub(crate) mod draining;
mod folder_watch;
pub mod inspect;
pub mod loader;
pub mod models;
pub(crate) mod names;
pub(crate) mod revisions;
pub(crate) mod scan;
pub mod settings;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery_core::{
    Agent, AgentKind, Callback, CodeExecutor, ExampleProvider, ItemKind, ItemResolver, JsonMap, Model, ModelError,
    Plugin, ResolveError, Summarizer, Timestamp, Tool, Toolset,
};
use hatchery_engine::yaml::AgentLoader;
use hatchery_engine::{App, Factories, LayeredResolver};
use serde::Serialize;

use crate::catalog::names::{Components, NameOwners, NameResolver, ShadowedItems, UsedGrants, root_agents};
use crate::contract::component::Component;

/// All loaded components and apps.
#[derive(Default)]
pub struct Catalog {
    /// Increases with each change.
    pub generation: u64,
    /// Loaded components by name.
    pub components: BTreeMap<String, Arc<Component>>,
    /// Apps that serve, by name.
    pub apps: BTreeMap<String, Arc<App>>,
    /// The state of each file.
    pub files: Vec<FileStatus>,
    /// The file of each app.
    pub(crate) app_files: BTreeMap<String, PathBuf>,
    /// The grants with which each app was built.
    pub(crate) app_grants: BTreeMap<String, UsedGrants>,
    /// The component that owns each unqualified item name.
    pub(crate) owners: NameOwners,
    /// Items whose unqualified name belongs to another component.
    pub(crate) shadowed: ShadowedItems,
    /// The items of the host that agents of components can use.
    pub(crate) native_items: Option<Arc<dyn ItemResolver>>,
}

/// The state of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileStatus {
    /// The path of the file.
    pub path: PathBuf,
    /// Name of the component, or of the app of a `root_agent.yaml`.
    pub name: String,
    #[serde(flatten)]
    pub state: FileState,
    /// When the file entered this state.
    pub since: Timestamp,
}

/// The state of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum FileState {
    /// The file was found and is about to be loaded.
    Pending,
    /// The component is being compiled in a child process.
    Compiling {
        /// True if the previous version still serves.
        previous_serves: bool,
    },
    /// The file is loaded and serves.
    Loaded,
    /// The file cannot be used. Its last good version, if any, continues to serve.
    Rejected {
        reason: String,
        /// True if the previous version still serves.
        previous_serves: bool,
    },
    /// Another file or a native app has the same name and serves instead.
    Conflict { reason: String },
}

impl FileState {
    /// Returns the reason why the file does not serve.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Pending | Self::Compiling { .. } | Self::Loaded => None,
            Self::Rejected { reason, .. } | Self::Conflict { reason } => Some(reason),
        }
    }
}

impl Catalog {
    /// Returns the app with this name.
    pub fn app(&self, name: &str) -> Option<&Arc<App>> {
        self.apps.get(name)
    }

    /// Returns the file of the app with this name: a component, or a `root_agent.yaml`.
    pub fn app_file(&self, name: &str) -> Option<&Path> {
        self.app_files.get(name).map(PathBuf::as_path)
    }

    /// Returns a sentence for each item of `component` whose unqualified name belongs to another component.
    pub fn shadowed_items(&self, component: &str) -> &[String] {
        self.shadowed.get(component).map(Vec::as_slice).unwrap_or_default()
    }

    fn resolver(&self) -> NameResolver<'_> {
        NameResolver::new(&self.components, &self.owners, self.native_items.as_deref())
    }

    /// Returns the names of components and apps that are being loaded for the first time, in order. A name is returned
    /// once, also if a component and an app have it.
    pub fn loading(&self) -> impl Iterator<Item = &str> {
        let is_loading =
            |state: &FileState| matches!(state, FileState::Pending | FileState::Compiling { previous_serves: false });
        let files = self.files.iter().filter(|file| is_loading(&file.state));
        let names: BTreeSet<_> = files.map(|file| file.name.as_str()).collect();
        names.into_iter()
    }

    /// Returns a copy of this catalog with other file states.
    pub(crate) fn with_files(&self, files: Vec<FileStatus>) -> Self {
        Self {
            generation: self.generation,
            components: self.components.clone(),
            apps: self.apps.clone(),
            files,
            app_files: self.app_files.clone(),
            app_grants: self.app_grants.clone(),
            owners: self.owners.clone(),
            shadowed: self.shadowed.clone(),
            native_items: self.native_items.clone(),
        }
    }

    /// Returns the state of a file.
    pub fn file(&self, path: &Path) -> Option<&FileStatus> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the model `component:NAME/model`.
    ///
    /// # Errors
    /// If no component exports it.
    pub fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.resolver().model(name)
    }
}

impl ItemResolver for Catalog {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        self.resolver().tool(name)
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError> {
        self.resolver().callback(name)
    }

    fn agent(&self, name: &str) -> Result<Agent, ResolveError> {
        self.resolver().agent(name)
    }

    fn toolset(&self, name: &str) -> Result<Arc<dyn Toolset>, ResolveError> {
        self.resolver().toolset(name)
    }

    fn plugin(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Plugin>, ResolveError> {
        self.resolver().plugin(name, args)
    }

    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, ResolveError> {
        self.resolver().code_executor(name)
    }

    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, ResolveError> {
        self.resolver().summarizer(name)
    }

    fn examples(&self, name: &str) -> Result<Arc<dyn ExampleProvider>, ResolveError> {
        self.resolver().examples(name)
    }
}

/// The inputs of a new catalog.
#[derive(Default)]
pub(crate) struct Sources {
    /// Agent classes of extensions.
    pub(crate) agent_classes: Factories<AgentKind>,
    /// Loaded components.
    pub(crate) components: Components,
    /// The file of each loaded component.
    pub(crate) component_files: BTreeMap<String, PathBuf>,
    /// Components that exist but are not loaded, by file: they are still being loaded, or cannot be. Their names stay
    /// reserved for them.
    pub(crate) pending: BTreeMap<PathBuf, String>,
    /// The `root_agent.yaml` files. The value is false while a file is still changing; its previous version then
    /// continues to serve.
    pub(crate) root_agents: BTreeMap<PathBuf, bool>,
    /// Folders that components may write.
    pub(crate) writable_folders: Vec<PathBuf>,
    /// Items of the host, which YAML agents find before items of components.
    pub(crate) native_items: Option<Arc<dyn ItemResolver>>,
    /// Names of native apps.
    pub(crate) native_apps: BTreeSet<String>,
}

/// An app that claims a name in the catalog.
struct AppCandidate {
    name: String,
    file: PathBuf,
    app: Result<BuiltApp, AppFault>,
}

/// Why an app cannot be built.
struct AppFault {
    reason: String,
    /// True if the lines that grant what its agents lack were logged when their components were loaded.
    is_logged: bool,
}

impl From<String> for AppFault {
    fn from(reason: String) -> Self {
        Self { reason, is_logged: false }
    }
}

impl From<ResolveError> for AppFault {
    fn from(error: ResolveError) -> Self {
        let is_logged = matches!(error, ResolveError::MissingGrants { .. });
        Self { reason: error.to_string(), is_logged }
    }
}

/// An app, with the grants that its tree of agents uses.
type BuiltApp = (Arc<App>, UsedGrants);

/// Files that cannot serve although they were read.
pub(crate) type LoadIssues = BTreeMap<PathBuf, LoadIssue>;

/// The state of a file that cannot serve although it was read.
pub(crate) struct LoadIssue {
    pub(crate) state: FileState,
    /// True if the reason was logged when components were loaded.
    pub(crate) is_logged: bool,
}

impl From<FileState> for LoadIssue {
    fn from(state: FileState) -> Self {
        Self { state, is_logged: false }
    }
}

impl Catalog {
    /// Builds the catalog that follows this one. Its `files` are empty; the states of files whose apps fail are
    /// returned separately. Reads the YAML files, so it must not run on an async thread.
    pub(crate) fn build_next(&self, sources: Sources) -> (Self, LoadIssues) {
        let pending = sources.pending.values().map(String::as_str).collect();
        let (owners, shadowed) = self.owners.update(&sources.components, &pending);
        let changing = sources.root_agents.iter().filter(|(_, is_up_to_date)| !**is_up_to_date).map(|(file, _)| file);
        let pending: BTreeSet<PathBuf> = sources.pending.keys().chain(changing).cloned().collect();
        let native = sources.native_items.as_deref();
        let resolver = NameResolver::new(&sources.components, &owners, native);
        let mut issues = LoadIssues::new();
        let mut candidates = component_apps(&sources, &resolver, &mut issues);
        candidates.extend(self.yaml_apps(&sources, &resolver));
        let generation = self.generation + 1;
        let native_items = sources.native_items.clone();
        let mut next =
            Self { generation, components: sources.components, owners, shadowed, native_items, ..Self::default() };
        for AppCandidate { name, file, .. } in
            candidates.extract_if(.., |candidate| sources.native_apps.contains(&candidate.name))
        {
            let reason = format!(
                "`{}` and a native app of the host are apps named `{name}`; rename one of them",
                file.display()
            );
            issues.insert(file, FileState::Conflict { reason }.into());
        }
        self.resolve_name_conflicts(candidates, &pending, &mut next, &mut issues);
        (next, issues)
    }

    /// Returns the apps of the YAML files. For files that are still changing, these are the apps that serve now.
    fn yaml_apps(&self, sources: &Sources, resolver: &NameResolver<'_>) -> Vec<AppCandidate> {
        let mut layers: Vec<&dyn ItemResolver> = vec![resolver];
        if let Some(native) = &sources.native_items {
            layers.insert(0, native.as_ref());
        }
        let items = LayeredResolver::new(layers);
        let candidate = |(file, is_up_to_date): (&PathBuf, &bool)| {
            let name = folder_name(file);
            if !is_up_to_date {
                let incumbent = self.previous_app(&name, file, &sources.components)?;
                return Some(AppCandidate { name, app: Ok(incumbent), file: file.clone() });
            }
            resolver.take_used();
            let loaded = AgentLoader::new(&items)
                .agent_classes(&sources.agent_classes)
                .exclude_folders(&sources.writable_folders)
                .load(file);
            let loaded = loaded.map_err(|error| AppFault::from(error.to_string()));
            let app = loaded.and_then(|loaded| app(&name, loaded.agent));
            Some(AppCandidate { name, file: file.clone(), app: app.map(|app| (app, resolver.take_used())) })
        };
        sources.root_agents.iter().filter_map(candidate).collect()
    }

    /// Returns the app that serves from `file`. `None` if a component that it uses is gone or has other grants now: one
    /// may have been revoked, and the app would continue to use it.
    fn previous_app(&self, name: &str, file: &Path, components: &Components) -> Option<BuiltApp> {
        let app = self.apps.get(name).filter(|_| self.app_files.get(name).is_some_and(|it| it == file))?;
        let used = self.app_grants.get(name).cloned().unwrap_or_default();
        let keeps_grants = used
            .iter()
            .all(|(component, grants)| components.get(component).is_some_and(|now| now.settings().grants == *grants));
        keeps_grants.then(|| (app.clone(), used))
    }

    /// Chooses which candidate serves under each name. Names that belong to `pending` files stay reserved for them,
    /// although they have no candidate.
    fn resolve_name_conflicts(
        &self,
        candidates: Vec<AppCandidate>,
        pending: &BTreeSet<PathBuf>,
        next: &mut Self,
        issues: &mut LoadIssues,
    ) {
        let reserved = self.app_files.iter().filter(|(_, file)| pending.contains(*file));
        next.app_files = reserved.map(|(name, file)| (name.clone(), file.clone())).collect();
        let mut by_name: BTreeMap<String, Vec<AppCandidate>> = BTreeMap::new();
        for candidate in candidates {
            by_name.entry(candidate.name.clone()).or_default().push(candidate);
        }
        for (name, mut claimants) in by_name {
            let incumbent = self.app_files.get(&name);
            let absent = incumbent.filter(|file| pending.contains(*file));
            let files: BTreeSet<PathBuf> =
                claimants.iter().map(|claimant| &claimant.file).chain(absent).cloned().collect();
            if files.len() > 1 {
                let reason = conflict_message("apps", &name, &files);
                for claimant in claimants.extract_if(.., |claimant| Some(&claimant.file) != incumbent) {
                    issues.insert(claimant.file, FileState::Conflict { reason: reason.clone() }.into());
                }
            }
            let Some(AppCandidate { name, file, app, .. }) = claimants.pop() else { continue };
            let served = match app {
                Ok(app) => Some(app),
                Err(AppFault { reason, is_logged }) => {
                    let previous = self.previous_app(&name, &file, &next.components);
                    let state = FileState::Rejected { reason, previous_serves: previous.is_some() };
                    issues.insert(file.clone(), LoadIssue { state, is_logged });
                    previous
                }
            };
            if served.is_some() || incumbent == Some(&file) {
                next.app_files.insert(name.clone(), file);
            }
            if let Some((app, used)) = served {
                next.app_grants.insert(name.clone(), used);
                next.apps.insert(name, app);
            }
        }
    }
}

/// Returns the apps of components: each agent that is no sub-agent of another one.
fn component_apps(sources: &Sources, resolver: &NameResolver<'_>, issues: &mut LoadIssues) -> Vec<AppCandidate> {
    let mut candidates = Vec::new();
    for (name, component) in &sources.components {
        let Some(file) = sources.component_files.get(name) else { continue };
        let roots = root_agents(component);
        if roots.is_empty() && component.names(ItemKind::Agent).next().is_some() {
            let reason = "all its agents are sub-agents of each other, so none of them is an app".into();
            issues.insert(file.clone(), FileState::Rejected { reason, previous_serves: false }.into());
        }
        candidates.extend(roots.into_iter().map(|root| {
            resolver.take_used();
            let agent = resolver.build(component, root).map_err(AppFault::from);
            let app = agent.and_then(|agent| app(root, agent)).map(|app| (app, resolver.take_used()));
            AppCandidate { name: root.into(), file: file.clone(), app }
        }));
    }
    candidates
}

fn app(name: &str, agent: Agent) -> Result<Arc<App>, AppFault> {
    App::new(name, agent).map(Arc::new).map_err(|error| error.to_string().into())
}

/// Returns the message for files that claim the same name.
pub(crate) fn conflict_message(what: &str, name: &str, files: &BTreeSet<PathBuf>) -> String {
    let files: Vec<_> = files.iter().map(|file| format!("`{}`", file.display())).collect();
    format!("{} are {what} named `{name}`; rename or remove one", files.join(" and "))
}

/// Returns the name of the folder that contains a file.
pub(crate) fn folder_name(file: &Path) -> String {
    let folder = file.parent().unwrap_or(Path::new(""));
    let named = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    named
        .or_else(|| folder.canonicalize().ok()?.file_name().map(|name| name.to_string_lossy().into_owned()))
        .unwrap_or_default()
}
