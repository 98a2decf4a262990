//! Messages, tasks and updates of version 0.3.

use hatchery_core::{JsonMap, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::codec::{decode_bytes, encode_bytes, null_as_default, take, write};
use crate::model::{
    Artifact, ArtifactUpdate, Message, Part, PartContent, Role, StatusUpdate, Task, TaskState, TaskStatus, Update,
};

/// The metadata key of data that is not an object, which is wrapped in one.
const WRAPPED: &str = "data_part_compat";

/// The key of wrapped data in its object.
const WRAPPED_VALUE: &str = "value";

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireMessage {
    kind: Tag,
    message_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    role: WireRole,
    #[serde(deserialize_with = "null_as_default")]
    parts: Vec<WirePart>,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    extensions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    reference_task_ids: Vec<String>,
}

/// The value of `kind`. A text of a peer is kept, so that an unknown one can be named.
#[derive(Default, Serialize, Deserialize, PartialEq)]
#[serde(transparent)]
struct Tag(String);

const MESSAGE: &str = "message";
const TASK: &str = "task";
const STATUS: &str = "status-update";
const ARTIFACT: &str = "artifact-update";

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireRole {
    #[default]
    User,
    Agent,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum WirePart {
    Text {
        text: String,
        #[serde(default, skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
        metadata: JsonMap,
    },
    File {
        file: WireFile,
        #[serde(default, skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
        metadata: JsonMap,
    },
    Data {
        data: JsonMap,
        #[serde(default, skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
        metadata: JsonMap,
    },
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireArtifact {
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
    kind: Tag,
    id: String,
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
    kind: Tag,
    task_id: String,
    context_id: String,
    status: WireStatus,
    #[serde(rename = "final", deserialize_with = "null_as_default")]
    is_final: bool,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireArtifactUpdate {
    kind: Tag,
    task_id: String,
    context_id: String,
    artifact: WireArtifact,
    #[serde(deserialize_with = "null_as_default")]
    append: bool,
    #[serde(deserialize_with = "null_as_default")]
    last_chunk: bool,
    #[serde(skip_serializing_if = "JsonMap::is_empty", deserialize_with = "null_as_default")]
    metadata: JsonMap,
}

pub(super) fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Unknown => "unknown",
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::InputRequired => "input-required",
        TaskState::AuthRequired => "auth-required",
        TaskState::Completed => "completed",
        TaskState::Canceled => "canceled",
        TaskState::Failed => "failed",
        TaskState::Rejected => "rejected",
    }
}

pub(super) fn state_from_name(name: &str) -> Option<TaskState> {
    TaskState::ALL.into_iter().find(|state| state_name(*state) == name)
}

impl From<Part> for WirePart {
    fn from(part: Part) -> Self {
        let Part { content, media_type, filename, mut metadata } = part;
        let (mime_type, name) = (media_type, filename);
        match content {
            PartContent::Text(text) => Self::Text { text, metadata },
            PartContent::Raw(bytes) => {
                let file = WireFile { bytes: Some(encode_bytes(&bytes)), uri: None, mime_type, name };
                Self::File { file, metadata }
            }
            PartContent::Url(url) => {
                Self::File { file: WireFile { bytes: None, uri: Some(url), mime_type, name }, metadata }
            }
            PartContent::Data(Value::Object(data)) => Self::Data { data, metadata },
            PartContent::Data(other) => {
                metadata.insert(WRAPPED.into(), true.into());
                Self::Data { data: JsonMap::from_iter([(WRAPPED_VALUE.into(), other)]), metadata }
            }
        }
    }
}

impl TryFrom<WirePart> for Part {
    type Error = String;

    fn try_from(wire: WirePart) -> Result<Self, String> {
        Ok(match wire {
            WirePart::Text { text, metadata } => Self { metadata, ..Self::text(text) },
            WirePart::File { file: WireFile { bytes, uri, mime_type, name }, metadata } => {
                let content = match (bytes, uri) {
                    (Some(bytes), None) => PartContent::Raw(decode_bytes(&bytes)?),
                    (None, Some(uri)) => PartContent::Url(uri),
                    (None, None) | (Some(_), Some(_)) => {
                        return Err("a file has exactly one of `bytes` and `uri`".into());
                    }
                };
                Self { content, media_type: mime_type, filename: name, metadata }
            }
            WirePart::Data { mut data, mut metadata } => {
                let is_wrapped = metadata.get(WRAPPED) == Some(&Value::Bool(true)) && data.len() == 1;
                let wrapped = if is_wrapped { data.remove(WRAPPED_VALUE) } else { None };
                if wrapped.is_some() {
                    metadata.remove(WRAPPED);
                }
                let content = PartContent::Data(wrapped.unwrap_or(Value::Object(data)));
                Self { metadata, ..Self::new(content) }
            }
        })
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
        Self {
            kind: Tag(MESSAGE.into()),
            message_id: message.id,
            context_id: message.context_id,
            task_id: message.task_id,
            role: match message.role {
                Role::User => WireRole::User,
                Role::Agent => WireRole::Agent,
            },
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
        let non_empty = |id: Option<String>| id.filter(|id| !id.is_empty());
        Ok(Self {
            id: wire.message_id,
            context_id: non_empty(wire.context_id),
            task_id: non_empty(wire.task_id),
            role: match wire.role {
                WireRole::User => Role::User,
                WireRole::Agent => Role::Agent,
            },
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
            kind: Tag(TASK.into()),
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

impl From<StatusUpdate> for WireStatusUpdate {
    fn from(update: StatusUpdate) -> Self {
        let is_final = update.is_final();
        let StatusUpdate { task_id, context_id, status, metadata } = update;
        Self { kind: Tag(STATUS.into()), task_id, context_id, status: status.into(), is_final, metadata }
    }
}

impl From<ArtifactUpdate> for WireArtifactUpdate {
    fn from(update: ArtifactUpdate) -> Self {
        let ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata } = update;
        let artifact = artifact.into();
        Self { kind: Tag(ARTIFACT.into()), task_id, context_id, artifact, append, last_chunk, metadata }
    }
}

pub(in crate::codec) fn encode_update(update: Update) -> Value {
    match update {
        Update::Task(task) => write(WireTask::from(task)),
        Update::Message(message) => write(WireMessage::from(message)),
        Update::Status(update) => write(WireStatusUpdate::from(update)),
        Update::Artifact(update) => write(WireArtifactUpdate::from(update)),
    }
}

pub(in crate::codec) fn decode_update(value: Value) -> Result<Update, String> {
    match value.get("kind").and_then(Value::as_str) {
        Some(TASK) => decode_task(value).map(Update::Task),
        Some(MESSAGE) => take::<WireMessage>(value)?.try_into().map(Update::Message),
        Some(STATUS) => {
            let WireStatusUpdate { task_id, context_id, status, metadata, .. } = take(value)?;
            Ok(Update::Status(StatusUpdate { task_id, context_id, status: status.try_into()?, metadata }))
        }
        Some(ARTIFACT) => {
            let WireArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata, .. } = take(value)?;
            let artifact = artifact.try_into()?;
            Ok(Update::Artifact(ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata }))
        }
        Some(_) | None => Err("`kind` is `task`, `message`, `status-update` or `artifact-update`".into()),
    }
}

pub(in crate::codec) fn decode_task(value: Value) -> Result<Task, String> {
    take::<WireTask>(value)?.try_into()
}
