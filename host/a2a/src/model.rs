//! The internal model of A2A, which both wire versions are converted to and from.

use bytes::Bytes;
use hatchery_core::{JsonMap, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::card::AgentCard;
use crate::codec::Version;

/// The author of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// The client has written the message.
    #[default]
    User,
    Agent,
}

/// One turn of a conversation, or a remark of an agent about its work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    pub id: String,
    pub context_id: Option<String>,
    pub task_id: Option<String>,
    pub role: Role,
    pub parts: Vec<Part>,
    pub metadata: JsonMap,
    /// URIs of extensions.
    pub extensions: Vec<String>,
    pub reference_task_ids: Vec<String>,
}

/// A piece of a message or an artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub content: PartContent,
    /// IANA media type.
    pub media_type: Option<String>,
    pub filename: Option<String>,
    pub metadata: JsonMap,
}

/// The data of a [`Part`].
#[derive(Debug, Clone, PartialEq)]
pub enum PartContent {
    Text(String),
    /// A file within the message.
    Raw(Bytes),
    /// A file elsewhere.
    Url(String),
    /// JSON.
    Data(Value),
}

impl Part {
    /// Creates a part without metadata.
    pub fn new(content: PartContent) -> Self {
        Self { content, media_type: None, filename: None, metadata: JsonMap::new() }
    }

    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartContent::Text(text.into()))
    }
}

/// A result of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Artifact {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub parts: Vec<Part>,
    pub metadata: JsonMap,
    /// URIs of extensions.
    pub extensions: Vec<String>,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskState {
    /// A state that this host does not know.
    #[default]
    Unknown,
    Submitted,
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Canceled,
    Failed,
    Rejected,
}

impl TaskState {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Submitted,
        Self::Working,
        Self::InputRequired,
        Self::AuthRequired,
        Self::Completed,
        Self::Canceled,
        Self::Failed,
        Self::Rejected,
    ];

    /// Returns true if the task has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled | Self::Failed | Self::Rejected)
    }

    /// Returns true if the task waits for the client.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

/// The state of a task with its explanation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskStatus {
    pub state: TaskState,
    pub message: Option<Message>,
    pub timestamp: Option<Timestamp>,
}

/// A unit of work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Task {
    pub id: String,
    pub context_id: String,
    pub status: TaskStatus,
    pub artifacts: Vec<Artifact>,
    pub history: Vec<Message>,
    pub metadata: JsonMap,
}

/// An item of a stream, or the answer to a message: a task or a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    Task(Task),
    Message(Message),
    Status(StatusUpdate),
    Artifact(ArtifactUpdate),
}

/// A change of a task's state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatusUpdate {
    pub task_id: String,
    pub context_id: String,
    pub status: TaskStatus,
    pub metadata: JsonMap,
}

impl StatusUpdate {
    /// Returns true if the stream ends with this update.
    pub fn is_final(&self) -> bool {
        self.status.state.is_terminal() || self.status.state.is_interrupted()
    }
}

/// An artifact, or a chunk of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArtifactUpdate {
    pub task_id: String,
    pub context_id: String,
    pub artifact: Artifact,
    /// True if the parts follow the parts of earlier updates, false if they replace them.
    pub append: bool,
    /// True if the artifact is complete.
    pub last_chunk: bool,
    pub metadata: JsonMap,
}

/// A message with the wishes of its sender.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SendRequest {
    pub message: Message,
    /// Media types that the sender accepts; empty means all.
    pub accepted_output_modes: Vec<String>,
    /// Maximum number of messages of the history in the answer; `None` means all.
    pub history_length: Option<u32>,
    /// True if the answer does not wait for the end of the task.
    pub returns_immediately: bool,
    pub push: Option<PushConfig>,
    pub metadata: JsonMap,
}

/// Target of a task's push notifications.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PushConfig {
    /// The protocol version of the client, in which notifications are sent.
    #[serde(default)]
    pub version: Version,
    pub id: Option<String>,
    pub url: String,
    /// Sent back in a header, so that the receiver knows the sender.
    pub token: Option<String>,
    pub authentication: Option<PushAuthentication>,
}

/// The `Authorization` header of push notifications.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PushAuthentication {
    pub scheme: String,
    pub credentials: Option<String>,
}

/// A selection of tasks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListRequest {
    pub context_id: Option<String>,
    pub state: Option<TaskState>,
    /// Only tasks whose state has changed at this time or later.
    pub changed_since: Option<Timestamp>,
    pub page_size: Option<u32>,
    pub page_token: Option<String>,
    pub history_length: Option<u32>,
    pub includes_artifacts: bool,
}

/// An operation of the protocol with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    Send(Box<SendRequest>),
    Stream(Box<SendRequest>),
    Get { id: String, history_length: Option<u32> },
    List(ListRequest),
    Cancel { id: String },
    Subscribe { id: String },
    SetPush { task_id: String, config: PushConfig },
    GetPush { task_id: String, id: Option<String> },
    ListPush { task_id: String },
    DeletePush { task_id: String, id: String },
    ExtendedCard,
}

/// The result of an operation that is not a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The answer to a message.
    Sent(Update),
    Task(Task),
    Tasks(TaskPage),
    Push {
        task_id: String,
        config: PushConfig,
    },
    Pushes {
        task_id: String,
        configs: Vec<PushConfig>,
    },
    Deleted,
    Card(Box<AgentCard>),
}

/// A page of a list of tasks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskPage {
    pub tasks: Vec<Task>,
    /// Token of the next page; empty on the last one.
    pub next_page_token: String,
    pub page_size: u32,
    pub total: u32,
}
