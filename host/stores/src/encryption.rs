//! Encryption at rest: wrappers that keep content from those who read the storage.
//!
//! Records are sealed by AES-256-GCM with a random nonce, with associated data: app, user, and the id of the event, the
//! key of the state or the name of the artifact. So a record that was moved elsewhere is not accepted. The id of its
//! key is part of each record. The first key seals, and all of them open. Records from before encryption are read as
//! they are, unless [`PlainData`] refuses them.
//!
//! | service | sealed | readable |
//! |---|---|---|
//! | sessions | events, values of state, requests and failures of runs, results of calls | names of apps, users and sessions; ids, authors, runs and times of events; keys of state; states of runs |
//! | artifacts | bytes, media types, texts | names, versions, sizes |
//! | memory | messages | authors, times |

mod artifacts;
mod keys;
mod memory;
mod records;
mod runs;
mod segments;
mod sessions;

pub use artifacts::EncryptedArtifacts;
pub use keys::{EncryptionKeys, InvalidKey, PlainData};
pub use memory::EncryptedMemory;
pub use sessions::EncryptedSessions;

use std::sync::Arc;

use hatchery_core::Services;

impl EncryptionKeys {
    /// Wraps the session, artifact and memory service so that they encrypt with these keys.
    pub fn encrypt(self, services: Services) -> Services {
        let keys = Arc::new(self);
        Services {
            sessions: Arc::new(EncryptedSessions::new(services.sessions, keys.clone())),
            artifacts: Arc::new(EncryptedArtifacts::new(services.artifacts, keys.clone())),
            memory: Arc::new(EncryptedMemory::new(services.memory, keys)),
            ..services
        }
    }
}
