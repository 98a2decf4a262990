//! Session, artifact, memory and credential services: in memory, on disk, in PostgreSQL, in Firestore, in object
//! stores, and in Vertex AI Agent Engine.
//!
//! Each service is selected by a URI (see [`open_sessions`], [`open_artifacts`], [`open_memory`]), implements a trait
//! of `hatchery_core`, and passes the contract tests of its kind. Data that another process could change is not cached,
//! with two exceptions: the totals that [`quotas`] are checked against, and the state from which the next append to a
//! session in Firestore begins, which the database compares.

pub mod adk_sessions;
#[cfg(feature = "agent-engine")]
mod agent_engine;
pub mod artifacts;
pub mod backup;
pub mod credentials;
pub mod encryption;
#[cfg(feature = "firestore")]
pub mod firestore;
mod keyed_lock;
pub mod memory;
pub mod permissions;
#[cfg(feature = "postgres")]
mod postgres;
pub mod quotas;
pub mod retrieval;
pub mod sessions;
mod sqlite;
mod tasks;
mod uri;

use std::sync::Arc;

#[cfg(feature = "firestore")]
use hatchery_core::ArtifactService;
use hatchery_core::{ModelResolver, Services};

#[cfg(feature = "object-store")]
pub use artifacts::ObjectArtifacts;
pub use artifacts::{DirectoryArtifacts, MemoryArtifacts};
pub use credentials::{DirectoryCredentials, MemoryCredentials};
#[cfg(feature = "agent-engine")]
pub use memory::AgentEngineMemory;
#[cfg(feature = "postgres")]
pub use memory::PostgresMemory;
pub use memory::{KeywordMemory, SimilaritySearch, SqliteMemory};
pub use quotas::{AppQuotas, LiveQuotas, Quota, Quotas};
#[cfg(feature = "agent-engine")]
pub use sessions::AgentEngineSessions;
#[cfg(feature = "postgres")]
pub use sessions::PostgresSessions;
pub use sessions::{MemorySessions, SqliteSessions};
pub use sqlite::Durability;
pub use uri::{
    ARTIFACT_SCHEMES, SESSION_SCHEMES, open_artifacts, open_memory, open_memory_with, open_sessions, open_sessions_with,
};

/// Returns services that keep sessions and memory in the Firestore database of a client, with these artifacts and
/// models and the default [`Quotas`]. ADK for Java calls a runner with them `FirestoreDatabaseRunner`.
#[cfg(feature = "firestore")]
pub fn in_firestore(
    client: firestore::FirestoreClient,
    properties: &firestore::FirestoreProperties,
    artifacts: Arc<dyn ArtifactService>,
    models: Arc<dyn ModelResolver>,
) -> Services {
    AppQuotas::default().enforce(Services {
        sessions: Arc::new(firestore::FirestoreSessionService::with_properties(client.clone(), properties)),
        artifacts,
        memory: Arc::new(firestore::FirestoreMemoryService::with_properties(client, properties)),
        credentials: Arc::new(MemoryCredentials::default()),
        models,
    })
}

/// Returns services that keep everything in memory, with these models and the default [`Quotas`].
pub fn in_memory(models: Arc<dyn ModelResolver>) -> Services {
    AppQuotas::default().enforce(Services {
        sessions: Arc::new(MemorySessions::new()),
        artifacts: Arc::new(MemoryArtifacts::new()),
        memory: Arc::new(KeywordMemory::new()),
        credentials: Arc::new(MemoryCredentials::default()),
        models,
    })
}
