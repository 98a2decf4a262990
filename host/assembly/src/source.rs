//! The interface between the server and the catalog: apps by name, and a report of loaded files.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{ItemResolver, Timestamp};
use hatchery_engine::App;
use hatchery_wasm::{ComponentUsage, Inspection, StoredRevision};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::watch;

use crate::app_files::AppFiles;

/// A set of apps that can change at any time. Every method reads the current set and is cheap enough to be called for
/// each request.
#[async_trait]
pub trait AppSource: Send + Sync {
    fn app(&self, name: &str) -> Option<Arc<App>>;

    /// Returns the names of all apps, sorted.
    fn app_names(&self) -> Vec<String>;

    /// Returns the origin of the app of this name. The default is a Rust program, for sources without files.
    fn app_origin(&self, _name: &str) -> AppOrigin {
        AppOrigin::Native
    }

    /// Returns the names of apps and components that are still being loaded, sorted by file. The apps of a component
    /// are only known once it is loaded.
    fn loading(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the loaded components and the state of every file.
    fn report(&self) -> CatalogReport;

    /// Returns the details of a component. `None` if none of this name is active.
    fn component(&self, _name: &str) -> Option<ComponentDetail> {
        None
    }

    /// Replaces the file of a component by a stored revision, which is loaded as any other change of the file. Reads
    /// and writes files.
    ///
    /// # Errors
    /// See [`RestoreError`]. The file is unchanged.
    fn restore_component(&self, name: &str, _revision: &str) -> Result<(), RestoreError> {
        Err(RestoreError::UnknownComponent(name.to_owned()))
    }

    /// Inspects a stored revision of a component. Compiles it if its code is not in the cache.
    ///
    /// # Errors
    /// [`RestoreError::Refused`] if it cannot be loaded any more; as [`Self::restore_component`] otherwise.
    async fn inspect_revision(&self, name: &str, _revision: &str) -> Result<Inspection, RestoreError> {
        Err(RestoreError::UnknownComponent(name.to_owned()))
    }

    /// Returns a receiver that is notified when the report has changed. `None` if it never changes.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Returns the tools and other items that agents can use by name. `None` if there are none.
    fn items(&self) -> Option<Arc<dyn ItemResolver>> {
        None
    }

    /// Returns the YAML files of apps, for editing. `None` if there is no served folder.
    fn app_files(&self) -> Option<AppFiles> {
        None
    }
}

/// Where an app comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppOrigin {
    /// A `root_agent.yaml`.
    Yaml,
    /// An agent of a component.
    Component,
    /// The program that the host is part of.
    Native,
}

impl AppOrigin {
    /// Returns the origin in one word: `yaml`, `wasm` or `native`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Yaml => "yaml",
            Self::Component => "wasm",
            Self::Native => "native",
        }
    }
}

/// The reason why a component cannot be replaced by an earlier revision.
#[derive(Debug, Error)]
pub enum RestoreError {
    #[error("the folder has no component `{0}` with its own file; GET /components lists the components")]
    UnknownComponent(String),
    #[error("no revision `{revision}` of `{component}` is stored; GET /components/{component} lists the revisions")]
    UnknownRevision { component: String, revision: String },
    #[error("the revision may not be loaded: {0}")]
    Refused(String),
    #[error("the file cannot be replaced; it is unchanged: {0}")]
    File(#[from] io::Error),
}

/// An active component in detail, as `GET /components/{name}` returns it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentDetail {
    #[serde(flatten)]
    pub inspection: Inspection,
    /// The lines of `hatchery.yaml` with the missing grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_lines: Option<String>,
    pub limits: ComponentLimits,
    pub usage: ComponentUsage,
    /// The revisions that can be restored, newest first.
    pub revisions: Vec<StoredRevision>,
}

/// The main limits of a component's calls.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentLimits {
    /// Bytes.
    pub memory: u64,
    pub cpu_seconds: f64,
    pub wall_seconds: f64,
    pub agent_wall_seconds: f64,
    /// Bytes.
    pub result: u64,
    /// Bytes.
    pub log: u64,
}

/// The content of the catalog, as `GET /components` returns it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogReport {
    /// Increases by one with each change.
    pub generation: u64,
    /// The active components, by name.
    pub components: Vec<ComponentReport>,
    /// All files of the served folder, by path.
    pub files: Vec<FileReport>,
    /// Replaced or removed revisions that runs still use.
    pub draining: Vec<DrainingReport>,
    /// Problems of loaded apps, such as a missing key of a model: one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl CatalogReport {
    /// Returns the reason why there is no app with this name, if its file cannot be used or another file has the name.
    pub fn reason_for_missing_app(&self, name: &str) -> Option<&str> {
        let named = format!(" named `{name}`");
        let claims = |file: &&FileReport| {
            let reason = file.reason.as_deref().unwrap_or_default();
            file.name == name || file.state == "conflict" && reason.contains(&named)
        };
        self.files.iter().filter(claims).find_map(|file| file.reason.as_deref())
    }
}

/// A replaced revision of a component that runs still use.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainingReport {
    pub name: String,
    /// SHA-256 of its file, in hexadecimal.
    pub sha256: String,
    /// Number of its active calls. A run can hold a revision without an active call.
    pub calls: usize,
    /// When it was replaced.
    pub since: Timestamp,
    /// True if the drain timeout has passed. The revision accepts no more calls.
    pub is_cut_off: bool,
}

/// An active component.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentReport {
    pub name: String,
    /// Path relative to the served folder.
    pub file: String,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Number of active calls.
    pub calls: usize,
    /// Number of idle pooled instances.
    pub waiting_instances: usize,
    pub agents: Vec<String>,
    pub tools: Vec<String>,
    pub callbacks: Vec<String>,
    pub plugins: Vec<String>,
    pub code_executors: Vec<String>,
    pub summarizers: Vec<String>,
    pub examples: Vec<String>,
    pub models: Vec<String>,
    /// Items that are not available because another component already has their name, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
}

/// A file of the served folder.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileReport {
    /// Path relative to the served folder.
    pub path: String,
    /// The name of the component, or of the app of a `root_agent.yaml`.
    pub name: String,
    /// `pending`, `compiling`, `loaded`, `rejected` or `conflict`.
    pub state: String,
    /// The reason why the file is not active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if the previous version of the file is still active.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub previous_serves: bool,
    /// SHA-256 of the active revision, in hexadecimal. `None` for YAML and if no revision is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// When the state changed last.
    pub since: Timestamp,
}
