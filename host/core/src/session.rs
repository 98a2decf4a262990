//! Sessions and the service that stores them.

use std::sync::Arc;

use async_trait::async_trait;
use imbl::Vector;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::error::StoreError;
use crate::event::{Event, EventData};
use crate::id::SessionKey;
use crate::json::JsonMap;
use crate::state::{State, StateScope, state_entry_bytes};
use crate::time::Timestamp;
use crate::usage::{SessionUsage, StateUsage, Usage};

/// A session: its state and its event log. Cheap to clone: events and state are shared. Its JSON leaves out what [paused
/// runs](crate::EventData::paused_run) keep.
#[derive(Debug, Clone)]
pub struct Session {
    /// The names that identify the session.
    pub key: SessionKey,
    /// The state, merged with that of the app (`app:`) and of the user (`user:`).
    pub state: State,
    /// The events, oldest first; only some of them if requested by [`EventWindow`].
    pub events: Vector<Arc<Event>>,
    /// The number of events that have ever been appended; also identifies the newest one.
    pub revision: u64,
    /// The time of creation. Distinguishes the session from a later one with the same key.
    pub created: Timestamp,
    /// The time of the newest event, or of the creation.
    pub last_update_time: Timestamp,
}

impl Serialize for Session {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serializer.serialize_struct("Session", 6)?;
        json.serialize_field("id", &self.key.id)?;
        json.serialize_field("appName", &self.key.app)?;
        json.serialize_field("userId", &self.key.user)?;
        json.serialize_field("state", &self.state)?;
        let events: Vec<_> = self.events.iter().filter(|event| event.paused_run().is_none()).collect();
        json.serialize_field("events", &events)?;
        json.serialize_field("lastUpdateTime", &self.last_update_time)?;
        json.end()
    }
}

impl Session {
    /// Parses the JSON of a session, as clients get it. Its revision is the number of its events, and its time of
    /// creation that of its first event.
    ///
    /// # Errors
    /// If the text is not the JSON of a session.
    pub fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        let SessionJson { id, app_name, user_id, state, events, last_update_time } = serde_json::from_str(json)?;
        let events: Vector<_> = events.into_iter().map(Event::new).collect();
        Ok(Self {
            key: SessionKey::new(app_name, user_id, id),
            state,
            revision: events.len() as u64,
            created: events.front().map_or(last_update_time, |event| event.timestamp),
            last_update_time,
            events,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionJson {
    id: String,
    app_name: String,
    user_id: String,
    #[serde(default)]
    state: State,
    #[serde(default)]
    events: Vec<EventData>,
    #[serde(default)]
    last_update_time: Timestamp,
}

/// The events that [`SessionService::get`] returns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum EventWindow {
    /// All events.
    #[default]
    All,
    /// The newest `n`.
    Recent(usize),
    /// Events at or after a time.
    Since(Timestamp),
    /// Events appended after this [`Session::revision`], for a reader that has the others.
    AfterRevision(u64),
}

/// Stores sessions and their events. All implementations pass the same contract tests.
///
/// Called from the tasks of runs and of HTTP requests, concurrently, also for the same session. Methods may await, but
/// not block: blocking I/O belongs into `spawn_blocking`. A caller may drop a future at any time, and then a change is
/// either made completely or not at all.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex};
///
/// use async_trait::async_trait;
/// use hatchery_core::{
///     Event, EventWindow, JsonMap, Session, SessionKey, SessionService, State, StateScope, StoreError, Timestamp,
/// };
///
/// /// Keeps sessions in memory. Unlike a real service, it does not share `app:` and `user:` state between sessions.
/// #[derive(Default)]
/// struct InMemory(Mutex<BTreeMap<SessionKey, Session>>);
///
/// #[async_trait]
/// impl SessionService for InMemory {
///     async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
///         let mut sessions = self.0.lock().unwrap();
///         let key = SessionKey::new(app, user, id.unwrap_or("a-new-uuid"));
///         if sessions.contains_key(&key) {
///             return Err(StoreError::SessionExists(key));
///         }
///         let mut state = State::from(&state);
///         state.retain(|key| StateScope::of(key).0 != StateScope::Temp);
///         let now = Timestamp::now();
///         let session = Session {
///             key: key.clone(),
///             state,
///             events: Default::default(),
///             revision: 0,
///             created: now,
///             last_update_time: now,
///         };
///         sessions.insert(key, session.clone());
///         Ok(session)
///     }
///
///     async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
///         let mut session = self.0.lock().unwrap().get(key).cloned();
///         if let Some(session) = &mut session {
///             let events = std::mem::take(&mut session.events);
///             session.events = match window {
///                 EventWindow::All => events,
///                 EventWindow::Recent(count) => events.skip(events.len().saturating_sub(count)),
///                 EventWindow::Since(time) => events.into_iter().filter(|event| event.timestamp >= time).collect(),
///                 EventWindow::AfterRevision(revision) => events.skip((revision as usize).min(events.len())),
///             };
///         }
///         Ok(session)
///     }
///
///     async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
///         let sessions = self.0.lock().unwrap();
///         let own = sessions.values().filter(|session| *session.key.app == *app && *session.key.user == *user);
///         let mut own: Vec<_> =
///             own.map(|session| Session { events: Default::default(), ..session.clone() }).collect();
///         own.sort_by_key(|session| std::cmp::Reverse(session.last_update_time));
///         Ok(own)
///     }
///
///     async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
///         self.0.lock().unwrap().remove(key);
///         Ok(())
///     }
///
///     async fn append(&self, key: &SessionKey, event: &Arc<Event>) -> Result<u64, StoreError> {
///         let mut sessions = self.0.lock().unwrap();
///         let session = sessions.get_mut(key).ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
///         session.state.apply(&event.actions.state_delta);
///         session.events.push_back(event.clone());
///         session.last_update_time = event.timestamp;
///         session.revision += 1;
///         Ok(session.revision)
///     }
/// }
///
/// # use hatchery_core::EventData;
/// # futures::executor::block_on(async {
/// let service = InMemory::default();
/// let session = service.create("app", "ada", Some("s1"), JsonMap::new()).await.unwrap();
/// let event = Event::new(EventData { author: "user".into(), ..EventData::default() });
/// assert_eq!(service.append(&session.key, &event).await.unwrap(), 1);
/// let newer = service.get(&session.key, EventWindow::AfterRevision(0)).await.unwrap().unwrap();
/// assert_eq!(newer.events.len(), 1);
/// # });
/// ```
#[async_trait]
pub trait SessionService: Send + Sync {
    /// Creates a session, with a UUID as its id if `id` is `None` or blank. Keys `app:` and `user:` in `state` are
    /// added to the shared state; `temp:` keys are dropped.
    ///
    /// # Errors
    /// [`StoreError::SessionExists`] if the id is taken.
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError>;

    /// Returns a session with the events of `window`; `None` if it does not exist.
    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError>;

    /// Returns the user's sessions in an app, without events, most recently updated first.
    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError>;

    /// Deletes a session with its events. Succeeds if it does not exist. Shared state is kept.
    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError>;

    /// Appends an event and applies its state delta atomically. Returns the session's new revision. When this returns,
    /// both survive a crash of the process. `temp:` keys are never stored. Partial events are rejected.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist, [`StoreError::Full`] if there is no space left.
    /// After an error nothing of the event is stored.
    async fn append(&self, key: &SessionKey, event: &Arc<Event>) -> Result<u64, StoreError>;

    /// Returns the storage used by the session, its user and its app. The default reads all sessions of the user, and
    /// does not see the shared state of a user without sessions: implementations should keep running totals.
    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        let mut usage = Usage::default();
        for entry in self.list(&key.app, &key.user).await? {
            let Some(session) = self.get(&entry.key, EventWindow::All).await? else { continue };
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

/// Returns the usage of the keys of one scope.
fn state_usage(state: &State, scope: StateScope) -> StateUsage {
    let entries = state.iter().filter(|(key, _)| StateScope::of(key).0 == scope);
    entries.fold(StateUsage::default(), |usage, (key, value)| StateUsage {
        keys: usage.keys + 1,
        bytes: usage.bytes + state_entry_bytes(key, value),
    })
}
