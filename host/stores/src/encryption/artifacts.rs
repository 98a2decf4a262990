//! Encrypted artifacts.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{
    ArtifactService, ArtifactStream, ArtifactUsage, Blob, ByteStream, JsonMap, NewestVersion, Part, PartData,
    SessionKey, StoreError,
};

use super::keys::EncryptionKeys;
use super::records::{Record, unreadable};
use super::segments::SEGMENT;
use crate::artifacts::stored_part::{NewPart, StoredPart};

/// The media type of sealed artifacts. Sealed are the JSON of the part without its bytes and of its
/// metadata, a line feed, and the bytes.
const SEALED: &str = "application/vnd.hatchery.sealed";

/// An [`ArtifactService`] that encrypts artifacts. Its [usage](ArtifactService::usage) is the usage of the
/// encrypted data.
pub struct EncryptedArtifacts {
    inner: Arc<dyn ArtifactService>,
    keys: Arc<EncryptionKeys>,
}

impl EncryptedArtifacts {
    /// Wraps a service.
    pub fn new(inner: Arc<dyn ArtifactService>, keys: Arc<EncryptionKeys>) -> Self {
        Self { inner, keys }
    }

    fn seal<'a>(
        &self,
        session: &SessionKey,
        name: &str,
        part: NewPart<'_>,
        bytes: ByteStream<'a>,
    ) -> Result<ByteStream<'a>, StoreError> {
        let subject = describe(session, name);
        let record = Record { subject: &subject, context: &["artifact", &session.app, &session.user, name] };
        let mut head = serde_json::to_vec(&part).map_err(|error| unreadable(record, error))?;
        head.push(b'\n');
        self.keys.seal_stream(record, stream::iter([Ok(Bytes::from(head))]).chain(bytes).boxed())
    }

    /// Decrypts a version. A version in plain text is returned unchanged, if plain text is accepted.
    async fn open(
        &self,
        session: &SessionKey,
        name: &str,
        stored: ArtifactStream,
    ) -> Result<ArtifactStream, StoreError> {
        let subject = describe(session, name);
        if !matches!(&stored.part.data, PartData::InlineData(blob) if blob.mime_type == SEALED) {
            self.keys.check_plain(&subject)?;
            return Ok(stored);
        }
        let ArtifactStream { created, len, bytes, .. } = stored;
        let record = Record { subject: &subject, context: &["artifact", &session.app, &session.user, name] };
        let mut opener = self.keys.open_stream(record, len, bytes).await?;
        let mut head = BytesMut::new();
        let end = loop {
            let Some(bytes) = opener.next().await? else {
                return Err(unreadable(record, "its first line does not end"));
            };
            let before = head.len();
            head.extend_from_slice(&bytes);
            if let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                break before + end + 1;
            }
        };
        let first = head.split_off(end).freeze();
        let StoredPart { part, custom_metadata } =
            serde_json::from_slice(&head).map_err(|error| unreadable(record, error))?;
        let (len, bytes) = (opener.len.saturating_sub(end as u64), opener.into_stream(first));
        Ok(ArtifactStream { part, created, custom_metadata, len, bytes })
    }
}

fn describe(session: &SessionKey, name: &str) -> String {
    format!("the artifact `{name}` ({session})")
}

#[async_trait]
impl ArtifactService for EncryptedArtifacts {
    async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError> {
        self.save_with(session, name, part, &JsonMap::new()).await
    }

    async fn save_with(
        &self,
        session: &SessionKey,
        name: &str,
        part: &Part,
        custom_metadata: &JsonMap,
    ) -> Result<u64, StoreError> {
        let ArtifactStream { part, bytes, .. } = part.clone().into();
        let part = NewPart { part: &part, custom_metadata };
        let sealed: Vec<Bytes> = self.seal(session, name, part, bytes)?.try_collect().await?;
        let blob = Blob { mime_type: SEALED.into(), data: sealed.concat().into(), display_name: None };
        self.inner.save(session, name, &PartData::InlineData(blob).into()).await
    }

    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        let Some(stored) = self.inner.load(session, name, version).await? else { return Ok(None) };
        let ArtifactStream { mut part, bytes, .. } = self.open(session, name, stored.into()).await?;
        if let PartData::InlineData(blob) = &mut part.data {
            let bytes: Vec<Bytes> = bytes.try_collect().await?;
            blob.data = bytes.concat().into();
        }
        Ok(Some(part))
    }

    async fn save_stream_with(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        custom_metadata: &JsonMap,
        bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        let blob = Blob { mime_type: mime_type.to_owned(), ..Blob::default() };
        let part = PartData::InlineData(blob).into();
        let sealed = self.seal(session, name, NewPart { part: &part, custom_metadata }, bytes)?;
        self.inner.save_stream(session, name, SEALED, sealed).await
    }

    async fn load_stream(
        &self,
        session: &SessionKey,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<ArtifactStream>, StoreError> {
        match self.inner.load_stream(session, name, version).await? {
            Some(stored) => self.open(session, name, stored).await.map(Some),
            None => Ok(None),
        }
    }

    fn stream_buffer(&self) -> Option<usize> {
        self.inner.stream_buffer().map(|bytes| bytes + 2 * SEGMENT)
    }

    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        self.inner.list(session).await
    }

    async fn delete_all(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        self.inner.delete_all(session).await
    }

    async fn newest_versions(&self, session: &SessionKey) -> Result<Vec<NewestVersion>, StoreError> {
        self.inner.newest_versions(session).await
    }

    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
        self.inner.versions(session, name).await
    }

    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
        self.inner.delete(session, name).await
    }

    async fn usage(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        self.inner.usage(session).await
    }
}
