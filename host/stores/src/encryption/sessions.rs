//! Encrypted sessions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hatchery_core::{
    CallJournal, CallRecord, Event, EventActions, EventData, EventWindow, JsonMap, RunService, Session, SessionCursor,
    SessionKey, SessionPage, SessionService, State, StateScope, StoreError, TurnOpening, WrapperSessionService,
    is_state_removal,
};
use serde_json::{Value, json};

use super::keys::EncryptionKeys;
use super::records::{Record, unreadable};

/// The key of the custom metadata with the sealed event.
const SEALED_EVENT: &str = "hatchery:sealedEvent";

/// Maximum number of bytes that are decrypted at a time on a worker thread of the runtime.
const MAX_INLINE_BYTES: usize = 256 << 10;

/// A [`SessionService`] that encrypts events and values of state. Its [usage](SessionService::usage) is the usage of
/// the encrypted data.
#[derive(Clone)]
pub struct EncryptedSessions {
    inner: Arc<dyn SessionService>,
    pub(super) keys: Arc<EncryptionKeys>,
}

impl EncryptedSessions {
    /// Wraps a service.
    pub fn new(inner: Arc<dyn SessionService>, keys: Arc<EncryptionKeys>) -> Self {
        Self { inner, keys }
    }

    /// Returns the stored form of an event: the fields that stores need, and the sealed event.
    fn seal_event(&self, key: &SessionKey, event: &Event) -> Result<Arc<Event>, StoreError> {
        let subject = format!("event `{}` ({key})", event.id);
        let record = Record { subject: &subject, context: &["event", &key.app, &key.user, &event.id] };
        let sealed = self.keys.seal(record, event.json())?;
        let state_delta = self.seal_state(key, &event.actions.state_delta)?;
        Ok(Event::new(EventData {
            id: event.id.clone(),
            invocation_id: event.invocation_id.clone(),
            author: event.author.clone(),
            actions: EventActions { state_delta, ..EventActions::default() },
            partial: event.partial,
            custom_metadata: Some(Box::new(json!({ SEALED_EVENT: sealed }))),
            timestamp: event.timestamp,
            ..EventData::default()
        }))
    }

    fn open_event(&self, key: &SessionKey, stored: &Arc<Event>) -> Result<Arc<Event>, StoreError> {
        let subject = format!("event `{}` ({key})", stored.id);
        let Some(sealed) = sealed_event(stored) else {
            self.keys.check_plain(&subject)?;
            return Ok(stored.clone());
        };
        let record = Record { subject: &subject, context: &["event", &key.app, &key.user, &stored.id] };
        match self.keys.open(record, sealed)? {
            Some(json) => Event::from_json(Bytes::from(json)).map_err(|error| unreadable(record, error)),
            None => Ok(stored.clone()),
        }
    }

    /// Seals the values of a state or a delta. Removals stay, and temporary keys are dropped.
    fn seal_state(&self, key: &SessionKey, state: &JsonMap) -> Result<JsonMap, StoreError> {
        let stored = state.iter().filter(|(name, _)| StateScope::split_key(name).0 != StateScope::Temp);
        let sealed = stored.map(|(name, value)| {
            if is_state_removal(value) {
                return Ok((name.clone(), value.clone()));
            }
            let (subject, context) = (format!("the state `{name}` ({key})"), state_context(key, name));
            let sealed =
                self.keys.seal(Record { subject: &subject, context: &context }, value.to_string().as_bytes())?;
            Ok::<_, StoreError>((name.clone(), sealed.into()))
        });
        sealed.collect()
    }

    /// Opens an event. One that does not open, although its key is there, is replaced by a placeholder, so that its
    /// session stays readable.
    fn open_or_replace(&self, key: &SessionKey, stored: &Arc<Event>, revision: u64) -> Result<Arc<Event>, StoreError> {
        match self.open_event(key, stored) {
            Err(error) if sealed_event(stored).is_none_or(|sealed| !self.keys.lacks_key_of(sealed)) => {
                tracing::error!(session = %key, revision, %error, "a stored event cannot be decrypted and is left out");
                Ok(Event::unreadable(stored.json(), revision, "it cannot be decrypted"))
            }
            opened => opened,
        }
    }

    fn open_value(&self, key: &SessionKey, name: &str, stored: &Value) -> Result<Value, StoreError> {
        let (subject, context) = (format!("the state `{name}` ({key})"), state_context(key, name));
        let record = Record { subject: &subject, context: &context };
        let Some(sealed) = stored.as_str() else {
            self.keys.check_plain(&subject)?;
            return Ok(stored.clone());
        };
        match self.keys.open(record, sealed)? {
            Some(json) => serde_json::from_slice(&json).map_err(|error| unreadable(record, error)),
            None => Ok(stored.clone()),
        }
    }

    fn open_state(&self, key: &SessionKey, stored: &State) -> Result<State, StoreError> {
        let mut state = State::default();
        for (name, value) in stored.iter() {
            state.set(name, self.open_value(key, name, value)?);
        }
        Ok(state)
    }

    /// Opens a session whose first event has this revision.
    fn open_session(&self, stored: Session, first: u64) -> Result<Session, StoreError> {
        let key = &stored.key;
        let state = self.open_state(key, &stored.state)?;
        let events =
            stored.events.iter().zip(first..).map(|(event, revision)| self.open_or_replace(key, event, revision));
        let events = events.collect::<Result<_, _>>()?;
        Ok(Session { state, events, ..stored })
    }

    /// Opens a session of a list, which has no events. A value that does not open, although its key is there, is left
    /// out: it does not concern the other sessions.
    fn open_listed(&self, stored: Session) -> Result<Session, StoreError> {
        let mut state = State::default();
        for (name, value) in stored.state.iter() {
            match self.open_value(&stored.key, name, value) {
                Ok(value) => state.set(name, value),
                Err(error) if value.as_str().is_some_and(|sealed| self.keys.lacks_key_of(sealed)) => return Err(error),
                Err(error) => tracing::error!(%error, "a value of state is left out of a list of sessions"),
            }
        }
        Ok(Session { state, ..stored })
    }

    /// Opens sessions, outside of the workers of the runtime if they are large.
    async fn open_all(
        &self,
        stored: Vec<Session>,
        open: impl Fn(&Self, Session) -> Result<Session, StoreError> + Send + 'static,
    ) -> Result<Vec<Session>, StoreError> {
        let service = self.clone();
        let bytes: usize = stored.iter().map(sealed_bytes).sum();
        let open = move || stored.into_iter().map(|session| open(&service, session)).collect();
        if bytes <= MAX_INLINE_BYTES {
            return open();
        }
        let opened = tokio::task::spawn_blocking(open).await;
        opened.unwrap_or_else(|error| Err(StoreError::backend("cannot decrypt sessions", error)))
    }

    async fn open_one(&self, stored: Session, window: EventWindow) -> Result<Session, StoreError> {
        let key = stored.key.clone();
        let open = move |service: &Self, session: Session| {
            let first = first_revision(&session, window);
            service.open_session(session, first)
        };
        let mut opened = self.open_all(vec![stored], open).await?;
        opened.pop().ok_or(StoreError::SessionNotFound(key))
    }

    /// Returns the revision of an event that is stored already; `None` if another one has its id.
    async fn revision_of(&self, key: &SessionKey, event: &Event) -> Result<Option<u64>, StoreError> {
        let Some(session) = self.inner.get(key, EventWindow::All).await? else { return Ok(None) };
        let Some(index) = session.events.iter().position(|stored| stored.id == event.id) else { return Ok(None) };
        let Some(stored) = session.events.get(index) else { return Ok(None) };
        let is_repeated = self.open_event(key, stored)?.json() == event.json();
        Ok(is_repeated.then_some(index as u64 + 1))
    }

    fn inner_journal(&self) -> Result<&dyn CallJournal, StoreError> {
        self.inner.journal().ok_or_else(|| StoreError::InvalidRequest("this session service has no journal".into()))
    }
}

/// Returns the sealed event in a stored one; `None` if it is not sealed.
fn sealed_event(stored: &Event) -> Option<&str> {
    stored.custom_metadata.as_deref()?.get(SEALED_EVENT)?.as_str()
}

/// Returns the number of bytes to decrypt.
fn sealed_bytes(stored: &Session) -> usize {
    let events: usize = stored.events.iter().map(|event| event.json().len()).sum();
    let state: usize = stored.state.iter().map(|(_, value)| value.as_str().map_or(0, str::len)).sum();
    events + state
}

/// Returns the revision of the first event of a window.
fn first_revision(stored: &Session, window: EventWindow) -> u64 {
    match window {
        EventWindow::AfterRevision(after) | EventWindow::Page { after, .. } => after.saturating_add(1),
        EventWindow::All | EventWindow::Recent(_) | EventWindow::Since(_) | EventWindow::RecentSince { .. } => {
            stored.revision.saturating_add(1).saturating_sub(stored.events.len() as u64)
        }
    }
}

/// Returns the associated data of a key of state. Keys of an app have the same data for all users.
fn state_context<'a>(key: &'a SessionKey, name: &'a str) -> [&'a str; 4] {
    match StateScope::split_key(name).0 {
        StateScope::App => ["state", &key.app, "", name],
        StateScope::User | StateScope::Session | StateScope::Temp => ["state", &key.app, &key.user, name],
    }
}

#[async_trait]
impl WrapperSessionService for EncryptedSessions {
    fn inner(&self) -> &dyn SessionService {
        &*self.inner
    }

    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let owner = SessionKey::new(app, user, id.unwrap_or_default());
        let sealed = self.seal_state(&owner, &state)?;
        self.open_one(self.inner.create(app, user, id, sealed).await?, EventWindow::All).await
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        match self.inner.get(key, window).await? {
            Some(stored) => self.open_one(stored, window).await.map(Some),
            None => Ok(None),
        }
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        self.open_all(self.inner.list(app, user).await?, Self::open_listed).await
    }

    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        let SessionPage { sessions, next } = self.inner.list_page(app, user, after, limit).await?;
        Ok(SessionPage { sessions: self.open_all(sessions, Self::open_listed).await?, next })
    }

    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        self.open_one(self.inner.fork(key, revision, id).await?, EventWindow::All).await
    }

    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        self.open_one(self.inner.rewind(key, revision).await?, EventWindow::All).await
    }

    async fn open_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
        window: EventWindow,
    ) -> Result<TurnOpening, StoreError> {
        match self.inner.open_turn(key, previous, lease, window).await? {
            TurnOpening::Begun { fence, session } => match self.open_one(session, window).await {
                Ok(session) => Ok(TurnOpening::Begun { fence, session }),
                Err(error) => {
                    // A lease that cannot be ended expires.
                    let _ = self.inner.renew_turn(key, fence, Duration::ZERO).await;
                    Err(error)
                }
            },
            held @ TurnOpening::Held { .. } => Ok(held),
        }
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        let sealed = self.seal_event(key, event)?;
        match self.inner.append_with(key, &sealed, fence).await {
            // Encrypting the same data twice gives different bytes.
            Err(StoreError::EventExists(id)) => self.revision_of(key, event).await?.ok_or(StoreError::EventExists(id)),
            appended => appended,
        }
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        self.inner.journal().map(|_| -> &dyn CallJournal { self })
    }

    fn runs(&self) -> Option<&dyn RunService> {
        self.inner.runs().map(|_| -> &dyn RunService { self })
    }
}

/// Returns the associated data of a result of a call.
fn call_context<'a>(session: &'a SessionKey, run: &'a str, call: &'a str) -> [&'a str; 5] {
    ["call", &session.app, &session.user, run, call]
}

#[async_trait]
impl CallJournal for EncryptedSessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        let (subject, context) =
            (format!("call `{}` ({session})", record.call), call_context(session, run, &record.call));
        let outcome = record.outcome.as_deref();
        let sealed = outcome
            .map(|text| self.keys.seal_text(Record { subject: &subject, context: &context }, text))
            .transpose()?;
        let sealed = CallRecord { call: record.call.clone(), outcome: sealed };
        self.inner_journal()?.record(session, run, fence, &sealed).await
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        let Some(records) = self.inner_journal()?.read(session, run).await? else { return Ok(None) };
        let opened = records.into_iter().map(|CallRecord { call, outcome }| {
            let (subject, context) = (format!("call `{call}` ({session})"), call_context(session, run, &call));
            let record = Record { subject: &subject, context: &context };
            let outcome = outcome.map(|text| self.keys.open_text(record, text)).transpose()?;
            Ok::<_, StoreError>(CallRecord { call, outcome })
        });
        opened.collect::<Result<_, _>>().map(Some)
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        self.inner_journal()?.finish(session, run).await
    }
}
