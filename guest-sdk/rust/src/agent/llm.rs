//! LLM agents: a model with an instruction and tools.

use std::future::Future;
use std::rc::Rc;

use schemars::JsonSchema;
use serde_json::Value;

use super::options::{CodeExecution, CodeRunner, Examples, IncludeContents, Planner, Toolset};
use super::{Agent, AgentFields, AgentKind, SubAgent, SubAgentRef, agent_hook_methods, builder};
use crate::callback::{
    AfterAgent, AfterModel, AfterTool, BeforeAgent, BeforeModel, BeforeTool, CallbackRef, OnAgentError, OnModelError,
    OnToolError,
};
use crate::content::JsonMap;
use crate::context::Context;
use crate::error::Error;
use crate::examples::{Example, ExamplesRef};
use crate::hook::{CallCallbacks, for_each_hook};
use crate::tool::{LocalFuture, ToolRef, ToolUse, schema};

/// Calls a model in a loop, and the tools that the model asks for.
pub struct LlmAgent {
    fields: AgentFields,
    llm: Box<Llm>,
}

builder!(LlmAgent);

impl LlmAgent {
    /// Creates an agent without instruction and tools. It uses the model of the nearest ancestor that is an LLM agent.
    pub fn new(name: impl Into<String>) -> Self {
        Self { fields: AgentFields::new(name), llm: Box::default() }
    }

    /// Sets the model, such as `gemini-2.5-flash` or `scripted:answers.yaml`.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.llm.model = Some(name.into());
        self
    }

    /// Sets the instruction. Placeholders are `{key}`, `{key?}`, `{app:key}`, `{artifact.name}`.
    #[must_use]
    pub fn instruction(mut self, text: impl Into<String>) -> Self {
        self.llm.instruction = Instruction::Text(text.into());
        self
    }

    /// Computes the instruction for each model call. Placeholders are not replaced.
    #[must_use]
    pub fn instruction_fn<F, R>(mut self, compute: F) -> Self
    where
        F: Fn(Context) -> R + 'static,
        R: Future<Output = Result<String, Error>> + 'static,
    {
        self.llm.instruction = compute_with(compute);
        self
    }

    /// Sets the instruction for all agents of the tree, if this agent is the root.
    #[must_use]
    pub fn global_instruction(mut self, text: impl Into<String>) -> Self {
        self.llm.global_instruction = Instruction::Text(text.into());
        self
    }

    /// Computes the instruction for all agents of the tree, if this agent is the root.
    #[must_use]
    pub fn global_instruction_fn<F, R>(mut self, compute: F) -> Self
    where
        F: Fn(Context) -> R + 'static,
        R: Future<Output = Result<String, Error>> + 'static,
    {
        self.llm.global_instruction = compute_with(compute);
        self
    }

    /// Adds a tool that the model may call: a function marked `#[tool]`, or a name.
    #[must_use]
    pub fn tool(mut self, tool: impl ToolRef) -> Self {
        self.llm.tools.push(tool.tool_use());
        self
    }

    /// Adds a toolset, which is resolved when the agent runs: a component's name, which is the set of all its tools, or
    /// a [`Toolset`] that selects some of them.
    #[must_use]
    pub fn toolset(mut self, toolset: impl Into<Toolset>) -> Self {
        self.llm.toolsets.push(toolset.into());
        self
    }

    /// Sets examples of good answers. Replaces earlier examples.
    #[must_use]
    pub fn examples(mut self, examples: impl IntoIterator<Item = Example>) -> Self {
        self.llm.examples = Examples::Fixed(examples.into_iter().collect());
        self
    }

    /// Chooses examples for each model call: with a function marked `#[examples]`, or the provider with this name.
    /// Replaces earlier examples.
    #[must_use]
    pub fn examples_from(mut self, provider: impl ExamplesRef) -> Self {
        self.llm.examples = Examples::Chosen(provider.provider_name());
        self
    }

    /// Sets the planner.
    #[must_use]
    pub fn planner(mut self, planner: impl Into<Planner>) -> Self {
        self.llm.planner = Some(planner.into());
        self
    }

    /// Runs the code that the model writes, between two model calls: with a function marked `#[code_executor]`, an
    /// executor's name, or a [`CodeRunner`] with options.
    #[must_use]
    pub fn run_code(mut self, runner: impl Into<CodeRunner>) -> Self {
        self.llm.code_execution = CodeExecution::Host(runner.into());
        self
    }

    /// Lets the model itself run the code that it writes, if it supports that.
    #[must_use]
    pub fn run_code_in_model(mut self) -> Self {
        self.llm.code_execution = CodeExecution::BuiltIn;
        self
    }

    /// Sets the part of the history that the model sees.
    #[must_use]
    pub fn include_contents(mut self, contents: IncludeContents) -> Self {
        self.llm.include_contents = contents;
        self
    }

    /// Sets the schema of the input, for use of the agent as a tool.
    #[must_use]
    pub fn input_schema<T: JsonSchema>(mut self) -> Self {
        self.llm.input_schema = Some(schema::<T>());
        self
    }

    /// Sets the schema of the answer, which is then JSON.
    #[must_use]
    pub fn output_schema<T: JsonSchema>(mut self) -> Self {
        self.llm.output_schema = Some(schema::<T>());
        self
    }

    /// Stores the answer in this state key.
    #[must_use]
    pub fn output_key(mut self, key: impl Into<String>) -> Self {
        self.llm.output_key = Some(key.into());
        self
    }

    /// Sets the maximum number of model calls in one run of the agent.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.llm.max_steps = Some(steps);
        self
    }

    /// Disallows transfers to the parent agent.
    #[must_use]
    pub fn disallow_transfer_to_parent(mut self) -> Self {
        self.llm.disallow_transfer_to_parent = true;
        self
    }

    /// Disallows transfers to sibling agents.
    #[must_use]
    pub fn disallow_transfer_to_peers(mut self) -> Self {
        self.llm.disallow_transfer_to_peers = true;
        self
    }

    /// Sets a field of Gemini's `GenerateContentConfig` for the model calls, such as `temperature`.
    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.llm.config.insert(key.into(), value.into());
        self
    }
}

macro_rules! call_hook_methods {
    (() runs $_runs:tt agents $_agents:tt calls { $(
        $(#[$doc:meta])* $hook:ident $point:ident $_name:literal $_inputs:tt -> $_output:ty, $_call:ident;
    )* }) => {
        impl LlmAgent {
            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = concat!("The callback is a function marked `#[callback(", stringify!($hook), ")]`, or a name.")]
                #[must_use]
                pub fn $hook(mut self, callback: impl CallbackRef<$point>) -> Self {
                    self.llm.callbacks.$hook.push(callback.callback_name());
                    self
                }
            )*
        }
    };
}

for_each_hook!(call_hook_methods);

/// The fields of an LLM agent that other agents do not have.
#[derive(Default)]
pub(crate) struct Llm {
    pub(super) model: Option<String>,
    pub(crate) instruction: Instruction,
    pub(crate) global_instruction: Instruction,
    pub(super) tools: Vec<ToolUse>,
    pub(super) toolsets: Vec<Toolset>,
    pub(super) examples: Examples,
    pub(super) planner: Option<Planner>,
    pub(super) code_execution: CodeExecution,
    pub(super) include_contents: IncludeContents,
    pub(super) input_schema: Option<Value>,
    pub(super) output_schema: Option<Value>,
    pub(super) output_key: Option<String>,
    pub(super) max_steps: Option<u32>,
    pub(super) disallow_transfer_to_parent: bool,
    pub(super) disallow_transfer_to_peers: bool,
    pub(super) config: JsonMap,
    pub(super) callbacks: CallCallbacks,
}

#[derive(Default)]
pub(crate) enum Instruction {
    #[default]
    None,
    Text(String),
    Computed(Rc<dyn Fn(Context) -> LocalFuture<Result<String, Error>>>),
}

fn compute_with<F, R>(compute: F) -> Instruction
where
    F: Fn(Context) -> R + 'static,
    R: Future<Output = Result<String, Error>> + 'static,
{
    Instruction::Computed(Rc::new(move |cx| -> LocalFuture<_> { Box::pin(compute(cx)) }))
}

impl From<LlmAgent> for Agent {
    fn from(builder: LlmAgent) -> Self {
        Self { fields: builder.fields, kind: AgentKind::Llm(builder.llm) }
    }
}
