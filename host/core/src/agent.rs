//! Agents as data: their kinds, their settings, and the tree that they form.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use thiserror::Error;

use crate::agent_context::AgentContext;
use crate::call_context::CallContext;
use crate::callback::Callbacks;
use crate::code::CodeExecution;
use crate::content::Part;
use crate::error::{ModelError, RunError};
use crate::event::USER_AUTHOR;
use crate::examples::Examples;
use crate::fallback::FallbackModel;
use crate::model::{GenerateContentConfig, Model, ModelCapabilities, ModelResolver};
use crate::tool::{Tool, Toolset};

/// An agent with its sub-agents, before it is added to an [`AgentTree`].
#[derive(Clone)]
pub struct Agent {
    /// Unique in its tree.
    pub name: String,
    /// The purpose of the agent. Models of other agents read it to decide on a transfer.
    pub description: String,
    /// The behaviour of the agent.
    pub kind: AgentKind,
    /// The agents below it, in order.
    pub sub_agents: Vec<Agent>,
    /// Callbacks at the hook points that agents of every kind have.
    pub callbacks: Callbacks,
}

impl Agent {
    /// Creates an agent without sub-agents and callbacks.
    pub fn new(name: impl Into<String>, description: impl Into<String>, kind: AgentKind) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            kind,
            sub_agents: Vec::new(),
            callbacks: Callbacks::default(),
        }
    }

    /// Sets the sub-agents.
    #[must_use]
    pub fn with_sub_agents(mut self, sub_agents: Vec<Agent>) -> Self {
        self.sub_agents = sub_agents;
        self
    }

    /// Finds an agent by name: this one, or one below it at any depth.
    pub fn find_agent(&self, name: &str) -> Option<&Agent> {
        if self.name == name { Some(self) } else { self.find_sub_agent(name) }
    }

    /// Finds an agent below this one, at any depth.
    pub fn find_sub_agent(&self, name: &str) -> Option<&Agent> {
        self.sub_agents.iter().find_map(|agent| agent.find_agent(name))
    }
}

/// The behaviour of an agent.
#[derive(Clone)]
pub enum AgentKind {
    /// Calls a model in a loop.
    Llm(Box<LlmAgent>),
    /// Runs its sub-agents in order.
    Sequential,
    /// Runs its sub-agents concurrently, each in its own branch.
    Parallel,
    /// Runs its sub-agents in order, repeatedly, until one escalates.
    Loop {
        /// Maximum number of iterations; `None` means that only the limits of the run apply.
        max_iterations: Option<u32>,
    },
    /// Runs a [`CustomAgent`].
    Custom(CustomAgentSpec),
}

/// The parts of a custom agent.
#[derive(Clone)]
pub struct CustomAgentSpec {
    pub code: Arc<dyn CustomAgent>,
    /// The model that the code calls if it names none.
    pub model: Option<ModelRef>,
    /// The tools that the code can call.
    pub tools: Vec<Arc<dyn Tool>>,
}

impl AgentKind {
    /// Returns the kind in one word, such as `llm`.
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

/// The settings of an LLM agent.
#[derive(Clone, Default)]
pub struct LlmAgent {
    /// The model; `None` means the model of the nearest ancestor with one.
    pub model: Option<ModelRef>,
    /// The system instruction of this agent. With a static one, it is sent among the contents instead.
    pub instruction: Instruction,
    /// The beginning of the system instruction: texts and files, sent unchanged in every request, so that providers
    /// find them in their prompt caches.
    pub static_instruction: Vec<Part>,
    /// The system instruction of all agents of the tree, if this agent is the root.
    pub global_instruction: Instruction,
    /// The tools that its model can call.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Further tools, resolved before each model call.
    pub toolsets: Vec<Arc<dyn Toolset>>,
    /// Few-shot examples for the model.
    pub examples: Option<Examples>,
    /// The planner of the model; `None` means no planning.
    pub planner: Option<Planner>,
    /// The executor of code that the model writes; `None` means that it is not run.
    pub code_execution: Option<CodeExecution>,
    /// The part of the history that the model sees.
    pub include_contents: IncludeContents,
    /// JSON Schema of the input if another agent calls this one as a tool.
    pub input_schema: Option<Value>,
    /// JSON Schema of the final response.
    pub output_schema: Option<Value>,
    /// The state key that the final response is stored under.
    pub output_key: Option<String>,
    /// Maximum number of model calls in one run of the agent; `None` means that only the limit of the run
    /// applies.
    pub max_steps: Option<u32>,
    /// Forbids a transfer to the parent.
    pub disallow_transfer_to_parent: bool,
    /// Forbids a transfer to siblings.
    pub disallow_transfer_to_peers: bool,
    /// Settings of the model calls.
    pub generate_content_config: GenerateContentConfig,
    /// Callbacks at the hook points of model and tool calls.
    pub callbacks: Callbacks,
    /// Restricts the access of the agent beyond its session; `None` means no restriction.
    pub capabilities: Option<Arc<dyn Capabilities>>,
}

impl LlmAgent {
    /// Checks that the agent has a capability.
    ///
    /// # Errors
    /// The denial, which ends the run.
    pub fn check(&self, cx: &CallContext, capability: Capability<'_>) -> Result<(), RunError> {
        self.capabilities.as_ref().map_or(Ok(()), |capabilities| capabilities.check(cx, capability))
    }
}

/// An access beyond the session that the engine performs on behalf of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability<'a> {
    /// Reads this state key, of any scope.
    ReadState(&'a str),
    /// Sets this state key, of any scope.
    WriteState(&'a str),
    ReadArtifacts,
    /// Saves artifacts.
    WriteArtifacts,
}

/// The capabilities of an agent, checked whenever the engine performs an access for it that is known only at run time.
/// Must not block.
pub trait Capabilities: Send + Sync {
    /// Checks that the agent has a capability.
    ///
    /// # Errors
    /// The denial, which ends the run.
    fn check(&self, cx: &CallContext, capability: Capability<'_>) -> Result<(), RunError>;
}

/// Planning of a model before it acts.
#[derive(Debug, Clone, PartialEq)]
pub enum Planner {
    /// By the model's own thinking, with these settings (`thinkingConfig`: `includeThoughts`, `thinkingBudget` …).
    Thinking(Value),
    /// By instructions (Plan-ReAct): the model writes a plan, follows it and marks its final answer. Everything else
    /// counts as thought.
    PlanReAct,
}

/// A model by name or as an object.
#[derive(Clone)]
pub enum ModelRef {
    /// Looked up by name before each model call.
    Named(String),
    /// Looked up by name, with the names of fallback models. They are tried in order if the first model fails before it
    /// has answered.
    WithFallback(String, Vec<String>),
    /// Used directly, under the given name.
    Object(String, Arc<dyn Model>),
}

impl ModelRef {
    /// Returns the model's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) | Self::WithFallback(name, _) | Self::Object(name, _) => name,
        }
    }

    /// Returns the names that are looked up, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (name, others): (_, &[String]) = match self {
            Self::Named(name) => (Some(name), &[]),
            Self::WithFallback(name, others) => (Some(name), others),
            Self::Object(..) => (None, &[]),
        };
        name.into_iter().chain(others).map(String::as_str)
    }

    /// Returns the model.
    ///
    /// # Errors
    /// If the model does not exist. With fallbacks, if none of the models exists.
    pub fn resolve(&self, models: &dyn ModelResolver) -> Result<Arc<dyn Model>, ModelError> {
        match self {
            Self::Named(name) => models.model(name),
            Self::WithFallback(..) => {
                let all = self.names().map(|name| (name.to_owned(), models.model(name)));
                FallbackModel::new(all).map(|model| Arc::new(model) as _)
            }
            Self::Object(_, model) => Ok(model.clone()),
        }
    }

    /// Returns the features of the model, as [`ModelResolver::capabilities`] does. With fallbacks, only those that all
    /// models support.
    pub fn capabilities(&self, models: &dyn ModelResolver) -> ModelCapabilities {
        match self {
            Self::Named(_) | Self::WithFallback(..) => {
                let all = self.names().map(|name| models.capabilities(name));
                all.reduce(FallbackModel::common_capabilities).unwrap_or_default()
            }
            Self::Object(_, model) => model.capabilities(),
        }
    }
}

/// An instruction for a model.
#[derive(Clone, Default)]
pub enum Instruction {
    /// No instruction.
    #[default]
    None,
    /// Text with placeholders: `{key}`, `{key?}`, `{app:key}`, `{artifact.name}`.
    Template(String),
    /// Computed for each model call; placeholders are not replaced.
    Computed(Arc<dyn InstructionProvider>),
}

/// Computes an instruction. Called before each model call, in the agent's task: it may await, but not block.
#[async_trait]
pub trait InstructionProvider: Send + Sync {
    /// Returns the text of the instruction.
    ///
    /// # Errors
    /// If it cannot be computed. The error ends the run.
    async fn instruction(&self, cx: &CallContext) -> Result<String, RunError>;
}

/// The part of the conversation that an agent's model sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncludeContents {
    /// All events that concern the agent.
    #[default]
    Default,
    /// Only the current turn.
    None,
}

/// An agent implemented in code, native or in a component.
///
/// [`CustomAgent::run`] is called once per run of the agent, in the agent's task, which may serve other agents of the
/// run too: it may await, but not block. One instance serves many runs at the same time. If the run is cancelled, the
/// future is dropped.
///
/// ```
/// use async_trait::async_trait;
/// use hatchery_core::{AgentContext, CustomAgent, RunError};
///
/// /// Greets, then lets the sub-agent `writer` continue.
/// struct Greeter;
///
/// #[async_trait]
/// impl CustomAgent for Greeter {
///     async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
///         let message = cx.call.invocation.user_content().text();
///         cx.say(format!("You said: {message}")).await?;
///         cx.call.set_state("greeted", true.into());
///         cx.run_sub_agent("writer").await
///     }
/// }
///
/// # use std::sync::Arc;
/// # use hatchery_core::{Agent, AgentKind, CustomAgentSpec};
/// let spec = CustomAgentSpec { code: Arc::new(Greeter), model: None, tools: Vec::new() };
/// let agent = Agent::new("greeter", "Greets people.", AgentKind::Custom(spec));
/// assert_eq!(agent.kind.label(), "custom");
/// ```
#[async_trait]
pub trait CustomAgent: Send + Sync {
    /// Runs the agent, which sends its events through [`AgentContext::emit`]. When it returns, the agent is done.
    ///
    /// # Errors
    /// End the run, unless an `on_agent_error` callback recovers.
    async fn run(&self, cx: AgentContext) -> Result<(), RunError>;
}

/// Identifies an agent within its [`AgentTree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AgentId(usize);

/// A tree of agents with unique names, which are found by name.
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

/// The reason why agents cannot form a tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TreeError {
    /// A name is invalid.
    #[error("agent name `{name}` {reason}")]
    BadName {
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// Two agents have the same name.
    #[error(
        "two agents are named `{name}`: one is {first}, the other is {second}; names must be unique in the whole tree"
    )]
    Duplicate {
        name: String,
        /// The path of the first.
        first: String,
        /// The path of the second.
        second: String,
    },
}

impl AgentTree {
    /// Builds the tree of `root` and its sub-agents.
    ///
    /// # Errors
    /// If a name is invalid or used twice.
    pub fn new(root: Agent) -> Result<Self, TreeError> {
        let mut tree = Self { nodes: Vec::new(), by_name: HashMap::new() };
        tree.insert(root, None)?;
        Ok(tree)
    }

    /// Returns the root.
    pub fn root(&self) -> AgentId {
        AgentId(0)
    }

    /// Returns an agent. Its `sub_agents` are empty: see [`AgentTree::children`].
    pub fn agent(&self, id: AgentId) -> &Agent {
        &self.node(id).agent
    }

    /// Returns the parent; `None` for the root.
    pub fn parent(&self, id: AgentId) -> Option<AgentId> {
        self.node(id).parent
    }

    /// Returns the sub-agents, in order.
    pub fn children(&self, id: AgentId) -> &[AgentId] {
        &self.node(id).children
    }

    /// Finds an agent anywhere in the tree.
    pub fn find_agent(&self, name: &str) -> Option<AgentId> {
        self.by_name.get(name).copied()
    }

    /// Finds an agent below `id`, at any depth.
    pub fn find_sub_agent(&self, id: AgentId, name: &str) -> Option<AgentId> {
        self.find_agent(name).filter(|found| self.ancestors(*found).any(|ancestor| ancestor == id))
    }

    /// Returns the ancestors, nearest first.
    pub fn ancestors(&self, id: AgentId) -> impl Iterator<Item = AgentId> {
        std::iter::successors(self.parent(id), |id| self.parent(*id))
    }

    /// Returns all agents, each before its sub-agents.
    pub fn iter(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        self.nodes.iter().enumerate().map(|(index, node)| (AgentId(index), &node.agent))
    }

    /// Returns the path from the root, as `root/child/name`.
    pub fn path(&self, id: AgentId) -> String {
        let mut names: Vec<_> = self.ancestors(id).map(|id| self.agent(id).name.as_str()).collect();
        names.reverse();
        names.push(&self.agent(id).name);
        names.join("/")
    }

    // Only `insert` creates ids and nodes are never removed, so an index is always valid for the tree that created it.
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

/// Checks the characters of a name: a letter, a digit or `_`, then letters, digits, `_`, `-` and spaces. ADK also
/// allows dots, but here a dot joins the names of a branch, so that `a.b` would be both an agent and `b` inside `a`.
///
/// # Errors
/// [`TreeError::BadName`] if no agent can have this name.
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
        return bad("is reserved for messages of users");
    }
    if name.contains('.') {
        return bad("may not hold a dot, which joins the names of parallel branches");
    }
    if !chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ')) {
        return bad("may hold only letters, digits, `_`, `-` and spaces");
    }
    Ok(())
}
