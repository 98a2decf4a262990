//! Tools: the call pipeline, built-in tools, toolsets, validation of arguments, confirmation by a person, and
//! credentials of users.

pub(crate) mod arguments;
pub mod builtin;
pub mod confirmation;
pub(crate) mod credential;
mod into_tool;
pub(crate) mod pipeline;
pub(crate) mod schema;
pub mod toolsets;

pub use into_tool::IntoTool;
pub(crate) use into_tool::impl_into_tool;
