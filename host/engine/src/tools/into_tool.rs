//! Conversion of tools for builders of agents and toolsets.

use std::sync::Arc;

use hatchery_core::Tool;

use super::builtin::{
    AtMostOnce, ExampleTool, ExitLoop, LoadArtifacts, LoadMemory, LongRunning, ModelTool, PreloadMemory,
    RequireConfirmation, StopStreaming,
};

/// A tool for builders: a [`function_tool`](crate::build::function_tool), an [`AgentTool`](crate::AgentTool), a
/// [built-in tool](super::builtin), or any other in an [`Arc`].
pub trait IntoTool {
    /// Returns the tool.
    fn into_tool(self) -> Arc<dyn Tool>;
}

impl IntoTool for Arc<dyn Tool> {
    fn into_tool(self) -> Arc<dyn Tool> {
        self
    }
}

impl<T: Tool + 'static> IntoTool for Arc<T> {
    fn into_tool(self) -> Arc<dyn Tool> {
        self
    }
}

/// Implements [`IntoTool`] for types of tools.
macro_rules! impl_into_tool {
    ($($tool:ty),* $(,)?) => { $(
        impl $crate::tools::IntoTool for $tool {
            fn into_tool(self) -> std::sync::Arc<dyn hatchery_core::Tool> {
                std::sync::Arc::new(self)
            }
        }
    )* };
}

pub(crate) use impl_into_tool;

impl_into_tool!(
    AtMostOnce,
    ExampleTool,
    ExitLoop,
    LoadArtifacts,
    LoadMemory,
    LongRunning,
    ModelTool,
    PreloadMemory,
    RequireConfirmation,
    StopStreaming,
);
