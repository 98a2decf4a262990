//! Session, artifact and memory services: those that forget when the process ends, and those that keep files.
//!
//! Every service is chosen by a URI (see [`open_sessions`], [`open_artifacts`], [`open_memory`]), implements a trait of
//! `hatchery_core`, and passes the suite of tests that its kind shares. Nothing here caches what another process could change.

pub mod artifacts;
pub mod memory;
pub mod sessions;
mod uri;

use std::sync::Arc;

use hatchery_core::{ModelRegistry, Services};

pub use artifacts::{DirectoryArtifacts, MemoryArtifacts};
pub use memory::KeywordMemory;
pub use sessions::{MemorySessions, SqliteSessions};
pub use uri::{open_artifacts, open_memory, open_sessions};

/// Services that forget everything when the process ends, with these models.
pub fn in_memory(models: Arc<dyn ModelRegistry>) -> Services {
    Services {
        sessions: Arc::new(MemorySessions::new()),
        artifacts: Arc::new(MemoryArtifacts::new()),
        memory: Arc::new(KeywordMemory::new()),
        models,
    }
}
