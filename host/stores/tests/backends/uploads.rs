//! Uploads to object stores whose caller is gone.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use hatchery_core::{ArtifactService, SessionKey};
use hatchery_stores::ObjectArtifacts;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::sync::Notify;

/// A store in memory whose multipart uploads wait before they are completed.
#[derive(Debug, Clone, Default)]
struct HeldStore {
    stored: Arc<InMemory>,
    completing: Arc<Notify>,
    released: Arc<Notify>,
}

impl fmt::Display for HeldStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("held")
    }
}

#[async_trait]
impl ObjectStore for HeldStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.stored.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.stored.put_multipart_opts(location, options).await?;
        Ok(Box::new(HeldUpload { upload, store: self.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.stored.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.stored.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.stored.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.stored.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.stored.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct HeldUpload {
    upload: Box<dyn MultipartUpload>,
    store: HeldStore,
}

#[async_trait]
impl MultipartUpload for HeldUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.store.completing.notify_one();
        self.store.released.notified().await;
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

#[tokio::test]
async fn a_large_upload_whose_caller_is_gone_at_its_end_becomes_a_version() {
    let store = HeldStore::default();
    let artifacts = Arc::new(ObjectArtifacts::new(Arc::new(store.clone()), "p").unwrap());
    let key = SessionKey::new("app", "ann", "s1");
    let (saving, session) = (artifacts.clone(), key.clone());
    let save = tokio::spawn(async move {
        let sent = stream::iter([Ok(Bytes::from(vec![b'x'; 9 << 20]))]).boxed();
        saving.save_stream(&session, "a.bin", "application/zip", sent).await
    });
    store.completing.notified().await;
    save.abort();
    assert!(save.await.unwrap_err().is_cancelled());
    store.released.notify_one();
    while artifacts.versions(&key, "a.bin").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(artifacts.load_stream(&key, "a.bin", None).await.unwrap().unwrap().len, 9 << 20);
}
