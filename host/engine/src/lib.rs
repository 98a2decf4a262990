//! Runs agents: one path for a message, from the [`Runner`] through an agent's loop to models, tools and callbacks, and back through the
//! event log to the client.
//!
//! Read it in this order: [`runner`] (a turn from start to end), `agents` (one run of one agent), `llm` (the loop of an LLM agent and
//! its state machine), [`yaml`] (agents from files).
//!
//! Nothing here knows about HTTP, wasm, a provider or a store: those come as the traits of `hatchery-core`.

pub mod app;
pub mod builtin;
pub mod llm;
pub mod plugins;
pub mod registry;
pub mod runner;
pub mod yaml;

mod agents;
mod tasks;

pub use app::{App, AppSettings, RunSettings};
pub use plugins::{DuplicatePlugin, PluginSource, Plugins};
pub use registry::Registry;
pub use runner::{Run, RunRequest, Runner};
