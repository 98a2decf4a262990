//! Changes of a session: read, plan, commit, and again if another host was faster.

use std::time::Duration;

use hatchery_core::{SessionKey, StoreError};

use super::Store;
use super::stored::{Status, StoredSession, field_paths};
use crate::firestore::client::{Backoff, Commit};
use crate::firestore::document::{Document, Write};

/// The writes of a change, and its result.
pub(super) struct Plan<T> {
    writes: Vec<Write>,
    result: T,
}

impl<T> Plan<T> {
    /// Plans one commit. The first write must be to the session's document, with its condition.
    pub(super) fn new(writes: Vec<Write>, result: T) -> Self {
        Self { writes, result }
    }

    pub(super) fn unchanged(result: T) -> Self {
        Self { writes: Vec::new(), result }
    }
}

/// The documents that a change reads: the session, and others in the order of their names.
pub(super) type FoundDocuments = Option<(StoredSession, Vec<Option<Document>>)>;

impl Store {
    /// Changes a session. `plan` gets the session and the documents `others`, with the fields that every change needs
    /// and `fields`.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist, [`StoreError::Busy`] if others were faster for
    /// too long, and the errors of `plan`.
    pub(super) async fn change<T>(
        &self,
        key: &SessionKey,
        others: &[String],
        fields: &[&str],
        plan: impl Fn(&StoredSession, &[Option<Document>]) -> Result<Plan<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let mut backoff = retries();
        loop {
            let Some((stored, others)) = self.find(key, others, fields).await? else {
                return Err(StoreError::SessionNotFound(key.clone()));
            };
            if stored.status == Status::Trimming {
                self.trim(key).await?;
                continue;
            }
            let Plan { writes, result } = plan(&stored, &others)?;
            if writes.is_empty() || self.commit(key, &stored, &writes).await? {
                return Ok(result);
            }
            wait(&mut backoff).await?;
        }
    }

    /// Commits the writes of a session. The first one is to its document. Returns false if others have changed it.
    pub(super) async fn commit(
        &self,
        key: &SessionKey,
        stored: &StoredSession,
        writes: &[Write],
    ) -> Result<bool, StoreError> {
        self.cache.take(key);
        match (self.client.commit(writes).await?, writes.first()) {
            (Commit::Applied(time), Some(first)) => {
                self.cache.set(key, stored.after(first, time));
                Ok(true)
            }
            (Commit::Applied(_), None) => Ok(true),
            (Commit::Conflict, _) => Ok(false),
        }
    }

    /// Reads a session and other documents; `None` if clients do not see it.
    pub(super) async fn find(
        &self,
        key: &SessionKey,
        others: &[String],
        fields: &[&str],
    ) -> Result<FoundDocuments, StoreError> {
        let found = self.find_any(key, others, fields).await?;
        Ok(found.filter(|(stored, _)| stored.status.is_visible()))
    }

    /// Reads a session also while it is removed or copied.
    pub(super) async fn find_any(
        &self,
        key: &SessionKey,
        others: &[String],
        fields: &[&str],
    ) -> Result<FoundDocuments, StoreError> {
        let names = [&[self.names.session(key)], others].concat();
        let snapshot = self.client.read(&names, Some(&field_paths(fields)), None).await?;
        let mut documents = snapshot.documents.into_iter();
        let session = documents.next().flatten();
        Ok(session.map(|session| (StoredSession::new(session, &snapshot.read_time), documents.collect())))
    }
}

/// Returns true if the writes of a commit were applied, false if a document has changed since it was read.
pub(super) fn is_applied(commit: Commit) -> bool {
    match commit {
        Commit::Applied(_) => true,
        Commit::Conflict => false,
    }
}

/// Returns the delays of a change that others are faster with.
pub(super) fn retries() -> Backoff {
    Backoff::new()
}

/// Waits before the next attempt.
///
/// # Errors
/// [`StoreError::Busy`] if others were faster for too long.
pub(super) async fn wait(backoff: &mut Backoff) -> Result<(), StoreError> {
    if backoff.wait().await {
        return Ok(());
    }
    let context = "other hosts change the session at the same time".into();
    Err(StoreError::Busy { context, retry_after: Duration::from_secs(1) })
}
