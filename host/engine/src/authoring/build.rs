//! Builders of agents, tools and callbacks for programs that embed the engine.
//!
//! ```
//! use hatchery_engine::build::{function_tool, llm, sequential};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Convert {
//!     /// In degrees Celsius.
//!     celsius: f64,
//! }
//!
//! let convert = function_tool("convert", "Converts a temperature to Fahrenheit.", |args: Convert, _| async move {
//!     Ok(args.celsius * 1.8 + 32.0)
//! });
//! let report = sequential("report")
//!     .sub_agent(llm("reader").model("gemini-2.5-flash").instruction("Convert what you read.").tool(convert))
//!     .sub_agent(llm("writer").model("gemini-2.5-pro").instruction_fn(|cx| async move {
//!         Ok(format!("Write for {}.", cx.invocation.session_key.user))
//!     }))
//!     .build()?;
//! # assert_eq!(report.sub_agents[1].name, "writer");
//! # Ok::<(), hatchery_engine::build::BuildError>(())
//! ```
//!
//! [`function_tool`], `instruction_fn` and [`custom`] take closures that own their arguments: `|args, cx| async move {
//! … }`. Callbacks borrow their arguments, so their closures return a boxed future: `|cx, request| Box::pin(async move
//! { … })`; see [`callback`].
//!
//! `build` checks the builder and its sub-agents. [`App::new`](crate::App::new) checks that names of agents are unique
//! in the whole tree.

mod arguments;
pub mod callback;
mod callback_plugin;
mod common;
mod error;
mod llm;
pub(crate) mod schema;
mod tool;
mod workflow;

pub use crate::tools::IntoTool;
pub use callback_plugin::CallbackPlugin;
pub(crate) use common::invalid_name;
pub use common::{IntoAgent, check_tools};
pub use error::BuildError;
pub use llm::{LlmAgentBuilder, llm};
pub use schema::schema;
pub use tool::{FunctionTool, function_tool};
pub use workflow::{
    CustomAgentBuilder, LoopAgentBuilder, ParallelAgentBuilder, SequentialAgentBuilder, custom, loop_agent, parallel,
    sequential,
};
