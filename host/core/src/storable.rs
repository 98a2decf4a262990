//! Validation of events before they are stored, and placeholders for stored events that cannot be read.
//!
//! JSON that is nested too deeply, or that has two values for one key, can be written but not parsed. Such an event
//! would make its session unreadable forever, so it is rejected before it is stored.

use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use crate::content::{Content, Part, PartData};
use crate::event::{Compaction, Event, EventActions, EventData, UsageMetadata};
use crate::extra::{KnownKeys, known_key};
use crate::json::JsonMap;
use crate::time::Timestamp;

/// The maximum nesting depth of a JSON value within an event. JSON parsers stop at 128 levels for the whole event.
pub const MAX_JSON_DEPTH: usize = 100;

/// The error code of an event that replaces a stored one which cannot be read.
pub const UNREADABLE_EVENT: &str = "UNREADABLE_EVENT";

/// The reason why an event cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnstorableEvent {
    /// A value is nested too deeply.
    #[error("`{0}` is nested more than {MAX_JSON_DEPTH} levels deep")]
    Depth(String),
    /// An unknown key has the name of a field.
    #[error("`{place}` has `{key}` among its further keys, but that is a field of {noun}")]
    Key {
        /// The path of the object within the event.
        place: String,
        key: String,
        /// The type that has a field for the key, as text.
        noun: &'static str,
    },
    /// Parsing the JSON of the event returns a different event.
    #[error("its JSON differs from the event{0}")]
    Changed(String),
}

impl Event {
    /// Checks that parsing the event's JSON returns the same event. Costs a walk over its values, and a parse if it has
    /// unknown keys.
    pub fn check_storable(&self) -> Result<(), UnstorableEvent> {
        let mut walk = StorableChecker { has_extra: false };
        walk.event(self)?;
        if !walk.has_extra {
            return Ok(());
        }
        match serde_json::from_slice::<EventData>(self.json()) {
            Ok(read) if read == **self => Ok(()),
            Ok(_) => Err(UnstorableEvent::Changed(String::new())),
            Err(error) => Err(UnstorableEvent::Changed(format!(": {error}"))),
        }
    }

    /// Returns a placeholder for an event whose stored `json` cannot be read for this reason. It keeps the id, author,
    /// run and time as far as they can be read, and has neither content nor actions.
    pub fn unreadable(json: &[u8], revision: u64, reason: &str) -> Arc<Self> {
        let stored: Value = serde_json::from_slice(json).unwrap_or_default();
        let text = |key: &str| stored.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let time = stored.get("timestamp").and_then(|time| serde_json::from_value(time.clone()).ok());
        Self::new(EventData {
            id: text("id").map_or_else(|| format!("unreadable-{revision}"), Into::into),
            invocation_id: text("invocationId").unwrap_or_default().into(),
            author: text("author").unwrap_or("hatchery").into(),
            branch: text("branch").map(Into::into),
            error_code: Some(UNREADABLE_EVENT.into()),
            error_message: Some(format!("event {revision} of the session cannot be read and is left out: {reason}")),
            // A fixed time, so that each read returns the same event.
            timestamp: time.unwrap_or_else(|| Timestamp::from_micros(1)),
            ..EventData::default()
        })
    }
}

/// Returns true if `value` has more than [`MAX_JSON_DEPTH`] levels.
pub fn is_json_too_deep(value: &Value) -> bool {
    exceeds(value, MAX_JSON_DEPTH)
}

fn exceeds(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| exceeds(item, levels - 1)),
        Value::Object(map) => levels == 0 || map.values().any(|item| exceeds(item, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn check_map(map: &JsonMap, place: impl FnOnce() -> String) -> Result<(), UnstorableEvent> {
    if map.values().any(is_json_too_deep) { Err(UnstorableEvent::Depth(place())) } else { Ok(()) }
}

struct StorableChecker {
    /// Whether there are unknown keys anywhere.
    has_extra: bool,
}

impl StorableChecker {
    fn event(&mut self, event: &EventData) -> Result<(), UnstorableEvent> {
        if let Some(content) = &event.content {
            self.content(content, "content")?;
        }
        self.actions(&event.actions)?;
        if let Some(usage) = &event.usage_metadata {
            self.extra::<UsageMetadata>(&usage.extra, || "usageMetadata".into())?;
        }
        let values = [
            ("groundingMetadata", &event.grounding_metadata),
            ("customMetadata", &event.custom_metadata),
            ("inputTranscription", &event.input_transcription),
            ("outputTranscription", &event.output_transcription),
        ];
        match values.into_iter().find(|(_, value)| value.as_deref().is_some_and(is_json_too_deep)) {
            Some((key, _)) => Err(UnstorableEvent::Depth(key.into())),
            None => Ok(()),
        }
    }

    fn actions(&mut self, actions: &EventActions) -> Result<(), UnstorableEvent> {
        check_map(&actions.state_delta, || "actions.stateDelta".into())?;
        check_map(&actions.requested_auth_configs, || "actions.requestedAuthConfigs".into())?;
        check_map(&actions.requested_tool_confirmations, || "actions.requestedToolConfirmations".into())?;
        if let Some(compaction) = &actions.compaction {
            self.extra::<Compaction>(&compaction.extra, || "actions.compaction".into())?;
            self.content(&compaction.compacted_content, "actions.compaction.compactedContent")?;
        }
        self.extra::<EventActions>(&actions.extra, || "actions".into())
    }

    fn content(&mut self, content: &Content, place: &str) -> Result<(), UnstorableEvent> {
        content.parts.iter().enumerate().try_for_each(|(index, part)| self.part(part, place, index))
    }

    fn part(&mut self, part: &Part, place: &str, index: usize) -> Result<(), UnstorableEvent> {
        let at = |rest: &str| format!("{place}.parts[{index}]{rest}");
        match &part.data {
            PartData::FunctionCall(call) => {
                check_map(&call.args, || at(".functionCall.args"))?;
                self.extra_of(call, &call.extra, || at(".functionCall"))?;
            }
            PartData::FunctionResponse(response) => {
                check_map(&response.response, || at(".functionResponse.response"))?;
                self.extra_of(response, &response.extra, || at(".functionResponse"))?;
            }
            PartData::ExecutableCode(code) => self.extra_of(code, &code.extra, || at(".executableCode"))?,
            PartData::CodeExecutionResult(result) => {
                self.extra_of(result, &result.extra, || at(".codeExecutionResult"))?;
            }
            PartData::Other | PartData::Text(_) | PartData::InlineData(_) | PartData::FileData(_) => {}
        }
        self.extra_of(part, &part.extra, || at(""))
    }

    fn extra_of<T: KnownKeys>(
        &mut self,
        _owner: &T,
        extra: &JsonMap,
        place: impl Fn() -> String,
    ) -> Result<(), UnstorableEvent> {
        self.extra::<T>(extra, place)
    }

    fn extra<T: KnownKeys>(&mut self, extra: &JsonMap, place: impl Fn() -> String) -> Result<(), UnstorableEvent> {
        if extra.is_empty() {
            return Ok(());
        }
        self.has_extra = true;
        if let Some(key) = known_key::<T>(extra) {
            return Err(UnstorableEvent::Key { place: place(), key: key.into(), noun: T::NOUN });
        }
        check_map(extra, place)
    }
}
