//! Memory in PostgreSQL with the extension `vector`, and without it.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use hatchery_core::{Embedder, MemoryService, ModelError};
use hatchery_stores::{Durability, PostgresMemory, SimilaritySearch, open_memory_with};

use crate::database::{uri, uri_with_vectors};
use crate::similarity::{remember, search};
use crate::support::ConceptEmbedder;

async fn open(uri: &str, similarity: SimilaritySearch) -> PostgresMemory {
    PostgresMemory::open(uri).await.unwrap().with_similarity(similarity).await.unwrap()
}

/// Returns a connection to the server of a URI.
async fn raw(uri: &str) -> tokio_postgres::Client {
    let (server, _) = uri.split_once('?').unwrap();
    let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Embeds every text by its length, in two dimensions, which are fewer than [`ConceptEmbedder`] has.
struct Lengths;

#[async_trait]
impl Embedder for Lengths {
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        Ok(texts.iter().map(|text| vec![1.0, text.len() as f32]).collect())
    }
}

#[tokio::test]
async fn a_server_without_the_extension_is_an_error_with_the_next_step() {
    let Some(uri) = uri() else { return };
    let has_extension = "SELECT FROM pg_available_extensions WHERE name = 'vector'";
    if !raw(&uri).await.query(has_extension, &[]).await.unwrap().is_empty() {
        return;
    }
    let opened = open_memory_with(&uri, Durability::default(), Some(ConceptEmbedder::search())).await;
    let error = opened.err().unwrap().to_string();
    let expected = "the server does not have the extension `vector`, by which embeddings are compared: install pgvector \
                    there, or search without an embedder";
    assert!(error.contains(expected), "{error}");
    open_memory_with(&uri, Durability::default(), None).await.unwrap();
}

#[tokio::test]
async fn an_account_that_may_not_create_the_extension_is_told_who_can() {
    let Some(uri) = uri_with_vectors() else { return };
    let admin = raw(&uri).await;
    let database = format!("plain_{}", uuid::Uuid::new_v4().simple());
    for statement in [format!("CREATE ROLE {database} LOGIN"), format!("CREATE DATABASE {database} OWNER {database}")] {
        admin.batch_execute(&statement).await.unwrap();
    }
    let (server, parameters) = uri.split_once('?').unwrap();
    let server = server.strip_suffix("/postgres").unwrap();
    let (scheme, host) = server.split_once("postgres@").unwrap();
    let own = format!("{scheme}{database}@{host}/{database}?{parameters}");
    let opened = open_memory_with(&own, Durability::default(), Some(ConceptEmbedder::search())).await;
    let error = opened.err().unwrap().to_string();
    let expected = "this account may not create the extension `vector`: let an administrator run `CREATE EXTENSION vector \
                    SCHEMA public` in the database, or search without an embedder";
    assert!(error.contains(expected), "{error}");

    let admin = raw(&format!("{server}/{database}?")).await;
    admin.batch_execute("CREATE EXTENSION vector SCHEMA public").await.unwrap();
    let memory = open(&own, ConceptEmbedder::search()).await;
    remember(&memory, "s1", &["an automobile"]).await;
    assert_eq!(search(&memory, "vehicle").await, ["an automobile"]);
}

#[tokio::test]
async fn hosts_that_open_it_at_once_share_vectors() {
    let Some(uri) = uri_with_vectors() else { return };
    let hosts = join_all((0..4).map(|_| open(&uri, ConceptEmbedder::search()))).await;
    remember(&hosts[0], "s1", &["an automobile"]).await;
    for host in &hosts {
        assert_eq!(search(host, "vehicle").await, ["an automobile"]);
    }
}

#[tokio::test]
async fn embedders_have_their_own_vectors() {
    let Some(uri) = uri_with_vectors() else { return };
    let memory = PostgresMemory::open(&uri).await.unwrap();
    remember(&memory, "s1", &["an automobile"]).await;
    let memory = open(&uri, ConceptEmbedder::search()).await;
    assert_eq!(search(&memory, "automobile").await, ["an automobile"]);
    assert!(search(&memory, "vehicle").await.is_empty(), "it was added without an embedder");
    remember(&memory, "s1", &["an automobile"]).await;
    assert_eq!(search(&memory, "vehicle").await, ["an automobile"]);
    let memory = open(&uri, SimilaritySearch::new("other", Arc::new(ConceptEmbedder))).await;
    assert!(search(&memory, "vehicle").await.is_empty());
    remember(&memory, "s1", &["an automobile"]).await;
    assert_eq!(search(&memory, "vehicle").await, ["an automobile"]);
    let memory = PostgresMemory::open(&uri).await.unwrap();
    assert!(search(&memory, "vehicle").await.is_empty());
    assert_eq!(search(&memory, "automobile").await, ["an automobile"]);
    memory.delete_session(&hatchery_core::SessionKey::new("app", "ann", "s1")).await.unwrap();
    assert!(search(&memory, "automobile").await.is_empty());
}

#[tokio::test]
async fn vectors_of_another_length_are_not_compared() {
    let Some(uri) = uri_with_vectors() else { return };
    let memory = open(&uri, ConceptEmbedder::search()).await;
    remember(&memory, "s1", &["an automobile"]).await;
    let memory = open(&uri, SimilaritySearch::new("concepts", Arc::new(Lengths))).await;
    assert!(search(&memory, "vehicle").await.is_empty());
    remember(&memory, "s2", &["something long"]).await;
    assert_eq!(search(&memory, "vehicle").await, ["something long"]);
}

#[tokio::test]
async fn word_stems_and_meaning_are_found_together() {
    let Some(uri) = uri_with_vectors() else { return };
    let memory = open(&format!("{uri}&text_search=english"), ConceptEmbedder::search()).await;
    remember(&memory, "s1", &["two running engines", "an automobile"]).await;
    assert_eq!(search(&memory, "run a vehicle").await, ["two running engines", "an automobile"]);
}

#[tokio::test]
async fn messages_of_schema_1_are_found_by_their_words_and_embedded_when_they_are_added_again() {
    let Some(uri) = uri_with_vectors() else { return };
    let client = raw(&uri).await;
    let schema = uri.split_once("schema=").unwrap().1.split('&').next().unwrap();
    let versions = "CREATE TABLE schema_versions (part TEXT PRIMARY KEY, version INTEGER NOT NULL); \
                    INSERT INTO schema_versions VALUES ('memory', 1)";
    let entry = "SELECT remember('app', 'ann', 's1', FALSE, NULL, ARRAY['1-an automobile'], ARRAY['user'], ARRAY[1], \
                 ARRAY['{\"role\":\"user\",\"parts\":[{\"text\":\"an automobile\"}]}'], ARRAY['an automobile'])";
    let own = format!("CREATE SCHEMA {schema}; SET search_path TO {schema}");
    let old = include_str!("../../src/memory/postgres/0001_entries.sql");
    for statements in [own.as_str(), versions, old, entry] {
        client.batch_execute(statements).await.unwrap();
    }
    let memory = open(&uri, ConceptEmbedder::search()).await;
    assert_eq!(search(&memory, "automobile").await, ["an automobile"]);
    assert!(search(&memory, "vehicle").await.is_empty());
    remember(&memory, "s1", &["an automobile"]).await;
    assert_eq!(search(&memory, "vehicle").await, ["an automobile"]);
    // An older host continues with the functions that it knows.
    let found = "SELECT out_content FROM recall('app', 'ann', NULL, ARRAY['automobile'], 10)";
    assert_eq!(client.query(found, &[]).await.unwrap().len(), 1);
}
