//! Messages, tasks and updates of version 1.0.

use hatchery_core::{JsonMap, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::codec::{decode_bytes, encode_bytes, null_as_default, take, write};
use crate::model::{
    Artifact, ArtifactUpdate, Message, Part, PartContent, Role, StatusUpdate, Task, TaskState, TaskStatus, Update,
};

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireMessage {
    #[serde(alias = "message_id")]
    message_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "context_id")]
    context_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "task_id")]
    task_id: Option<String>,
    role: String,
    #[serde(deserialize_with = "null_as_default")]
    parts: Vec<WirePart>,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    extensions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[serde(alias = "reference_task_ids")]
    reference_task_ids: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePart {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The outer option is the member, the inner one `null`.
    #[serde(skip_serializing_if = "Option::is_none", with = "present")]
    data: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "media_type")]
    media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<String>,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
}

/// A member whose value may be `null`.
mod present {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(value: &Option<Value>, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
        Value::deserialize(deserializer).map(Some)
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireArtifact {
    #[serde(alias = "artifact_id")]
    artifact_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    parts: Vec<WirePart>,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    extensions: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireStatus {
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<WireMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireTask {
    id: String,
    #[serde(alias = "context_id")]
    context_id: String,
    status: WireStatus,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    artifacts: Vec<WireArtifact>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    history: Vec<WireMessage>,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatusUpdate {
    #[serde(alias = "task_id")]
    task_id: String,
    #[serde(alias = "context_id")]
    context_id: String,
    status: WireStatus,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireArtifactUpdate {
    #[serde(alias = "task_id")]
    task_id: String,
    #[serde(alias = "context_id")]
    context_id: String,
    artifact: WireArtifact,
    #[serde(deserialize_with = "null_as_default")]
    append: bool,
    #[serde(deserialize_with = "null_as_default")]
    #[serde(alias = "last_chunk")]
    last_chunk: bool,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
}

/// The answer to a message, or an item of a stream.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireUpdate {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<WireTask>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<WireMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "status_update")]
    status_update: Option<WireStatusUpdate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "artifact_update")]
    artifact_update: Option<WireArtifactUpdate>,
}

pub(super) fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Unknown => "TASK_STATE_UNSPECIFIED",
        TaskState::Submitted => "TASK_STATE_SUBMITTED",
        TaskState::Working => "TASK_STATE_WORKING",
        TaskState::InputRequired => "TASK_STATE_INPUT_REQUIRED",
        TaskState::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
        TaskState::Completed => "TASK_STATE_COMPLETED",
        TaskState::Canceled => "TASK_STATE_CANCELED",
        TaskState::Failed => "TASK_STATE_FAILED",
        TaskState::Rejected => "TASK_STATE_REJECTED",
    }
}

pub(super) fn state_from_name(name: &str) -> Option<TaskState> {
    TaskState::ALL.into_iter().find(|state| state_name(*state) == name)
}

impl From<Part> for WirePart {
    fn from(part: Part) -> Self {
        let Part { content, media_type, filename, metadata } = part;
        let mut wire = Self { media_type, filename, metadata, ..Self::default() };
        match content {
            PartContent::Text(text) => wire.text = Some(text),
            PartContent::Raw(bytes) => wire.raw = Some(encode_bytes(&bytes)),
            PartContent::Url(url) => wire.url = Some(url),
            PartContent::Data(data) => wire.data = Some(data),
        }
        wire
    }
}

impl TryFrom<WirePart> for Part {
    type Error = String;

    fn try_from(wire: WirePart) -> Result<Self, String> {
        let WirePart { text, raw, url, data, media_type, filename, metadata } = wire;
        let content = match (text, raw, url, data) {
            (Some(text), None, None, None) => PartContent::Text(text),
            (None, Some(raw), None, None) => PartContent::Raw(decode_bytes(&raw)?),
            (None, None, Some(url), None) => PartContent::Url(url),
            (None, None, None, Some(data)) => PartContent::Data(data),
            _ => return Err("a part has exactly one of `text`, `raw`, `url` and `data`".into()),
        };
        Ok(Self { content, media_type, filename, metadata })
    }
}

fn encode_parts(parts: Vec<Part>) -> Vec<WirePart> {
    parts.into_iter().map(Into::into).collect()
}

fn decode_parts(parts: Vec<WirePart>) -> Result<Vec<Part>, String> {
    parts.into_iter().map(TryInto::try_into).collect()
}

impl From<Message> for WireMessage {
    fn from(message: Message) -> Self {
        let role = match message.role {
            Role::User => "ROLE_USER",
            Role::Agent => "ROLE_AGENT",
        };
        Self {
            message_id: message.id,
            context_id: message.context_id,
            task_id: message.task_id,
            role: role.into(),
            parts: encode_parts(message.parts),
            metadata: message.metadata,
            extensions: message.extensions,
            reference_task_ids: message.reference_task_ids,
        }
    }
}

impl TryFrom<WireMessage> for Message {
    type Error = String;

    fn try_from(wire: WireMessage) -> Result<Self, String> {
        let role = match wire.role.as_str() {
            "ROLE_USER" => Role::User,
            "ROLE_AGENT" => Role::Agent,
            _ => return Err("`role` of a message is `ROLE_USER` or `ROLE_AGENT`".into()),
        };
        let non_empty = |id: Option<String>| id.filter(|id| !id.is_empty());
        Ok(Self {
            id: wire.message_id,
            context_id: non_empty(wire.context_id),
            task_id: non_empty(wire.task_id),
            role,
            parts: decode_parts(wire.parts)?,
            metadata: wire.metadata,
            extensions: wire.extensions,
            reference_task_ids: wire.reference_task_ids,
        })
    }
}

impl From<Artifact> for WireArtifact {
    fn from(artifact: Artifact) -> Self {
        let Artifact { id, name, description, parts, metadata, extensions } = artifact;
        Self { artifact_id: id, name, description, parts: encode_parts(parts), metadata, extensions }
    }
}

impl TryFrom<WireArtifact> for Artifact {
    type Error = String;

    fn try_from(wire: WireArtifact) -> Result<Self, String> {
        let WireArtifact { artifact_id, name, description, parts, metadata, extensions } = wire;
        Ok(Self { id: artifact_id, name, description, parts: decode_parts(parts)?, metadata, extensions })
    }
}

impl From<TaskStatus> for WireStatus {
    fn from(status: TaskStatus) -> Self {
        Self {
            state: state_name(status.state).into(),
            message: status.message.map(Into::into),
            timestamp: status.timestamp.map(Timestamp::to_iso_millis),
        }
    }
}

impl TryFrom<WireStatus> for TaskStatus {
    type Error = String;

    fn try_from(wire: WireStatus) -> Result<Self, String> {
        let state = state_from_name(&wire.state).unwrap_or_default();
        Ok(Self { state, message: wire.message.map(TryInto::try_into).transpose()?, timestamp: None })
    }
}

impl From<Task> for WireTask {
    fn from(task: Task) -> Self {
        Self {
            id: task.id,
            context_id: task.context_id,
            status: task.status.into(),
            artifacts: task.artifacts.into_iter().map(Into::into).collect(),
            history: task.history.into_iter().map(Into::into).collect(),
            metadata: task.metadata,
        }
    }
}

impl TryFrom<WireTask> for Task {
    type Error = String;

    fn try_from(wire: WireTask) -> Result<Self, String> {
        if wire.id.is_empty() {
            return Err("a task has no `id`".into());
        }
        Ok(Self {
            id: wire.id,
            context_id: wire.context_id,
            status: wire.status.try_into()?,
            artifacts: wire.artifacts.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            history: wire.history.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            metadata: wire.metadata,
        })
    }
}

fn wire_update(update: Update) -> WireUpdate {
    let mut wire = WireUpdate::default();
    match update {
        Update::Task(task) => wire.task = Some(task.into()),
        Update::Message(message) => wire.message = Some(message.into()),
        Update::Status(StatusUpdate { task_id, context_id, status, metadata }) => {
            wire.status_update = Some(WireStatusUpdate { task_id, context_id, status: status.into(), metadata });
        }
        Update::Artifact(ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata }) => {
            let artifact = artifact.into();
            wire.artifact_update =
                Some(WireArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata });
        }
    }
    wire
}

pub(in crate::codec) fn encode_update(update: Update) -> Value {
    write(wire_update(update))
}

pub(in crate::codec) fn decode_update(value: Value) -> Result<Update, String> {
    let wire: WireUpdate = take(value)?;
    match (wire.task, wire.message, wire.status_update, wire.artifact_update) {
        (Some(task), None, None, None) => task.try_into().map(Update::Task),
        (None, Some(message), None, None) => message.try_into().map(Update::Message),
        (None, None, Some(WireStatusUpdate { task_id, context_id, status, metadata }), None) => {
            let status = status.try_into()?;
            Ok(Update::Status(StatusUpdate { task_id, context_id, status, metadata }))
        }
        (None, None, None, Some(wire)) => {
            let WireArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata } = wire;
            let artifact = artifact.try_into()?;
            Ok(Update::Artifact(ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata }))
        }
        _ => Err("an answer has exactly one of `task`, `message`, `statusUpdate` and `artifactUpdate`".into()),
    }
}

pub(in crate::codec) fn decode_task(value: Value) -> Result<Task, String> {
    take::<WireTask>(value)?.try_into()
}
