//! Points in the history of a session, and copies of a session up to a point.

use crate::error::StoreError;
use crate::id::SessionKey;
use crate::session::{EventWindow, Session, SessionService};

/// Number of events that are read at a time while one is searched for.
const PAGE: usize = 256;

/// A point in the history of a session: the state after an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionPoint {
    /// After the event with this id.
    EventId(String),
    /// After this number of events.
    Revision(u64),
}

impl SessionPoint {
    /// Returns the revision of the session at this point.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`], [`StoreError::InvalidRequest`] if the session has no such event, and others of
    /// the service.
    pub async fn revision(&self, sessions: &dyn SessionService, key: &SessionKey) -> Result<u64, StoreError> {
        let id = match self {
            Self::EventId(id) => id,
            Self::Revision(revision) => return Ok(*revision),
        };
        let mut after = 0;
        loop {
            let page = sessions.get(key, EventWindow::Page { after, limit: PAGE }).await?;
            let page = page.ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
            if let Some(index) = page.events.iter().position(|event| event.id == *id) {
                return Ok(after + index as u64 + 1);
            }
            after += page.events.len() as u64;
            if page.events.is_empty() || after >= page.revision {
                let message = format!("the session has no event `{id}`: name one of its events ({key})");
                return Err(StoreError::InvalidRequest(message));
            }
        }
    }
}

/// Creates a session with the events of another one up to a point, or all of them if it is `None`.
///
/// # Errors
/// The errors of [`SessionPoint::revision`] and of [`SessionService::fork`].
pub async fn fork_session(
    sessions: &dyn SessionService,
    key: &SessionKey,
    up_to: Option<&SessionPoint>,
    id: Option<&str>,
) -> Result<Session, StoreError> {
    let revision = match up_to {
        Some(point) => point.revision(sessions, key).await?,
        None => {
            let session = sessions.get(key, EventWindow::Recent(0)).await?;
            session.ok_or_else(|| StoreError::SessionNotFound(key.clone()))?.revision
        }
    };
    sessions.fork(key, revision, id).await
}
