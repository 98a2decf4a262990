//! Compiled code on disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hatchery_wasm::{CodeCache, Progress};
use serde_json::json;

use crate::support::{Lab, call};

/// A lab with a cache of its own, and what the loader says about each load.
fn lab(cache: &Path) -> (Lab, Arc<Mutex<Vec<bool>>>) {
    let mut lab = Lab::new().with("misbehaver");
    let loads = Arc::new(Mutex::new(Vec::new()));
    lab.options.cache = CodeCache::new(Some(cache.to_path_buf()));
    let noted = loads.clone();
    lab.options.progress = Some(Arc::new(move |progress| {
        if let Progress::Loaded { is_from_cache, .. } = progress {
            noted.lock().unwrap().push(is_from_cache);
        }
    }));
    (lab, loads)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Loads the component anew; true when its code came from the cache. It must work either way.
async fn load(cache: &Path) -> bool {
    let (lab, loads) = lab(cache);
    let catalog = lab.catalog().await;
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
    for damaged in [flipped, good[..good.len() / 2].to_vec(), Vec::new(), b"something else".to_vec()] {
        std::fs::write(&file, damaged).unwrap();
        assert!(!load(&cache).await, "a damaged file was used");
        assert!(load(&cache).await, "the file was not mended");
    }
    assert_eq!(files(&cache).len(), 1, "no temporary file is left behind");
}

#[cfg(unix)]
#[tokio::test]
async fn the_directory_is_closed_to_others() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    load(directory.path()).await;
    assert_eq!(std::fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_cache_that_cannot_be_used_costs_only_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(!load(&file.path().join("below-a-file")).await);
}
