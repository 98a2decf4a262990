//! Chunked transfer of objects: only a few chunks are in memory at a time.

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

/// Size of a part of a multipart upload in bytes. S3 requires at least 5 MiB, and allows 10,000 parts.
const PIECE: usize = 8 << 20;

/// Number of parts that are sent or received concurrently.
const PARALLEL_PIECES: usize = 2;

/// The bytes of a stream in memory: the pieces that are sent, and the one that is collected.
pub(super) const BUFFER: usize = (PARALLEL_PIECES + 1) * PIECE;

/// An upload that is aborted unless it is finished.
pub(super) struct Upload(Option<WriteMultipart>);

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(upload), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%error, "an upload to the object store cannot be aborted, and its parts remain stored");
                }
            });
        }
    }
}

/// An upload in progress. [`ObjectArtifacts::finish`] stores it.
pub(super) enum PendingObject {
    /// Few bytes, sent in one request.
    Whole(PutPayloadMut),
    /// A multipart upload, whose last parts are not sent yet.
    Multipart(Upload),
}

impl ObjectArtifacts {
    /// Receives bytes, and sends them in pieces if they are many.
    pub(super) async fn receive(
        &self,
        path: &Path,
        mime_type: &str,
        mut bytes: ByteStream<'_>,
    ) -> Result<PendingObject, StoreError> {
        let failed = |error| self.failure("save", error);
        let mut first = PutPayloadMut::new();
        while first.content_length() < PIECE {
            let Some(chunk) = bytes.try_next().await? else { return Ok(PendingObject::Whole(first)) };
            first.push(chunk);
        }
        let options = PutMultipartOptions { attributes: media_type(mime_type), ..PutMultipartOptions::default() };
        let begun = self.store.put_multipart_opts(path, options).await.map_err(failed)?;
        let mut upload = Upload(Some(WriteMultipart::new_with_chunk_size(begun, PIECE)));
        let mut bytes = stream::iter(first.freeze().into_iter().map(Ok)).chain(bytes);
        while let Some(chunk) = bytes.try_next().await? {
            let Some(upload) = &mut upload.0 else { break };
            upload.wait_for_capacity(PARALLEL_PIECES).await.map_err(failed)?;
            upload.put(chunk);
        }
        Ok(PendingObject::Multipart(upload))
    }

    /// Stores the object of received bytes.
    pub(super) async fn finish(&self, path: &Path, mime_type: &str, received: PendingObject) -> Result<(), StoreError> {
        let stored = match received {
            PendingObject::Whole(bytes) => {
                let options = PutOptions { attributes: media_type(mime_type), ..PutOptions::default() };
                self.store.put_opts(path, bytes.freeze(), options).await
            }
            PendingObject::Multipart(mut upload) => match upload.0.take() {
                Some(upload) => upload.finish().await,
                None => {
                    let context = format!("cannot save artifacts in {}", self.location);
                    return Err(StoreError::backend(context, "the upload was aborted"));
                }
            },
        };
        stored.map(drop).map_err(|error| self.failure("save", error))
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
