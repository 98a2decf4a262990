//! Write AI agents, tools, callbacks, plugins and models as WebAssembly components for a Hatchery host.
//!
//! A complete component, an agent with a tool and a callback:
//!
//! ```
//! use hatchery_guest::prelude::*;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Roll {
//!     /// How many sides the die has.
//!     sides: u32,
//! }
//!
//! /// Rolls a die and returns the number.
//! #[tool]
//! async fn roll_die(roll: Roll, cx: ToolContext) -> Result<u32, ToolError> {
//!     let rolled = cx.state::<u32>("last")?.unwrap_or(0) % roll.sides + 1;
//!     cx.set_state("last", rolled)?;
//!     Ok(rolled)
//! }
//!
//! /// Refuses dice that cannot be rolled.
//! #[callback(before_tool)]
//! async fn check_sides(call: &ToolCall) -> Result<Option<Value>, Error> {
//!     Ok((call.args.get("sides") == Some(&json!(0))).then(|| json!({ "error": "a die needs a side" })))
//! }
//!
//! /// Rolls dice.
//! #[agent]
//! fn dice() -> LlmAgent {
//!     LlmAgent::new("dice").instruction("Roll when asked.").tool(roll_die).before_tool(check_sides)
//! }
//!
//! hatchery_guest::export! { agents: [dice], tools: [roll_die], callbacks: [check_sides] }
//! ```
//!
//! Its `Cargo.toml` says `crate-type = ["cdylib"]` and depends on `hatchery-guest`, `serde` and `schemars`; `cargo
//! build --target wasm32-wasip2 --release` makes the `.wasm` file to drop into a served folder.
//!
//! - [`#[tool]`](macro@tool), [`#[agent]`](macro@agent), [`#[callback(…)]`](macro@callback) and the other attributes
//!   turn a function into one that returns a definition. Tools, agents and callbacks of one component therefore refer
//!   to each other as Rust items. Items of other components are referred to by name, as in `.tool("search/find")`.
//! - [`ToolContext`], [`CallbackContext`] and [`AgentContext`] provide access to the session, artifacts, memory, models
//!   and other tools. Code that does not control the run takes a plain [`Context`].
//! - [`http`] sends requests to the hosts that the operator grants.
//! - [`Error`] and [`ToolError`] convert from any standard error with `?`.
//! - [`export!`] lists the exports of the component. [`requests!`] declares the grants that it needs.
//!
//! # Grants
//!
//! A component's code can compute, and can use the session that it is called in. Everything else must be granted by
//! the operator. [`requests!`] declares which grants the component needs and why, with the keys of `grants`; `hatchery
//! inspect` shows them:
//!
//! ```
//! hatchery_guest::requests! {
//!     models: ["gemini-*"] because "it summarizes search results",
//!     memory: read,
//!     artifacts: write,
//!     state: { read: ["app:theme"], write: ["user:*"] },
//!     runs: ["clerk"],
//!     sessions: { read: ["diary"], write: ["clerk"] },
//!     tools: ["search/*"],
//!     environment: ["LANG"],
//!     files: [{ guest: "/data", access: read }],
//!     network: ["api.example.com"],
//! }
//! ```
//!
//! An operation that is not granted fails with an [`Error`] with the code `DENIED`.
//!
//! # Exports
//!
//! **Agents** are builders ([`LlmAgent`], [`SequentialAgent`], [`ParallelAgent`], [`LoopAgent`]) or async functions:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! /// Greets.
//! #[agent]
//! async fn greeter(cx: AgentContext) -> Result<(), Error> {
//!     cx.say("Hello!").await
//! }
//! # hatchery_guest::export! { agents: [greeter] }
//! ```
//!
//! **Tools** can require confirmation by a person: `#[tool(confirm)]` asks before each call,
//! [`ToolContext::request_confirmation`] asks during a call.
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! # #[derive(Deserialize, JsonSchema)]
//! # struct Transfer { euros: u32 }
//! /// Sends money.
//! #[tool]
//! async fn send_money(transfer: Transfer, cx: ToolContext) -> Result<&'static str, ToolError> {
//!     match cx.confirmation()? {
//!         _ if transfer.euros < 100 => Ok("sent"),
//!         Some(confirmation) if confirmation.confirmed => Ok("sent"),
//!         Some(_) => Ok("refused"),
//!         None => {
//!             cx.request_confirmation(format!("Send {} euros?", transfer.euros), ())?;
//!             Ok("waiting for a person")
//!         }
//!     }
//! }
//! # hatchery_guest::export! { tools: [send_money] }
//! ```
//!
//! **Callbacks** run before and after an agent, a model call or a tool call, or after one that failed:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! #[callback(on_model_error)]
//! async fn apologise(_request: &LlmRequest, error: Error) -> Result<Option<LlmResponse>, Error> {
//!     Ok((error.code == "MODEL_RATE_LIMITED").then(|| LlmResponse::text("I am busy. Please ask again in a minute.")))
//! }
//! # hatchery_guest::export! { callbacks: [apologise] }
//! ```
//!
//! **Plugins** have hooks into every run, regardless of its agent. The host only calls the hooks that are implemented:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! struct Courtesy;
//!
//! #[plugin]
//! impl Courtesy {
//!     async fn before_model(request: &mut LlmRequest) -> Result<Option<LlmResponse>, Error> {
//!         request.system_instructions.push("Be polite.".into());
//!         Ok(None)
//!     }
//! }
//! # hatchery_guest::export! { plugins: [Courtesy] }
//! ```
//!
//! **Code executors** run the code that models write, for agents with `.run_code(…)`:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! /// Adds numbers, one per line.
//! #[code_executor]
//! async fn adding_machine(input: CodeInput) -> Result<CodeOutput, ToolError> {
//!     Ok(match input.code.lines().map(str::parse::<i64>).sum::<Result<i64, _>>() {
//!         Ok(sum) => CodeOutput { stdout: sum.to_string(), ..CodeOutput::default() },
//!         Err(error) => CodeOutput { stderr: error.to_string(), ..CodeOutput::default() },
//!     })
//! }
//!
//! #[agent]
//! fn clerk() -> LlmAgent {
//!     LlmAgent::new("clerk").run_code(CodeRunner::new(adding_machine).error_retries(1))
//! }
//! # hatchery_guest::export! { agents: [clerk], code_executors: [adding_machine] }
//! ```
//!
//! **Summarizers** write the summaries that replace older events in the prompt:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! #[summarizer]
//! async fn minutes(events: Vec<Event>, cx: Context) -> Result<Option<Content>, Error> {
//!     let transcript: String = events.iter().map(Event::text_content).collect();
//!     Ok(cx.generate(LlmRequest::new("", transcript).with_instruction("Summarize this.")).await?.content)
//! }
//! # hatchery_guest::export! { summarizers: [minutes] }
//! ```
//!
//! **Example providers** choose examples for the model, for agents with `.examples_from(…)`:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! #[examples]
//! async fn sums(query: String) -> Result<Vec<Example>, Error> {
//!     Ok(if query.contains('+') { vec![Example::new("1 + 1", "2")] } else { Vec::new() })
//! }
//!
//! #[agent]
//! fn teacher() -> LlmAgent {
//!     LlmAgent::new("teacher").examples_from(sums).planner(Planner::PlanReAct)
//! }
//! # hatchery_guest::export! { agents: [teacher], examples: [sums] }
//! ```
//!
//! **Models** stream their answers. Agents refer to them as `component:NAME/model`:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! #[model]
//! async fn echo(request: LlmRequest, answer: Answer) -> Result<(), Error> {
//!     let text = request.contents.last().map(Content::text).unwrap_or_default();
//!     for word in text.split_inclusive(' ') {
//!         answer.say(word).await?;
//!     }
//!     Ok(())
//! }
//! # hatchery_guest::export! { models: [echo] }
//! ```
//!
//! **Live models** answer requests while a conversation lasts, in text or speech, and call tools:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! #[live_model]
//! async fn parrot(_request: LlmRequest, connection: LiveConnection) -> Result<(), Error> {
//!     while let Some(request) = connection.receive().await? {
//!         if let LiveRequest::Content { content, .. } = request {
//!             connection.say(content.text()).await?;
//!             connection.send(LiveResponse::TurnComplete).await?;
//!         }
//!     }
//!     Ok(())
//! }
//! # hatchery_guest::export! { live_models: [parrot] }
//! ```
//!
//! # Tests
//!
//! `hatchery_guest::testing` has a mock host for unit tests with plain `cargo test`. It runs all of these items, and
//! mocks models, tools, state and everything else that a component imports. It exists on all targets except wasm, so it
//! is never part of a component.

extern crate self as hatchery_guest;

mod agent;
mod agent_context;
mod answer;
mod artifacts;
mod bindings;
mod callback;
mod code;
mod confirmation;
mod content;
mod context;
mod convert;
mod credential;
mod error;
mod event;
mod examples;
mod export;
mod hook;
mod host;
pub mod http;
mod live;
mod live_run;
pub mod log;
mod model;
mod plugin;
mod run_info;
mod runner;
mod sessions;
mod summarizer;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
pub mod time;
mod tool;
mod toolset;

pub use agent::{
    Agent, CodeRunner, CustomAgent, IncludeContents, LlmAgent, LoopAgent, ParallelAgent, Planner, SequentialAgent,
    SubAgent, SubAgentRef, Thinking, Toolset,
};
pub use agent_context::{AgentContext, EventStream};
pub use answer::{Answer, Model};
pub use artifacts::{ArtifactVersion, Artifacts};
pub use callback::{
    AfterAgent, AfterModel, AfterTool, AnyCallback, BeforeAgent, BeforeModel, BeforeTool, Callback, CallbackRef,
    OnAgentError, OnModelError, OnToolError, ToolCall,
};
pub use code::{CodeExecutor, CodeExecutorRef, CodeFile, CodeInput, CodeOutput};
pub use confirmation::ToolConfirmation;
pub use content::{
    Blob, CodeExecutionResult, Content, ExecutableCode, FileData, FunctionCall, FunctionResponse, JsonMap, Part,
    PartData,
};
pub use context::{CallbackContext, Context, Memory, MemoryEntry, ToolContext};
pub use credential::{AuthConfig, Credential};
pub use error::{COMPONENT_FAILED, Error, ToolError};
pub use event::{Event, EventActions};
pub use examples::{Example, ExampleProvider, ExamplesRef};
pub use hatchery_guest_macros::{
    agent, callback, code_executor, examples, live_model, model, plugin, requests, summarizer, tool,
};
pub use live::{LiveConnection, LiveModel, LiveRequest, LiveResponse, Transcription};
pub use live_run::{LiveRun, LiveRunRequest};
pub use model::{FunctionDeclaration, LlmRequest, LlmResponse, ResponseStream};
pub use plugin::Plugin;
pub use run_info::{PluginInfo, RemainingLimits, RunInfo, StreamingMode};
pub use runner::{Run, RunRequest, Runner};
pub use sessions::{EventWindow, SessionInfo, Sessions};
pub use summarizer::Summarizer;
pub use tool::{LocalFuture, Tool, ToolRef, ToolUse};
pub use toolset::{DynamicTool, ToolsetExport};

pub use futures::future::{join, join_all, try_join_all};
pub use {schemars, serde, serde_json};

/// The items that most components use.
pub mod prelude {
    pub use crate::{
        AgentContext, Answer, AuthConfig, CallbackContext, CodeFile, CodeInput, CodeOutput, CodeRunner, Content,
        Context, CustomAgent, Error, Event, Example, IncludeContents, LiveConnection, LiveRequest, LiveResponse,
        LiveRunRequest, LlmAgent, LlmRequest, LlmResponse, LoopAgent, ParallelAgent, Part, Planner, RunRequest,
        SequentialAgent, Thinking, ToolCall, ToolConfirmation, ToolContext, ToolError, Toolset, agent, callback,
        code_executor, examples, http, live_model, log, model, plugin, summarizer, tool,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};
}

/// The examples of the agents guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/agents.md")]
mod guide {}

/// The examples of the components guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/components.md")]
mod components {}

/// Used by the macros only.
#[doc(hidden)]
pub mod __private {
    pub use crate::bindings::agents::{self, export_agents};
    pub use crate::bindings::callbacks::{self, export_callbacks};
    pub use crate::bindings::code_executors::{self, export_code_executors};
    pub use crate::bindings::examples::{self, export_examples};
    pub use crate::bindings::live_models::{self, export_live_models};
    pub use crate::bindings::models::{self, export_models};
    pub use crate::bindings::plugins::{self, export_plugins};
    pub use crate::bindings::summarizers::{self, export_summarizers};
    pub use crate::bindings::tools::{self, export_tools};
    pub use crate::bindings::toolsets::{self, export_toolsets};
    pub use crate::callback::{Before, value};
    pub use crate::export::ExportList;
    pub use crate::plugin::{AnyPlugin, Hooks};
    pub use crate::tool::{arguments, result, schema};
}
