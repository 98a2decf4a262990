//! Sessions and the service that stores them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use imbl::Vector;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::error::StoreError;
use crate::event::{Event, EventData};
use crate::id::SessionKey;
use crate::journal::CallJournal;
use crate::json::JsonMap;
use crate::retention::{ExpiredSession, ExpiryRule};
use crate::session_list::{SessionCursor, SessionPage};
use crate::state::{State, StateScope, state_entry_bytes};
use crate::stored_run::RunService;
use crate::time::Timestamp;
use crate::turn::{TurnOpening, TurnStart};
use crate::usage::{SessionUsage, StateUsage, Usage};

/// A session: its state and its event log. Cheap to clone: events and state are shared. Its JSON leaves out the
/// data of [paused runs](crate::EventData::paused_run).
#[derive(Debug, Clone)]
pub struct Session {
    /// The names that identify the session.
    pub key: SessionKey,
    /// The state, merged with the state of the app (`app:`) and of the user (`user:`).
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
    /// creation is the time of its first event.
    ///
    /// # Errors
    /// If the string is not the JSON of a session.
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
    /// Of the newest `count` events, those at or after a time.
    RecentSince {
        /// Number of considered events.
        count: usize,
        time: Timestamp,
    },
    /// Events appended after this [`Session::revision`], for a reader that has the others.
    AfterRevision(u64),
    /// The first `limit` events after a revision, for a reader that reads page by page.
    Page {
        /// The revision of the last event of the previous page; 0 for the first page.
        after: u64,
        /// The most events to return.
        limit: usize,
    },
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
/// use std::time::{Duration, Instant};
///
/// use async_trait::async_trait;
/// use hatchery_core::{
///     Event, EventWindow, JsonMap, Session, SessionKey, SessionService, State, StateScope, StoreError, Timestamp, Turn,
///     TurnStart,
/// };
///
/// /// Keeps sessions in memory. Unlike a real service, it does not share `app:` and `user:` state between sessions.
/// #[derive(Default)]
/// struct InMemory(Mutex<BTreeMap<SessionKey, Stored>>);
///
/// struct Stored {
///     session: Session,
///     /// The number of the newest turn, and the end of its lease.
///     fence: u64,
///     leased_until: Instant,
/// }
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
///         state.retain(|key| StateScope::split_key(key).0 != StateScope::Temp);
///         let now = Timestamp::now();
///         let session = Session {
///             key: key.clone(),
///             state,
///             events: Default::default(),
///             revision: 0,
///             created: now,
///             last_update_time: now,
///         };
///         sessions.insert(key, Stored { session: session.clone(), fence: 0, leased_until: Instant::now() });
///         Ok(session)
///     }
///
///     async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
///         let mut session = self.0.lock().unwrap().get(key).map(|stored| stored.session.clone());
///         if let Some(session) = &mut session {
///             let events = std::mem::take(&mut session.events);
///             session.events = match window {
///                 EventWindow::All => events,
///                 EventWindow::Recent(count) => events.skip(events.len().saturating_sub(count)),
///                 EventWindow::Since(time) => events.into_iter().filter(|event| event.timestamp >= time).collect(),
///                 EventWindow::RecentSince { count, time } => {
///                     let recent = events.skip(events.len().saturating_sub(count));
///                     recent.into_iter().filter(|event| event.timestamp >= time).collect()
///                 }
///                 EventWindow::AfterRevision(revision) => events.skip((revision as usize).min(events.len())),
///                 EventWindow::Page { after, limit } => {
///                     events.into_iter().skip(after as usize).take(limit).collect()
///                 }
///             };
///         }
///         Ok(session)
///     }
///
///     async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
///         let sessions = self.0.lock().unwrap();
///         let all = sessions.values().map(|stored| &stored.session);
///         let own = all.filter(|session| *session.key.app == *app && *session.key.user == *user);
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
///     async fn begin_turn(
///         &self,
///         key: &SessionKey,
///         previous: Option<u64>,
///         lease: Duration,
///     ) -> Result<TurnStart, StoreError> {
///         let mut sessions = self.0.lock().unwrap();
///         let stored = sessions.get_mut(key).ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
///         let now = Instant::now();
///         if stored.leased_until > now && previous != Some(stored.fence) {
///             return Ok(TurnStart::Held { remaining: stored.leased_until - now });
///         }
///         stored.fence += 1;
///         stored.leased_until = now + lease;
///         Ok(TurnStart::Begun(Turn { fence: stored.fence, revision: stored.session.revision }))
///     }
///
///     async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
///         let mut sessions = self.0.lock().unwrap();
///         let stored = sessions.get_mut(key).ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
///         if stored.fence != fence {
///             return Err(StoreError::Fenced(key.clone()));
///         }
///         stored.leased_until = Instant::now() + lease;
///         Ok(())
///     }
///
///     async fn append_with(
///         &self,
///         key: &SessionKey,
///         event: &Arc<Event>,
///         fence: Option<u64>,
///     ) -> Result<u64, StoreError> {
///         let mut sessions = self.0.lock().unwrap();
///         let stored = sessions.get_mut(key).ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
///         let session = &mut stored.session;
///         if let Some(index) = session.events.iter().position(|other| other.id == event.id) {
///             let is_repeated = session.events[index].json() == event.json();
///             return if is_repeated { Ok(index as u64 + 1) } else { Err(StoreError::EventExists(event.id.clone())) };
///         }
///         if fence.is_some_and(|fence| fence != stored.fence) {
///             return Err(StoreError::Fenced(key.clone()));
///         }
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
/// assert_eq!(service.append(&session.key, &event).await.unwrap(), 1, "a repeated append changes nothing");
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

    /// Returns up to `limit` of the sessions that [`SessionService::list`] returns: those after a cursor. A session
    /// that is updated between two pages moves to the front of the list.
    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        let mut sessions = self.list(app, user).await?;
        sessions.retain(|session| after.is_none_or(|after| after.precedes(session)));
        let has_more = sessions.len() > limit;
        sessions.truncate(limit);
        let next = sessions.last().filter(|_| has_more).map(SessionCursor::after);
        Ok(SessionPage { sessions, next })
    }

    /// Creates a session of the same app and user with the first `revision` events of this one and the state that they
    /// led to. Its id is as for [`SessionService::create`]. Returns it without events.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist, [`StoreError::SessionExists`] if the id is taken,
    /// [`StoreError::InvalidRequest`] if the session has fewer events, and if the service cannot fork sessions, as by
    /// default.
    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        let _ = (key, revision, id);
        Err(StoreError::InvalidRequest("this session service cannot fork sessions".into()))
    }

    /// Removes the events after `revision` with the runs that have begun since, and restores the session's own state of
    /// that revision. Shared state and artifacts stay as they are. Returns the session without events.
    ///
    /// Begins no turn, but fences out the last one. Changes [`Session::created`], so that readers with removed events
    /// notice.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist, [`StoreError::Busy`] while a turn is held,
    /// [`StoreError::InvalidRequest`] if the session has fewer events, and if the service cannot rewind sessions, as by
    /// default.
    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        let _ = (key, revision);
        Err(StoreError::InvalidRequest("this session service cannot rewind sessions".into()))
    }

    /// Notifies the service that a client has ended its use of a session. Its data stays. The default does nothing, for
    /// services that hold nothing for clients.
    ///
    /// # Errors
    /// The errors of the service.
    async fn close_session(&self, key: &SessionKey) -> Result<(), StoreError> {
        let _ = key;
        Ok(())
    }

    /// Completes operations in progress and closes files, at the end of a program. Later calls may fail. The default
    /// does nothing.
    async fn close(&self) {}

    /// Returns at most `limit` sessions of an app that have expired by a rule and that no turn holds, least recently
    /// used first. Sessions of the host's own user, [`HOST_USER`](crate::HOST_USER), never expire.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if the service cannot find them, as by default.
    async fn list_expired(
        &self,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        let _ = (app, rule, limit);
        Err(StoreError::InvalidRequest("this session service cannot find sessions by retention rules".into()))
    }

    /// Returns true if the service can [find expired sessions](SessionService::list_expired). The default is false.
    fn has_retention(&self) -> bool {
        false
    }

    /// Deletes a session with its events. Succeeds if it does not exist. Shared state is kept.
    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError>;

    /// Begins a turn of the session, and fences out the turns before it: they can append nothing more. The turn is held
    /// for `lease`, at most [`MAX_TURN_LEASE`](crate::MAX_TURN_LEASE), and longer if it is
    /// [renewed](SessionService::renew_turn). Until then no other turn can begin, except after `previous`, the fence of
    /// the caller's own last turn.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist.
    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError>;

    /// Begins a turn and reads the session with the events of `window`, as [`SessionService::begin_turn`] and then
    /// [`SessionService::get`]. Services that can do both in one step implement it.
    ///
    /// # Errors
    /// The errors of both. No turn is held after an error.
    async fn open_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
        window: EventWindow,
    ) -> Result<TurnOpening, StoreError> {
        let start = self.begin_turn(key, previous, lease).await?;
        let end = |fence| self.renew_turn(key, fence, Duration::ZERO);
        TurnOpening::complete(key, start, self.get(key, window), end).await
    }

    /// Holds a turn for `lease` from now on. A lease of zero ends it: the next turn can begin immediately.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another turn has begun, [`StoreError::SessionNotFound`] if the session does not exist.
    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError>;

    /// Appends an event and applies its state delta atomically. Returns the session's new revision. When this returns,
    /// both survive a crash of the process. `temp:` keys are never stored. Partial events are rejected.
    ///
    /// `fence` is the fence of the turn that the event is part of; it is compared in the same transaction. `None` is
    /// for events outside of a turn, such as a change of state by a client. Ids of events are unique in a session: an
    /// event that exists already is not appended again, and its revision is returned.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist, [`StoreError::Fenced`] if another turn has begun,
    /// [`StoreError::EventExists`] if another event has the id, [`StoreError::Full`] if there is no space left. After
    /// an error nothing of the event is stored.
    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError>;

    /// Appends an event that is not part of a turn.
    ///
    /// # Errors
    /// As [`SessionService::append_with`].
    async fn append(&self, key: &SessionKey, event: &Arc<Event>) -> Result<u64, StoreError> {
        self.append_with(key, event, None).await
    }

    /// Returns the journal of calls, which is stored with the sessions. Without one, as by default, calls whose answers
    /// were not stored as events when a run was interrupted are made again.
    fn journal(&self) -> Option<&dyn CallJournal> {
        None
    }

    /// Returns the service of runs, which are stored with the sessions. Without one, as by default, runs cannot be
    /// listed, followed or cancelled later, and their end can only be seen from their events.
    fn runs(&self) -> Option<&dyn RunService> {
        None
    }

    /// Checks that the user of a session may have another run. `active` is how many the user has in the app, this one
    /// included. By default there is no limit.
    ///
    /// # Errors
    /// [`StoreError::QuotaExceeded`] if the user has used up a quota.
    async fn admit_run(&self, _key: &SessionKey, _active: usize) -> Result<(), StoreError> {
        Ok(())
    }

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
    let entries = state.iter().filter(|(key, _)| StateScope::split_key(key).0 == scope);
    entries.fold(StateUsage::default(), |usage, (key, value)| StateUsage {
        keys: usage.keys + 1,
        bytes: usage.bytes + state_entry_bytes(key, value),
    })
}
