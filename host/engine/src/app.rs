//! An app: a tree of agents with a name and settings.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{
    Agent, AgentId, AgentKind, AgentTree, CodeExecution, CodeExecutor, RunConfig, Tool, ToolExecution, Toolset,
    TreeError,
};

use crate::history::compaction::CompactionConfig;

/// A tree of agents that clients run by its name. A run keeps the app that it began with, even if the app is replaced
/// meanwhile.
#[derive(Debug, Clone)]
pub struct App {
    /// The name in paths: the folder of a YAML app, the root agent's name of a component.
    pub name: String,
    /// The agents of the app.
    pub tree: Arc<AgentTree>,
    /// The operator's settings.
    pub settings: AppSettings,
}

/// Settings of an app that the operator chooses, not the author of its agents.
#[derive(Debug, Clone, Default)]
pub struct AppSettings {
    /// Whether a run pauses at a call of a long-running tool, and continues as the same invocation when the result is
    /// there. Otherwise the model gets a pending result, the run ends, and the result begins a new run.
    pub resumable: bool,
    /// Compaction of older events of its sessions. `None` disables it.
    pub compaction: Option<CompactionConfig>,
    /// Overrides the configuration of each run.
    pub run: RunSettings,
    /// When the events of its sessions are added to the memory of their user.
    pub memory_addition: MemoryAddition,
}

/// When the events of sessions are added to the memory of users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryAddition {
    /// Never automatically; components and clients can still add events.
    #[default]
    Never,
    /// After each run: the events of the run.
    AfterRun,
    /// When a client [closes](crate::Runner::close_session) the session: all its events.
    OnClose,
}

/// Overrides for the fields of a [`RunConfig`]. `None` keeps the value of the run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSettings {
    /// Maximum number of model calls of a run; 0 means no limit.
    pub max_llm_calls: Option<u32>,
    /// Maximum number of tokens of a run; 0 means no limit.
    pub max_tokens: Option<u64>,
    /// Maximum number of stored events of a run; 0 means no limit.
    pub max_events: Option<u32>,
    /// Maximum size in bytes of the JSON of a run's events; 0 means no limit.
    pub max_run_bytes: Option<u64>,
    /// Maximum number of rounds of loop agents in a run; 0 means no limit.
    pub max_rounds: Option<u32>,
    /// Maximum number of requests to models that are sent again after an error; 0 means no limit.
    pub max_model_retries: Option<u32>,
    /// Maximum wall time of a run; zero means no limit.
    pub max_run_time: Option<Duration>,
    /// Whether the tool calls of one model response run in parallel.
    pub tool_execution: Option<ToolExecution>,
    /// Whether files in the user's message are saved as artifacts.
    pub save_input_blobs_as_artifacts: Option<bool>,
}

impl RunSettings {
    /// Returns `config` with these overrides.
    pub fn apply_to(&self, config: RunConfig) -> RunConfig {
        RunConfig {
            max_llm_calls: self.max_llm_calls.unwrap_or(config.max_llm_calls),
            max_tokens: self.max_tokens.unwrap_or(config.max_tokens),
            max_events: self.max_events.unwrap_or(config.max_events),
            max_run_bytes: self.max_run_bytes.unwrap_or(config.max_run_bytes),
            max_rounds: self.max_rounds.unwrap_or(config.max_rounds),
            max_model_retries: self.max_model_retries.unwrap_or(config.max_model_retries),
            max_run_time: self.max_run_time.unwrap_or(config.max_run_time),
            tool_execution: self.tool_execution.unwrap_or(config.tool_execution),
            save_input_blobs_as_artifacts: self
                .save_input_blobs_as_artifacts
                .unwrap_or(config.save_input_blobs_as_artifacts),
            ..config
        }
    }
}

impl App {
    /// Returns an app of `root` and the agents below it, with default settings.
    ///
    /// # Errors
    /// If two agents have the same name or one is invalid; see [`AgentTree::new`].
    pub fn new(name: impl Into<String>, root: Agent) -> Result<Self, TreeError> {
        Ok(Self { name: name.into(), tree: Arc::new(AgentTree::new(root)?), settings: AppSettings::default() })
    }

    /// Replaces the settings.
    #[must_use]
    pub fn with_settings(self, settings: AppSettings) -> Self {
        Self { settings, ..self }
    }

    /// Closes the toolsets and the code executors of its agents and of the agents that they call as tools, which closes
    /// their connections and ends their processes. To be called by the owner of the app when no run of it is in progress and
    /// none will follow. A program that serves one app calls it after [`Runner::close`](crate::Runner::close).
    pub async fn close(&self) {
        for toolset in self.toolsets() {
            toolset.close().await;
        }
        for executor in self.code_executors() {
            executor.close().await;
        }
    }

    /// Returns the code executors of all agents, each once.
    fn code_executors(&self) -> Vec<&Arc<dyn CodeExecutor>> {
        let agents = self.trees().into_iter().flat_map(|tree| tree.iter());
        let executors = agents.filter_map(|(_, agent)| match &agent.kind {
            AgentKind::Llm(llm) => match &llm.code_execution {
                Some(CodeExecution::Host(runner)) => Some(&runner.executor),
                Some(CodeExecution::BuiltIn) | None => None,
            },
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => None,
        });
        let mut seen = HashSet::new();
        executors.filter(|executor| seen.insert(Arc::as_ptr(executor).cast::<()>())).collect()
    }

    /// Returns the toolsets of all agents, each once.
    fn toolsets(&self) -> Vec<&Arc<dyn Toolset>> {
        let agents = self.trees().into_iter().flat_map(|tree| tree.iter());
        let toolsets = agents.flat_map(|(_, agent)| match &agent.kind {
            AgentKind::Llm(llm) => llm.toolsets.as_slice(),
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => {
                [].as_slice()
            }
        });
        let mut seen = HashSet::new();
        toolsets.filter(|toolset| seen.insert(Arc::as_ptr(toolset).cast::<()>())).collect()
    }

    /// Returns the tree of its agents, then the trees of the agents that are called as tools, at any depth, each once.
    pub fn trees(&self) -> Vec<&AgentTree> {
        let mut trees = vec![self.tree.as_ref()];
        let (mut seen, mut read) = (HashSet::new(), 0);
        while let Some(tree) = trees.get(read).copied() {
            read += 1;
            let called = tree.iter().flat_map(|(_, agent)| tools(agent)).filter_map(|tool| tool.agents());
            // Several agents may call the same one.
            trees.extend(called.filter(|tree| seen.insert(std::ptr::from_ref(*tree))));
        }
        trees
    }

    /// Returns the root agent.
    pub fn root(&self) -> &Agent {
        self.tree.agent(self.tree.root())
    }

    /// Returns the names of all agents, parents before children.
    pub fn agent_names(&self) -> Vec<&str> {
        self.tree.iter().map(|(_, agent)| agent.name.as_str()).collect()
    }

    /// Returns the id of the root agent.
    pub fn root_id(&self) -> AgentId {
        self.tree.root()
    }
}

/// Returns the tools of an agent, without the tools of its toolsets.
fn tools(agent: &Agent) -> &[Arc<dyn Tool>] {
    match &agent.kind {
        AgentKind::Llm(llm) => &llm.tools,
        AgentKind::Custom(custom) => &custom.tools,
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => &[],
    }
}
