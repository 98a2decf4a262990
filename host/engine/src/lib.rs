//! The engine: runs agents. A message takes one path, from the [`Runner`] through the agent loop to models, tools and
//! callbacks, and back through the event log to the client.
//!
//! ```
//! # use std::sync::Arc;
//! use hatchery_core::{Content, JsonMap, RunConfig};
//! use hatchery_engine::build::{function_tool, llm};
//! use hatchery_engine::{App, RunRequest, Runner};
//! use hatchery_models::scripted::{Reply, Scripted};
//! use hatchery_models::{ModelProviders, Settings};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let script = Scripted::sequence([Reply::call("flip_coin", JsonMap::new().into()), Reply::text("It is heads.")]);
//! let flip_coin = function_tool("flip_coin", "Flips a coin.", |_: JsonMap, _| async { Ok("heads") });
//! let agent = llm("gambler")
//!     .model_instance("scripted", Arc::new(script)) // or .model("gemini-2.5-flash")
//!     .instruction("Flip a coin when asked to.")
//!     .tool(flip_coin)
//!     .build()?;
//!
//! let app = Arc::new(App::new("casino", agent)?);
//! let models = ModelProviders::with_defaults(Settings::from_env());
//! let runner = Runner::new(hatchery_stores::in_memory(Arc::new(models)));
//! let config = RunConfig { auto_create_session: true, ..RunConfig::default() };
//! let request = RunRequest { config, ..RunRequest::new("ada", "session-1", Content::user("Heads or tails?")) };
//! let events = runner.run(app, request).await?.collect().await?;
//! let texts: Vec<_> = events.iter().filter_map(|event| Some(event.content.as_ref()?.text())).collect();
//! assert_eq!(texts, ["", "", "It is heads."]); // the call, its response, the text
//! # Ok(())
//! # }
//! ```
//!
//! `examples/embed.rs` is a program that does the same and streams the answer; `docs/embedding.md` is a guide. Agents,
//! tools and callbacks are made with [`build`].
//!
//! To change the engine, read it in this order: [`runner`] (a turn from start to end), `run` (shared data of a run's
//! agents, and replay), `agents` (one run of one agent), `llm` (the agent loop and its state machine), [`compaction`]
//! (summaries that keep the prompts of long sessions small), [`yaml`] (agents from files). Imports point the other way:
//! `history` ← `run` ← `llm` ← `agents` ← `runner`.
//!
//! The engine does not depend on HTTP, wasm, providers or stores: they implement the traits of `hatchery-core`.

pub mod app;
pub mod instructions;
pub mod llm;
pub mod plugins;
pub mod runner;
pub mod static_catalog;
pub mod validation;

mod agents;
mod authoring;
mod catalog_source;
mod deadline;
mod extensions;
mod factories;
mod history;
mod provenance;
mod run;
pub mod tasks;
mod tools;

pub use authoring::tools as definitions;
pub use authoring::{build, yaml};
pub use history::{compaction, contents};
pub use tools::{builtin, confirmation, toolsets};

pub use agents::AgentTool;
pub use app::{App, AppSettings, MemoryAddition, RunSettings};
pub use catalog_source::{CatalogSnapshot, CatalogSource};
pub use extensions::{Extensions, LayeredResolver};
pub use factories::Factories;
pub use plugins::{DuplicatePlugin, PluginSource, Plugins};
pub use runner::{AppDirectory, LiveRunRequest, Run, RunInProgress, RunPermit, RunRequest, RunUpdate, Runner};
pub use static_catalog::StaticCatalog;
