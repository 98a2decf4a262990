//! Sessions and the service that keeps them.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use imbl::Vector;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::content::JsonMap;
use crate::error::StoreError;
use crate::event::Event;
use crate::id::IdKind;
use crate::state::{State, StateScope, state_entry_bytes};
use crate::time::Timestamp;
use crate::usage::{SessionUsage, StateUsage, Usage};

/// Names a session. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The app.
    pub app: Arc<str>,
    /// The user.
    pub user: Arc<str>,
    /// The session's id, unique among the user's sessions in the app.
    pub id: Arc<str>,
}

impl SessionKey {
    /// A key of the three names.
    pub fn new(app: impl Into<Arc<str>>, user: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { app: app.into(), user: user.into(), id: id.into() }
    }

    /// Checks the three names, see [`IdKind::check`].
    ///
    /// # Errors
    /// [`StoreError::InvalidName`] for the first that is too long or has control characters.
    pub fn check(&self) -> Result<(), StoreError> {
        IdKind::App.check(&self.app)?;
        IdKind::User.check(&self.user)?;
        IdKind::Session.check(&self.id)
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "appName={}, userId={}, sessionId={}", self.app, self.user, self.id)
    }
}

/// A session as a service knows it. Cloning costs nothing: events and state are shared.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its name.
    pub key: SessionKey,
    /// Its state, with the app's (`app:`) and the user's (`user:`) merged in.
    pub state: State,
    /// Its events, oldest first; possibly only the newest ones, as asked for by [`EventWindow`].
    pub events: Vector<Arc<Event>>,
    /// How many events have ever been appended; also names the newest one.
    pub revision: u64,
    /// When it was created. With the key it tells a session from a later one of the same id.
    pub created: Timestamp,
    /// Time of the newest event, or of the creation.
    pub last_update_time: Timestamp,
}

impl Serialize for Session {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serializer.serialize_struct("Session", 6)?;
        json.serialize_field("id", &self.key.id)?;
        json.serialize_field("appName", &self.key.app)?;
        json.serialize_field("userId", &self.key.user)?;
        json.serialize_field("state", &self.state)?;
        json.serialize_field("events", &self.events.iter().collect::<Vec<_>>())?;
        json.serialize_field("lastUpdateTime", &self.last_update_time)?;
        json.end()
    }
}

/// Which events [`SessionService::get`] brings along.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum EventWindow {
    /// All of them.
    #[default]
    All,
    /// The newest `n`.
    Recent(usize),
    /// Those at or after a time.
    Since(Timestamp),
    /// Those appended after the given [`Session::revision`]: what a reader who has the rest still lacks.
    AfterRevision(u64),
}

/// Keeps sessions and their events. Every implementation passes the same suite of tests.
#[async_trait]
pub trait SessionService: Send + Sync {
    /// Creates a session, with a UUID as its id when `id` is `None` or blank. `state` may hold `app:` and `user:` keys, which go to the
    /// shared state; `temp:` keys are dropped.
    ///
    /// # Errors
    /// [`StoreError::SessionExists`] when the id is taken.
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError>;

    /// The session, or `None` when there is none of this key.
    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError>;

    /// The user's sessions in an app, without events, newest update first.
    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError>;

    /// Deletes the session with its events; no error when it does not exist. Shared state stays.
    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError>;

    /// Appends an event and applies its state delta, both or neither. When this returns, a crash of the process loses neither.
    /// Gives the session's new revision. `temp:` keys are never stored. Partial events are refused.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] when the session does not exist, [`StoreError::Full`] when there is no room left. After an
    /// error nothing of the event is stored.
    async fn append(&self, key: &SessionKey, event: &Arc<Event>) -> Result<u64, StoreError>;

    /// How much the session, its user and its app take. Services keep running totals for this; the provided method reads everything of
    /// the user, and does not see the shared state of a user without sessions.
    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        let mut usage = Usage::default();
        for listed in self.list(&key.app, &key.user).await? {
            let Some(session) = self.get(&listed.key, EventWindow::All).await? else { continue };
            let own = SessionUsage {
                events: session.revision,
                event_bytes: session.events.iter().map(|event| event.json_len() as u64).sum(),
                state: state_usage(&session.state, StateScope::Session),
            };
            let shared = state_usage(&session.state, StateScope::User);
            if usage.user.sessions == 0 {
                usage.user.state = shared;
                usage.app = state_usage(&session.state, StateScope::App);
            }
            usage.user.sessions += 1;
            usage.user.event_bytes += own.event_bytes;
            usage.user.state.keys += own.state.keys;
            usage.user.state.bytes += own.state.bytes;
            if session.key == *key {
                usage.session = own;
            }
        }
        Ok(usage)
    }
}

/// What the keys of one scope take.
fn state_usage(state: &State, scope: StateScope) -> StateUsage {
    let entries = state.iter().filter(|(key, _)| StateScope::of(key).0 == scope);
    entries.fold(StateUsage::default(), |usage, (key, value)| StateUsage {
        keys: usage.keys + 1,
        bytes: usage.bytes + state_entry_bytes(key, value),
    })
}
