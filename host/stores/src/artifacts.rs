//! Artifact services.

mod directory;
mod layout;
mod memory;
mod name;

pub use directory::DirectoryArtifacts;
pub use memory::MemoryArtifacts;
