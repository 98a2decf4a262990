//! Tools: the call pipeline, built-in tools, toolsets, validation of arguments, and confirmation by a person.

pub(crate) mod arguments;
pub mod builtin;
pub mod confirmation;
pub(crate) mod pipeline;
pub(crate) mod schema;
pub mod toolsets;
