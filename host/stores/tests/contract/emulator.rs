//! Services in Google's Firestore emulator. Every one has its own project.

use std::collections::BTreeSet;

use hatchery_stores::firestore::{
    FirestoreClient, FirestoreMemoryService, FirestoreProperties, FirestoreSessionService,
};
use hatchery_test_services::firestore_emulator;

/// Returns a client of a new project.
pub fn client() -> Option<FirestoreClient> {
    project(&format!("test-{}", uuid::Uuid::new_v4()))
}

/// Returns a client of a project.
pub fn project(project: &str) -> Option<FirestoreClient> {
    Some(FirestoreClient::builder(project).emulator(firestore_emulator()?).build().unwrap())
}

pub fn sessions() -> Option<FirestoreSessionService> {
    client().map(FirestoreSessionService::new)
}

/// Returns a memory that finds all words.
pub fn memory() -> Option<FirestoreMemoryService> {
    let properties = FirestoreProperties { stop_words: BTreeSet::new(), ..FirestoreProperties::default() };
    client().map(|client| FirestoreMemoryService::with_properties(client, &properties))
}
