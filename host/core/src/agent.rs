//! Agents as data: what kinds there are, what each is made of, and the tree that they form.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use thiserror::Error;

use crate::callback::Callbacks;
use crate::code::CodeExecution;
use crate::context::{AgentContext, CallContext};
use crate::error::RunError;
use crate::event::USER_AUTHOR;
use crate::examples::Examples;
use crate::model::{GenerateContentConfig, Model};
use crate::tool::{Tool, Toolset};

/// An agent with everything below it, before it gets its place in an [`AgentTree`].
#[derive(Clone)]
pub struct Agent {
    /// Unique in its tree.
    pub name: String,
    /// What it is for; other agents' models read this to decide on a transfer.
    pub description: String,
    /// What it does when it runs.
    pub kind: AgentKind,
    /// The agents below it.
    pub sub_agents: Vec<Agent>,
    /// Its callbacks at the points that agents of every kind have.
    pub callbacks: Callbacks,
}

impl Agent {
    /// An agent without sub agents and callbacks.
    pub fn new(name: impl Into<String>, description: impl Into<String>, kind: AgentKind) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            kind,
            sub_agents: Vec::new(),
            callbacks: Callbacks::default(),
        }
    }

    /// With these agents below it.
    #[must_use]
    pub fn with_sub_agents(mut self, sub_agents: Vec<Agent>) -> Self {
        self.sub_agents = sub_agents;
        self
    }
}

/// What an agent does when it runs.
#[derive(Clone)]
pub enum AgentKind {
    /// Calls a model in a loop.
    Llm(Box<LlmAgent>),
    /// Runs its sub agents in order.
    Sequential,
    /// Runs its sub agents at the same time, each in its own branch.
    Parallel,
    /// Runs its sub agents in order, again and again, until one escalates.
    Loop {
        /// Most rounds; `None` leaves it to the run's own limits.
        max_iterations: Option<u32>,
    },
    /// Runs code.
    Custom(CustomAgentSpec),
}

/// What a custom agent is made of.
#[derive(Clone)]
pub struct CustomAgentSpec {
    /// Its code.
    pub code: Arc<dyn CustomAgent>,
    /// The model that its code asks when it names none.
    pub model: Option<ModelRef>,
    /// What its code can call.
    pub tools: Vec<Arc<dyn Tool>>,
}

impl AgentKind {
    /// The kind in a word.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Llm(_) => "llm",
            Self::Sequential => "sequential",
            Self::Parallel => "parallel",
            Self::Loop { .. } => "loop",
            Self::Custom(_) => "custom",
        }
    }
}

/// What an LLM agent is made of.
#[derive(Clone, Default)]
pub struct LlmAgent {
    /// Its model; without one, the nearest agent above it that has one lends its own.
    pub model: Option<ModelRef>,
    /// What it is told to do.
    pub instruction: Instruction,
    /// What every agent of the tree is told, when this agent is the root.
    pub global_instruction: Instruction,
    /// What it can call.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What else it can call, looked up when it runs.
    pub toolsets: Vec<Arc<dyn Toolset>>,
    /// Examples that show its model how to answer.
    pub examples: Option<Examples>,
    /// How its model is made to think before it acts.
    pub planner: Option<Planner>,
    /// Who runs the code that its model writes.
    pub code_execution: Option<CodeExecution>,
    /// Whether it sees the history.
    pub include_contents: IncludeContents,
    /// JSON Schema of its input, when another agent calls it as a tool.
    pub input_schema: Option<Value>,
    /// JSON Schema of its answer.
    pub output_schema: Option<Value>,
    /// The state key that its answer goes to.
    pub output_key: Option<String>,
    /// Most model calls of one run of it.
    pub max_steps: Option<u32>,
    /// It may not hand over to the agent above it.
    pub disallow_transfer_to_parent: bool,
    /// It may not hand over to its siblings.
    pub disallow_transfer_to_peers: bool,
    /// Settings of its model calls.
    pub generate_content_config: GenerateContentConfig,
    /// Its callbacks at the points of model and tool calls.
    pub callbacks: Callbacks,
    /// What it may reach beyond its session; `None` is everything.
    pub capabilities: Option<Arc<dyn Capabilities>>,
}

impl LlmAgent {
    /// Checks that the agent may do this.
    ///
    /// # Errors
    /// The refusal, which ends the run.
    pub fn check(&self, cx: &CallContext, capability: Capability<'_>) -> Result<(), RunError> {
        self.capabilities.as_ref().map_or(Ok(()), |capabilities| capabilities.check(cx, capability))
    }
}

/// Something that the engine does on behalf of an agent and that reaches beyond its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability<'a> {
    /// To read this state key, of any scope.
    ReadState(&'a str),
    /// To set this state key, of any scope.
    WriteState(&'a str),
    /// To read artifacts.
    ReadArtifacts,
    /// To save artifacts.
    WriteArtifacts,
}

/// The rights of an agent, asked whenever the engine acts for it on something that is known only while it runs.
pub trait Capabilities: Send + Sync {
    /// Checks that the agent may do this.
    ///
    /// # Errors
    /// The refusal, which ends the run.
    fn check(&self, cx: &CallContext, capability: Capability<'_>) -> Result<(), RunError>;
}

/// How a model is made to think before it acts.
#[derive(Debug, Clone, PartialEq)]
pub enum Planner {
    /// The model's own thinking, with these settings (`thinkingConfig`: `includeThoughts`, `thinkingBudget` …).
    Thinking(Value),
    /// The model is told to write a plan, to follow it, and to mark its final answer; all but the answer counts as thought.
    PlanReAct,
}

/// A model by name or as an object.
#[derive(Clone)]
pub enum ModelRef {
    /// Found in the registry when the agent runs.
    Named(String),
    /// Used as it is, under the given name.
    Object(String, Arc<dyn Model>),
}

impl ModelRef {
    /// The model's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) | Self::Object(name, _) => name,
        }
    }
}

/// An instruction for a model.
#[derive(Clone, Default)]
pub enum Instruction {
    /// None.
    #[default]
    None,
    /// Text with placeholders: `{key}`, `{key?}`, `{app:key}`, `{artifact.name}`.
    Template(String),
    /// Computed for each model call, used as it is.
    Computed(Arc<dyn InstructionProvider>),
}

/// Computes an instruction.
#[async_trait]
pub trait InstructionProvider: Send + Sync {
    /// The instruction's text.
    async fn instruction(&self, cx: &CallContext) -> Result<String, RunError>;
}

/// Whether an agent's model sees the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncludeContents {
    /// All of it that concerns the agent.
    #[default]
    Default,
    /// Only the current turn.
    None,
}

/// An agent that is code, native or in a component.
#[async_trait]
pub trait CustomAgent: Send + Sync {
    /// Runs once, sending its events through [`AgentContext::emit`].
    ///
    /// # Errors
    /// End the run.
    async fn run(&self, cx: AgentContext) -> Result<(), RunError>;
}

/// An agent's place in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AgentId(usize);

/// Agents with their places: unique names, one parent each, found by name.
pub struct AgentTree {
    nodes: Vec<Node>,
    by_name: HashMap<String, AgentId>,
}

struct Node {
    /// Its `sub_agents` are empty: they are in `children`.
    agent: Agent,
    parent: Option<AgentId>,
    children: Vec<AgentId>,
}

/// Why agents cannot form a tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TreeError {
    /// A name that cannot be used.
    #[error("agent name `{name}` {reason}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Two agents have one name.
    #[error(
        "two agents are named `{name}`: one is {first}, the other is {second}; names must be unique in the whole tree"
    )]
    Duplicate {
        /// The name.
        name: String,
        /// Where the first is.
        first: String,
        /// Where the second is.
        second: String,
    },
}

impl AgentTree {
    /// Gives `root` and everything below it their places.
    ///
    /// # Errors
    /// When a name is unusable or used twice.
    pub fn new(root: Agent) -> Result<Self, TreeError> {
        let mut tree = Self { nodes: Vec::new(), by_name: HashMap::new() };
        tree.insert(root, None)?;
        Ok(tree)
    }

    /// The agent at the top.
    pub fn root(&self) -> AgentId {
        AgentId(0)
    }

    /// The agent at a place.
    pub fn agent(&self, id: AgentId) -> &Agent {
        &self.node(id).agent
    }

    /// The agent above.
    pub fn parent(&self, id: AgentId) -> Option<AgentId> {
        self.node(id).parent
    }

    /// The agents below, in order.
    pub fn children(&self, id: AgentId) -> &[AgentId] {
        &self.node(id).children
    }

    /// The agent of this name, anywhere in the tree.
    pub fn find_agent(&self, name: &str) -> Option<AgentId> {
        self.by_name.get(name).copied()
    }

    /// The agent of this name below `id`.
    pub fn find_sub_agent(&self, id: AgentId, name: &str) -> Option<AgentId> {
        self.find_agent(name).filter(|found| self.ancestors(*found).any(|ancestor| ancestor == id))
    }

    /// The agents above, nearest first.
    pub fn ancestors(&self, id: AgentId) -> impl Iterator<Item = AgentId> {
        std::iter::successors(self.parent(id), |id| self.parent(*id))
    }

    /// All agents, each before those below it.
    pub fn iter(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        self.nodes.iter().enumerate().map(|(index, node)| (AgentId(index), &node.agent))
    }

    /// The path from the root, as `root/child/name`.
    pub fn path(&self, id: AgentId) -> String {
        let mut names: Vec<_> = self.ancestors(id).map(|id| self.agent(id).name.as_str()).collect();
        names.reverse();
        names.push(&self.agent(id).name);
        names.join("/")
    }

    // An id is made only by `insert` and nodes are never removed, so the index is always valid for the tree that made it.
    #[allow(clippy::indexing_slicing)]
    fn node(&self, id: AgentId) -> &Node {
        &self.nodes[id.0]
    }

    fn insert(&mut self, mut agent: Agent, parent: Option<AgentId>) -> Result<AgentId, TreeError> {
        check_agent_name(&agent.name)?;
        let sub_agents = std::mem::take(&mut agent.sub_agents);
        let id = AgentId(self.nodes.len());
        if let Some(first) = self.by_name.insert(agent.name.clone(), id) {
            let second = parent.map_or_else(String::new, |parent| format!("{}/", self.path(parent)));
            return Err(TreeError::Duplicate {
                first: format!("`{}`", self.path(first)),
                second: format!("`{second}{}`", agent.name),
                name: agent.name,
            });
        }
        self.nodes.push(Node { agent, parent, children: Vec::new() });
        let mut children = Vec::with_capacity(sub_agents.len());
        for sub_agent in sub_agents {
            children.push(self.insert(sub_agent, Some(id))?);
        }
        if let Some(node) = self.nodes.get_mut(id.0) {
            node.children = children;
        }
        Ok(id)
    }
}

impl fmt::Debug for AgentTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(id, agent)| (self.path(id), agent.kind.label()))).finish()
    }
}

/// Checks a name by itself: a letter, a digit or `_`, then letters, digits, `_`, `-` and spaces. ADK allows a dot between letters too; here
/// it joins the names of a branch, so that `a.b` would be both an agent and `b` inside of `a`.
///
/// # Errors
/// [`TreeError::BadName`] when no agent can have it.
pub fn check_agent_name(name: &str) -> Result<(), TreeError> {
    let bad = |reason| Err(TreeError::BadName { name: name.into(), reason });
    let mut chars = name.chars();
    match chars.next() {
        None => return bad("is empty"),
        Some(first) if !(first.is_ascii_alphanumeric() || first == '_') => {
            return bad("must start with a letter, a digit or `_`");
        }
        Some(_) => {}
    }
    if name == USER_AUTHOR {
        return bad("is reserved for what a person says");
    }
    if name.contains('.') {
        return bad("may not hold a dot, which joins the names of parallel branches");
    }
    if !chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ')) {
        return bad("may hold only letters, digits, `_`, `-` and spaces");
    }
    Ok(())
}
