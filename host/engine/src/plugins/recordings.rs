//! Recorded sessions: what each agent sent its model and its tools, and what came back. [`Recorder`] writes them, [`Replay`] plays them
//! back in the place of models and tools and ends the run where something is asked that is not in the recording.
//!
//! Both stand where the model and the tools stand ([`Plugin::model`](hatchery_core::Plugin::model)): callbacks and the other plugins have
//! had their say before them and run in a replay as they ran before. What an agent that is called as a tool does is part of that tool's
//! answer.
//!
//! A recorded session is one file, [`FILE_NAME`], in the shape of ADK's recordings. What ADK has no place for is beside its keys: the
//! app, the state in which the session began, what the user said, what a tool did beside answering, and how calls failed.

mod compare;
mod cursor;
mod diff;
mod keys;
mod literal;
mod messages;
mod place;
mod recorder;
mod replay;
mod runs;
mod tape;
mod wire;
mod wrapped;

use hatchery_core::{
    Content, EventActions, FunctionCall, FunctionResponse, JsonMap, LlmRequest, LlmResponse, ModelError, ToolError,
};

use crate::llm::Aggregator;

pub use recorder::Recorder;
pub use replay::Replay;

/// The name of a recorded session's file.
pub const FILE_NAME: &str = "generated-recordings.yaml";

/// A recorded session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recordings {
    /// The app, when the file says it.
    pub app: Option<String>,
    /// The state before the first message.
    pub initial_state: JsonMap,
    /// What the user said, in order; empty when the file does not say it.
    pub user_messages: Vec<UserMessage>,
    /// The calls of models and tools. Those of one agent and one message are in order; calls that ran at the same time are in the order in
    /// which the model wanted them.
    pub recordings: Vec<Recording>,
}

/// What the user said, and what came of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UserMessage {
    /// The message.
    pub content: Content,
    /// State that was set along with it, or since the message before it.
    pub state_delta: JsonMap,
    /// The code of the error in which the turn ended, if it did.
    pub error_code: Option<String>,
}

/// One call of a model or a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Which of the user's messages led to it, from 0.
    pub user_message_index: usize,
    /// The agent that made the call.
    pub agent: String,
    /// The call.
    pub call: RecordedCall,
}

/// What was called.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedCall {
    /// A model.
    Model(ModelCall),
    /// A tool.
    Tool(ToolCall),
}

/// A call of a model. Without responses and without an error it was stopped before it was answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelCall {
    /// What was sent; the system instructions as one text, as they are sent.
    pub request: LlmRequest,
    /// What came back: the whole answer, or in recordings made elsewhere its pieces too.
    pub responses: Vec<LlmResponse>,
    /// How it failed, possibly after it had begun to answer.
    pub error: Option<ModelError>,
}

impl ModelCall {
    /// The whole answer.
    fn answer(&self) -> Option<LlmResponse> {
        if let Some(whole) = self.responses.iter().rev().find(|response| !response.partial) {
            return Some(whole.clone());
        }
        let mut whole = Aggregator::default();
        self.responses.iter().cloned().for_each(|piece| whole.push(piece));
        whole.finish()
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Its name and arguments, as callbacks left them.
    pub call: FunctionCall,
    /// What came back.
    pub outcome: ToolOutcome,
    /// What it did beside answering; `None` when it did nothing, or when the recording was made where that is not written down.
    pub actions: Option<EventActions>,
}

/// What a tool call came to.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolOutcome {
    /// The answer.
    Answered(FunctionResponse),
    /// An answer that was no object; recorded as models get it, under `result`, or as nothing for `null`.
    AnsweredBare(FunctionResponse),
    /// It failed.
    Failed(ToolError),
    /// It had nothing to tell yet.
    NothingYet,
    /// It was stopped before it answered.
    Stopped,
}
