//! Chunked transfer of objects: only a few chunks are in memory at once.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{ByteStream, StoreError};
use object_store::path::Path;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayloadMut, WriteMultipart,
};
use tokio::runtime::Handle;

use super::{ObjectArtifacts, failure, media_type};

/// The bytes of a piece. S3 wants at least 5 MiB, and at most 10,000 pieces.
const PIECE: usize = 8 << 20;

/// How many pieces are sent or received at the same time.
const PARALLEL_PIECES: usize = 2;

/// An upload that is aborted unless it is finished.
struct Upload(Option<WriteMultipart>);

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(upload), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%error, "an upload to the object store cannot be aborted, and its pieces stay");
                }
            });
        }
    }
}

impl ObjectArtifacts {
    /// Stores bytes: in one request if they are few, otherwise in pieces.
    pub(super) async fn upload(
        &self,
        path: &Path,
        mime_type: &str,
        mut bytes: ByteStream<'_>,
    ) -> Result<(), StoreError> {
        let failed = |error| self.failure("save", error);
        let attributes = media_type(mime_type);
        let mut first = PutPayloadMut::new();
        while first.content_length() < PIECE {
            let Some(chunk) = bytes.try_next().await? else {
                let options = PutOptions { attributes, ..PutOptions::default() };
                return self.store.put_opts(path, first.freeze(), options).await.map(drop).map_err(failed);
            };
            first.push(chunk);
        }
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let begun = self.store.put_multipart_opts(path, options).await.map_err(failed)?;
        let mut upload = Upload(Some(WriteMultipart::new_with_chunk_size(begun, PIECE)));
        let mut bytes = stream::iter(first.freeze().into_iter().map(Ok)).chain(bytes);
        while let Some(chunk) = bytes.try_next().await? {
            let Some(upload) = &mut upload.0 else { break };
            upload.wait_for_capacity(PARALLEL_PIECES).await.map_err(failed)?;
            upload.put(chunk);
        }
        match upload.0.take() {
            Some(upload) => upload.finish().await.map(drop).map_err(failed),
            None => Err(StoreError::backend(
                format!("cannot save artifacts in {}", self.location),
                "the upload was aborted",
            )),
        }
    }

    /// Returns the length of an object and its bytes; `None` if it does not exist.
    pub(super) async fn download(&self, path: Path) -> Result<Option<(u64, ByteStream<'static>)>, StoreError> {
        let len = match self.store.head(&path).await {
            Ok(object) => object.size,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.failure("load", error)),
        };
        let (store, location) = (self.store.clone(), self.location.clone());
        let pieces = stream::iter((0..len).step_by(PIECE)).map(move |start| {
            let end = len.min(start + PIECE as u64);
            read_piece(store.clone(), path.clone(), start..end)
        });
        let bytes = pieces.buffered(PARALLEL_PIECES).map_err(move |error| match error {
            Error::NotFound { path, .. } => StoreError::backend(
                format!("cannot load artifacts in {location}"),
                format!("{path} was deleted meanwhile"),
            ),
            error => failure::describe(&location, "load", error),
        });
        Ok(Some((len, bytes.boxed())))
    }
}

async fn read_piece(store: Arc<dyn ObjectStore>, path: Path, range: Range<u64>) -> object_store::Result<Bytes> {
    store.get_range(&path, range).await
}
