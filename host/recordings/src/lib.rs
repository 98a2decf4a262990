//! Record and replay of sessions. [`Recorder`] writes the requests and responses of models and tools to a YAML file.
//! [`Replayer`] answers from a recording instead of calling models and tools, and fails the run at the first call that
//! differs from the recording. [`SessionTest`] answers for models from the events of a session, calls tools, and
//! compares the events.
//!
//! [`Recorder`] and [`Replayer`] wrap the model and the tools themselves ([`Plugin::model`](hatchery_core::Plugin::model)), so callbacks and
//! other plugins run before them, in a replay as in the recorded run. The work of an agent that is called as a tool is
//! recorded only as that tool's response.
//!
//! A recorded session is one file, [`FILE_NAME`], in the format of ADK's recordings. Data that ADK's format does not
//! have is stored under additional keys: the app, the initial state, the user's messages, live conversations, the
//! actions of tools, and errors.

mod call_recorder;
mod clean_up;
mod compare;
mod cursor;
mod diff;
mod intercepted_tool;
mod key_case;
mod live;
mod location;
mod plugins;
mod python_literal;
mod recorder;
mod replayer;
mod reproducible;
mod run_map;
mod session_test;
mod user_messages;
mod yaml;

use hatchery_core::{
    Aggregator, Content, EventActions, FunctionCall, FunctionResponse, JsonMap, LiveRequest, LiveResponse, LlmRequest,
    LlmResponse, ModelError, ToolError,
};

pub use plugins::{PLUGIN_NAMES, register};
pub use recorder::Recorder;
pub use replayer::Replayer;
pub use reproducible::without_compaction;
pub use session_test::{SessionTest, SessionTestError, TestedTurn};

/// The name of the file of a recorded session.
pub const FILE_NAME: &str = "generated-recordings.yaml";

/// A recorded session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recordings {
    /// `None` in files that ADK wrote.
    pub app: Option<String>,
    /// The session's state before the first message.
    pub initial_state: JsonMap,
    /// Empty in files that ADK wrote.
    pub user_messages: Vec<UserMessage>,
    /// The calls of models and tools. The calls of one agent for one message are in order. Calls that ran concurrently
    /// are in the order in which the model requested them.
    pub recordings: Vec<Recording>,
}

/// A message of the user.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UserMessage {
    /// The content that was sent.
    pub content: Content,
    /// State that was set with this message, or since the previous one.
    pub state_delta: JsonMap,
    /// The code of the error that ended the turn; `None` if it succeeded.
    pub error_code: Option<String>,
}

/// One call of a model or a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The message that led to this call, counted from 0.
    pub user_message_index: usize,
    /// The name of the agent that made the call.
    pub agent: String,
    /// The call and its result.
    pub call: RecordedCall,
}

/// The call of a [`Recording`].
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "most recorded calls are the large ones")]
pub enum RecordedCall {
    /// A call of a model.
    Model(ModelCall),
    /// A live conversation with a model.
    Live(LiveCall),
    /// A call of a tool.
    Tool(ToolCall),
}

/// A live connection to a model. The messages of the user in it follow the one that it is recorded for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiveCall {
    /// The request that opened the connection, with the system instructions joined to one string.
    pub request: LlmRequest,
    /// The messages in both directions, in order.
    pub steps: Vec<LiveStep>,
    /// The error that ended the connection, or that it was not opened for.
    pub error: Option<ModelError>,
}

/// A step of a live conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveStep {
    /// A request to the model. One sound stands for all its chunks in a turn, and has no bytes: a replay takes any.
    Sent(LiveRequest),
    /// A message of the model.
    Received(LiveResponse),
    /// The model has closed the connection.
    Closed,
}

/// A call of a model. It was interrupted if it has neither a response nor an error.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelCall {
    /// The request, with the system instructions joined to one string.
    pub request: LlmRequest,
    /// The complete response. Files that ADK wrote may also contain partial responses.
    pub responses: Vec<LlmResponse>,
    /// The error of the call, possibly after the first part of a response.
    pub error: Option<ModelError>,
}

impl ModelCall {
    /// Returns the complete response, assembled from partial ones if necessary.
    fn complete_response(&self) -> Option<LlmResponse> {
        if let Some(complete) = self.responses.iter().rev().find(|response| !response.partial) {
            return Some(complete.clone());
        }
        let mut aggregator = Aggregator::default();
        self.responses.iter().cloned().for_each(|partial| aggregator.push(partial));
        aggregator.finish()
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The call with its arguments, after callbacks have changed them.
    pub call: FunctionCall,
    /// The result of the call.
    pub outcome: ToolOutcome,
    /// The actions of the tool, such as state changes. `None` if there were none, or if ADK wrote the file.
    pub actions: Option<EventActions>,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolOutcome {
    /// The tool returned a JSON object.
    Object(FunctionResponse),
    /// The tool returned another JSON value. It is stored as models receive it: under `result`, or as an empty object
    /// for `null`.
    Value(FunctionResponse),
    /// The tool failed.
    Error(ToolError),
    /// A long-running tool returned without a result.
    Pending,
    /// The run ended before the tool returned.
    Interrupted,
}
