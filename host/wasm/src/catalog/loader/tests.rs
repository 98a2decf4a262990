//! Cases that cannot be produced with a real file system.

use std::path::Path;

use super::tasks::or_panicked;
use super::*;
use crate::catalog::Catalog;
use crate::runtime::engine::{Engine, EngineOptions};

impl Loader {
    /// Scans a directory without components. Returns the next catalog, if there is one.
    async fn next_catalog(&mut self, current: &Arc<Catalog>, debounce: Duration) -> Option<Catalog> {
        self.scan(debounce).await;
        self.collect_results();
        self.publish(current).await
    }
}

fn loader(directory: &Path) -> Loader {
    let options = EngineOptions { instances: 10, pooling: false, ..EngineOptions::default() };
    Loader::new(directory.to_path_buf(), LoadOptions::new(Engine::new(&options).unwrap()), Arc::default())
}

#[tokio::test]
async fn a_file_whose_load_panics_is_not_loaded_again_before_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.wasm");
    std::fs::write(&path, "one").unwrap();
    let mut loader = loader(directory.path());
    loader.record_scan(&scan(directory.path(), &[]));
    let version = loader.files[&path].version;
    let panic = tokio::spawn(async { panic!("a defect") }).await.unwrap_err();
    let result = or_panicked(&path, Err(panic));
    loader.tasks.start(path.clone(), version, Default::default(), |_| async { result });
    loader.tasks.wait().await;
    loader.collect_results();
    assert!(loader.has_changed);
    let reason = loader.files[&path].state.reason().unwrap();
    assert!(reason.starts_with(&format!("{}: loading was aborted: ", path.display())), "{reason}");
    assert!(reason.contains("a defect") && reason.ends_with("; change the file to try again"), "{reason}");
    assert!(loader.ready_files(Duration::ZERO).is_empty(), "it is loaded again");
    std::fs::write(&path, "other").unwrap();
    loader.record_scan(&scan(directory.path(), &[]));
    assert_eq!(loader.ready_files(Duration::ZERO), [path]);
}

#[tokio::test]
async fn an_unreadable_folder_keeps_only_the_files_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let files = ["locked/deep/a.wasm", "open/b.wasm"].map(|file| directory.path().join(file));
    for file in &files {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "bytes").unwrap();
    }
    let mut loader = loader(directory.path());
    loader.record_scan(&scan(directory.path(), &[]));
    let result = Scan { unreadable: [(directory.path().join("locked"), "denied".into())].into(), ..Scan::default() };
    assert!(loader.remove_missing(&result, Duration::ZERO));
    assert_eq!(loader.files.keys().collect::<Vec<_>>(), [&files[0]]);
    assert!(!loader.remove_missing(&Scan::failed(directory.path()), Duration::ZERO));
    assert_eq!(loader.files.len(), 1, "an unreadable folder removes no files");
}

#[tokio::test]
async fn an_app_that_is_being_changed_serves_while_another_file_is_published() {
    let directory = tempfile::tempdir().unwrap();
    let write = |app: &str, text: &str| {
        let path = directory.path().join(app).join("root_agent.yaml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let app = |name: &str, text: &str| format!("name: {name}\nmodel: m\ninstruction: Talk.\ndescription: {text}\n");
    let talker = write("talker", &app("talker", "Old."));
    let mut loader = loader(directory.path());
    let first = loader.next_catalog(&Arc::default(), Duration::ZERO).await;
    let first = Arc::new(first.unwrap());
    assert_eq!(first.app("talker").unwrap().root().description, "Old.");

    write("talker", &app("talker", "Still being written."));
    let other = write("other", &app("other", "New."));
    loader.record_scan(&scan(directory.path(), &[]));
    let debounce = Duration::from_secs(10);
    loader.files.get_mut(&other).unwrap().seen = Instant::now().checked_sub(debounce).unwrap();
    let second = loader.next_catalog(&first, debounce).await;
    assert!(loader.is_changing());
    let second = Arc::new(second.expect("the other app is published"));
    assert_eq!(second.app("other").unwrap().root().description, "New.");
    assert_eq!(second.app("talker").expect("the app is gone").root().description, "Old.");

    write("talker", "name: talker\nmodle: typo\n");
    let third = Arc::new(loader.next_catalog(&second, Duration::ZERO).await.unwrap());
    assert_eq!(third.app("talker").expect("the app is gone").root().description, "Old.");
    let state = &third.file(&talker).unwrap().state;
    assert!(matches!(state, FileState::Rejected { previous_serves: true, .. }), "{state:?}");

    write("talker", &app("talker", "Fixed."));
    let fourth = loader.next_catalog(&third, Duration::ZERO).await.unwrap();
    assert_eq!(fourth.app("talker").unwrap().root().description, "Fixed.");
}

#[tokio::test]
async fn names_that_could_not_be_stored_are_stored_with_the_next_catalog() {
    let (directory, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |description: &str| {
        let folder = directory.path().join("talker");
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!("name: talker\nmodel: m\ninstruction: Talk.\ndescription: {description}\n");
        std::fs::write(folder.join("root_agent.yaml"), text).unwrap();
    };
    let in_the_way = data.path().join("state");
    std::fs::write(&in_the_way, "a file").unwrap();
    let names = in_the_way.join("names.json");
    let mut loader = loader(directory.path());
    loader.options.names_file = Some(names.clone());
    write("Old.");
    let first = Arc::new(loader.next_catalog(&Arc::default(), Duration::ZERO).await.unwrap());
    assert!(first.app("talker").is_some());
    std::fs::remove_file(&in_the_way).unwrap();
    write("Changed.");
    loader.next_catalog(&first, Duration::ZERO).await.expect("the app has changed");
    assert!(std::fs::read_to_string(&names).unwrap().contains("talker"));
}
