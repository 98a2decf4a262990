//! Artifact services, and what they have in common.

mod directory;
mod layout;
mod memory;
mod name;

pub use directory::DirectoryArtifacts;
pub use memory::MemoryArtifacts;
