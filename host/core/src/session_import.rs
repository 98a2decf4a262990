//! Import of sessions from an export or another system.

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
    /// An event cannot be stored.
    #[error("an event cannot be stored: {0}")]
    Event(#[from] UnstorableEvent),
    /// The session service failed.
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
    /// Creates an import of a session that starts with `initial_state`.
    ///
    /// # Errors
    /// [`ImportError::Partial`] and [`ImportError::WrongType`].
    pub fn new(initial_state: JsonMap, mut events: Vec<EventData>) -> Result<Self, ImportError> {
        for (index, event) in events.iter_mut().enumerate() {
            convert_custom_metadata(event);
            if event.partial {
                return Err(ImportError::Partial(index));
            }
            if let Some((path, expected)) = find_wrong_type(event) {
                return Err(ImportError::WrongType { index, path, expected });
            }
        }
        Ok(Self { initial_state, events })
    }

    /// Creates an import of a session that ends with `state`, such as an export. Keys that its events have changed are
    /// not set initially, since their earlier values are unknown.
    ///
    /// # Errors
    /// The errors of [`SessionImport::new`].
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

    /// Returns the number of events of the session.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Stores the session. Proofs of origin and `temp:` state are removed, and later timestamps are set to now. If this
    /// fails, the session is deleted again.
    ///
    /// # Errors
    /// The errors of an event or of the service, such as [`StoreError::SessionExists`].
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
        event.actions.remove_temp_state();
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

/// Converts the custom metadata of ADK for Java to an object: a list of entries, each with a `key` and a `stringValue`, a
/// `numericValue` or a `stringListValue`. Any other value stays as it is.
fn convert_custom_metadata(event: &mut EventData) {
    let Some(Value::Array(list)) = event.custom_metadata.as_deref() else { return };
    let Some(object) = list.iter().map(custom_metadata_entry).collect::<Option<JsonMap>>() else { return };
    event.custom_metadata = (!object.is_empty()).then(|| Box::new(Value::Object(object)));
}

/// Returns the key and the value of an entry; `None` if it is no entry.
fn custom_metadata_entry(entry: &Value) -> Option<(String, Value)> {
    let key = entry.get("key")?.as_str()?;
    let value = |kind: &str| entry.get(kind).filter(|value| !value.is_null());
    let list = || value("stringListValue")?.get("values");
    let value = value("stringValue").or_else(|| value("numericValue")).or_else(list);
    Some((key.to_owned(), value.cloned().unwrap_or_default()))
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
