//! Sessions in Vertex AI Agent Engine.
//!
//! Agent Engine appends events and keeps the state of a session, and nothing else. So turns and their leases are those
//! of this process: only one host may use an engine at a time. There are neither stored runs nor a journal of calls,
//! and `user:` and `app:` keys belong to the session. The ids of a session's events are read when a turn begins, which
//! takes time in proportion to its events; appends during the turn take none.

mod wire;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Event, EventWindow, ExpiredSession, ExpiryRule, HOST_USER, JsonMap, MAX_TURN_LEASE, Session, SessionKey,
    SessionService, StateScope, StoreError, Timestamp, Turn, TurnStart,
};
use imbl::Vector;
use reqwest::Method;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use self::wire::WireSession;
use super::{reject_partial, select_window};
use crate::agent_engine::{AgentEngine, Request, RequestError};
use crate::firestore::AccessTokens;
use crate::keyed_lock::{KeyedLock, KeyedLockGuard, LockMode, MAX_WAIT, busy};
use crate::uri::SESSION_URIS;

const PAGE_SIZE: &str = "100";
const MAX_ID_CHARS: usize = 63;
/// Maximum number of sessions whose events and turn are cached. Those without a lease are evicted.
const MAX_KNOWN_SESSIONS: usize = 4_096;

/// A [`SessionService`] in Vertex AI Agent Engine, for one host.
pub struct AgentEngineSessions {
    engine: AgentEngine,
    writes: KeyedLock<SessionKey>,
    known: Mutex<HashMap<SessionKey, CachedSession>>,
}

/// The cached state of a session.
struct CachedSession {
    /// The number of the newest turn. Begins with the time, so that a session that was forgotten gets higher numbers.
    fence: u64,
    leased_until: Option<Instant>,
    /// `None` after a write whose result is unknown.
    events: Option<EventIndex>,
}

/// The number of events, and the revision and hash of each by its id.
#[derive(Default)]
struct EventIndex {
    count: u64,
    by_id: HashMap<String, (u64, [u8; 32])>,
}

impl EventIndex {
    fn new<'a>(events: impl IntoIterator<Item = &'a Arc<Event>>) -> Self {
        let mut index = Self::default();
        for event in events {
            index.push(event);
        }
        index
    }

    fn push(&mut self, event: &Event) -> u64 {
        self.count += 1;
        self.by_id.insert(event.id.clone(), (self.count, hash(event)));
        self.count
    }

    /// Returns the revision of an event that is stored; `None` for a new one.
    fn find(&self, event: &Event) -> Result<Option<u64>, StoreError> {
        match self.by_id.get(&event.id) {
            None => Ok(None),
            Some((revision, stored)) if *stored == hash(event) => Ok(Some(*revision)),
            Some(_) => Err(StoreError::EventExists(event.id.clone())),
        }
    }
}

fn hash(event: &Event) -> [u8; 32] {
    Sha256::digest(event.json()).into()
}

impl AgentEngineSessions {
    /// Opens `agentengine://PROJECT/LOCATION/ENGINE`, or `agentengine://ENGINE` with the project and the location in
    /// `GOOGLE_CLOUD_PROJECT` and `GOOGLE_CLOUD_LOCATION`, which are read from `variable`, as is
    /// `GOOGLE_VERTEX_BASE_URL`. The tokens must be valid for the scope
    /// `https://www.googleapis.com/auth/cloud-platform`. Does not connect.
    ///
    /// # Errors
    /// [`StoreError::InvalidName`] for any other URI, [`StoreError::InvalidRequest`] if a variable is missing or
    /// invalid.
    pub fn open(
        uri: &str,
        tokens: Arc<dyn AccessTokens>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, StoreError> {
        let engine = AgentEngine::open(uri, SESSION_URIS, tokens, variable)?;
        Ok(Self { engine, writes: KeyedLock::default(), known: Mutex::default() })
    }

    async fn lock(&self, key: &SessionKey) -> Result<KeyedLockGuard<'_, SessionKey>, StoreError> {
        let guard = self.writes.acquire(key.clone(), LockMode::Exclusive, MAX_WAIT).await;
        guard.ok_or_else(|| busy("other events of this session are being stored"))
    }

    fn known_sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, CachedSession>> {
        self.known.lock_unpoisoned()
    }

    /// Returns the stored session; `None` if it does not exist, or belongs to another user or app.
    async fn find(&self, key: &SessionKey) -> Result<Option<WireSession>, StoreError> {
        if !is_resource_id(&key.id) {
            return Ok(None);
        }
        let (activity, path) = ("read a session", ["sessions", &*key.id]);
        let request = Request { activity, method: Method::GET, path: &path, query: &[], body: None };
        let found = match self.engine.call(&request).await {
            Ok(found) => found,
            Err(RequestError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let session: WireSession = self.parse(activity, found)?;
        Ok(Some(session).filter(|session| session.belongs_to(&key.app, &key.user)))
    }

    /// Returns the events of a session; none if it does not exist.
    async fn events(&self, key: &SessionKey) -> Result<Vector<Arc<Event>>, StoreError> {
        let activity = "read the events of a session";
        let path = ["sessions", &*key.id, "events"];
        let pages = self.pages(activity, &path, &[], "sessionEvents").await;
        let wire: Vec<Map<String, Value>> = match pages {
            Ok(wire) => wire,
            Err(RequestError::NotFound(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let events: Result<Vector<_>, serde_json::Error> = wire.into_iter().map(wire::from_wire).collect();
        events.map_err(|error| self.engine.error(activity, &error.to_string()))
    }

    /// Returns the items of all pages of a list.
    async fn pages(
        &self,
        activity: &'static str,
        path: &[&str],
        query: &[(&str, &str)],
        items: &str,
    ) -> Result<Vec<Map<String, Value>>, RequestError> {
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let mut query = query.to_vec();
            query.push(("pageSize", PAGE_SIZE));
            if !token.is_empty() {
                query.push(("pageToken", &token));
            }
            let request = Request { activity, method: Method::GET, path, query: &query, body: None };
            let mut page = self.engine.call(&request).await?;
            if let Some(Value::Array(items)) = page.get_mut(items).map(Value::take) {
                all.extend(items.into_iter().filter_map(|item| match item {
                    Value::Object(item) => Some(item),
                    _ => None,
                }));
            }
            match page.get("nextPageToken").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => token = next.to_owned(),
                _ => return Ok(all),
            }
        }
    }

    fn parse<T: serde::de::DeserializeOwned>(&self, activity: &str, json: Value) -> Result<T, StoreError> {
        serde_json::from_value(json).map_err(|error| self.engine.error(activity, &error.to_string()))
    }

    /// Reads the ids of the events of a session.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist.
    async fn read_index(&self, key: &SessionKey) -> Result<EventIndex, StoreError> {
        if self.find(key).await?.is_none() {
            self.known_sessions().remove(key);
            return Err(StoreError::SessionNotFound(key.clone()));
        }
        Ok(EventIndex::new(&self.events(key).await?))
    }

    /// Changes the cached state of a session.
    fn update<T>(&self, key: &SessionKey, change: impl FnOnce(&mut CachedSession) -> T) -> T {
        let mut known = self.known_sessions();
        if known.len() >= MAX_KNOWN_SESSIONS && !known.contains_key(key) {
            let now = Instant::now();
            known.retain(|_, session| session.leased_until.is_some_and(|until| until > now));
        }
        let fence = u64::try_from(Timestamp::now().as_micros()).unwrap_or_default();
        change(known.entry(key.clone()).or_insert(CachedSession { fence, leased_until: None, events: None }))
    }

    /// Returns the sessions that have expired by a rule, including those in use, least recently changed first.
    async fn candidates(&self, app: &str, rule: &ExpiryRule) -> Result<Vec<SessionKey>, StoreError> {
        let activity = "list sessions";
        let mut users: BTreeMap<String, Vec<(Timestamp, SessionKey)>> = BTreeMap::new();
        if *rule == ExpiryRule::default() {
            return Ok(Vec::new());
        }
        for json in self.pages(activity, &["sessions"], &[], "sessions").await? {
            let found: WireSession = self.parse(activity, json.into())?;
            if found.names_app(app) && found.user_id != HOST_USER {
                let key = SessionKey::new(app, &*found.user_id, found.id());
                users.entry(found.user_id.clone()).or_default().push((found.updated(), key));
            }
        }
        let keeps = rule.user_sessions.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
        let mut expired = Vec::new();
        for mut sessions in users.into_values() {
            sessions.sort_by(|(one, _), (other, _)| other.cmp(one));
            let is_idle = |updated| rule.idle_since.is_some_and(|since| updated < since);
            let chosen =
                sessions.into_iter().enumerate().filter(|(place, (updated, _))| *place >= keeps || is_idle(*updated));
            expired.extend(chosen.map(|(_, session)| session));
        }
        expired.sort();
        Ok(expired.into_iter().map(|(_, key)| key).collect())
    }

    /// Stores an event that the session does not have. Returns false if the session does not exist.
    async fn store(&self, key: &SessionKey, event: &Event) -> Result<bool, StoreError> {
        let activity = "append an event to a session";
        let body = wire::to_wire(event).map_err(|error| self.engine.error(activity, &error.to_string()))?;
        let method = format!("{}:appendEvent", key.id);
        let path = ["sessions", &*method];
        let request = Request { activity, method: Method::POST, path: &path, query: &[], body: Some(&body) };
        match self.engine.call(&request).await {
            Ok(_) => Ok(true),
            Err(RequestError::NotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[async_trait]
impl SessionService for AgentEngineSessions {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let id = new_id(id)?;
        let key = SessionKey::new(app, user, &*id);
        let _guard = self.lock(&key).await?;
        let activity = "create a session";
        let body = wire::new_session(app, user, &wire::stored_state(&state));
        let query = [("sessionId", &*id)];
        let request = Request { activity, method: Method::POST, path: &["sessions"], query: &query, body: Some(&body) };
        match self.engine.operate(&request).await {
            Ok(_) => {}
            Err(RequestError::Exists(_)) => return Err(StoreError::SessionExists(key)),
            Err(error) => return Err(error.into()),
        }
        self.known_sessions().remove(&key);
        let created = self.find(&key).await?;
        let created = created.ok_or_else(|| self.engine.error(activity, "the new session is not found"))?;
        Ok(session(key, &created, &Vector::new()))
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        let Some(found) = self.find(key).await? else { return Ok(None) };
        let events = self.events(key).await?;
        let session = session(key.clone(), &found, &events);
        Ok(Some(Session { events: select_window(events, window), ..session }))
    }

    /// Returns sessions without their revisions and in the order of their last change in Agent Engine, which does not
    /// count events.
    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        let activity = "list sessions";
        let filter = format!("user_id=\"{}\"", user.replace('\\', "\\\\").replace('"', "\\\""));
        let found = self.pages(activity, &["sessions"], &[("filter", &filter)], "sessions").await?;
        let mut sessions = Vec::new();
        for json in found {
            let found: WireSession = self.parse(activity, json.into())?;
            if found.belongs_to(app, user) {
                let key = SessionKey::new(app, user, found.id());
                sessions.push(Session { last_update_time: found.updated(), ..session(key, &found, &Vector::new()) });
            }
        }
        sessions.sort_by(|a, b| b.last_update_time.cmp(&a.last_update_time).then_with(|| a.key.id.cmp(&b.key.id)));
        Ok(sessions)
    }

    /// The age of a session is the age of its last change in Agent Engine. Sessions that other programs have created
    /// are not returned. The events of those that are returned are read.
    async fn list_expired(
        &self,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        let mut expired = Vec::new();
        for key in self.candidates(app, rule).await? {
            if expired.len() == limit {
                break;
            }
            let now = Instant::now();
            let is_held = |known: &CachedSession| known.leased_until.is_some_and(|until| until > now);
            if self.known_sessions().get(&key).is_some_and(is_held) {
                continue;
            }
            if let Some(session) = self.get(&key, EventWindow::Recent(0)).await? {
                expired.push(ExpiredSession { key, updated: session.last_update_time });
            }
        }
        Ok(expired)
    }

    fn has_retention(&self) -> bool {
        true
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let _guard = self.lock(key).await?;
        self.known_sessions().remove(key);
        // Deletes no session of another user or app.
        if self.find(key).await?.is_none() {
            return Ok(());
        }
        let path = ["sessions", &*key.id];
        let request =
            Request { activity: "delete a session", method: Method::DELETE, path: &path, query: &[], body: None };
        match self.engine.operate(&request).await {
            Ok(_) | Err(RequestError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        let _guard = self.lock(key).await?;
        let index = self.read_index(key).await?;
        Ok(self.update(key, |known| {
            let revision = index.count;
            known.events = Some(index);
            let now = Instant::now();
            let remaining = known.leased_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
            if !remaining.is_zero() && previous != Some(known.fence) {
                return TurnStart::Held { remaining };
            }
            known.fence += 1;
            known.leased_until = Some(now + lease.min(MAX_TURN_LEASE));
            TurnStart::Begun(Turn { fence: known.fence, revision })
        }))
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        let renewed = self.known_sessions().get_mut(key).map(|known| {
            let is_current = known.fence == fence;
            if is_current {
                known.leased_until = Some(Instant::now() + lease.min(MAX_TURN_LEASE));
            }
            is_current
        });
        if renewed == Some(true) {
            return Ok(());
        }
        if renewed.is_none() && self.find(key).await?.is_none() {
            return Err(StoreError::SessionNotFound(key.clone()));
        }
        Err(StoreError::Fenced(key.clone()))
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        reject_partial(event)?;
        let _guard = self.lock(key).await?;
        // Not put back after a failure, or if this future is dropped: the event may be stored then.
        let known = self.known_sessions().get_mut(key).and_then(|known| known.events.take());
        let mut index = match known {
            Some(index) => index,
            None => self.read_index(key).await?,
        };
        let stored = index.find(event);
        let current = self.known_sessions().get(key).map(|known| known.fence);
        if matches!(stored, Ok(None)) && fence.is_none_or(|fence| current == Some(fence)) {
            if !self.store(key, event).await? {
                self.known_sessions().remove(key);
                return Err(StoreError::SessionNotFound(key.clone()));
            }
            let revision = index.push(event);
            self.update(key, |known| known.events = Some(index));
            return Ok(revision);
        }
        self.update(key, |known| known.events = Some(index));
        stored?.ok_or_else(|| StoreError::Fenced(key.clone()))
    }
}

/// Returns a session without events. Agent Engine stores numbers with less precision than the events do, whose changes
/// are therefore applied again.
fn session(key: SessionKey, stored: &WireSession, events: &Vector<Arc<Event>>) -> Session {
    let mut state = wire::stored_state(&stored.session_state);
    for event in events {
        state.apply(&event.actions.state_delta);
    }
    state.retain(|key| StateScope::split_key(key).0 != StateScope::Temp);
    Session {
        key,
        state,
        events: Vector::new(),
        revision: events.len() as u64,
        created: stored.created(),
        last_update_time: events.last().map_or_else(|| stored.created(), |event| event.timestamp),
    }
}

/// Returns the requested id without surrounding whitespace, or a UUID that begins with a letter if it is empty.
fn new_id(requested: Option<&str>) -> Result<String, StoreError> {
    let Some(id) = requested.map(str::trim).filter(|id| !id.is_empty()) else {
        let ids = std::iter::repeat_with(|| Uuid::new_v4().to_string());
        return Ok(ids.into_iter().find(|id| id.starts_with(|c: char| c.is_ascii_alphabetic())).unwrap_or_default());
    };
    let is_plain = id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let has_letter = id.starts_with(|c: char| c.is_ascii_alphabetic());
    if is_plain && has_letter && !id.ends_with('-') && id.len() <= MAX_ID_CHARS {
        return Ok(id.to_owned());
    }
    let reason = "the id of a session in Agent Engine has at most 63 characters of a-z, 0-9 and `-`, the first a letter and \
                  the last not `-`; leave it empty to get a new one";
    Err(StoreError::InvalidName { name: id.to_owned(), reason })
}

/// Returns true if an id can be the id of a session. Ids that Agent Engine has made are numbers.
fn is_resource_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
