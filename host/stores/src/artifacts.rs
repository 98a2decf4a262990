//! Artifact services.

mod directory;
mod layout;
mod memory;
mod name;
#[cfg(feature = "object-store")]
mod objects;
pub(crate) mod stored_part;

pub use directory::DirectoryArtifacts;
pub use memory::MemoryArtifacts;
#[cfg(feature = "object-store")]
pub use objects::ObjectArtifacts;
