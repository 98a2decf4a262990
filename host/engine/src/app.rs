//! An app: a tree of agents under a name that clients use.

use std::sync::Arc;

use hatchery_core::{Agent, AgentId, AgentKind, AgentTree, RunConfig, ToolExecution, TreeError};

use crate::history::compaction::CompactionConfig;

/// What a client talks to. A run keeps the app that it began with, whatever is loaded meanwhile.
#[derive(Debug, Clone)]
pub struct App {
    /// The name in paths: the folder of a YAML app, the root agent's name of a component.
    pub name: String,
    /// Its agents.
    pub tree: Arc<AgentTree>,
    /// How its runs go.
    pub settings: AppSettings,
}

/// How an app's runs go: what the operator chooses, not the agents' author.
#[derive(Debug, Clone, Default)]
pub struct AppSettings {
    /// Whether a run pauses at a call whose result comes later, and goes on as the same invocation when it is there. Otherwise the model
    /// is told that the result is pending, the run ends, and the result begins a new one.
    pub resumable: bool,
    /// How older events of its sessions are summarized, if they are.
    pub compaction: Option<CompactionConfig>,
    /// What is said here takes the place of what a run asks for.
    pub run: RunSettings,
}

/// The parts of a [`RunConfig`] that are the operator's to choose; nothing leaves what the run asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSettings {
    /// Most model calls of a run; 0 is no limit.
    pub max_llm_calls: Option<u32>,
    /// Most tokens of a run; 0 is no limit.
    pub max_tokens: Option<u64>,
    /// Most stored events of a run; 0 is no limit.
    pub max_events: Option<u32>,
    /// Most bytes of the JSON of a run's events; 0 is no limit.
    pub max_run_bytes: Option<u64>,
    /// Whether the tool calls of one model answer run at the same time.
    pub tool_execution: Option<ToolExecution>,
    /// Whether files in the user's message are saved as artifacts.
    pub save_input_blobs_as_artifacts: Option<bool>,
}

impl RunSettings {
    /// What a run asks for, with these settings.
    pub fn over(&self, config: RunConfig) -> RunConfig {
        RunConfig {
            max_llm_calls: self.max_llm_calls.unwrap_or(config.max_llm_calls),
            max_tokens: self.max_tokens.unwrap_or(config.max_tokens),
            max_events: self.max_events.unwrap_or(config.max_events),
            max_run_bytes: self.max_run_bytes.unwrap_or(config.max_run_bytes),
            tool_execution: self.tool_execution.unwrap_or(config.tool_execution),
            save_input_blobs_as_artifacts: self
                .save_input_blobs_as_artifacts
                .unwrap_or(config.save_input_blobs_as_artifacts),
            ..config
        }
    }
}

impl App {
    /// An app of the tree below `root`.
    ///
    /// # Errors
    /// When the agents do not form a tree of unique names.
    pub fn new(name: impl Into<String>, root: Agent) -> Result<Self, TreeError> {
        Ok(Self { name: name.into(), tree: Arc::new(AgentTree::new(root)?), settings: AppSettings::default() })
    }

    /// With these settings.
    #[must_use]
    pub fn with_settings(self, settings: AppSettings) -> Self {
        Self { settings, ..self }
    }

    /// Lets go of what its agents' toolsets hold, such as connections. For whoever made the app to call, when no run of it is under way
    /// and none will follow; a program that serves one app calls it after [`Runner::close`](crate::Runner::close).
    pub async fn close(&self) {
        for (_, agent) in self.tree.iter() {
            if let AgentKind::Llm(llm) = &agent.kind {
                for toolset in &llm.toolsets {
                    toolset.close().await;
                }
            }
        }
    }

    /// The agent at the top.
    pub fn root(&self) -> &Agent {
        self.tree.agent(self.tree.root())
    }

    /// Names of all agents, each before those below it.
    pub fn agent_names(&self) -> Vec<&str> {
        self.tree.iter().map(|(_, agent)| agent.name.as_str()).collect()
    }

    /// The place of the root.
    pub fn root_id(&self) -> AgentId {
        self.tree.root()
    }
}
