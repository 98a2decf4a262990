//! The contract between host and components: bindings generated from `wit/`, conversion between their types and those of
//! `hatchery-core`, the imports that a guest may call, and one loaded component with its exports.

pub(crate) mod bindings;
pub mod component;
pub(crate) mod convert;
pub(crate) mod imports;
pub(crate) mod relay;
pub mod version;
