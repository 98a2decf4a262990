//! An artifact service that enforces quotas, also for saves in progress. Saves of other processes are noticed when the
//! totals are read again, after a deletion or a failure.

mod ledger;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{
    ArtifactService, ArtifactStream, ArtifactUsage, Blob, ByteStream, IdKind, JsonMap, NewestVersion, Part, PartData,
    SessionKey, StoreError, check_custom_metadata, custom_metadata_bytes,
};
use tokio::sync::mpsc;

use self::ledger::{Ledger, Reservation};
use super::{AppQuotas, LiveQuotas, audit};
use crate::tasks::run_to_completion;

/// An [`ArtifactService`] that enforces quotas. It also rejects names that are too long or contain control characters,
/// and custom metadata that is too large. A save whose bytes are complete ends even if its caller is dropped, so that
/// it is counted.
pub struct QuotaArtifacts {
    inner: Arc<dyn ArtifactService>,
    ledger: Arc<Ledger>,
}

impl QuotaArtifacts {
    /// Wraps a service.
    pub fn new(inner: Arc<dyn ArtifactService>, quotas: Arc<AppQuotas>) -> Self {
        Self::with_live(inner, quotas.into())
    }

    /// Wraps a service, with quotas that can be replaced.
    pub(super) fn with_live(inner: Arc<dyn ArtifactService>, quotas: LiveQuotas) -> Self {
        Self { ledger: Arc::new(Ledger::new(inner.clone(), quotas)), inner }
    }

    async fn save_checked(
        &self,
        session: &SessionKey,
        name: &str,
        part: &Part,
        custom_metadata: &JsonMap,
    ) -> Result<u64, StoreError> {
        let bytes = part.stored_bytes() + custom_metadata_bytes(custom_metadata);
        let reservation = self.ledger.reserve(session, is_user_scoped(name), bytes).await?;
        let (inner, session, name) = (self.inner.clone(), session.clone(), name.to_owned());
        let (part, custom_metadata) = (part.clone(), custom_metadata.clone());
        run_to_completion(async move {
            let version = inner.save_with(&session, &name, &part, &custom_metadata).await?;
            reservation.commit();
            Ok(version)
        })
        .await
    }

    /// As [`QuotaArtifacts::save_checked`], with bytes that count from when they are received.
    async fn save_stream_checked(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        custom_metadata: &JsonMap,
        mut bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        let blob = Blob { mime_type: mime_type.to_owned(), ..Blob::default() };
        let empty = Part::from(PartData::InlineData(blob)).stored_bytes() + custom_metadata_bytes(custom_metadata);
        let reservation = self.ledger.reserve(session, is_user_scoped(name), empty).await?;
        let (sender, received) = mpsc::channel(1);
        let (mime_type, custom_metadata) = (mime_type.to_owned(), custom_metadata.clone());
        let save = ReceivedArtifact { mime_type, custom_metadata, reservation, received };
        let (inner, session, name) = (self.inner.clone(), session.clone(), name.to_owned());
        let save = run_to_completion(async move { save.save(&*inner, &session, &name).await });
        let send = async move {
            loop {
                let next = tokio::select! {
                    // The save has failed.
                    () = sender.closed() => return,
                    next = bytes.try_next() => next,
                };
                let is_last = !matches!(next, Ok(Some(_)));
                if sender.send(next).await.is_err() || is_last {
                    return;
                }
            }
        };
        futures::join!(save, send).0
    }
}

/// An artifact whose bytes another task receives. If that ends without a last message, nothing is saved.
struct ReceivedArtifact {
    mime_type: String,
    custom_metadata: JsonMap,
    reservation: Reservation,
    /// The chunks, then `None` or an error.
    received: mpsc::Receiver<Result<Option<Bytes>, StoreError>>,
}

impl ReceivedArtifact {
    async fn save(self, inner: &dyn ArtifactService, session: &SessionKey, name: &str) -> Result<u64, StoreError> {
        let Self { mime_type, custom_metadata, mut reservation, received } = self;
        let counted = stream::try_unfold((received, &mut reservation), |(mut received, reservation)| async move {
            let next = received.recv().await;
            let cancelled = || StoreError::InvalidRequest("the upload was cancelled before its end".into());
            match next.ok_or_else(cancelled)?? {
                Some(chunk) => {
                    reservation.grow(chunk.len() as u64)?;
                    Ok(Some((chunk, (received, reservation))))
                }
                None => reservation.check().await.map(|()| None),
            }
        });
        let version = inner.save_stream_with(session, name, &mime_type, &custom_metadata, counted.boxed()).await?;
        reservation.commit();
        Ok(version)
    }
}

#[async_trait]
impl ArtifactService for QuotaArtifacts {
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
        check(session, name)?;
        check_custom_metadata(name, custom_metadata)?;
        let result = self.save_checked(session, name, part, custom_metadata).await;
        result.inspect_err(|error| audit(error, &session.app, &session.user, &session.id))
    }

    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        check(session, name)?;
        self.inner.load(session, name, version).await
    }

    async fn save_stream_with(
        &self,
        session: &SessionKey,
        name: &str,
        mime_type: &str,
        custom_metadata: &JsonMap,
        bytes: ByteStream<'_>,
    ) -> Result<u64, StoreError> {
        check(session, name)?;
        check_custom_metadata(name, custom_metadata)?;
        let result = self.save_stream_checked(session, name, mime_type, custom_metadata, bytes).await;
        result.inspect_err(|error| audit(error, &session.app, &session.user, &session.id))
    }

    async fn load_stream(
        &self,
        session: &SessionKey,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<ArtifactStream>, StoreError> {
        check(session, name)?;
        self.inner.load_stream(session, name, version).await
    }

    fn stream_buffer(&self) -> Option<usize> {
        self.inner.stream_buffer()
    }

    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        session.check()?;
        self.inner.list(session).await
    }

    async fn newest_versions(&self, session: &SessionKey) -> Result<Vec<NewestVersion>, StoreError> {
        session.check()?;
        self.inner.newest_versions(session).await
    }

    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
        check(session, name)?;
        self.inner.versions(session, name).await
    }

    /// Accepts any name, so that artifacts whose names are invalid by now can be deleted.
    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
        let (inner, ledger) = (self.inner.clone(), self.ledger.clone());
        let (session, name) = (session.clone(), name.to_owned());
        run_to_completion(async move {
            let deleted = inner.delete(&session, &name).await;
            ledger.record_deletion(&session);
            deleted
        })
        .await
    }

    async fn usage(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        self.inner.usage(session).await
    }
}

fn check(session: &SessionKey, name: &str) -> Result<(), StoreError> {
    session.check()?;
    Ok(IdKind::Artifact.check(name)?)
}

fn is_user_scoped(name: &str) -> bool {
    name.starts_with("user:")
}
