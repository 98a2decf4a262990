//! Tools: the built-in ones, toolsets, argument checks against JSON Schema, and confirmation by a person.

pub(crate) mod arguments;
pub mod builtin;
pub mod confirmation;
pub(crate) mod schema;
pub mod toolsets;
