//! Agents as builders: [`LlmAgent`], [`SequentialAgent`], [`ParallelAgent`], [`LoopAgent`] and, for code, [`CustomAgent`].
//!
//! An agent is data for the host, which runs it; only a custom agent and a computed instruction call back into the component.

use std::future::Future;
use std::rc::Rc;

use schemars::JsonSchema;
use serde_json::Value;

use crate::agent_context::AgentContext;
use crate::callback::{AfterAgent, AfterModel, AfterTool, BeforeAgent, BeforeModel, BeforeTool, CallbackRef};
use crate::content::JsonMap;
use crate::context::Context;
use crate::error::Error;
use crate::tool::{LocalFuture, ToolRef, schema};

/// An agent of any kind, with those below it.
pub struct Agent {
    pub(crate) common: Common,
    pub(crate) kind: Kind,
}

pub(crate) struct Common {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) sub_agents: Vec<SubAgent>,
    pub(crate) before_agent: Vec<String>,
    pub(crate) after_agent: Vec<String>,
}

pub(crate) enum Kind {
    Llm(Box<Llm>),
    Sequential,
    Parallel,
    Loop(Option<u32>),
    Custom(Custom),
}

/// An agent below another one.
pub enum SubAgent {
    /// By name: one of this component, or `component/agent`.
    Named(String),
    /// As it is.
    Agent(Agent),
}

impl SubAgent {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Agent(agent) => &agent.common.name,
        }
    }
}

#[derive(Default)]
pub(crate) struct Llm {
    pub(crate) model: Option<String>,
    pub(crate) instruction: Instruction,
    pub(crate) global_instruction: Instruction,
    pub(crate) tools: Vec<String>,
    pub(crate) without_history: bool,
    pub(crate) input_schema: Option<Value>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) output_key: Option<String>,
    pub(crate) max_steps: Option<u32>,
    pub(crate) disallow_transfer_to_parent: bool,
    pub(crate) disallow_transfer_to_peers: bool,
    pub(crate) config: JsonMap,
    pub(crate) before_model: Vec<String>,
    pub(crate) after_model: Vec<String>,
    pub(crate) before_tool: Vec<String>,
    pub(crate) after_tool: Vec<String>,
}

#[derive(Default)]
pub(crate) enum Instruction {
    #[default]
    None,
    Text(String),
    Computed(Rc<dyn Fn(Context) -> LocalFuture<Result<String, Error>>>),
}

pub(crate) struct Custom {
    pub(crate) model: Option<String>,
    pub(crate) tools: Vec<String>,
    pub(crate) run: Rc<dyn Fn(AgentContext) -> LocalFuture<Result<(), Error>>>,
}

impl Common {
    fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            sub_agents: Vec::new(),
            before_agent: Vec::new(),
            after_agent: Vec::new(),
        }
    }
}

/// Refers to an agent: a function that gives one, an agent itself, or a name (`helper`, `support/helper`).
pub trait SubAgentRef {
    /// The agent, or its name.
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

/// What all builders share.
macro_rules! builder {
    ($builder:ident) => {
        impl $builder {
            /// What it is for; other agents' models read this. By default the comment of a function marked `#[agent]`.
            #[must_use]
            pub fn description(mut self, text: impl Into<String>) -> Self {
                self.common.description = text.into();
                self
            }

            #[doc(hidden)]
            #[must_use]
            pub fn or_description(mut self, text: &str) -> Self {
                if self.common.description.is_empty() {
                    self.common.description = text.into();
                }
                self
            }

            /// Puts an agent below it: a function that gives one, an agent itself, or a name.
            #[must_use]
            pub fn sub_agent(mut self, agent: impl SubAgentRef) -> Self {
                self.common.sub_agents.push(agent.sub_agent());
                self
            }

            /// Runs a callback before it: a function marked `#[callback(before_agent)]`, or a name.
            #[must_use]
            pub fn before_agent(mut self, callback: impl CallbackRef<BeforeAgent>) -> Self {
                self.common.before_agent.push(callback.callback_name());
                self
            }

            /// Runs a callback after it: a function marked `#[callback(after_agent)]`, or a name.
            #[must_use]
            pub fn after_agent(mut self, callback: impl CallbackRef<AfterAgent>) -> Self {
                self.common.after_agent.push(callback.callback_name());
                self
            }
        }

        impl SubAgentRef for $builder {
            fn sub_agent(self) -> SubAgent {
                SubAgent::Agent(self.into())
            }
        }
    };
}

/// Runs the agents below it in order.
pub struct SequentialAgent {
    common: Common,
}

builder!(SequentialAgent);

impl SequentialAgent {
    /// An agent without any below it.
    pub fn new(name: impl Into<String>) -> Self {
        Self { common: Common::new(name) }
    }
}

/// Runs the agents below it at the same time, each in a branch of its own.
pub struct ParallelAgent {
    common: Common,
}

builder!(ParallelAgent);

impl ParallelAgent {
    /// An agent without any below it.
    pub fn new(name: impl Into<String>) -> Self {
        Self { common: Common::new(name) }
    }
}

/// Runs the agents below it in order, again and again, until one escalates.
pub struct LoopAgent {
    common: Common,
    max_iterations: Option<u32>,
}

builder!(LoopAgent);

impl LoopAgent {
    /// An agent without any below it.
    pub fn new(name: impl Into<String>) -> Self {
        Self { common: Common::new(name), max_iterations: None }
    }

    /// Ends the loop after so many rounds.
    #[must_use]
    pub fn max_iterations(mut self, rounds: u32) -> Self {
        self.max_iterations = Some(rounds);
        self
    }
}

/// An agent that is code.
pub struct CustomAgent {
    common: Common,
    custom: Custom,
}

builder!(CustomAgent);

impl CustomAgent {
    /// An agent that runs `code`. [`#[agent]`](macro@crate::agent) on an async function does the same with less to write.
    pub fn new<F, R>(name: impl Into<String>, code: F) -> Self
    where
        F: Fn(AgentContext) -> R + 'static,
        R: Future<Output = Result<(), Error>> + 'static,
    {
        let run = Rc::new(move |cx| -> LocalFuture<_> { Box::pin(code(cx)) });
        Self { common: Common::new(name), custom: Custom { model: None, tools: Vec::new(), run } }
    }

    /// The model that its code asks when a request names none.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.custom.model = Some(name.into());
        self
    }

    /// A tool that its code may call: a function marked `#[tool]`, or a name.
    #[must_use]
    pub fn tool(mut self, tool: impl ToolRef) -> Self {
        self.custom.tools.push(tool.tool_name());
        self
    }
}

/// Calls a model in a loop, with the tools that it asks for.
pub struct LlmAgent {
    common: Common,
    llm: Box<Llm>,
}

builder!(LlmAgent);

impl LlmAgent {
    /// An agent without instruction and tools, which uses the model of the nearest LLM agent above it.
    pub fn new(name: impl Into<String>) -> Self {
        Self { common: Common::new(name), llm: Box::default() }
    }

    /// The model's name, such as `gemini-2.5-flash` or `scripted:answers.yaml`.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.llm.model = Some(name.into());
        self
    }

    /// What the model is told, with placeholders `{key}`, `{key?}`, `{app:key}`, `{artifact.name}`.
    #[must_use]
    pub fn instruction(mut self, text: impl Into<String>) -> Self {
        self.llm.instruction = Instruction::Text(text.into());
        self
    }

    /// Computes what the model is told, for each model call; used as it is.
    #[must_use]
    pub fn instruction_fn<F, R>(mut self, compute: F) -> Self
    where
        F: Fn(Context) -> R + 'static,
        R: Future<Output = Result<String, Error>> + 'static,
    {
        self.llm.instruction = computed(compute);
        self
    }

    /// What the models of all agents are told, when this agent is the root.
    #[must_use]
    pub fn global_instruction(mut self, text: impl Into<String>) -> Self {
        self.llm.global_instruction = Instruction::Text(text.into());
        self
    }

    /// Computes what the models of all agents are told, when this agent is the root.
    #[must_use]
    pub fn global_instruction_fn<F, R>(mut self, compute: F) -> Self
    where
        F: Fn(Context) -> R + 'static,
        R: Future<Output = Result<String, Error>> + 'static,
    {
        self.llm.global_instruction = computed(compute);
        self
    }

    /// A tool that the model may call: a function marked `#[tool]`, or a name.
    #[must_use]
    pub fn tool(mut self, tool: impl ToolRef) -> Self {
        self.llm.tools.push(tool.tool_name());
        self
    }

    /// The model sees only the current turn.
    #[must_use]
    pub fn without_history(mut self) -> Self {
        self.llm.without_history = true;
        self
    }

    /// The shape of its input, when another agent uses it as a tool.
    #[must_use]
    pub fn input_schema<T: JsonSchema>(mut self) -> Self {
        self.llm.input_schema = Some(schema::<T>());
        self
    }

    /// The shape of its answer, which is then JSON.
    #[must_use]
    pub fn output_schema<T: JsonSchema>(mut self) -> Self {
        self.llm.output_schema = Some(schema::<T>());
        self
    }

    /// The state key that its answer goes to.
    #[must_use]
    pub fn output_key(mut self, key: impl Into<String>) -> Self {
        self.llm.output_key = Some(key.into());
        self
    }

    /// Most model calls of one run of it.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.llm.max_steps = Some(steps);
        self
    }

    /// It may not hand over to the agent above it.
    #[must_use]
    pub fn disallow_transfer_to_parent(mut self) -> Self {
        self.llm.disallow_transfer_to_parent = true;
        self
    }

    /// It may not hand over to its siblings.
    #[must_use]
    pub fn disallow_transfer_to_peers(mut self) -> Self {
        self.llm.disallow_transfer_to_peers = true;
        self
    }

    /// A setting of the model calls, by its name in Gemini's `GenerateContentConfig`, such as `temperature`.
    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.llm.config.insert(key.into(), value.into());
        self
    }

    /// Runs a callback before each model call: a function marked `#[callback(before_model)]`, or a name.
    #[must_use]
    pub fn before_model(mut self, callback: impl CallbackRef<BeforeModel>) -> Self {
        self.llm.before_model.push(callback.callback_name());
        self
    }

    /// Runs a callback after each model response: a function marked `#[callback(after_model)]`, or a name.
    #[must_use]
    pub fn after_model(mut self, callback: impl CallbackRef<AfterModel>) -> Self {
        self.llm.after_model.push(callback.callback_name());
        self
    }

    /// Runs a callback before each tool call: a function marked `#[callback(before_tool)]`, or a name.
    #[must_use]
    pub fn before_tool(mut self, callback: impl CallbackRef<BeforeTool>) -> Self {
        self.llm.before_tool.push(callback.callback_name());
        self
    }

    /// Runs a callback after each tool call: a function marked `#[callback(after_tool)]`, or a name.
    #[must_use]
    pub fn after_tool(mut self, callback: impl CallbackRef<AfterTool>) -> Self {
        self.llm.after_tool.push(callback.callback_name());
        self
    }
}

fn computed<F, R>(compute: F) -> Instruction
where
    F: Fn(Context) -> R + 'static,
    R: Future<Output = Result<String, Error>> + 'static,
{
    Instruction::Computed(Rc::new(move |cx| -> LocalFuture<_> { Box::pin(compute(cx)) }))
}

impl From<SequentialAgent> for Agent {
    fn from(builder: SequentialAgent) -> Self {
        Self { common: builder.common, kind: Kind::Sequential }
    }
}

impl From<ParallelAgent> for Agent {
    fn from(builder: ParallelAgent) -> Self {
        Self { common: builder.common, kind: Kind::Parallel }
    }
}

impl From<LoopAgent> for Agent {
    fn from(builder: LoopAgent) -> Self {
        Self { common: builder.common, kind: Kind::Loop(builder.max_iterations) }
    }
}

impl From<CustomAgent> for Agent {
    fn from(builder: CustomAgent) -> Self {
        Self { common: builder.common, kind: Kind::Custom(builder.custom) }
    }
}

impl From<LlmAgent> for Agent {
    fn from(builder: LlmAgent) -> Self {
        Self { common: builder.common, kind: Kind::Llm(builder.llm) }
    }
}
