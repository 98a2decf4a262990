//! Encrypted sessions.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use hatchery_core::{
    CallJournal, CallRecord, Event, EventActions, EventData, EventWindow, JsonMap, RunService, Session, SessionCursor,
    SessionKey, SessionPage, SessionService, State, StateScope, StoreError, WrapperSessionService, is_state_removal,
};
use serde_json::{Value, json};

use super::keys::EncryptionKeys;
use super::records::{Record, unreadable};

/// The key of the custom metadata with the sealed event.
const SEALED_EVENT: &str = "hatchery:sealedEvent";

/// A [`SessionService`] that encrypts events and values of state. Its [usage](SessionService::usage) is that of the encrypted data.
pub struct EncryptedSessions {
    inner: Arc<dyn SessionService>,
    pub(super) keys: Arc<EncryptionKeys>,
}

impl EncryptedSessions {
    /// Wraps a service.
    pub fn new(inner: Arc<dyn SessionService>, keys: Arc<EncryptionKeys>) -> Self {
        Self { inner, keys }
    }

    /// Returns the event that is stored for an event: what stores need to know, and the event sealed.
    fn seal_event(&self, key: &SessionKey, event: &Event) -> Result<Arc<Event>, StoreError> {
        let what = format!("event `{}` ({key})", event.id);
        let record = Record { what: &what, place: &["event", &key.app, &key.user, &event.id] };
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
        let sealed = stored.custom_metadata.as_deref().and_then(|metadata| metadata.get(SEALED_EVENT));
        let Some(sealed) = sealed.and_then(Value::as_str) else { return Ok(stored.clone()) };
        let what = format!("event `{}` ({key})", stored.id);
        let record = Record { what: &what, place: &["event", &key.app, &key.user, &stored.id] };
        match self.keys.open(record, sealed)? {
            Some(json) => Event::from_json(Bytes::from(json)).map_err(|error| unreadable(record, error)),
            None => Ok(stored.clone()),
        }
    }

    /// Seals the values of a state or a delta. Removals stay, and temporary keys are dropped.
    fn seal_state(&self, key: &SessionKey, state: &JsonMap) -> Result<JsonMap, StoreError> {
        let stored = state.iter().filter(|(name, _)| StateScope::of(name).0 != StateScope::Temp);
        let sealed = stored.map(|(name, value)| {
            if is_state_removal(value) {
                return Ok((name.clone(), value.clone()));
            }
            let (what, place) = (format!("the state `{name}` ({key})"), state_place(key, name));
            let sealed = self.keys.seal(Record { what: &what, place: &place }, value.to_string().as_bytes())?;
            Ok::<_, StoreError>((name.clone(), sealed.into()))
        });
        sealed.collect()
    }

    fn open_state(&self, key: &SessionKey, stored: &State) -> Result<State, StoreError> {
        let mut state = State::default();
        for (name, value) in stored.iter() {
            let (what, place) = (format!("the state `{name}` ({key})"), state_place(key, name));
            let record = Record { what: &what, place: &place };
            let opened = value.as_str().map(|text| self.keys.open(record, text)).transpose()?.flatten();
            let value = match opened {
                Some(json) => serde_json::from_slice(&json).map_err(|error| unreadable(record, error))?,
                None => value.clone(),
            };
            state.set(name, value);
        }
        Ok(state)
    }

    fn open_session(&self, stored: Session) -> Result<Session, StoreError> {
        let state = self.open_state(&stored.key, &stored.state)?;
        let events = stored.events.iter().map(|event| self.open_event(&stored.key, event)).collect::<Result<_, _>>()?;
        Ok(Session { state, events, ..stored })
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

/// Returns the associated data of a key of state. That of an app is shared by its users.
fn state_place<'a>(key: &'a SessionKey, name: &'a str) -> [&'a str; 4] {
    match StateScope::of(name).0 {
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
        self.open_session(self.inner.create(app, user, id, sealed).await?)
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.inner.get(key, window).await?.map(|session| self.open_session(session)).transpose()
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        self.inner.list(app, user).await?.into_iter().map(|session| self.open_session(session)).collect()
    }

    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        let SessionPage { sessions, next } = self.inner.list_page(app, user, after, limit).await?;
        let sessions = sessions.into_iter().map(|session| self.open_session(session)).collect::<Result<_, _>>()?;
        Ok(SessionPage { sessions, next })
    }

    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        self.open_session(self.inner.fork(key, revision, id).await?)
    }

    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        self.open_session(self.inner.rewind(key, revision).await?)
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
fn call_place<'a>(session: &'a SessionKey, run: &'a str, call: &'a str) -> [&'a str; 5] {
    ["call", &session.app, &session.user, run, call]
}

#[async_trait]
impl CallJournal for EncryptedSessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        let (what, place) = (format!("call `{}` ({session})", record.call), call_place(session, run, &record.call));
        let outcome = record.outcome.as_deref();
        let sealed =
            outcome.map(|text| self.keys.seal_text(Record { what: &what, place: &place }, text)).transpose()?;
        let sealed = CallRecord { call: record.call.clone(), outcome: sealed };
        self.inner_journal()?.record(session, run, fence, &sealed).await
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        let Some(records) = self.inner_journal()?.read(session, run).await? else { return Ok(None) };
        let opened = records.into_iter().map(|CallRecord { call, outcome }| {
            let (what, place) = (format!("call `{call}` ({session})"), call_place(session, run, &call));
            let record = Record { what: &what, place: &place };
            let outcome = outcome.map(|text| self.keys.open_text(record, text)).transpose()?;
            Ok::<_, StoreError>(CallRecord { call, outcome })
        });
        opened.collect::<Result<_, _>>().map(Some)
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        self.inner_journal()?.finish(session, run).await
    }
}
