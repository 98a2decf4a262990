//! Agents from YAML files: `root_agent.yaml` and the files that it refers to.
//!
//! Keys are the keys of ADK agent configs, in snake_case or camelCase. Unknown keys, keys of another agent class,
//! unknown names, and files outside the agent's folder are errors with file, line and column.

mod agent;
mod code;
mod config;
mod error;
mod file;
mod tools;

use std::path::{Path, PathBuf};

use hatchery_core::type_schema::json_schema as schema_of_type;
use hatchery_core::{Agent, AgentKind, ItemResolver};
use serde_json::Value;

pub use error::ConfigError;

use crate::factories::Factories;
use agent::TreeLoader;

/// The file that makes a folder an app.
pub const ROOT_FILE: &str = "root_agent.yaml";

/// Returns the JSON Schema of an agent's file, for editors. Keys are in snake case.
pub fn json_schema() -> Value {
    schema_of_type::<config::AgentConfig>(ROOT_FILE)
}

/// An agent with its sub-agents, and the files that define them.
pub struct LoadedAgent {
    pub agent: Agent,
    /// Every file that was read.
    pub files: Vec<PathBuf>,
}

/// Loads agents from YAML files. An agent may refer to files in its folder or below.
///
/// ```no_run
/// use std::path::Path;
/// use hatchery_core::AgentKind;
/// use hatchery_engine::yaml::AgentLoader;
/// use hatchery_engine::{Extensions, StaticCatalog};
///
/// let mut extensions = Extensions::builtin();
/// extensions.agent_classes.register("FlowAgent", |_args| Ok(AgentKind::Sequential));
/// let catalog = StaticCatalog::default();
/// let loader = AgentLoader::new(&catalog).agent_classes(&extensions.agent_classes);
/// let agent = loader.load(Path::new("agents/report/root_agent.yaml"))?.agent;
/// # Ok::<(), hatchery_engine::yaml::ConfigError>(())
/// ```
pub struct AgentLoader<'a> {
    resolver: &'a dyn ItemResolver,
    agent_classes: Option<&'a Factories<AgentKind>>,
    excluded: &'a [PathBuf],
}

impl<'a> AgentLoader<'a> {
    /// Creates a loader that resolves names of tools, callbacks and other items with `resolver`.
    pub fn new(resolver: &'a dyn ItemResolver) -> Self {
        Self { resolver, agent_classes: None, excluded: &[] }
    }

    /// Adds agent classes to the engine's own. The factory gets the `args` of the agent's file.
    #[must_use]
    pub fn agent_classes(mut self, agent_classes: &'a Factories<AgentKind>) -> Self {
        self.agent_classes = Some(agent_classes);
        self
    }

    /// Refuses files in these folders, which must be canonical paths: components may write there.
    #[must_use]
    pub fn exclude_folders(mut self, folders: &'a [PathBuf]) -> Self {
        self.excluded = folders;
        self
    }

    /// Loads an agent with all files that it refers to.
    ///
    /// # Errors
    /// If a file cannot be read, is not an agent config or is in an excluded folder, or a name in it is unknown.
    pub fn load(&self, path: &Path) -> Result<LoadedAgent, ConfigError> {
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new(".")).to_path_buf();
        let mut loader = TreeLoader::new(self, folder);
        let agent = loader.agent(path)?;
        Ok(LoadedAgent { agent, files: loader.files })
    }
}

/// Loads an agent of the engine's own classes. See [`AgentLoader`].
///
/// # Errors
/// As [`AgentLoader::load`].
pub fn load_agent(path: &Path, resolver: &dyn ItemResolver) -> Result<LoadedAgent, ConfigError> {
    AgentLoader::new(resolver).load(path)
}
