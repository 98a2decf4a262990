//! Events of runs as messages, artifacts and calls that wait for the client.
//!
//! Texts and files of an event are an artifact with the event's id. Everything else (thoughts, calls, results, code) is
//! a message of the agent about its work.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use hatchery_core::{Event, FunctionCall, JsonMap, PROOF_KEY, Part as HostPart, PartData, USER_AUTHOR};
use serde_json::{Value, json};

use super::task_id::TaskId;
use crate::model::{Artifact, Message, Part, Role};
use crate::parts;

/// Prefix of the metadata keys of a remote agent's events.
const REMOTE_PREFIX: &str = crate::client::METADATA_PREFIX;

/// The key of an event's custom metadata by which an agent answers with a message instead of a task.
const MESSAGE_KEY: &str = "a2a:message";

/// A call whose result the client is to send.
#[derive(Debug, Clone)]
pub(super) struct OpenCall {
    pub(super) call: FunctionCall,
    event: Arc<Event>,
}

/// Returns the calls of these events that wait for the client.
pub(super) fn open_calls(events: &[Arc<Event>]) -> Vec<OpenCall> {
    let closed: HashSet<&str> = events.iter().flat_map(|event| event.closed_calls()).collect();
    let mut open = Vec::new();
    for event in events.iter().filter(|event| event.author != USER_AUTHOR) {
        let long_running: HashSet<&str> = event.long_running_tool_ids.iter().map(String::as_str).collect();
        let is_open = |id: &str| long_running.contains(id) && !closed.contains(id);
        let calls = event.function_calls().filter(|call| call.id.as_deref().is_some_and(is_open));
        open.extend(calls.map(|call| OpenCall { call: call.clone(), event: event.clone() }));
    }
    open
}

/// Returns the message that asks the client for the results of calls. `None` without calls.
pub(super) fn question(calls: &[OpenCall], task: &TaskId) -> Option<Message> {
    let last = &calls.last()?.event;
    let parts = calls.iter().filter_map(|open| {
        let part = HostPart::from(PartData::FunctionCall(open.call.clone()));
        // Each of them is long-running.
        parts::send(&part, open.call.id.as_slice())
    });
    Some(Message { parts: parts.collect(), ..agent_message(last, task) })
}

/// Returns true for parts of artifacts.
fn is_result(part: &HostPart) -> bool {
    !part.thought && matches!(part.data, PartData::Text(_) | PartData::InlineData(_) | PartData::FileData(_))
}

fn convert(event: &Event, is_included: impl Fn(&HostPart) -> bool) -> Vec<Part> {
    let parts = event.content.iter().flat_map(|content| &content.parts).filter(|part| is_included(part));
    parts.filter_map(|part| parts::send(part, &event.long_running_tool_ids)).collect()
}

/// Returns the artifact of an agent's event. `None` if it has neither text nor files.
pub(super) fn artifact(event: &Event) -> Option<Artifact> {
    let is_empty_text = |part: &HostPart| part.as_text().is_some_and(str::is_empty);
    let parts = convert(event, |part| is_result(part) && !is_empty_text(part));
    (event.author != USER_AUTHOR && !parts.is_empty()).then(|| Artifact {
        id: event.id.clone(),
        name: Some(event.author.clone()),
        parts,
        metadata: metadata(event),
        ..Artifact::default()
    })
}

/// Returns an answer that its agent has marked to be sent as a message. `None` for other events.
pub(super) fn message(event: &Event, task: &TaskId) -> Option<Message> {
    let is_message = event.custom_metadata.as_ref()?.get(MESSAGE_KEY) == Some(&Value::Bool(true));
    let artifact = artifact(event).filter(|_| is_message)?;
    Some(Message { parts: artifact.parts, task_id: None, ..agent_message(event, task) })
}

/// Returns the thoughts, calls, results and code of an agent's event as a message about its work.
/// `None` if it has none.
pub(super) fn status_message(event: &Event, task: &TaskId) -> Option<Message> {
    let parts = convert(event, |part| !is_result(part));
    let is_status = event.author != USER_AUTHOR && !event.partial && !parts.is_empty();
    is_status.then(|| Message { parts, ..agent_message(event, task) })
}

/// Returns the message of a client that an event has. `None` for other events.
pub(super) fn client_message(event: &Event, task: &TaskId) -> Option<Message> {
    let content = event.content.as_ref().filter(|_| event.author == USER_AUTHOR)?;
    let id = parts::message_id(&content.parts).unwrap_or(&event.id).to_owned();
    let parts = content.parts.iter();
    let parts = parts.filter_map(|part| parts::text_answer(part).map(Part::text).or_else(|| parts::send(part, &[])));
    let parts = parts.collect();
    Some(Message { id, role: Role::User, parts, metadata: JsonMap::new(), ..agent_message(event, task) })
}

fn agent_message(event: &Event, task: &TaskId) -> Message {
    Message {
        id: event.id.clone(),
        context_id: Some(task.context.clone()),
        task_id: Some(task.to_string()),
        role: Role::Agent,
        metadata: metadata(event),
        ..Message::default()
    }
}

/// Returns the metadata of an event with ADK's keys.
fn metadata(event: &Event) -> JsonMap {
    let mut metadata = JsonMap::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            metadata.insert(format!("adk_{key}"), value);
        }
    };
    set("author", Some(event.author.as_str().into()));
    set("event_id", Some(event.id.as_str().into()));
    set("invocation_id", Some(event.invocation_id.as_str().into()));
    set("branch", event.branch.as_deref().map(Into::into));
    set("error_code", event.error_code.as_deref().map(Into::into));
    set("grounding_metadata", event.grounding_metadata.as_deref().cloned());
    set("usage_metadata", event.usage_metadata.as_deref().and_then(|usage| serde_json::to_value(usage).ok()));
    set("custom_metadata", event.custom_metadata.as_deref().and_then(public_metadata));
    let flags = [("escalate", event.actions.escalate), ("skipSummarization", event.actions.skip_summarization)];
    let actions: JsonMap = flags.into_iter().filter_map(|(key, flag)| Some((key.into(), flag?.into()))).collect();
    set("actions", (!actions.is_empty()).then_some(Value::Object(actions)));
    metadata
}

/// Removes the proof, which only this host understands, and the ids of tasks of other hosts, which clients do not know.
fn public_metadata(metadata: &Value) -> Option<Value> {
    let is_public = |key: &str| key != PROOF_KEY && !key.starts_with(REMOTE_PREFIX);
    let public = metadata.as_object()?.iter().filter(|(key, _)| is_public(key));
    let public: JsonMap = public.map(|(key, value)| (key.clone(), value.clone())).collect();
    (!public.is_empty()).then_some(Value::Object(public))
}

/// Converts the events of a stream, in order.
#[derive(Default)]
pub(super) struct Chunks {
    /// The ids of artifacts with at least one sent chunk.
    begun: BTreeSet<String>,
}

impl Chunks {
    /// Returns the artifact of an event, whether its parts follow earlier ones, and whether it is complete. The final
    /// event has the whole text again, and replaces the chunks.
    pub(super) fn artifact(&mut self, event: &Event) -> Option<(Artifact, bool, bool)> {
        let artifact = artifact(event)?;
        let append = event.partial && !self.begun.insert(artifact.id.clone());
        Some((artifact, append, !event.partial))
    }
}

/// Returns the message about a failed run.
pub(super) fn failure(task: &TaskId, run: &str, code: &str, message: &str) -> Message {
    Message {
        id: format!("{run}-failure"),
        context_id: Some(task.context.clone()),
        task_id: Some(task.to_string()),
        role: Role::Agent,
        parts: vec![Part::text(message)],
        metadata: JsonMap::from_iter([("adk_error_code".into(), json!(code))]),
        ..Message::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_another_host_and_proofs_are_not_passed_on() {
        let metadata = json!({PROOF_KEY: "p", "a2a:task_id": "t", "a2a:context_id": "c", "origin": "here"});
        assert_eq!(public_metadata(&metadata), Some(json!({"origin": "here"})));
        assert_eq!(public_metadata(&json!({"a2a:task_id": "t"})), None);
    }
}
