//! Where the server finds apps: the one thing that it must know about a catalog.

use std::sync::Arc;

use hatchery_core::Timestamp;
use hatchery_engine::App;
use serde::Serialize;

/// A changing set of apps. Each method looks at the newest set; all are cheap enough for every request.
pub trait AppSource: Send + Sync {
    /// The app of this name.
    fn app(&self, name: &str) -> Option<Arc<App>>;

    /// Names of all apps, sorted.
    fn app_names(&self) -> Vec<String>;

    /// Names of apps and components that are not served yet because they are still being loaded, sorted by file. A component's apps are
    /// known only when it is loaded.
    fn loading(&self) -> Vec<String> {
        Vec::new()
    }

    /// What is loaded, and what is not and why.
    fn report(&self) -> CatalogReport;
}

/// What is loaded from the served directory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogReport {
    /// Grows by one with each change.
    pub generation: u64,
    /// The components that serve, by name.
    pub components: Vec<ComponentReport>,
    /// Every file that was found, by path.
    pub files: Vec<FileReport>,
    /// Revisions that were replaced or removed, and that runs still use.
    pub draining: Vec<DrainingReport>,
}

/// A revision that is on its way out.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainingReport {
    /// The component.
    pub name: String,
    /// SHA-256 of its file, in hexadecimal.
    pub sha256: String,
    /// How many of its calls are running. A run can have it without calling it at the moment.
    pub calls: usize,
    /// Since when it is old.
    pub since: Timestamp,
    /// True when its runs have not ended in time: it is not run any more.
    pub is_cut_off: bool,
}

/// A component that serves.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentReport {
    /// Its name.
    pub name: String,
    /// Its file, relative to the served directory.
    pub file: String,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// How many of its calls are running.
    pub calls: usize,
    /// How many of its instances wait for a call.
    pub waiting_instances: usize,
    /// Names of its agents.
    pub agents: Vec<String>,
    /// Names of its tools.
    pub tools: Vec<String>,
    /// Names of its callbacks.
    pub callbacks: Vec<String>,
    /// Names of its plugins.
    pub plugins: Vec<String>,
    /// Names of its code executors.
    pub code_executors: Vec<String>,
    /// Names of its summarizers.
    pub summarizers: Vec<String>,
    /// Names of its providers of examples.
    pub examples: Vec<String>,
    /// Names of its models.
    pub models: Vec<String>,
    /// What it offers under names that other components had first, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
}

/// A file of the served directory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileReport {
    /// Its path, relative to the served directory.
    pub path: String,
    /// The component, or the app of a `root_agent.yaml`.
    pub name: String,
    /// `pending`, `compiling`, `loaded`, `rejected` or `conflict`.
    pub state: String,
    /// Why it does not serve, for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True when it does not serve, but the version before it does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub previous_serves: bool,
    /// SHA-256 of the revision that serves under this name, in hexadecimal; nothing for YAML, and where none serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Since when the state is so.
    pub since: Timestamp,
}
