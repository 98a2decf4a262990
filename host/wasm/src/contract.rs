//! The contract between host and components (`wit/`): generated bindings, type conversion, the imports of guests,
//! streams, and loaded components with their exports.

pub(crate) mod bindings;
pub mod component;
pub(crate) mod convert;
pub(crate) mod imports;
pub(crate) mod progress;
pub(crate) mod stream;
pub(crate) mod sub_agent_relay;
pub mod version;
