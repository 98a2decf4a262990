//! Memory of a large artifact that is sent and read over HTTP. The only test of this file, because it counts all
//! allocations of the process, its client included.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, dead_code)]

#[path = "http/support.rs"]
mod support;

use std::sync::Arc;

use futures::{TryStreamExt, stream};
use hatchery::{ByteSize, ServerConfig};
use hatchery_stores::{DirectoryArtifacts, Quota, Quotas};
use hatchery_test_support::CountingAllocator;
use reqwest::{Body, Method};

use crate::support::{Host, success};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The size of the artifact, unless the environment has another one.
const SIZE: u64 = 160 << 20;
const CHUNK: u64 = 64 << 10;
const LIMIT: isize = 64 << 20;
const PATH: &str = "/apps/says/users/u/sessions/s/artifacts/large.bin";

/// Each chunk has its own number.
fn chunk(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(CHUNK as usize / size_of::<u64>())
}

/// `HATCHERY_TEST_ARTIFACT_BYTES=1073741824` sends a gibibyte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_artifact_is_sent_and_read_within_64_mib_of_memory() {
    let size = std::env::var("HATCHERY_TEST_ARTIFACT_BYTES").ok().map_or(SIZE, |size| size.parse().unwrap());
    let chunks = size.div_ceil(CHUNK);
    let folder = tempfile::tempdir().unwrap();
    let artifacts = DirectoryArtifacts::open(folder.path().join("artifacts")).await.unwrap();
    let quotas = Quotas::default().with(Quota::SessionArtifactBytes, 0).with(Quota::UserArtifactBytes, 0);
    let config = ServerConfig { upload_limit: ByteSize(usize::MAX), ..ServerConfig::default() };
    let host = Host::with_artifacts(config, quotas, Arc::new(artifacts)).await;
    host.session("says").await;

    let before = CountingAllocator::reset_peak();
    let body = Body::wrap_stream(stream::iter((0..chunks).map(|number| Ok::<_, String>(chunk(number)))));
    success(host.request(Method::PUT, PATH).body(body).send().await.unwrap()).await;
    let sent = CountingAllocator::peak() - before;
    assert!(sent < LIMIT, "{sent} bytes while {} were sent", chunks * CHUNK);

    let before = CountingAllocator::reset_peak();
    let mut body = host.get(&format!("{PATH}?alt=media")).await.bytes_stream();
    let (mut read, mut number) = (Vec::new(), 0);
    while let Some(received) = body.try_next().await.unwrap() {
        read.extend_from_slice(&received);
        while read.len() >= CHUNK as usize {
            let rest = read.split_off(CHUNK as usize);
            assert!(read == chunk(number), "chunk {number} has changed");
            (read, number) = (rest, number + 1);
        }
    }
    assert_eq!((number, read.len()), (chunks, 0));
    let received = CountingAllocator::peak() - before;
    assert!(received < LIMIT, "{received} bytes while {} were read", chunks * CHUNK);
    println!("{} bytes: {sent} bytes of memory to send them, {received} to read them", chunks * CHUNK);
}
