//! Memory services with an embedder.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use hatchery_core::{
    Content, Embedder, Event, EventData, MemoryService, ModelError, ModelErrorKind, Session, SessionKey, State,
    Timestamp,
};
use hatchery_stores::{Durability, KeywordMemory, SimilaritySearch, SqliteMemory, open_memory_with};

use crate::database::uri_with_vectors;
use crate::support::ConceptEmbedder;

every_backend!(
    [
        messages_of_similar_meaning_are_found,
        a_message_with_words_and_meaning_comes_first,
        at_most_ten_messages_are_found_by_their_meaning_only,
        a_search_by_meaning_finds_only_messages_of_the_user,
        what_was_replaced_or_deleted_is_not_found_by_its_meaning,
    ],
    keyword(_folder) => KeywordMemory::new().with_similarity(ConceptEmbedder::search()),
    sqlite(folder) => open(folder).await.with_similarity(ConceptEmbedder::search()),
    postgres(_folder) => in_postgres!(memory_with_vectors),
);

async fn open(folder: &Path) -> SqliteMemory {
    SqliteMemory::open(folder.join("memory.db")).await.unwrap()
}

fn key(id: &str) -> SessionKey {
    SessionKey::new("app", "ann", id)
}

/// Returns one message per text, a microsecond apart.
fn messages(texts: &[&str]) -> Vec<Arc<Event>> {
    let message = |(micros, text): (i64, &&str)| {
        Event::new(EventData {
            id: format!("{micros}-{text}"),
            author: "user".into(),
            content: Some(Arc::new(Content::user(*text))),
            timestamp: Timestamp::from_micros(micros),
            ..EventData::default()
        })
    };
    (1..).zip(texts).map(message).collect()
}

pub async fn remember(memory: &dyn MemoryService, id: &str, texts: &[&str]) {
    memory.add_events(&key(id), &messages(texts)).await.unwrap();
}

pub async fn search(memory: &dyn MemoryService, query: &str) -> Vec<String> {
    let entries = memory.search("app", "ann", query).await.unwrap();
    entries.iter().map(|entry| entry.content.text()).collect()
}

async fn messages_of_similar_meaning_are_found(memory: &dyn MemoryService) {
    remember(memory, "s1", &["my automobile is new", "the physician is in", "nothing else"]).await;
    assert_eq!(search(memory, "which vehicle?").await, ["my automobile is new"]);
    assert_eq!(search(memory, "doctor").await, ["the physician is in"]);
    assert!(search(memory, "weather").await.is_empty());
    assert!(search(memory, "?!").await.is_empty());
}

async fn a_message_with_words_and_meaning_comes_first(memory: &dyn MemoryService) {
    remember(memory, "s1", &["a vehicle", "the blue automobile", "blue sky"]).await;
    assert_eq!(search(memory, "blue vehicle").await, ["the blue automobile", "a vehicle", "blue sky"]);
}

async fn at_most_ten_messages_are_found_by_their_meaning_only(memory: &dyn MemoryService) {
    let texts: Vec<String> = (0..12).map(|number| format!("automobile {number}")).collect();
    remember(memory, "s1", &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let found = search(memory, "vehicle").await;
    assert_eq!((found.len(), found[0].as_str(), found[9].as_str()), (10, "automobile 11", "automobile 2"));
    assert_eq!(search(memory, "automobile").await.len(), 12);
}

async fn a_search_by_meaning_finds_only_messages_of_the_user(memory: &dyn MemoryService) {
    remember(memory, "s1", &["my automobile"]).await;
    for (app, user) in [("app", "bob"), ("other", "ann")] {
        memory.add_events(&SessionKey::new(app, user, "s1"), &messages(&["another automobile"])).await.unwrap();
    }
    assert_eq!(search(memory, "vehicle").await, ["my automobile"]);
    assert!(memory.search("app", "nobody", "vehicle").await.unwrap().is_empty());
}

async fn what_was_replaced_or_deleted_is_not_found_by_its_meaning(memory: &dyn MemoryService) {
    remember(memory, "s1", &["an automobile", "a physician"]).await;
    remember(memory, "s2", &["a meal", "a second automobile"]).await;
    let session = Session {
        key: key("s1"),
        state: State::default(),
        events: messages(&["an automobile"]).into_iter().collect(),
        revision: 1,
        created: Timestamp::default(),
        last_update_time: Timestamp::default(),
    };
    memory.add_session(&session).await.unwrap();
    assert!(search(memory, "doctor").await.is_empty());
    assert_eq!(search(memory, "vehicle").await, ["a second automobile", "an automobile"]);
    memory.delete_session(&key("s2")).await.unwrap();
    assert_eq!(search(memory, "vehicle").await, ["an automobile"]);
}

/// Counts the texts that are embedded, and fails while `fails` is set.
#[derive(Default)]
struct Counted {
    texts: AtomicUsize,
    fails: AtomicBool,
}

impl Counted {
    fn search(self: &Arc<Self>) -> SimilaritySearch {
        SimilaritySearch::new("counted", self.clone())
    }

    fn take(&self) -> usize {
        self.texts.swap(0, Ordering::Relaxed)
    }
}

#[async_trait]
impl Embedder for Counted {
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(ModelError::new(ModelErrorKind::Server, "counted", "overloaded"));
        }
        self.texts.fetch_add(texts.len(), Ordering::Relaxed);
        ConceptEmbedder.embed(texts).await
    }
}

/// Returns each kind of memory with an embedder, in this folder.
async fn counted(folder: &Path, embedder: &Arc<Counted>) -> Vec<Arc<dyn MemoryService>> {
    let sqlite = format!("sqlite:{}", folder.join("m.db").display());
    let mut memories = Vec::new();
    for uri in ["memory:".to_owned(), sqlite].into_iter().chain(uri_with_vectors()) {
        memories.push(open_memory_with(&uri, Durability::default(), Some(embedder.search())).await.unwrap());
    }
    memories
}

#[tokio::test]
async fn a_message_is_embedded_once() {
    let folder = tempfile::tempdir().unwrap();
    let embedder = Arc::new(Counted::default());
    for memory in counted(folder.path(), &embedder).await {
        remember(&*memory, "s1", &["an automobile", "a physician", "?!"]).await;
        assert_eq!(embedder.take(), 2, "what has no words is not embedded");
        remember(&*memory, "s1", &["an automobile", "a physician", "?!", "a pizza"]).await;
        assert_eq!(embedder.take(), 1);
        let session = Session {
            key: key("s1"),
            state: State::default(),
            events: messages(&["an automobile", "a physician"]).into_iter().collect(),
            revision: 2,
            created: Timestamp::default(),
            last_update_time: Timestamp::default(),
        };
        memory.add_session(&session).await.unwrap();
        assert_eq!(embedder.take(), 0);
        assert_eq!(search(&*memory, "vehicle").await, ["an automobile"]);
        assert_eq!(embedder.take(), 1);
    }
}

#[tokio::test]
async fn without_an_answer_of_the_embedder_messages_are_found_by_their_words() {
    let folder = tempfile::tempdir().unwrap();
    let embedder = Arc::new(Counted::default());
    for memory in counted(folder.path(), &embedder).await {
        embedder.fails.store(true, Ordering::Relaxed);
        remember(&*memory, "s1", &["an automobile"]).await;
        assert_eq!(search(&*memory, "automobile").await, ["an automobile"]);
        embedder.fails.store(false, Ordering::Relaxed);
        assert!(search(&*memory, "vehicle").await.is_empty());
        remember(&*memory, "s1", &["an automobile"]).await;
        assert_eq!(search(&*memory, "vehicle").await, ["an automobile"]);
    }
}

#[tokio::test]
async fn embedders_have_their_own_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path()).await.with_similarity(ConceptEmbedder::search());
    remember(&memory, "s1", &["an automobile"]).await;
    memory.close().await;
    let memory = open(folder.path()).await.with_similarity(SimilaritySearch::new("other", Arc::new(ConceptEmbedder)));
    assert!(search(&memory, "vehicle").await.is_empty());
    remember(&memory, "s1", &["an automobile"]).await;
    assert_eq!(search(&memory, "vehicle").await, ["an automobile"]);
    memory.close().await;
    let memory = open(folder.path()).await;
    assert!(search(&memory, "vehicle").await.is_empty());
    assert_eq!(search(&memory, "automobile").await, ["an automobile"]);
}

#[tokio::test]
async fn the_least_similarity_is_a_setting() {
    for (min_similarity, found) in [(0.6, 1), (0.8, 0)] {
        let memory =
            KeywordMemory::new().with_similarity(ConceptEmbedder::search().with_min_similarity(min_similarity));
        // Half of it is about something else, so the cosine is 0.7.
        remember(&memory, "s1", &["a physician with an automobile"]).await;
        assert_eq!(search(&memory, "vehicle").await.len(), found, "{min_similarity}");
    }
}

#[tokio::test]
async fn messages_of_schema_1_are_found_by_their_words_and_embedded_when_they_are_added_again() {
    let folder = tempfile::tempdir().unwrap();
    let old = rusqlite::Connection::open(folder.path().join("memory.db")).unwrap();
    old.execute_batch(include_str!("../../src/memory/sqlite/0001_entries.sql")).unwrap();
    let rows = "INSERT INTO owners (app, user) VALUES ('app', 'ann'); \
                INSERT INTO entries (owner, session, event, author, time, content) VALUES \
                  (1, 's1', '1-an automobile', 'user', 1, '{\"role\":\"user\",\"parts\":[{\"text\":\"an automobile\"}]}'); \
                INSERT INTO entry_words (rowid, words) VALUES (1, '_1 an automobile')";
    old.execute_batch(rows).unwrap();
    drop(old);
    let memory = open(folder.path()).await.with_similarity(ConceptEmbedder::search());
    assert_eq!(search(&memory, "automobile").await, ["an automobile"]);
    assert!(search(&memory, "vehicle").await.is_empty());
    remember(&memory, "s1", &["an automobile"]).await;
    assert_eq!(search(&memory, "vehicle").await, ["an automobile"]);
    assert_eq!(memory.entries(&key("s1")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_service_that_compares_no_embeddings_is_named_before_it_is_opened() {
    for uri in ["firestore://project", "agentengine://project/location/engine"] {
        let opened = open_memory_with(uri, Durability::default(), Some(ConceptEmbedder::search())).await;
        assert_eq!(
            opened.err().unwrap().to_string(),
            "this memory service compares no embeddings: use one in SQLite (`sqlite:`), in PostgreSQL (`postgres:`) or in \
             memory (`memory:`)"
        );
    }
}

/// Counts calls, and never answers.
#[derive(Default)]
struct Silent(AtomicUsize);

#[async_trait]
impl Embedder for Silent {
    async fn embed(&self, _: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn an_embedder_that_does_not_answer_is_asked_once_and_given_up_after_ten_seconds() {
    let embedder = Arc::new(Silent::default());
    let memory = KeywordMemory::new().with_similarity(SimilaritySearch::new("silent", embedder.clone()));
    let texts: Vec<String> = (0..300).map(|number| format!("automobile {number}")).collect();
    let start = tokio::time::Instant::now();
    remember(&memory, "s1", &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!((start.elapsed().as_secs(), embedder.0.load(Ordering::Relaxed)), (10, 1));
    assert_eq!(search(&memory, "7").await, ["automobile 7"]);
    assert_eq!((start.elapsed().as_secs(), embedder.0.load(Ordering::Relaxed)), (20, 2));
}
