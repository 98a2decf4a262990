//! Sessions that come from elsewhere, and places in the history of a session.

use serde_json::Value;
use thiserror::Error;

use crate::error::StoreError;
use crate::event::{Event, EventData};
use crate::id::SessionKey;
use crate::json::JsonMap;
use crate::provenance::remove_proof;
use crate::session::{EventWindow, Session, SessionService};
use crate::state::StateScope;
use crate::storable::UnstorableEvent;
use crate::time::Timestamp;

/// Number of events that are read at a time while one is searched for.
const PAGE: usize = 256;

/// A place in the history of a session: after an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionPoint {
    /// After the event with this id.
    EventId(String),
    /// After this number of events.
    Revision(u64),
}

impl SessionPoint {
    /// Returns the revision of the session there.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`], [`StoreError::InvalidRequest`] if the session has no such event, and others of the
    /// service.
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

impl SessionPoint {
    /// Creates a session with the events of another one up to a point, or all of them.
    ///
    /// # Errors
    /// Those of [`SessionPoint::revision`] and of [`SessionService::fork`].
    pub async fn fork(
        point: Option<&Self>,
        sessions: &dyn SessionService,
        key: &SessionKey,
        id: Option<&str>,
    ) -> Result<Session, StoreError> {
        let revision = match point {
            Some(point) => point.revision(sessions, key).await?,
            None => {
                let session = sessions.get(key, EventWindow::Recent(0)).await?;
                session.ok_or_else(|| StoreError::SessionNotFound(key.clone()))?.revision
            }
        };
        sessions.fork(key, revision, id).await
    }
}

/// Reasons why a session cannot be imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// An event is not complete.
    #[error("events[{0}] is partial; only complete events can be imported")]
    Partial(usize),
    /// A value of an event has another JSON type than clients expect.
    #[error("events[{index}].{path} is not {expected}")]
    WrongType {
        /// Index of the event.
        index: usize,
        /// Keys that lead to the value, separated by dots.
        path: String,
        /// The expected type, with its article.
        expected: &'static str,
    },
    /// An event could not be read again.
    #[error("an event cannot be stored: {0}")]
    Event(#[from] UnstorableEvent),
    /// The session service fails.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A session to import.
#[derive(Debug)]
pub struct SessionImport {
    initial_state: JsonMap,
    events: Vec<EventData>,
}

impl SessionImport {
    /// Creates a session that begins with a state.
    ///
    /// # Errors
    /// [`ImportError::Partial`] and [`ImportError::WrongType`].
    pub fn new(initial_state: JsonMap, events: Vec<EventData>) -> Result<Self, ImportError> {
        for (index, event) in events.iter().enumerate() {
            if event.partial {
                return Err(ImportError::Partial(index));
            }
            if let Some((path, expected)) = find_wrong_type(event) {
                return Err(ImportError::WrongType { index, path, expected });
            }
        }
        Ok(Self { initial_state, events })
    }

    /// Creates a session that ends with a state, as an export has it. Keys that its events have changed are not set
    /// initially, since their earlier values are unknown.
    ///
    /// # Errors
    /// Those of [`SessionImport::new`].
    pub fn ending_with(mut state: JsonMap, events: Vec<EventData>) -> Result<Self, ImportError> {
        state.retain(|key, _| !events.iter().any(|event| event.actions.state_delta.contains_key(key)));
        Self::new(state, events)
    }

    /// Leaves out the keys that other sessions share.
    #[must_use]
    pub fn without_shared_state(mut self) -> Self {
        let deltas = self.events.iter_mut().map(|event| &mut event.actions.state_delta);
        for state in deltas.chain([&mut self.initial_state]) {
            state.retain(|key, _| !matches!(StateScope::split_key(key).0, StateScope::App | StateScope::User));
        }
        self
    }

    /// Returns how many events the session has.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Stores the session. Its events have no proof of their origin, and none is later than now. After an error,
    /// nothing of it is left.
    ///
    /// # Errors
    /// Those of an event or of the service, such as [`StoreError::SessionExists`].
    pub async fn store(
        self,
        sessions: &dyn SessionService,
        app: &str,
        user: &str,
        id: Option<&str>,
    ) -> Result<Session, ImportError> {
        let session = sessions.create(app, user, id, self.initial_state).await?;
        if self.events.is_empty() {
            return Ok(session);
        }
        if let Err(error) = append_all(sessions, &session.key, self.events).await {
            sessions.delete(&session.key).await?;
            return Err(error);
        }
        let stored = sessions.get(&session.key, EventWindow::All).await?;
        stored.ok_or_else(|| StoreError::SessionNotFound(session.key).into())
    }
}

async fn append_all(
    sessions: &dyn SessionService,
    key: &SessionKey,
    events: Vec<EventData>,
) -> Result<(), ImportError> {
    // Sessions and summaries depend on the order of times.
    let now = Timestamp::now();
    for mut event in events {
        remove_proof(&mut event);
        event.timestamp = event.timestamp.min(now);
        if let Some(compaction) = &mut event.actions.compaction {
            compaction.start_timestamp = compaction.start_timestamp.min(now);
            compaction.end_timestamp = compaction.end_timestamp.min(now);
        }
        let event = Event::new(event);
        event.check_storable()?;
        sessions.append(key, &event).await?;
    }
    Ok(())
}

/// Returns the path of a value that has another type than clients expect, with the expected type.
fn find_wrong_type(event: &EventData) -> Option<(String, &'static str)> {
    let objects = [
        ("groundingMetadata", &event.grounding_metadata),
        ("customMetadata", &event.custom_metadata),
        ("inputTranscription", &event.input_transcription),
        ("outputTranscription", &event.output_transcription),
    ];
    for (key, value) in objects {
        let Some(value) = value.as_deref() else { continue };
        let Some(object) = value.as_object() else { return Some((key.into(), "an object")) };
        if key.ends_with("Transcription")
            && let Some((name, expected)) = find_wrong_type_of_transcription(object)
        {
            return Some((format!("{key}.{name}"), expected));
        }
    }
    None
}

fn find_wrong_type_of_transcription(transcription: &JsonMap) -> Option<(&'static str, &'static str)> {
    let is_wrong = |name: &str, has_type: fn(&Value) -> bool| {
        transcription.get(name).is_some_and(|value| !value.is_null() && !has_type(value))
    };
    if is_wrong("text", Value::is_string) {
        return Some(("text", "a string"));
    }
    is_wrong("finished", Value::is_boolean).then_some(("finished", "a boolean"))
}
