//! Events: the entries of a session's history, which agents emit.

use serde_json::Value;

use crate::content::{Content, FunctionCall, FunctionResponse, JsonMap, PartData};
use crate::model::LlmResponse;

/// One entry of a session's history. In a new event, leave `id`, `invocation_id`, `author`, `branch` and
/// `timestamp_micros` at their defaults: the host fills them in.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Event {
    /// Unique id; empty in a new event.
    pub id: String,
    /// Id of the run.
    pub invocation_id: String,
    /// `user` or an agent's name.
    pub author: String,
    /// The message, unless the event has only actions.
    pub content: Option<Content>,
    /// State changes and control of the run.
    pub actions: EventActions,
    /// True for a part of a streamed answer: it is yielded but never stored. A complete event that is not partial must
    /// follow.
    pub partial: bool,
    /// True if the model has finished its turn (live runs).
    pub turn_complete: Option<bool>,
    /// True if the user interrupted the model (live runs).
    pub interrupted: Option<bool>,
    /// Dot-joined path of parallel branches.
    pub branch: Option<String>,
    /// Ids of function calls whose result comes later.
    pub long_running_tool_ids: Vec<String>,
    /// Set if the event reports an error.
    pub error_code: Option<String>,
    /// The error message.
    pub error_message: Option<String>,
    /// Microseconds since 1970.
    pub timestamp_micros: i64,
    /// The other keys of the event (`usageMetadata`, `finishReason` …).
    pub extra: JsonMap,
}

impl Event {
    /// Creates an event with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Content::model(text).into()
    }

    /// Returns the text of the message, without thoughts. Empty if there is none.
    pub fn text_content(&self) -> String {
        self.content.as_ref().map(Content::text).unwrap_or_default()
    }

    /// Returns the function calls of the message, in order.
    pub fn function_calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.content.iter().flat_map(|content| content.function_calls())
    }

    /// Returns the function responses of the message, in order.
    pub fn function_responses(&self) -> impl Iterator<Item = &FunctionResponse> {
        self.content.iter().flat_map(|content| content.function_responses())
    }

    /// Returns true if the last part of the message is the result of code.
    pub fn has_trailing_code_execution_result(&self) -> bool {
        let last = self.content.as_ref().and_then(|content| content.parts.last());
        last.is_some_and(|part| matches!(part.data, PartData::CodeExecutionResult(_)))
    }

    /// Returns true if the agent has nothing more to do after this event: a response without open calls, a result that
    /// needs no summary, or a call whose result arrives later.
    pub fn is_final_response(&self) -> bool {
        if self.actions.skip_summarization == Some(true) || !self.long_running_tool_ids.is_empty() {
            return true;
        }
        !self.partial
            && self.function_calls().next().is_none()
            && self.function_responses().next().is_none()
            && !self.has_trailing_code_execution_result()
    }

    /// Adds a state change. See [`Context::set_state`](crate::Context::set_state) for the prefixes of keys.
    #[must_use]
    pub fn with_state(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.actions.state_delta.insert(key.into(), value.into());
        self
    }
}

impl From<Content> for Event {
    fn from(content: Content) -> Self {
        Self { content: Some(content), ..Self::default() }
    }
}

/// Converts a model response, or a part of it, into an event of the agent.
impl From<LlmResponse> for Event {
    fn from(response: LlmResponse) -> Self {
        let mut extra = response.extra;
        if let Some(reason) = response.finish_reason {
            extra.insert("finishReason".into(), reason.into());
        }
        Self {
            content: response.content,
            partial: response.partial,
            turn_complete: response.turn_complete,
            interrupted: response.interrupted,
            error_code: response.error_code,
            error_message: response.error_message,
            extra,
            ..Self::default()
        }
    }
}

/// The side effects of an event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventActions {
    /// State keys to set; `null` deletes.
    pub state_delta: JsonMap,
    /// Names of saved artifacts with their versions.
    pub artifact_delta: Vec<(String, u64)>,
    /// Names of deleted artifacts.
    pub deleted_artifact_ids: Vec<String>,
    /// If true, the function response is the final answer, and the model does not summarize it.
    pub skip_summarization: Option<bool>,
    /// The agent to transfer the conversation to.
    pub transfer_to_agent: Option<String>,
    /// If true, ends the nearest loop around the agent, and the parallel agents in between.
    pub escalate: Option<bool>,
    /// If true, the agent has ended its run.
    pub end_of_agent: Option<bool>,
    /// If true, the run ends with this event: no agent runs after it.
    pub end_invocation: Option<bool>,
    /// Further keys.
    pub extra: JsonMap,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content::{CodeExecutionResult, Part};

    fn event(part: impl Into<Part>) -> Event {
        Content { role: None, parts: vec![Part::text("so"), part.into()] }.into()
    }

    fn call() -> Event {
        event(PartData::FunctionCall(FunctionCall { name: "look".into(), ..FunctionCall::default() }))
    }

    fn response() -> Event {
        event(PartData::FunctionResponse(FunctionResponse { name: "look".into(), ..FunctionResponse::default() }))
    }

    #[test]
    fn a_response_becomes_an_event_with_its_finish_reason() {
        let response = LlmResponse { finish_reason: Some("STOP".into()), ..LlmResponse::text("yes") };
        let event = Event::from(response);
        assert_eq!((event.text_content().as_str(), event.partial), ("yes", false));
        assert_eq!(event.extra.get("finishReason"), Some(&json!("STOP")));
    }

    #[test]
    fn the_text_of_an_event_has_no_thoughts() {
        let thought = Part { thought: true, ..Part::text("hm") };
        let content = Content { role: None, parts: vec![thought, Part::text("yes")] };
        assert_eq!(Event::from(content).text_content(), "yes");
        assert_eq!(Event::default().text_content(), "");
    }

    #[test]
    fn the_calls_and_responses_of_an_event_are_those_of_its_message() {
        assert_eq!(call().function_calls().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["look"]);
        assert_eq!(response().function_responses().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["look"]);
        for other in [response(), Event::default()] {
            assert_eq!(other.function_calls().count(), 0);
        }
        for other in [call(), Event::default()] {
            assert_eq!(other.function_responses().count(), 0);
        }
    }

    #[test]
    fn an_event_is_a_final_response_if_the_agent_has_nothing_more_to_do() {
        let result = || event(PartData::CodeExecutionResult(CodeExecutionResult::default()));
        assert!(result().has_trailing_code_execution_result() && !call().has_trailing_code_execution_result());
        assert!(Event::text("yes").is_final_response() && Event::default().is_final_response());
        for open in [call(), response(), result(), Event { partial: true, ..Event::text("ye") }] {
            assert!(!open.is_final_response(), "{open:?}");
        }
        let mut skipped = response();
        skipped.actions.skip_summarization = Some(true);
        assert!(skipped.is_final_response());
        assert!(Event { long_running_tool_ids: vec!["1".into()], ..call() }.is_final_response());
    }
}
