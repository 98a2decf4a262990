//! Quotas of artifacts that are being saved.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{ArtifactService, ByteStream, JsonMap, Part, SessionKey, StoreError};
use hatchery_stores::quotas::QuotaArtifacts;
use hatchery_stores::{AppQuotas, DirectoryArtifacts, MemoryArtifacts, Quota, Quotas};
use tokio::sync::{Notify, Semaphore};

fn key() -> SessionKey {
    SessionKey::new("app", "ann", "s1")
}

fn limited(inner: Arc<dyn ArtifactService>, quota: Quota, value: u64) -> Arc<QuotaArtifacts> {
    let quotas = AppQuotas::from(Quotas::default().with(quota, value));
    Arc::new(QuotaArtifacts::new(inner, Arc::new(quotas)))
}

fn bytes(count: usize) -> Result<Bytes, StoreError> {
    Ok(Bytes::from(vec![b'x'; count]))
}

/// Returns the key of the exceeded quota.
#[track_caller]
fn exceeded<T: std::fmt::Debug>(result: Result<T, StoreError>) -> &'static str {
    match result {
        Err(StoreError::QuotaExceeded { key, .. }) => key,
        other => panic!("no quota was exceeded: {other:?}"),
    }
}

/// Keeps saves of the artifact `slow` waiting, once their bytes are there.
#[derive(Default)]
struct SlowArtifacts {
    stored: MemoryArtifacts,
    waiting: Notify,
    released: Notify,
}

impl SlowArtifacts {
    async fn wait(&self, name: &str) {
        if name == "slow" {
            self.waiting.notify_one();
            self.released.notified().await;
        }
    }
}

#[async_trait]
impl ArtifactService for SlowArtifacts {
    async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError> {
        self.wait(name).await;
        self.stored.save(session, name, part).await
    }

    async fn save_stream_with(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        custom_metadata: &JsonMap,
        bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        let chunks: Vec<Bytes> = bytes.try_collect().await?;
        self.wait(name).await;
        let chunks = stream::iter(chunks.into_iter().map(Ok)).boxed();
        self.stored.save_stream_with(session, name, mime_type, custom_metadata, chunks).await
    }

    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        self.stored.load(session, name, version).await
    }

    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        self.stored.list(session).await
    }

    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
        self.stored.versions(session, name).await
    }

    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
        self.stored.delete(session, name).await
    }
}

#[tokio::test]
async fn streams_that_are_received_at_the_same_time_count_together() {
    let folder = tempfile::tempdir().unwrap();
    let files = DirectoryArtifacts::open(folder.path()).await.unwrap();
    for inner in [Arc::new(MemoryArtifacts::new()) as Arc<dyn ArtifactService>, Arc::new(files)] {
        let artifacts = limited(inner, Quota::SessionArtifactBytes, 1_200);
        let received = Arc::new(Semaphore::new(0));
        let (open, others) = (artifacts.clone(), received.clone());
        // Once the stream is asked for its last chunk, the first one is counted.
        let upload = tokio::spawn(async move {
            let last = stream::once(async move {
                others.add_permits(1);
                futures::future::pending().await
            });
            let chunks = stream::iter([bytes(600), bytes(1), bytes(1)]).chain(last).boxed();
            open.save_stream(&key(), "open", "text/plain", chunks).await
        });
        received.acquire().await.unwrap().forget();
        let second = || stream::iter([bytes(300), bytes(300)]).chain(stream::pending()).boxed();
        let refused = artifacts.save_stream(&key(), "b", "text/plain", second()).await;
        assert_eq!(exceeded(refused), "quotas.session_artifact_bytes", "it is refused while it is received");
        let part = Part::text("y".repeat(600));
        assert_eq!(exceeded(artifacts.save(&key(), "c", &part).await), "quotas.session_artifact_bytes");
        upload.abort();
        assert!(upload.await.unwrap_err().is_cancelled());
        // Its room is free as soon as the service has dropped what was received.
        while let Err(error) = artifacts.save(&key(), "c", &part).await {
            assert_eq!(error.code(), "QUOTA_EXCEEDED");
            tokio::task::yield_now().await;
        }
        assert_eq!(artifacts.list(&key()).await.unwrap(), ["c"]);
    }
}

#[tokio::test]
async fn a_save_whose_caller_is_gone_counts() {
    let inner = Arc::new(SlowArtifacts::default());
    let artifacts = limited(inner.clone(), Quota::SessionArtifacts, 2);
    let part = Part::text("x");
    artifacts.save(&key(), "first", &part).await.unwrap();
    let (saving, saved) = (artifacts.clone(), part.clone());
    let save = tokio::spawn(async move { saving.save(&key(), "slow", &saved).await });
    inner.waiting.notified().await;
    save.abort();
    assert!(save.await.unwrap_err().is_cancelled());
    assert_eq!(exceeded(artifacts.save(&key(), "next", &part).await), "quotas.session_artifacts");
    inner.released.notify_one();
    while artifacts.list(&key()).await.unwrap() != ["first", "slow"] {
        tokio::task::yield_now().await;
    }
    assert_eq!(exceeded(artifacts.save(&key(), "next", &part).await), "quotas.session_artifacts");
}

#[tokio::test]
async fn an_upload_whose_caller_is_gone_after_its_last_byte_is_stored() {
    let inner = Arc::new(SlowArtifacts::default());
    let artifacts = limited(inner.clone(), Quota::SessionArtifacts, 1);
    let saving = artifacts.clone();
    let save = tokio::spawn(async move {
        saving.save_stream(&key(), "slow", "text/plain", stream::iter([bytes(3)]).boxed()).await
    });
    inner.waiting.notified().await;
    save.abort();
    assert!(save.await.unwrap_err().is_cancelled());
    inner.released.notify_one();
    while artifacts.list(&key()).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(exceeded(artifacts.save(&key(), "next", &Part::text("x")).await), "quotas.session_artifacts");
}

#[tokio::test]
async fn the_end_of_an_upload_keeps_no_other_save_waiting() {
    let inner = Arc::new(SlowArtifacts::default());
    let artifacts = limited(inner.clone(), Quota::SessionArtifacts, 2);
    let saving = artifacts.clone();
    let save = tokio::spawn(async move {
        saving.save_stream(&key(), "slow", "text/plain", stream::iter([bytes(3)]).boxed()).await
    });
    inner.waiting.notified().await;
    artifacts.save(&key(), "quick", &Part::text("x")).await.unwrap();
    assert_eq!(exceeded(artifacts.save(&key(), "third", &Part::text("x")).await), "quotas.session_artifacts");
    inner.released.notify_one();
    assert_eq!(save.await.unwrap().unwrap(), 0);
    assert_eq!(artifacts.list(&key()).await.unwrap(), ["quick", "slow"]);
}

#[tokio::test]
async fn an_artifact_that_is_too_large_for_memory_is_not_read() {
    let artifacts = MemoryArtifacts::new();
    artifacts.save_stream(&key(), "a", "text/plain", stream::iter([bytes(11)]).boxed()).await.unwrap();
    assert!(artifacts.load_within(&key(), "a", None, 11).await.unwrap().is_some());
    let error = artifacts.load_within(&key(), "a", None, 10).await.unwrap_err();
    assert_eq!(error.code(), "REFUSED");
    assert_eq!(
        error.to_string(),
        "the artifact `a` has 11 bytes, and at most 10 can be read into memory here; read it as a stream, or store it in \
         smaller files"
    );
    assert!(artifacts.load_within(&key(), "b", None, 10).await.unwrap().is_none());
}
