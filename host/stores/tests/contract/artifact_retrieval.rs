//! Artifacts that agents search, for all artifact services.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use hatchery_core::{ArtifactService, Blob, Embedder, ModelError, Part, PartData, SessionKey};
use hatchery_stores::retrieval::{ArtifactIndex, ArtifactSource};
use hatchery_stores::{MemoryArtifacts, SimilaritySearch};

on_every_artifact_backend!([
    a_search_finds_the_newest_version_with_its_source,
    nobody_finds_the_artifacts_of_another_session_or_user,
    only_new_versions_are_read_again,
    an_artifact_that_was_removed_is_not_found_any_more,
    texts_of_any_media_type_are_found_and_other_bytes_are_not,
]);

fn session(user: &str, id: &str) -> SessionKey {
    SessionKey::new("app", user, id)
}

fn index() -> ArtifactIndex {
    ArtifactIndex::new(ArtifactSource::default(), None)
}

async fn save(artifacts: &dyn ArtifactService, session: &SessionKey, name: &str, text: &str) {
    artifacts.save(session, name, &Part::text(text)).await.unwrap();
}

/// Returns what a search finds: the names and versions.
async fn found(
    index: &ArtifactIndex,
    artifacts: &dyn ArtifactService,
    session: &SessionKey,
    query: &str,
) -> Vec<(String, u64)> {
    let passages = index.search(artifacts, session, query, 10).await.unwrap();
    let mut found: Vec<_> = passages.into_iter().map(|passage| (passage.source, passage.version.unwrap())).collect();
    found.sort();
    found
}

fn named(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

async fn a_search_finds_the_newest_version_with_its_source(artifacts: &dyn ArtifactService) {
    let (index, s1) = (index(), session("ann", "s1"));
    save(artifacts, &s1, "plan.md", "The ferry sails at noon.").await;
    save(artifacts, &s1, "plan.md", "# Ferries\n\nThe ferry sails at dawn.\n").await;
    save(artifacts, &s1, "user:notes.txt", "Nothing about ships.").await;
    let passages = index.search(artifacts, &s1, "When does the ferry sail?", 10).await.unwrap();
    let [best] = passages.as_slice() else { panic!("{passages:?}") };
    assert_eq!((best.source.as_str(), best.version), ("plan.md", Some(1)));
    assert_eq!((best.first_line, best.last_line), (1, 3));
    assert_eq!(best.text, "# Ferries\n\nThe ferry sails at dawn.");
    assert_eq!(index.search(artifacts, &s1, "?!", 10).await.unwrap(), []);
}

async fn nobody_finds_the_artifacts_of_another_session_or_user(artifacts: &dyn ArtifactService) {
    let index = index();
    let (ann, anns_other, bob) = (session("ann", "s1"), session("ann", "s2"), session("bob", "s1"));
    let other_app = SessionKey::new("other", "ann", "s1");
    save(artifacts, &ann, "secret.md", "the secret of a session").await;
    save(artifacts, &ann, "user:secret.md", "the secret of ann").await;
    save(artifacts, &bob, "user:secret.md", "the secret of bob").await;
    // All of them are in one index.
    for key in [&ann, &anns_other, &bob, &other_app] {
        index.update(artifacts, key).await.unwrap();
    }
    assert_eq!(index.count().await.unwrap(), 3);
    let own = named(&[("secret.md", 0), ("user:secret.md", 0)]);
    assert_eq!(found(&index, artifacts, &ann, "secret").await, own);
    assert_eq!(found(&index, artifacts, &anns_other, "secret").await, named(&[("user:secret.md", 0)]));
    assert_eq!(found(&index, artifacts, &other_app, "secret").await, []);
    let bobs = index.search(artifacts, &bob, "secret", 10).await.unwrap();
    let texts: Vec<_> = bobs.iter().map(|passage| passage.text.as_str()).collect();
    assert_eq!(texts, ["the secret of bob"]);
}

async fn only_new_versions_are_read_again(artifacts: &dyn ArtifactService) {
    let (index, s1, s2) = (index(), session("ann", "s1"), session("ann", "s2"));
    for name in ["a", "b", "user:c"] {
        save(artifacts, &s1, name, "apples").await;
    }
    assert_eq!(index.update(artifacts, &s1).await.unwrap(), 3);
    assert_eq!(index.update(artifacts, &s1).await.unwrap(), 0);
    assert_eq!(index.update(artifacts, &s2).await.unwrap(), 0, "the user's is known");
    save(artifacts, &s1, "a", "bananas").await;
    save(artifacts, &s2, "user:c", "bananas").await;
    assert_eq!(index.update(artifacts, &s1).await.unwrap(), 2);
    assert_eq!(found(&index, artifacts, &s1, "apples").await, named(&[("b", 0)]));
    assert_eq!(found(&index, artifacts, &s1, "bananas").await, named(&[("a", 1), ("user:c", 1)]));
}

async fn an_artifact_that_was_removed_is_not_found_any_more(artifacts: &dyn ArtifactService) {
    let (index, s1, s2) = (index(), session("ann", "s1"), session("bob", "s2"));
    for name in ["a", "b", "user:c"] {
        save(artifacts, &s1, name, "apples").await;
    }
    assert_eq!(found(&index, artifacts, &s1, "apples").await, named(&[("a", 0), ("b", 0), ("user:c", 0)]));
    artifacts.delete(&s1, "a").await.unwrap();
    artifacts.delete(&s1, "user:c").await.unwrap();
    assert_eq!(found(&index, artifacts, &s1, "apples").await, named(&[("b", 0)]));
    // Updates of other sessions remove the artifacts of sessions that are not searched any more.
    artifacts.delete_all(&s1).await.unwrap();
    index.update(artifacts, &s2).await.unwrap();
    assert_eq!(index.count().await.unwrap(), 0);
    assert_eq!(found(&index, artifacts, &s1, "apples").await, []);
}

async fn texts_of_any_media_type_are_found_and_other_bytes_are_not(artifacts: &dyn ArtifactService) {
    let (index, s1) = (index(), session("ann", "s1"));
    let bytes = |mime_type: &str, data: &'static [u8]| {
        let blob = Blob { mime_type: mime_type.into(), data: Bytes::from_static(data), display_name: None };
        Part::from(PartData::InlineData(blob))
    };
    for (name, part) in [
        ("a.csv", bytes("text/csv", b"fruit,apples")),
        ("b.json", bytes("application/json", b"{\"fruit\": \"apples\"}")),
        ("c", bytes("", b"apples")),
        ("d.png", bytes("image/png", b"apples \xff\xfe")),
        ("e", serde_json::from_value(serde_json::json!({"fileData": {"fileUri": "gs://b/apples"}})).unwrap()),
    ] {
        artifacts.save(&s1, name, &part).await.unwrap();
    }
    assert_eq!(found(&index, artifacts, &s1, "apples").await, named(&[("a.csv", 0), ("b.json", 0), ("c", 0)]));
}

#[tokio::test]
async fn large_and_unwanted_artifacts_are_left_out() {
    let (artifacts, s1) = (MemoryArtifacts::new(), session("ann", "s1"));
    let include = vec!["*.md".to_owned(), "user:*".to_owned()];
    let index = ArtifactIndex::new(ArtifactSource { include, max_file: 10, ..ArtifactSource::default() }, None);
    save(&artifacts, &s1, "a.md", "apples").await;
    save(&artifacts, &s1, "b.md", "apples and more").await;
    save(&artifacts, &s1, "c.txt", "apples").await;
    save(&artifacts, &s1, "user:d.txt", "apples").await;
    assert_eq!(found(&index, &artifacts, &s1, "apples").await, named(&[("a.md", 0), ("user:d.txt", 0)]));
}

#[tokio::test]
async fn a_session_with_too_many_artifacts_is_named() {
    let (artifacts, s1) = (MemoryArtifacts::new(), session("ann", "s1"));
    let index = ArtifactIndex::new(ArtifactSource { max_files: 1, ..ArtifactSource::default() }, None);
    save(&artifacts, &s1, "a", "x").await;
    save(&artifacts, &s1, "user:b", "x").await;
    let error = index.search(&artifacts, &s1, "x", 1).await.unwrap_err().to_string();
    assert_eq!(error, format!("{s1} has more than 1 artifact to search; choose fewer by `include`"));
}

#[tokio::test]
async fn a_search_succeeds_while_another_session_replaces_what_it_finds() {
    let (artifacts, index) = (MemoryArtifacts::new(), index());
    let (reader, writer) = (session("ann", "s1"), session("ann", "s2"));
    // Of two artifacts, the passage that is replaced is never the newest one, whose number would be used again.
    let names = ["user:a", "user:b"];
    for name in names {
        save(&artifacts, &writer, name, "apples").await;
    }
    let replace = async {
        for name in names.iter().cycle().take(300) {
            save(&artifacts, &writer, name, "apples").await;
            index.update(&artifacts, &writer).await.unwrap();
        }
    };
    let search = async {
        for _ in 0..300 {
            index.search(&artifacts, &reader, "apples", 10).await.unwrap();
        }
    };
    tokio::join!(replace, search);
}

#[tokio::test]
async fn an_artifact_that_was_saved_anew_is_read_again_although_its_version_is_the_same() {
    let (artifacts, index, s1) = (MemoryArtifacts::new(), index(), session("ann", "s1"));
    save(&artifacts, &s1, "a", "apples").await;
    assert_eq!(found(&index, &artifacts, &s1, "apples").await, named(&[("a", 0)]));
    artifacts.delete(&s1, "a").await.unwrap();
    save(&artifacts, &s1, "a", "bananas").await;
    assert_eq!(found(&index, &artifacts, &s1, "bananas").await, named(&[("a", 0)]));
    assert_eq!(found(&index, &artifacts, &s1, "apples").await, []);
}

#[tokio::test]
async fn another_process_finds_the_index() {
    let (artifacts, s1) = (MemoryArtifacts::new(), session("ann", "s1"));
    let folder = tempfile::tempdir().unwrap();
    let open = |folder: &Path| ArtifactIndex::new(ArtifactSource::default(), Some(folder.join("index.db")));
    save(&artifacts, &s1, "a", "apples").await;
    let first = open(folder.path());
    assert_eq!(first.update(&artifacts, &s1).await.unwrap(), 1);
    first.close().await;
    assert_eq!(open(folder.path()).update(&artifacts, &s1).await.unwrap(), 0);
}

/// Finds all texts with a `boat` similar, and counts them.
#[derive(Default)]
struct BoatEmbedder(AtomicUsize);

#[async_trait]
impl Embedder for BoatEmbedder {
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        self.0.fetch_add(texts.len(), Ordering::Relaxed);
        let is_boat = |text: &String| text.contains("boat") || text.contains("ferry");
        Ok(texts.iter().map(|text| vec![f32::from(u8::from(is_boat(text)))]).collect())
    }
}

#[tokio::test]
async fn passages_of_similar_meaning_come_from_the_session_and_its_user_only() {
    let (artifacts, boats) = (MemoryArtifacts::new(), Arc::new(BoatEmbedder::default()));
    let index = index().with_similarity(SimilaritySearch::new("boats", boats.clone()));
    let (ann, bob) = (session("ann", "s1"), session("bob", "s1"));
    save(&artifacts, &ann, "a", "The ferry sails.").await;
    save(&artifacts, &ann, "user:b", "A ferry.").await;
    save(&artifacts, &bob, "c", "Bob's ferry.").await;
    index.update(&artifacts, &bob).await.unwrap();
    assert_eq!(boats.0.swap(0, Ordering::Relaxed), 1);
    assert_eq!(found(&index, &artifacts, &ann, "boat").await, named(&[("a", 0), ("user:b", 0)]));
    assert_eq!(boats.0.swap(0, Ordering::Relaxed), 3, "two passages and the query");
    assert_eq!(found(&index, &artifacts, &bob, "boat").await, named(&[("c", 0)]));
    assert_eq!(boats.0.load(Ordering::Relaxed), 1);
}
