//! Services in PostgreSQL. Every one has its own schema.

use std::path::Path;

use hatchery_stores::{PostgresMemory, PostgresSessions};
use hatchery_test_services::{postgres, postgres_with_vectors};

use crate::support::ConceptEmbedder;

/// Returns the URI of a new schema.
pub fn uri() -> Option<String> {
    Some(in_schema(postgres()?))
}

/// Returns the URI of a new schema of a server.
pub fn in_schema(server: &str) -> String {
    format!("{server}?schema=test_{}&max_connections=4", uuid::Uuid::new_v4().simple())
}

pub async fn sessions() -> Option<PostgresSessions> {
    Some(PostgresSessions::open(&uri()?).await.unwrap())
}

pub async fn memory() -> Option<PostgresMemory> {
    Some(PostgresMemory::open(&uri()?).await.unwrap())
}

/// Returns a memory with a configuration that finds whole words only.
pub async fn memory_with_text_search() -> Option<PostgresMemory> {
    Some(PostgresMemory::open(&format!("{}&text_search=simple", uri()?)).await.unwrap())
}

/// Returns the URI of a new schema of a server with the extension `vector`.
pub fn uri_with_vectors() -> Option<String> {
    Some(in_schema(postgres_with_vectors(Path::new(env!("CARGO_TARGET_TMPDIR")))?))
}

pub async fn memory_with_vectors() -> Option<PostgresMemory> {
    let memory = PostgresMemory::open(&uri_with_vectors()?).await.unwrap();
    Some(memory.with_similarity(ConceptEmbedder::search()).await.unwrap())
}
