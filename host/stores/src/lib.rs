//! Session, artifact and memory services: those that forget when the process ends, and those that keep files.
//!
//! Every service is chosen by a URI (see [`open_sessions`], [`open_artifacts`], [`open_memory`]), implements a trait of
//! `hatchery_core`, and passes the suite of tests that its kind shares. Nothing here caches what another process could change, but for
//! the totals that [`quotas`] are checked against.

pub mod artifacts;
pub mod memory;
pub mod private;
mod queue;
pub mod quotas;
pub mod sessions;
mod uri;

use std::sync::Arc;

use hatchery_core::{ModelResolver, Services};

pub use artifacts::{DirectoryArtifacts, MemoryArtifacts};
pub use memory::KeywordMemory;
pub use quotas::{AppQuotas, Quota, Quotas};
pub use sessions::{Durability, MemorySessions, SqliteSessions};
pub use uri::{open_artifacts, open_memory, open_sessions, open_sessions_with};

/// Services that forget everything when the process ends, with these models and the usual [`Quotas`].
pub fn in_memory(models: Arc<dyn ModelResolver>) -> Services {
    AppQuotas::default().enforce(Services {
        sessions: Arc::new(MemorySessions::new()),
        artifacts: Arc::new(MemoryArtifacts::new()),
        memory: Arc::new(KeywordMemory::new()),
        models,
    })
}
