//! The code cache on disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hatchery_wasm::{CacheState, CodeCache, Progress, precompile};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::{TestCatalog, call};

/// Returns a catalog with its own cache, and whether each load used the cache.
fn test_catalog(cache: &Path) -> (TestCatalog, Arc<Mutex<Vec<bool>>>) {
    let mut test_catalog = TestCatalog::new().with("misbehaver");
    let loads = Arc::new(Mutex::new(Vec::new()));
    test_catalog.options.cache = CodeCache::new(Some(cache.to_path_buf()));
    let reported = loads.clone();
    test_catalog.options.progress = Some(Arc::new(move |progress| {
        if let Progress::Loaded { is_from_cache, .. } = progress {
            reported.lock().unwrap().push(is_from_cache);
        }
    }));
    (test_catalog, loads)
}

/// Returns the files of compiled code.
fn files(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.file_name().unwrap() != "key").collect()
}

/// Loads the component again and runs it. Returns true if its code came from the cache.
async fn load(cache: &Path) -> bool {
    let (test_catalog, loads) = test_catalog(cache);
    let catalog = test_catalog.catalog().await;
    assert_eq!(call(&catalog, "echo", json!({"value": 1})).await.unwrap(), json!({"value": 1}));
    let loads = loads.lock().unwrap();
    assert_eq!(loads.len(), 1);
    loads[0]
}

#[tokio::test]
async fn code_is_compiled_once_and_a_damaged_file_is_compiled_again() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("code");
    assert!(!load(&cache).await);
    assert!(load(&cache).await);
    let file = files(&cache).remove(0);
    let good = std::fs::read(&file).unwrap();

    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    // A forgery that has the right layout but not the key.
    let code = &good[..good.len() - 40];
    let mut forged = code.to_vec();
    forged.extend(b"HATCHC03");
    forged.extend(Sha256::digest(code));
    for damaged in [flipped, forged, good[..good.len() / 2].to_vec(), Vec::new(), b"something else".to_vec()] {
        std::fs::write(&file, damaged).unwrap();
        assert!(!load(&cache).await, "a damaged file was used");
        assert!(load(&cache).await, "the file was not mended");
    }
    assert_eq!(files(&cache).len(), 1, "no temporary file is left behind");
}

#[tokio::test]
async fn code_of_another_cache_is_compiled_again() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, theirs) = (directory.path().join("ours"), directory.path().join("theirs"));
    assert!(!load(&ours).await);
    assert!(!load(&theirs).await);
    for file in files(&theirs) {
        std::fs::copy(&file, ours.join(file.file_name().unwrap())).unwrap();
    }
    assert!(!load(&ours).await);
    assert!(load(&ours).await);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_a_link_or_that_others_can_write_is_compiled_again() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let (cache, aside) = (directory.path().join("code"), directory.path().join("aside"));
    assert!(!load(&cache).await);
    let file = files(&cache).remove(0);
    std::fs::rename(&file, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &file).unwrap();
    assert!(!load(&cache).await, "a link was used");
    assert!(load(&cache).await);
    for mode in [0o666, 0o660, 0o604] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(!load(&cache).await, "a file that others can use was used: {mode:o}");
        assert!(load(&cache).await);
    }
    // Only root can change the owner of files.
    if std::os::unix::fs::chown(&file, Some(4711), None).is_ok() {
        assert!(!load(&cache).await, "a file that belongs to somebody else was used");
        assert!(load(&cache).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_can_share_a_cache_directory() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("code");
    let hosts = || futures::future::join_all((0..4).map(|_| load(&cache)));
    assert!(hosts().await.contains(&false), "somebody compiles");
    assert_eq!(hosts().await, [true; 4]);
    // All of them find the same damaged file and replace it.
    let file = files(&cache).remove(0);
    std::fs::write(&file, "damaged").unwrap();
    hosts().await;
    assert_eq!(hosts().await, [true; 4]);
    assert_eq!(files(&cache), [file], "no temporary file is left behind");
}

#[tokio::test]
async fn a_precompiled_component_is_loaded_from_the_cache() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("code");
    let (mut test_catalog, loads) = test_catalog(&cache);
    let path = test_catalog.path("misbehaver.wasm");
    for is_from_cache in [false, true] {
        let made = precompile(&test_catalog.options, &path).await.unwrap();
        assert_eq!((made.name.as_str(), made.is_from_cache), ("misbehaver", is_from_cache));
        assert_eq!(made.size, std::fs::metadata(&path).unwrap().len());
    }
    test_catalog.catalog().await;
    assert_eq!(*loads.lock().unwrap(), [true]);
    assert_eq!(
        test_catalog.options.cache.state(),
        CacheState::Open {
            bytes: files(&cache).iter().map(|file| file.metadata().unwrap().len()).sum(),
            directory: cache,
            files: 1
        }
    );

    test_catalog.options.cache = CodeCache::new(None);
    assert_eq!(test_catalog.options.cache.state(), CacheState::Off);
    let error = precompile(&test_catalog.options, &path).await.unwrap_err().to_string();
    assert_eq!(error, "component `misbehaver` is compiled, but its code cannot be cached: there is no cache");
}

#[tokio::test]
async fn a_slow_compilation_is_reported() {
    let mut test_catalog = TestCatalog::new().with("swap");
    let progress = Arc::new(Mutex::new(Vec::new()));
    let reported = progress.clone();
    test_catalog.options.cache = CodeCache::new(None);
    test_catalog.options.progress_delay = Duration::ZERO;
    test_catalog.options.progress = Some(Arc::new(move |progress| {
        if let Progress::Compiling { name, size } = progress {
            reported.lock().unwrap().push((name, size));
        }
    }));
    test_catalog.catalog().await;
    let size = std::fs::metadata(test_catalog.path("swap.wasm")).unwrap().len();
    assert_eq!(*progress.lock().unwrap(), [("swap".to_owned(), size)]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_that_is_a_link_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    assert!(!load(&link).await);
    assert!(!load(&link).await);
    assert!(files(&real).is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn the_directory_is_not_accessible_to_others() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    load(directory.path()).await;
    assert_eq!(std::fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn without_a_usable_cache_loading_only_takes_longer() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(!load(&file.path().join("below-a-file")).await);
}
