//! Memory of large artifacts that are streamed. The only test of this file, because it counts all allocations of the
//! process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[cfg(feature = "object-store")]
#[allow(dead_code)]
#[path = "servers/object_stores.rs"]
mod object_stores;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{ArtifactService, SessionKey};
use hatchery_stores::DirectoryArtifacts;
use hatchery_test_support::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The size of an artifact, unless the environment sets it.
const SIZE: u64 = 128 << 20;
const CHUNK: u64 = 64 << 10;
const LIMIT: isize = 64 << 20;

/// `HATCHERY_TEST_ARTIFACT_BYTES=1073741824` streams a gibibyte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_artifact_is_saved_and_loaded_within_64_mib_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    check("files", &DirectoryArtifacts::open(folder.path().join("artifacts")).await.unwrap()).await;
    #[cfg(feature = "object-store")]
    if let Some(artifacts) = object_stores::s3_artifacts().await {
        check("S3", &artifacts).await;
    }
}

async fn check(backend: &str, artifacts: &dyn ArtifactService) {
    let size = std::env::var("HATCHERY_TEST_ARTIFACT_BYTES").ok().map_or(SIZE, |size| size.parse().unwrap());
    let chunks = size.div_ceil(CHUNK);
    let session = SessionKey::new("app", "ann", "s1");
    let before = CountingAllocator::reset_peak();
    let sent = stream::iter((0..chunks).map(|number| Ok(Bytes::from(vec![number as u8; CHUNK as usize])))).boxed();
    artifacts.save_stream(&session, "large", "application/zip", sent).await.unwrap();
    let saving = CountingAllocator::peak() - before;
    assert!(saving < LIMIT, "{backend}: {saving} bytes while an artifact of {} was saved", chunks * CHUNK);

    let before = CountingAllocator::reset_peak();
    let mut artifact = artifacts.load_stream(&session, "large", None).await.unwrap().unwrap();
    assert_eq!(artifact.len, chunks * CHUNK);
    let mut offset = 0;
    while let Some(bytes) = artifact.bytes.try_next().await.unwrap() {
        for (place, byte) in (offset..).zip(&bytes) {
            assert_eq!(*byte, (place / CHUNK) as u8, "byte {place}");
        }
        offset += bytes.len() as u64;
    }
    assert_eq!(offset, artifact.len);
    let loading = CountingAllocator::peak() - before;
    assert!(loading < LIMIT, "{backend}: {loading} bytes while an artifact of {} was loaded", chunks * CHUNK);
    println!("{backend}: {saving} bytes of memory to save {offset}, {loading} to load them");
}
