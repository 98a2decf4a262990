//! Folders that agents search: what is found, and what is read again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use hatchery_core::{Embedder, ModelError, ModelErrorKind};
use hatchery_stores::SimilaritySearch;
use hatchery_stores::retrieval::{FolderIndex, FolderSource};
use tempfile::TempDir;

struct Fixture {
    root: TempDir,
    index: FolderIndex,
}

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        Self::with(files, |source| source)
    }

    fn with(files: &[(&str, &str)], change: impl FnOnce(FolderSource) -> FolderSource) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            write(root.path(), name, text);
        }
        let index = Self::open(root.path(), change);
        Self { root, index }
    }

    fn open(root: &Path, change: impl FnOnce(FolderSource) -> FolderSource) -> FolderIndex {
        FolderIndex::new(change(FolderSource::new(root.join("files"))), Some(root.join("index.db")))
    }

    async fn sources(&self, query: &str) -> Vec<String> {
        self.index.search(query, 10).await.unwrap().into_iter().map(|passage| passage.source).collect()
    }
}

fn write(root: &Path, name: &str, text: &str) {
    let file = root.join("files").join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

#[tokio::test]
async fn the_best_passages_come_first_with_their_lines() {
    let long = "filler ".repeat(200);
    let fixture = Fixture::new(&[
        ("a.md", &format!("# Ferries\n\n{long}\n\nThe ferry to Ulvik sails at noon.\n")),
        ("deep/b.txt", "The ferry was late."),
        ("c.md", "Nothing about ships."),
    ]);
    let found = fixture.index.search("When does the Ulvik ferry sail?", 10).await.unwrap();
    let best = &found[0];
    assert_eq!((best.source.as_str(), best.first_line, best.last_line), ("a.md", 5, 5));
    assert_eq!(best.text, "The ferry to Ulvik sails at noon.");
    assert!(found.iter().any(|passage| passage.source == "deep/b.txt"));
    assert!(found.iter().all(|passage| passage.source != "c.md"));
    assert_eq!(fixture.index.search("ferry", 1).await.unwrap().len(), 1);
    assert_eq!(fixture.sources("?!").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_passage_has_only_the_lines_of_its_text() {
    let text = format!("ferry {}\n{}\n", "a".repeat(600), "b".repeat(1500));
    let fixture = Fixture::new(&[("a.md", &text)]);
    let found = fixture.index.search("ferry", 10).await.unwrap();
    let lines: Vec<_> =
        found.iter().map(|passage| (passage.first_line, passage.last_line, passage.text.len())).collect();
    assert_eq!(lines, [(1, 1, 606)]);
}

#[tokio::test]
async fn forms_of_english_words_and_parts_of_unspaced_texts_are_found() {
    let fixture = Fixture::new(&[("a.md", "She was travelling."), ("b.md", "東京都に住んでいます")]);
    assert_eq!(fixture.sources("travels").await, ["a.md"]);
    assert_eq!(fixture.sources("東京").await, ["b.md"]);
}

#[tokio::test]
async fn only_files_that_have_changed_are_read_again() {
    let fixture = Fixture::new(&[("a.md", "apples"), ("b.md", "bananas"), ("c.md", "cherries")]);
    assert_eq!(fixture.index.update().await.unwrap(), 3);
    assert_eq!(fixture.index.update().await.unwrap(), 0);
    write(fixture.root.path(), "a.md", "apricots and more");
    std::fs::remove_file(fixture.root.path().join("files/b.md")).unwrap();
    assert_eq!(fixture.index.update().await.unwrap(), 1);
    assert_eq!(fixture.sources("apples bananas apricots").await, ["a.md"]);
    // Another process finds the index.
    fixture.index.close().await;
    let again = Fixture::open(fixture.root.path(), |source| source);
    assert_eq!(again.update().await.unwrap(), 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_cannot_be_read_is_tried_again() {
    let root = tempfile::tempdir().unwrap();
    let (short, long) = (root.path().join("f"), root.path().join("f".repeat(201)));
    // The path of the file has less than 4,096 bytes below the first folder and more below the second, which is too
    // long for Linux, also for root.
    let mut folder = short.clone();
    while folder.as_os_str().len() < 3700 {
        let rest = 3749 - folder.as_os_str().len();
        folder.push("d".repeat(rest.min(250)));
    }
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a".repeat(250)), "apples").unwrap();
    let open = |folder: &Path| FolderIndex::new(FolderSource::new(folder), Some(root.path().join("index.db")));

    std::fs::rename(&short, &long).unwrap();
    let unreadable = open(&long);
    assert_eq!(unreadable.update().await.unwrap(), 0);
    unreadable.close().await;
    std::fs::rename(&long, &short).unwrap();
    let readable = open(&short);
    assert_eq!(readable.update().await.unwrap(), 1);
    assert_eq!(readable.search("apples", 10).await.unwrap().len(), 1);
    assert_eq!(readable.update().await.unwrap(), 0);
}

#[tokio::test]
async fn an_index_of_an_earlier_version_keeps_its_passages() {
    let migrations =
        [include_str!("../../src/retrieval/0001_passages.sql"), include_str!("../../src/retrieval/0002_vectors.sql")];
    for count in 1..=migrations.len() {
        let fixture = Fixture::new(&[("a.md", "apples")]);
        let metadata = std::fs::metadata(fixture.root.path().join("files/a.md")).unwrap();
        let modified = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
        let connection = rusqlite::Connection::open(fixture.root.path().join("index.db")).unwrap();
        migrations[..count].iter().for_each(|migration| connection.execute_batch(migration).unwrap());
        let rows = format!(
            "INSERT INTO files (file, path, modified, size) VALUES (7, 'a.md', {modified}, {}); \
             INSERT INTO passages (passage, file, first_line, last_line, text) VALUES (9, 7, 1, 1, 'bananas'); \
             INSERT INTO passage_words (rowid, words) VALUES (9, 'bananas');",
            metadata.len()
        );
        connection.execute_batch(&rows).unwrap();
        drop(connection);
        assert_eq!(fixture.sources("bananas").await, ["a.md"], "version {count}");
        assert_eq!(fixture.index.update().await.unwrap(), 0);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn hidden_linked_binary_large_and_unwanted_files_are_left_out() {
    let large = format!("secret {}", "x".repeat(100));
    let files = [
        (".env", "secret"),
        (".git/a.md", "secret"),
        ("large.md", large.as_str()),
        ("a.md", "secret"),
        ("a.log", "secret"),
    ];
    let fixture =
        Fixture::with(&files, |source| FolderSource { include: vec!["*.md".into()], max_file: 100, ..source });
    write(fixture.root.path(), "../outside.md", "secret");
    std::os::unix::fs::symlink("../outside.md", fixture.root.path().join("files/linked.md")).unwrap();
    std::fs::write(fixture.root.path().join("files/binary.md"), b"secret \xff\xfe").unwrap();
    assert_eq!(fixture.sources("secret").await, ["a.md"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_to_which_a_link_leads_below_the_root_is_not_searched() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("outside/docs")).unwrap();
    std::fs::write(root.path().join("outside/docs/a.md"), "secret").unwrap();
    std::fs::create_dir(root.path().join("served")).unwrap();
    std::os::unix::fs::symlink("../outside", root.path().join("served/data")).unwrap();
    let source = FolderSource::new(root.path().join("served/data/docs"));
    let below = FolderSource { root: Some(root.path().join("served")), ..source.clone() };
    let error = FolderIndex::new(below, None).search("secret", 10).await.unwrap_err().to_string();
    assert!(error.contains("served/data is a link; name a folder without links"), "{error}");
    assert_eq!(FolderIndex::new(source, None).search("secret", 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_folder_with_too_many_files_and_one_that_is_missing_are_named() {
    let fixture = Fixture::with(&[("a", "x"), ("b", "x")], |source| FolderSource { max_files: 1, ..source });
    let error = fixture.index.search("x", 1).await.unwrap_err().to_string();
    assert!(error.contains("has more than 1 file to search; choose fewer by `include`"), "{error}");
    let error = Fixture::new(&[]).index.search("x", 1).await.unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
}

/// An embedder that knows two concepts, and counts the texts.
#[derive(Default)]
struct ConceptEmbedder {
    texts: AtomicUsize,
    is_down: AtomicBool,
}

#[async_trait]
impl Embedder for ConceptEmbedder {
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(ModelError::new(ModelErrorKind::Server, "concepts", "out of order"));
        }
        self.texts.fetch_add(texts.len(), Ordering::Relaxed);
        let has = |text: &str, words: &[&str]| f32::from(u8::from(words.iter().any(|word| text.contains(word))));
        let vector = |text: &String| vec![has(text, &["car", "automobile"]), has(text, &["boat", "ferry"])];
        Ok(texts.iter().map(vector).collect())
    }
}

#[tokio::test]
async fn passages_of_similar_meaning_are_found_and_embedded_once() {
    let concepts = Arc::new(ConceptEmbedder::default());
    let Fixture { root, index } =
        Fixture::new(&[("a.md", "My automobile is new."), ("b.md", "The ferry sails."), ("c.md", "Nothing else.")]);
    let index = index.with_similarity(SimilaritySearch::new("concepts", concepts.clone()));
    let sources = async |query: &str| -> Vec<String> {
        index.search(query, 10).await.unwrap().into_iter().map(|passage| passage.source).collect()
    };
    assert_eq!(sources("car").await, ["a.md"]);
    // Three passages and the query. One has no direction, and is not embedded again either.
    assert_eq!(concepts.texts.swap(0, Ordering::Relaxed), 4);
    assert_eq!(sources("new boat").await, ["a.md", "b.md"]);
    index.update().await.unwrap();
    assert_eq!(concepts.texts.swap(0, Ordering::Relaxed), 1);
    write(root.path(), "b.md", "The car stops here.");
    index.update().await.unwrap();
    assert_eq!(concepts.texts.load(Ordering::Relaxed), 1);
    concepts.is_down.store(true, Ordering::Relaxed);
    assert_eq!(sources("automobile").await, ["a.md"], "words decide alone");
}
