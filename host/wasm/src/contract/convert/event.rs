//! Conversion of events, their actions and confirmations.

use std::sync::Arc;

use hatchery_core::{
    Compaction, Content, EventActions, EventData, Extra, JsonMap, Timestamp, ToolConfirmation, UsageMetadata,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::{check_unknown, parse};
use super::{BadValue, FromWit, ToWit, parse_json, parse_object, to_json, wit};

/// Keys of an event that the contract carries in `extra`.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EventExtra {
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_metadata: Option<Box<UsageMetadata>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    avg_logprobs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grounding_metadata: Option<Box<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_metadata: Option<Box<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_transcription: Option<Box<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_transcription: Option<Box<Value>>,
    /// Unknown keys, such as keys of a later version, are dropped.
    #[serde(flatten, skip_serializing)]
    rest: Extra,
}

impl ToWit for EventData {
    type Wit = wit::Event;

    fn to_wit(&self) -> wit::Event {
        let extra = EventExtra {
            finish_reason: self.finish_reason.clone(),
            usage_metadata: self.usage_metadata.clone(),
            avg_logprobs: self.avg_logprobs,
            model_version: self.model_version.clone(),
            grounding_metadata: self.grounding_metadata.clone(),
            custom_metadata: self.custom_metadata.clone().filter(|_| self.paused_run().is_none()),
            input_transcription: self.input_transcription.clone(),
            output_transcription: self.output_transcription.clone(),
            rest: Extra::default(),
        };
        wit::Event {
            id: self.id.clone(),
            invocation_id: self.invocation_id.clone(),
            author: self.author.clone(),
            content: self.content.as_deref().map(ToWit::to_wit),
            actions: self.actions.to_wit(),
            partial: self.partial,
            turn_complete: self.turn_complete,
            interrupted: self.interrupted,
            branch: self.branch.clone(),
            long_running_tool_ids: self.long_running_tool_ids.clone(),
            error_code: self.error_code.clone(),
            error_message: self.error_message.clone(),
            timestamp: self.timestamp.as_micros(),
            extra: (extra != EventExtra::default()).then(|| to_json(&extra)),
        }
    }
}

impl FromWit<wit::Event> for EventData {
    fn from_wit(event: wit::Event) -> Result<Self, BadValue> {
        let extra = event.extra.map(|extra| event_extra(&extra)).transpose()?.unwrap_or_default();
        Ok(Self {
            id: event.id,
            invocation_id: event.invocation_id,
            author: event.author,
            content: event.content.map(Content::from_wit).transpose()?.map(Arc::new),
            actions: EventActions::from_wit(event.actions)?,
            partial: event.partial,
            turn_complete: event.turn_complete,
            interrupted: event.interrupted,
            branch: event.branch,
            long_running_tool_ids: event.long_running_tool_ids,
            error_code: event.error_code,
            error_message: event.error_message,
            timestamp: Timestamp::from_micros(event.timestamp),
            finish_reason: extra.finish_reason,
            usage_metadata: extra.usage_metadata,
            avg_logprobs: extra.avg_logprobs,
            model_version: extra.model_version,
            grounding_metadata: extra.grounding_metadata,
            custom_metadata: extra.custom_metadata,
            input_transcription: extra.input_transcription,
            output_transcription: extra.output_transcription,
        })
    }
}

/// Parses the keys of an event without a field in the contract, and refuses those with one.
fn event_extra(text: &str) -> Result<EventExtra, BadValue> {
    let subject = "`extra` of an event";
    let extra: EventExtra = parse(text, subject, "an object of event keys")?;
    check_unknown::<EventData>(&extra.rest, subject)?;
    if let Some(usage) = &extra.usage_metadata {
        check_unknown::<UsageMetadata>(&usage.extra, "`usageMetadata` of an event")?;
    }
    Ok(extra)
}

/// Keys of `actions` that the contract carries in `extra`. Other keys are kept.
const ACTIONS_EXTRA: &str = "`extra` of actions";
const AUTH: &str = "requestedAuthConfigs";
const CONFIRMATIONS: &str = "requestedToolConfirmations";
const COMPACTION: &str = "compaction";

impl ToWit for EventActions {
    type Wit = wit::EventActions;

    fn to_wit(&self) -> wit::EventActions {
        let mut extra = self.extra.clone();
        for (key, map) in [(AUTH, &self.requested_auth_configs), (CONFIRMATIONS, &self.requested_tool_confirmations)] {
            if !map.is_empty() {
                extra.insert(key.into(), Value::Object(JsonMap::clone(map)));
            }
        }
        if let Some(compaction) = &self.compaction {
            // Serializing strings, numbers and contents cannot fail.
            extra.insert(COMPACTION.into(), serde_json::to_value(compaction).unwrap_or_default());
        }
        wit::EventActions {
            state_delta: self.state_delta.iter().map(|(key, value)| (key.clone(), to_json(value))).collect(),
            artifact_delta: self.artifact_delta.iter().map(|(name, version)| (name.clone(), *version)).collect(),
            deleted_artifact_ids: self.deleted_artifact_ids.iter().cloned().collect(),
            skip_summarization: self.skip_summarization,
            transfer_to_agent: self.transfer_to_agent.clone(),
            escalate: self.escalate,
            end_of_agent: self.end_of_agent,
            end_invocation: self.end_invocation,
            extra: super::json::extra(&extra),
        }
    }
}

impl FromWit<wit::EventActions> for EventActions {
    fn from_wit(actions: wit::EventActions) -> Result<Self, BadValue> {
        let mut extra = actions.extra.map(|text| parse_object(&text, ACTIONS_EXTRA)).transpose()?.unwrap_or_default();
        let requested_auth_configs = take_map(&mut extra, AUTH)?;
        let requested_tool_confirmations = take_map(&mut extra, CONFIRMATIONS)?;
        let compaction = take_compaction(&mut extra)?;
        check_unknown::<Self>(&extra, ACTIONS_EXTRA)?;
        let state_delta = actions.state_delta.into_iter();
        Ok(Self {
            state_delta: state_delta
                .map(|(key, json)| Ok((key, parse_json(&json, "a value of the state delta")?)))
                .collect::<Result<_, BadValue>>()?,
            artifact_delta: actions.artifact_delta.into_iter().collect(),
            deleted_artifact_ids: actions.deleted_artifact_ids.into_iter().collect(),
            skip_summarization: actions.skip_summarization,
            transfer_to_agent: actions.transfer_to_agent,
            escalate: actions.escalate,
            end_of_agent: actions.end_of_agent,
            end_invocation: actions.end_invocation,
            requested_auth_configs,
            requested_tool_confirmations,
            compaction,
            extra: extra.into(),
        })
    }
}

fn take_map(extra: &mut JsonMap, key: &'static str) -> Result<Extra, BadValue> {
    match extra.remove(key) {
        None | Some(Value::Null) => Ok(Extra::default()),
        Some(Value::Object(map)) => Ok(map.into()),
        Some(other) => Err(BadValue { subject: key, expected: "a JSON object", reason: format!("it is `{other}`") }),
    }
}

fn take_compaction(extra: &mut JsonMap) -> Result<Option<Box<Compaction>>, BadValue> {
    let parse = |value| serde_json::from_value(value);
    let bad =
        |error: serde_json::Error| BadValue { subject: COMPACTION, expected: "a summary", reason: error.to_string() };
    extra.remove(COMPACTION).filter(|value| !value.is_null()).map(parse).transpose().map_err(bad)
}

impl ToWit for ToolConfirmation {
    type Wit = wit::ToolConfirmation;

    fn to_wit(&self) -> wit::ToolConfirmation {
        wit::ToolConfirmation {
            hint: self.hint.clone(),
            confirmed: self.confirmed,
            payload: self.payload.as_ref().map(to_json),
        }
    }
}
