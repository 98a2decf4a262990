//! Agents, tools and callbacks of a program that embeds the engine, from closures.
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
//! [`function_tool`], `instruction_fn` and [`custom`] take closures that own what they are given: `|args, cx| async move { … }`.
//! Callbacks borrow what they look at and may change, so their closures box what they give:
//! `|cx, request| Box::pin(async move { … })`; see [`callback`].
//!
//! A builder is checked when it is built, with all that is below it. Names of agents must be unique in the whole tree, which
//! [`App::new`](crate::App::new) checks.

mod arguments;
pub mod callback;
mod common;
mod error;
mod llm;
pub(crate) mod schema;
mod tool;
mod workflow;

pub use common::IntoAgent;
pub use error::BuildError;
pub use llm::{LlmAgentBuilder, llm};
pub use schema::schema;
pub use tool::{FunctionTool, IntoTool, function_tool};
pub use workflow::{
    CustomAgentBuilder, LoopAgentBuilder, ParallelAgentBuilder, SequentialAgentBuilder, custom, loop_agent, parallel,
    sequential,
};
