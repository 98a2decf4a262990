//! Agent builders: [`LlmAgent`], [`SequentialAgent`], [`ParallelAgent`], [`LoopAgent`], and [`CustomAgent`] for agents
//! in code.
//!
//! An agent is data for the host, which runs it. Only custom agents and computed instructions call back into the
//! component.

mod export;
mod llm;
mod options;

use std::future::Future;
use std::rc::Rc;

use crate::agent_context::AgentContext;
use crate::callback::{AfterAgent, BeforeAgent, CallbackRef, OnAgentError};
use crate::error::Error;
use crate::hook::{AgentCallbacks, for_each_hook};
use crate::tool::{LocalFuture, ToolRef, ToolUse};

pub use llm::LlmAgent;
pub(crate) use llm::{Instruction, Llm};
pub use options::{CodeRunner, IncludeContents, Planner, Thinking, Toolset};

/// An agent of any kind, with its sub-agents.
pub struct Agent {
    pub(crate) fields: AgentFields,
    pub(crate) kind: AgentKind,
}

pub(crate) struct AgentFields {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) sub_agents: Vec<SubAgent>,
    pub(crate) callbacks: AgentCallbacks,
}

pub(crate) enum AgentKind {
    Llm(Box<Llm>),
    Sequential,
    Parallel,
    Loop(Option<u32>),
    Custom(Custom),
}

/// A sub-agent.
pub enum SubAgent {
    /// A name: an agent of this component, or `component/agent`.
    Named(String),
    /// An agent definition.
    Agent(Agent),
}

impl SubAgent {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Agent(agent) => &agent.fields.name,
        }
    }
}

pub(crate) struct Custom {
    pub(crate) model: Option<String>,
    pub(crate) tools: Vec<ToolUse>,
    pub(crate) run: AgentCode,
}

/// The code of a custom agent.
pub(crate) type AgentCode = Rc<dyn Fn(AgentContext) -> LocalFuture<Result<(), Error>>>;

impl AgentFields {
    fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            sub_agents: Vec::new(),
            callbacks: AgentCallbacks::default(),
        }
    }
}

/// A reference to an agent: a function that returns one, an agent definition, or a name (`helper`, `support/helper`).
pub trait SubAgentRef {
    /// Returns the agent or its name.
    fn sub_agent(self) -> SubAgent;
}

impl<A: Into<Agent>, F: Fn() -> A> SubAgentRef for F {
    fn sub_agent(self) -> SubAgent {
        SubAgent::Agent(self().into())
    }
}

impl SubAgentRef for &str {
    fn sub_agent(self) -> SubAgent {
        SubAgent::Named(self.into())
    }
}

macro_rules! agent_hook_methods {
    (($builder:ident) runs $_runs:tt agents { $(
        $(#[$doc:meta])* $hook:ident $point:ident $_name:literal $_inputs:tt -> $_output:ty, $_call:ident;
    )* } calls $_calls:tt) => {
        impl $builder {
            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = concat!("The callback is a function marked `#[callback(", stringify!($hook), ")]`, or a name.")]
                #[must_use]
                pub fn $hook(mut self, callback: impl CallbackRef<$point>) -> Self {
                    self.fields.callbacks.$hook.push(callback.callback_name());
                    self
                }
            )*
        }
    };
}

/// The methods that all builders share.
macro_rules! builder {
    ($builder:ident) => {
        impl $builder {
            /// Sets the description, which the models of other agents see. The default is the doc comment of a function
            /// marked `#[agent]`.
            #[must_use]
            pub fn description(mut self, text: impl Into<String>) -> Self {
                self.fields.description = text.into();
                self
            }

            #[doc(hidden)]
            #[must_use]
            pub fn or_description(mut self, text: &str) -> Self {
                if self.fields.description.is_empty() {
                    self.fields.description = text.into();
                }
                self
            }

            /// Adds a sub-agent: a function that returns one, an agent definition, or a name.
            #[must_use]
            pub fn sub_agent(mut self, agent: impl SubAgentRef) -> Self {
                self.fields.sub_agents.push(agent.sub_agent());
                self
            }
        }

        for_each_hook!(agent_hook_methods $builder);

        impl SubAgentRef for $builder {
            fn sub_agent(self) -> SubAgent {
                SubAgent::Agent(self.into())
            }
        }
    };
}

use {agent_hook_methods, builder};

/// Runs its sub-agents in order.
pub struct SequentialAgent {
    fields: AgentFields,
}

builder!(SequentialAgent);

impl SequentialAgent {
    /// Creates an agent without sub-agents.
    pub fn new(name: impl Into<String>) -> Self {
        Self { fields: AgentFields::new(name) }
    }
}

/// Runs its sub-agents concurrently, each in its own branch.
pub struct ParallelAgent {
    fields: AgentFields,
}

builder!(ParallelAgent);

impl ParallelAgent {
    /// Creates an agent without sub-agents.
    pub fn new(name: impl Into<String>) -> Self {
        Self { fields: AgentFields::new(name) }
    }
}

/// Runs its sub-agents in order, repeatedly, until one of them escalates.
pub struct LoopAgent {
    fields: AgentFields,
    max_iterations: Option<u32>,
}

builder!(LoopAgent);

impl LoopAgent {
    /// Creates an agent without sub-agents.
    pub fn new(name: impl Into<String>) -> Self {
        Self { fields: AgentFields::new(name), max_iterations: None }
    }

    /// Sets the maximum number of iterations.
    #[must_use]
    pub fn max_iterations(mut self, rounds: u32) -> Self {
        self.max_iterations = Some(rounds);
        self
    }
}

/// An agent whose behaviour is code.
pub struct CustomAgent {
    fields: AgentFields,
    custom: Custom,
}

builder!(CustomAgent);

impl CustomAgent {
    /// Creates an agent that runs `code`. [`#[agent]`](macro@crate::agent) on an async function is shorter.
    pub fn new<F, R>(name: impl Into<String>, code: F) -> Self
    where
        F: Fn(AgentContext) -> R + 'static,
        R: Future<Output = Result<(), Error>> + 'static,
    {
        let run = Rc::new(move |cx| -> LocalFuture<_> { Box::pin(code(cx)) });
        Self { fields: AgentFields::new(name), custom: Custom { model: None, tools: Vec::new(), run } }
    }

    /// Sets the model of requests that name none.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.custom.model = Some(name.into());
        self
    }

    /// Adds a tool that the code may call: a function marked `#[tool]`, or a name.
    #[must_use]
    pub fn tool(mut self, tool: impl ToolRef) -> Self {
        self.custom.tools.push(tool.tool_use());
        self
    }
}

impl From<SequentialAgent> for Agent {
    fn from(builder: SequentialAgent) -> Self {
        Self { fields: builder.fields, kind: AgentKind::Sequential }
    }
}

impl From<ParallelAgent> for Agent {
    fn from(builder: ParallelAgent) -> Self {
        Self { fields: builder.fields, kind: AgentKind::Parallel }
    }
}

impl From<LoopAgent> for Agent {
    fn from(builder: LoopAgent) -> Self {
        Self { fields: builder.fields, kind: AgentKind::Loop(builder.max_iterations) }
    }
}

impl From<CustomAgent> for Agent {
    fn from(builder: CustomAgent) -> Self {
        Self { fields: builder.fields, kind: AgentKind::Custom(builder.custom) }
    }
}
