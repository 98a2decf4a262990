//! Sessions in Firestore.
//!
//! An append is a commit of two documents, the event and the session's counters and changed keys, and of one more for
//! `user:` and for `app:` keys each. Its cost does not depend on the length of the session. An append that follows
//! another write of the same host reads nothing, unless it changes keys of the session. Leases are compared by the
//! clock of Firestore, so the clocks of the hosts need not agree.
//!
//! An operation of several commits (deleting, forking or rewinding a long session) is marked in the session's document
//! while it is in progress. If the host ends before it is complete, the next use of the session completes it.

mod change;
mod events;
mod history;
mod journal;
mod reads;
mod retention;
mod runs;
mod session_cache;
mod state;
mod stored;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    CallJournal, Event, EventWindow, ExpiredSession, ExpiryRule, JsonMap, MAX_TURN_LEASE, RunService, Session,
    SessionCursor, SessionKey, SessionPage, SessionService, State, StoreError, Timestamp, Turn, TurnStart, Usage,
};

use self::change::Plan;
use self::session_cache::SessionCache;
use self::stored::{StoredSession, check_fence};
use super::client::FirestoreClient;
use super::document::fields;
use super::keys;
use super::names::Names;
use super::properties::FirestoreProperties;
use crate::sessions::{new_session_id, reject_partial};

/// A [`SessionService`] in a Firestore database. Cheap to clone.
#[derive(Clone)]
pub struct FirestoreSessionService(Arc<Store>);

pub(super) struct Store {
    client: FirestoreClient,
    names: Names,
    cache: SessionCache,
}

impl FirestoreSessionService {
    /// Stores sessions in the database of this client, below the collection `adk-session`.
    pub fn new(client: FirestoreClient) -> Self {
        Self::with_properties(client, &FirestoreProperties::default())
    }

    /// Stores sessions below the root collection of these properties.
    pub fn with_properties(client: FirestoreClient, properties: &FirestoreProperties) -> Self {
        let names = Names { root: properties.root_collection.clone() };
        Self(Arc::new(Store { client, names, cache: SessionCache::default() }))
    }

    /// Runs an operation of several commits to completion, even if the caller is dropped.
    async fn complete<T: Send + 'static>(
        &self,
        activity: &'static str,
        operation: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        tokio::spawn(operation).await.map_err(|error| StoreError::backend(format!("cannot {activity}"), error))?
    }
}

#[async_trait]
impl SessionService for FirestoreSessionService {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        self.0.create(SessionKey::new(app, user, new_session_id(id)), &state).await
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.0.get(key, window).await
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        self.0.list(app, user).await
    }

    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        self.0.list_page(app, user, after, limit).await
    }

    async fn list_expired(
        &self,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        self.0.list_expired(app, rule, limit).await
    }

    fn has_retention(&self) -> bool {
        true
    }

    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        let fork = SessionKey::new(key.app.clone(), key.user.clone(), new_session_id(id));
        let (store, key) = (self.0.clone(), key.clone());
        self.complete("fork the session", async move { store.fork(&key, revision, fork).await }).await
    }

    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        let (store, key) = (self.0.clone(), key.clone());
        self.complete("rewind the session", async move { store.rewind(&key, revision).await }).await
    }

    async fn close_session(&self, _: &SessionKey) -> Result<(), StoreError> {
        Ok(())
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let (store, key) = (self.0.clone(), key.clone());
        self.complete("delete the session", async move { store.delete(&key).await }).await
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        let begin = |stored: &StoredSession, _: &_| {
            if let Some(remaining) = stored.lease_remaining().filter(|_| previous != Some(stored.fence)) {
                return Ok(Plan::unchanged(TurnStart::Held { remaining }));
            }
            let fence = stored.fence + 1;
            let turn = Turn { fence, revision: stored.revision };
            let update = fields([(keys::FENCE, fence.into()), (keys::LEASED_UNTIL, stored.lease_end(lease).into())]);
            Ok(Plan::new(vec![stored.update(update)], TurnStart::Begun(turn)))
        };
        self.0.change(key, &[], &[], begin).await
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        let renew = |stored: &StoredSession, _: &_| {
            check_fence(key, stored, Some(fence))?;
            let update = fields([(keys::LEASED_UNTIL, stored.lease_end(lease).into())]);
            Ok(Plan::new(vec![stored.update(update)], ()))
        };
        self.0.change(key, &[], &[], renew).await
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        reject_partial(event)?;
        self.0.append(key, event, fence).await
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        Some(self)
    }

    fn runs(&self) -> Option<&dyn RunService> {
        Some(self)
    }

    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        self.0.usage(key).await
    }
}

impl Store {
    async fn create(&self, key: SessionKey, state: &JsonMap) -> Result<Session, StoreError> {
        let created = Timestamp::now();
        let mut backoff = change::retries();
        loop {
            let names = self.session_names(&key);
            let snapshot = self.client.read(&names, Some(&stored::field_paths(&[keys::STATE])), None).await?;
            let [found, shared @ ..] = snapshot.documents.as_slice() else { continue };
            match found.as_ref().map(|found| StoredSession::new(found.clone(), &snapshot.read_time)) {
                Some(stored) if stored.status.is_visible() => return Err(StoreError::SessionExists(key)),
                Some(_) => {
                    self.sweep(&key).await?;
                    continue;
                }
                None => {}
            }
            let (mut writes, own) = state::initial_writes(&key, state);
            writes.insert(0, self.new_session(&key, created, &own, &own));
            if change::is_applied(self.client.commit(&writes).await?) {
                let mut merged = state::read_shared(shared);
                merged.merge(&State::from(&state::storable(state)));
                return Ok(stored::session(key, merged, 0, created, created));
            }
            change::wait(&mut backoff).await?;
        }
    }
}

/// Returns a lease in microseconds, at most [`MAX_TURN_LEASE`].
fn lease_micros(lease: Duration) -> i64 {
    i64::try_from(lease.min(MAX_TURN_LEASE).as_micros()).unwrap_or(i64::MAX)
}
