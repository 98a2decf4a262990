//! Tools that come with the host. Their names win over those of components.

mod agent_tool;
mod artifacts;
mod examples;
pub(crate) mod exit_loop;
mod long_running;
mod memory;
mod model_tools;
mod require_confirmation;

use std::sync::Arc;

use hatchery_core::{FunctionDeclaration, Tool};
use serde_json::Value;

pub use agent_tool::AgentTool;
pub use artifacts::LoadArtifacts;
pub use examples::ExampleTool;
pub use exit_loop::ExitLoop;
pub use long_running::LongRunning;
pub use memory::{LoadMemory, PreloadMemory};
pub use model_tools::ModelTool;
pub use require_confirmation::RequireConfirmation;

/// Names of the tools that [`tool`] knows.
pub const NAMES: &[&str] = &[
    "exit_loop",
    "load_artifacts",
    "load_memory",
    "preload_memory",
    "google_search",
    "google_maps_grounding",
    "url_context",
    "code_execution",
];

/// The built-in tool of this name, for those that need no arguments to be made.
pub fn tool(name: &str) -> Option<Arc<dyn Tool>> {
    match name {
        "exit_loop" => Some(Arc::new(ExitLoop::default())),
        "load_artifacts" => Some(Arc::new(LoadArtifacts::default())),
        "load_memory" => Some(Arc::new(LoadMemory::default())),
        "preload_memory" => Some(Arc::new(PreloadMemory::default())),
        _ => ModelTool::named(name).map(|tool| Arc::new(tool) as Arc<dyn Tool>),
    }
}

fn declaration(name: &str, description: &str, parameters: Option<Value>) -> Arc<FunctionDeclaration> {
    Arc::new(FunctionDeclaration { name: name.into(), description: description.into(), parameters, response: None })
}
