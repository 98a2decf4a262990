//! Tools: the call pipeline, built-in tools, toolsets, validation of arguments, and confirmation by a person.

pub(crate) mod arguments;
pub mod builtin;
pub mod confirmation;
mod into_tool;
pub(crate) mod pipeline;
pub(crate) mod schema;
pub mod toolsets;

pub use into_tool::IntoTool;
pub(crate) use into_tool::impl_into_tool;
