//! Converts the updates of a remote agent to events of this host. Chunks of artifacts become partial events, calls that
//! wait for the client become long-running calls.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hatchery_core::{Content, EventActions, EventData, JsonMap, Part as HostPart, new_event_id};
use serde_json::{Value, json};

use super::ClientError;
use super::connection::ReceivedMessage;
use super::outbound::{ARTIFACT_ID, CONTEXT_ID, IS_WAITING, METADATA_PREFIX, TASK_ID};
use crate::error::excerpt;
use crate::model::{Artifact, ArtifactUpdate, Message, Part, PartContent, Task, TaskState, TaskStatus, Update};
use crate::parts::{self, ReceivedPart, metadata_value};

/// Converts the answer to one message.
pub(super) struct AnswerConverter {
    pub(super) task_id: Option<String>,
    context_id: Option<String>,
    /// The artifacts of earlier answers, which a task repeats.
    earlier_artifacts: HashSet<String>,
    /// The artifacts of this answer, in order of arrival.
    artifacts: Vec<OpenArtifact>,
    /// Their positions by id.
    positions: HashMap<String, usize>,
    /// The state at the end of the answer.
    end: Option<TaskState>,
    /// True once the answer has had a complete event.
    has_emitted: bool,
    /// The agent's last status message, which each view of the task repeats.
    last_status_message: Option<Message>,
    /// Bytes received so far.
    bytes: usize,
    max_bytes: usize,
}

/// An artifact that is being received.
struct OpenArtifact {
    id: String,
    /// The parts received so far; empty once it is complete.
    parts: Vec<Part>,
    /// The size of the parts that are from a view of the task.
    restored_bytes: usize,
    metadata: JsonMap,
    /// The id of the events that it becomes.
    event_id: String,
    is_complete: bool,
}

impl OpenArtifact {
    fn new(id: String) -> Self {
        Self {
            id,
            parts: Vec::new(),
            restored_bytes: 0,
            metadata: JsonMap::new(),
            event_id: new_event_id(),
            is_complete: false,
        }
    }

    /// Marks the artifact as complete, and returns its parts.
    fn take_completed(&mut self) -> Self {
        self.is_complete = true;
        let (parts, metadata) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.metadata));
        Self { parts, metadata, event_id: self.event_id.clone(), is_complete: true, ..Self::new(self.id.clone()) }
    }
}

impl AnswerConverter {
    /// `earlier_artifacts` are the artifacts of earlier answers, `max_bytes` is the limit of this answer.
    pub(super) fn new<'a>(earlier_artifacts: impl Iterator<Item = &'a str>, max_bytes: usize) -> Self {
        Self {
            task_id: None,
            context_id: None,
            earlier_artifacts: earlier_artifacts.map(Into::into).collect(),
            artifacts: Vec::new(),
            positions: HashMap::new(),
            end: None,
            has_emitted: false,
            last_status_message: None,
            bytes: 0,
            max_bytes,
        }
    }

    /// Returns true if the agent has nothing more to send.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the events of an update.
    ///
    /// # Errors
    /// If the task has failed, was refused or canceled, or the answer is too large.
    pub(super) fn accept(&mut self, update: ReceivedMessage<Update>) -> Result<Vec<EventData>, ClientError> {
        let ReceivedMessage { message: update, bytes } = update;
        self.count(&update, bytes)?;
        let events = match update {
            Update::Message(message) => {
                self.set_ids(message.task_id.clone(), message.context_id.clone());
                self.end = Some(TaskState::Completed);
                vec![self.event(&message.metadata, message.parts, false)]
            }
            Update::Task(Task { id, context_id, status, artifacts, .. }) => {
                self.set_ids(Some(id), Some(context_id));
                let is_end = status.state.is_terminal() || status.state.is_interrupted();
                let mut events = Vec::new();
                for artifact in artifacts {
                    if is_end { events.extend(self.complete_artifact(artifact)) } else { self.restore(artifact)? }
                }
                events.extend(self.status(status)?);
                events
            }
            Update::Status(update) => {
                self.set_ids(Some(update.task_id), Some(update.context_id));
                self.status(update.status)?
            }
            Update::Artifact(update) => {
                self.set_ids(Some(update.task_id.clone()), Some(update.context_id.clone()));
                self.artifact(update)
            }
        };
        let events: Vec<_> = events.into_iter().filter(|event| event.content.is_some()).collect();
        self.has_emitted |= events.iter().any(|event| !event.partial);
        Ok(events)
    }

    /// Counts an update. A view of a task in progress is not counted: [`Self::restore`] counts its artifacts.
    fn count(&mut self, update: &Update, bytes: usize) -> Result<(), ClientError> {
        let is_kept = match update {
            Update::Task(Task { status, .. }) => {
                let is_end = status.state.is_terminal() || status.state.is_interrupted();
                is_end || (status.message.is_some() && status.message != self.last_status_message)
            }
            Update::Message(_) | Update::Status(_) | Update::Artifact(_) => true,
        };
        self.add_bytes(if is_kept { bytes } else { 0 })
    }

    fn add_bytes(&mut self, bytes: usize) -> Result<(), ClientError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.max_bytes {
            Err(ClientError::TooLarge { what: "answer", limit: self.max_bytes, key: "max_answer" })
        } else {
            Ok(())
        }
    }

    fn set_ids(&mut self, task_id: Option<String>, context_id: Option<String>) {
        let non_empty = |id: Option<String>| id.filter(|id| !id.is_empty());
        self.task_id = non_empty(task_id).or(self.task_id.take());
        self.context_id = non_empty(context_id).or(self.context_id.take());
    }

    /// Returns the events of a status.
    fn status(&mut self, status: TaskStatus) -> Result<Vec<EventData>, ClientError> {
        let TaskStatus { state, message, .. } = status;
        let failed = |state, message: Option<Message>| {
            let message = message.map(|message| text_of(&message)).filter(|text| !text.is_empty());
            let message = message.unwrap_or_else(|| "it gave no reason".into());
            Err(ClientError::Task { state, message: excerpt(&message) })
        };
        match state {
            TaskState::Failed => failed("has failed", message),
            TaskState::Rejected => failed("was refused", message),
            TaskState::Canceled => failed("was canceled", message),
            TaskState::Unknown | TaskState::Submitted | TaskState::Working => {
                if message.is_none() || message == self.last_status_message {
                    return Ok(Vec::new());
                }
                self.last_status_message.clone_from(&message);
                Ok(message.map(|message| self.status_event(message)).into_iter().collect())
            }
            TaskState::Completed | TaskState::InputRequired | TaskState::AuthRequired => {
                let mut events = self.flush();
                self.end = Some(state);
                let question = message.map(|message| self.event(&message.metadata, message.parts, false));
                if let Some(mut question) = question {
                    if state.is_interrupted() && question.long_running_tool_ids.is_empty() {
                        set_metadata(&mut question, IS_WAITING, true.into());
                    }
                    events.push(question);
                }
                Ok(events)
            }
        }
    }

    /// Converts a status message. Its texts are not part of the answer.
    fn status_event(&self, message: Message) -> EventData {
        let mut event = self.event(&message.metadata, message.parts, false);
        if let Some(content) = event.content.take() {
            let mut content = Arc::unwrap_or_clone(content);
            for part in content.parts.iter_mut().filter(|part| part.as_text().is_some()) {
                part.thought = true;
            }
            event.content = Some(Arc::new(content));
        }
        // Only a task that waits can wait for the client.
        event.long_running_tool_ids.clear();
        event
    }

    fn artifact(&mut self, update: ArtifactUpdate) -> Vec<EventData> {
        let ArtifactUpdate { artifact, append, last_chunk, .. } = update;
        let Artifact { id, parts, metadata, .. } = artifact;
        let Some(open) = self.open(&id) else { return Vec::new() };
        if !append {
            open.parts.clear();
        }
        append_parts(&mut open.parts, parts.clone());
        open.metadata.extend(metadata.clone());
        open.is_complete = last_chunk;
        let event_id = open.event_id.clone();
        let (parts, metadata) = if last_chunk {
            (std::mem::take(&mut open.parts), std::mem::take(&mut open.metadata))
        } else {
            (parts, metadata)
        };
        vec![self.artifact_event(id, event_id, &metadata, parts, !last_chunk)]
    }

    /// Returns an artifact that is being received, or that begins. `None` if it is complete.
    fn open(&mut self, id: &str) -> Option<&mut OpenArtifact> {
        let index = self.positions.get(id).copied().unwrap_or_else(|| {
            self.artifacts.push(OpenArtifact::new(id.to_owned()));
            self.positions.insert(id.to_owned(), self.artifacts.len() - 1);
            self.artifacts.len() - 1
        });
        self.artifacts.get_mut(index).filter(|open| !open.is_complete)
    }

    /// Replaces an artifact in progress by the view of the task, since chunks may have been lost with their stream. It
    /// becomes an event at the end of the artifact.
    fn restore(&mut self, artifact: Artifact) -> Result<(), ClientError> {
        let Artifact { id, parts, metadata, .. } = artifact;
        if self.earlier_artifacts.contains(&id) {
            return Ok(());
        }
        let bytes = id.len() + parts.iter().map(size).sum::<usize>();
        let Some(open) = self.open(&id) else { return Ok(()) };
        let before = std::mem::replace(&mut open.restored_bytes, bytes);
        open.parts = parts;
        open.metadata = metadata;
        self.bytes = self.bytes.saturating_sub(before);
        self.add_bytes(bytes)
    }

    fn artifact_event(
        &self,
        id: String,
        event_id: String,
        metadata: &JsonMap,
        parts: Vec<Part>,
        partial: bool,
    ) -> EventData {
        let mut event = EventData { id: event_id, ..self.event(metadata, parts, partial) };
        // Only a task that waits can wait for the client.
        event.long_running_tool_ids.clear();
        set_metadata(&mut event, ARTIFACT_ID, id.into());
        event
    }

    /// Returns the event of an artifact that a task has at its end. `None` if the artifact came before.
    fn complete_artifact(&mut self, artifact: Artifact) -> Option<EventData> {
        let is_new = !self.earlier_artifacts.contains(&artifact.id);
        let open = self.positions.get(&artifact.id).and_then(|index| self.artifacts.get(*index));
        let is_complete = open.is_some_and(|open| open.is_complete);
        if !is_new || is_complete {
            return None;
        }
        let update = ArtifactUpdate { artifact, last_chunk: true, ..ArtifactUpdate::default() };
        self.artifact(update).pop()
    }

    /// Returns the artifacts whose end never came.
    fn flush(&mut self) -> Vec<EventData> {
        let open = self.artifacts.iter_mut().filter(|open| !open.is_complete);
        let artifacts: Vec<_> = open.map(OpenArtifact::take_completed).collect();
        let events = artifacts
            .into_iter()
            .map(|open| self.artifact_event(open.id, open.event_id, &open.metadata, open.parts, false));
        events.collect()
    }

    /// Returns the remaining events at the end. An answer without content is an event too, which has the ids.
    pub(super) fn finish(&mut self) -> Vec<EventData> {
        let mut events = self.flush();
        if events.is_empty() && !self.has_emitted && self.context_id.is_some() {
            events
                .push(EventData { custom_metadata: Some(Box::new(Value::Object(self.ids()))), ..EventData::default() });
        }
        events
    }

    fn event(&self, metadata: &JsonMap, parts: Vec<Part>, partial: bool) -> EventData {
        let received: Vec<ReceivedPart> = parts.into_iter().map(parts::receive).collect();
        let long_running = received.iter().filter(|received| received.is_long_running);
        let ids = long_running.filter_map(|received| match &received.part.data {
            hatchery_core::PartData::FunctionCall(call) => call.id.clone(),
            _ => None,
        });
        let long_running_tool_ids = ids.collect();
        let parts: Vec<HostPart> = received.into_iter().map(|received| received.part).collect();
        let content = (!parts.is_empty()).then(|| Arc::new(Content::new("model", parts)));
        let mut event = EventData { content, partial, long_running_tool_ids, ..event_data(metadata) };
        let custom = event.custom_metadata.take().and_then(|custom| match *custom {
            Value::Object(custom) => Some(custom),
            _ => None,
        });
        let mut custom = custom.unwrap_or_default();
        // Keys that the peer received from agents it called.
        custom.retain(|key, _| !key.starts_with(METADATA_PREFIX));
        custom.extend(self.ids());
        event.custom_metadata = Some(Box::new(Value::Object(custom)));
        event
    }

    fn ids(&self) -> JsonMap {
        let ids = [(CONTEXT_ID, &self.context_id), (TASK_ID, &self.task_id)];
        ids.into_iter().filter_map(|(key, id)| Some((key.to_owned(), Value::String(id.clone()?)))).collect()
    }
}

fn set_metadata(event: &mut EventData, key: &str, value: Value) {
    if let Some(metadata) = event.custom_metadata.as_deref_mut().and_then(Value::as_object_mut) {
        metadata.insert(key.into(), value);
    }
}

/// Returns about how many bytes a part takes.
fn size(part: &Part) -> usize {
    let content = match &part.content {
        PartContent::Text(text) | PartContent::Url(text) => text.len(),
        PartContent::Raw(bytes) => bytes.len(),
        PartContent::Data(value) => value.to_string().len(),
    };
    content + json!(part.metadata).to_string().len()
}

/// Appends parts; a text continues the text before it.
fn append_parts(parts: &mut Vec<Part>, more: Vec<Part>) {
    for part in more {
        match (parts.last_mut(), &part.content) {
            (Some(Part { content: PartContent::Text(text), metadata, .. }), PartContent::Text(next))
                if *metadata == part.metadata =>
            {
                text.push_str(next);
            }
            _ => parts.push(part),
        }
    }
}

/// Returns an event with the fields in ADK's metadata keys. Values of other types are omitted. Of the actions only two
/// flags are read: a peer changes neither state nor the flow of other agents.
fn event_data(metadata: &JsonMap) -> EventData {
    let flag = |key: &str| metadata_value(metadata, "actions").and_then(|actions| actions.get(key)?.as_bool());
    let typed = |key: &str| metadata_value(metadata, key).cloned();
    EventData {
        actions: EventActions {
            escalate: flag("escalate"),
            skip_summarization: flag("skipSummarization").or(flag("skip_summarization")),
            ..EventActions::default()
        },
        grounding_metadata: typed("grounding_metadata").filter(Value::is_object).map(Box::new),
        usage_metadata: typed("usage_metadata").and_then(|usage| serde_json::from_value(usage).ok()).map(Box::new),
        custom_metadata: typed("custom_metadata").filter(Value::is_object).map(Box::new),
        error_code: typed("error_code").and_then(|code| code.as_str().map(Into::into)),
        ..EventData::default()
    }
}

fn text_of(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        PartContent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
