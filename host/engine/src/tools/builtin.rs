//! Built-in tools. Their names take precedence over the names of components' tools.

mod artifacts;
mod at_most_once;
pub(crate) mod examples;
pub(crate) mod exit_loop;
mod get_user_choice;
mod long_running;
mod memory;
mod model_tools;
mod require_confirmation;
mod stop_streaming;

use std::sync::{Arc, LazyLock};

use hatchery_core::{FunctionDeclaration, JsonMap, Tool};
use serde_json::Value;

use crate::factories::Factories;

pub use artifacts::LoadArtifacts;
pub use at_most_once::AtMostOnce;
pub use examples::ExampleTool;
pub use exit_loop::ExitLoop;
pub use get_user_choice::GetUserChoice;
pub use long_running::LongRunning;
pub use memory::{LoadMemory, PreloadMemory};
pub use model_tools::{DataStoreSpec, ModelTool, VertexAiSearch};
pub use require_confirmation::RequireConfirmation;
pub use stop_streaming::StopStreaming;

/// The tools that need no arguments, by name.
static TOOLS: LazyLock<Factories<Arc<dyn Tool>>> = LazyLock::new(|| {
    let mut tools = Factories::default();
    register::<ExitLoop>(&mut tools, exit_loop::NAME);
    register::<GetUserChoice>(&mut tools, get_user_choice::NAME);
    register::<LoadArtifacts>(&mut tools, "load_artifacts");
    register::<LoadMemory>(&mut tools, "load_memory");
    register::<PreloadMemory>(&mut tools, "preload_memory");
    register::<StopStreaming>(&mut tools, stop_streaming::NAME);
    for model_tool in [
        ModelTool::google_search,
        ModelTool::enterprise_web_search,
        ModelTool::google_maps_grounding,
        ModelTool::url_context,
        ModelTool::code_execution,
    ] {
        let name = model_tool().declaration().name.clone();
        tools.register(name, move |_| Ok(Arc::new(model_tool()) as Arc<dyn Tool>));
    }
    tools
});

fn register<T: Tool + Default + 'static>(tools: &mut Factories<Arc<dyn Tool>>, name: &str) {
    tools.register(name, |_| Ok(Arc::new(T::default()) as Arc<dyn Tool>));
}

/// Returns the built-in tools that need no arguments.
pub fn tools() -> &'static Factories<Arc<dyn Tool>> {
    &TOOLS
}

/// Returns the built-in tool of this name. `None` if there is none, or it needs arguments.
pub fn tool(name: &str) -> Option<Arc<dyn Tool>> {
    TOOLS.create(name, JsonMap::new())?.ok()
}

/// Creates the declaration of a built-in tool.
pub(crate) fn declaration(name: &str, description: &str, parameters: Option<Value>) -> Arc<FunctionDeclaration> {
    Arc::new(FunctionDeclaration { name: name.into(), description: description.into(), parameters, response: None })
}
