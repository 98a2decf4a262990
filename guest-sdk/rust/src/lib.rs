//! Write AI agents, tools and callbacks as WebAssembly components for a Hatchery host.
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
//! /// Rolls a die and gives the number.
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
//! Its `Cargo.toml` says `crate-type = ["cdylib"]` and depends on `hatchery-guest`, `serde` and `schemars`; `cargo build --target
//! wasm32-wasip2 --release` makes the `.wasm` file to drop into a served directory.
//!
//! - [`#[tool]`](macro@tool), [`#[agent]`](macro@agent) and [`#[callback(…)]`](macro@callback) turn a function into one that gives a
//!   definition, so tools, agents and callbacks refer to each other as items; those of other components go by name, as in
//!   `.tool("search/find")`.
//! - [`ToolContext`], [`CallbackContext`] and [`AgentContext`] are the way to the session, artifacts, memory, models and other tools.
//! - [`Error`] and [`ToolError`] take any standard error through `?`.
//! - [`export!`] says what the component offers; it has no other exports.
//!
//! On other targets than wasm everything compiles, so that pure code can be tested; whatever asks the host panics there.

extern crate self as hatchery_guest;

mod agent;
mod agent_context;
mod artifacts;
mod bindings;
mod callback;
mod content;
mod context;
mod convert;
mod error;
mod event;
mod export;
pub mod log;
mod model;
mod tool;

pub use agent::{Agent, CustomAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent, SubAgent, SubAgentRef};
pub use agent_context::{AgentContext, EventStream};
pub use artifacts::Artifacts;
pub use callback::{
    AfterAgent, AfterModel, AfterTool, AnyCallback, BeforeAgent, BeforeModel, BeforeTool, Callback, CallbackRef,
    ToolCall,
};
pub use content::{
    Blob, CodeExecutionResult, Content, ExecutableCode, FileData, FunctionCall, FunctionResponse, JsonMap, Part,
    PartData,
};
pub use context::{CallbackContext, Context, Memory, MemoryEntry, RunInfo, ToolContext};
pub use error::{COMPONENT_FAILED, Error, ToolError};
pub use event::{Event, EventActions};
pub use hatchery_guest_macros::{agent, callback, tool};
pub use model::{FunctionDeclaration, LlmRequest, LlmResponse, ResponseStream};
pub use tool::{LocalFuture, Tool, ToolRef};

pub use {schemars, serde, serde_json};

/// What most components use.
pub mod prelude {
    pub use crate::{
        AgentContext, CallbackContext, Content, Context, CustomAgent, Error, Event, LlmAgent, LlmRequest, LlmResponse,
        LoopAgent, ParallelAgent, Part, SequentialAgent, ToolCall, ToolContext, ToolError, agent, callback, log, tool,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};
}

/// For the macros only.
#[doc(hidden)]
pub mod __private {
    pub use crate::bindings::agents::{self, export_agents};
    pub use crate::bindings::callbacks::{self, export_callbacks};
    pub use crate::bindings::tools::{self, export_tools};
    pub use crate::callback::{Before, CallbackSet, value};
    pub use crate::export::{AgentSet, ToolSet};
    pub use crate::tool::{arguments, result, schema};
}
