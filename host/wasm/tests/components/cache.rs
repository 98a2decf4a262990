//! Compiled code on disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hatchery_wasm::{CodeCache, Progress};
use serde_json::json;
use sha2::{Digest, Sha256};

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

/// The files of compiled code.
fn files(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.file_name().unwrap() != "key").collect()
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
    // As if by somebody who knows the layout and not the key.
    let mut forged = b"HATCHC02".to_vec();
    forged.extend(Sha256::digest(&good[40..]));
    forged.extend(&good[40..]);
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
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!load(&cache).await, "a file that others can write was used");
    assert!(load(&cache).await);
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
