//! [`Event`]: one entry of a session's history, and one item of what an agent yields.

use serde_json::Value;

use crate::content::{Content, JsonMap};
use crate::model::LlmResponse;

/// One entry of a session's history, or one item of what a run yields. A new event leaves `id`, `invocation_id`, `author`, `branch` and
/// `timestamp_micros` as they are by default: the host fills them in.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Event {
    /// Unique; empty in a new event.
    pub id: String,
    /// The run.
    pub invocation_id: String,
    /// `user` or an agent's name.
    pub author: String,
    /// What was said.
    pub content: Option<Content>,
    /// What it does beside saying something.
    pub actions: EventActions,
    /// A piece of a streamed answer: yielded, never stored. An event that is not partial, with the whole, must follow.
    pub partial: bool,
    /// Dot-joined path of parallel branches.
    pub branch: Option<String>,
    /// Ids of function calls whose result comes later.
    pub long_running_tool_ids: Vec<String>,
    /// Set when something went wrong.
    pub error_code: Option<String>,
    /// What went wrong.
    pub error_message: Option<String>,
    /// Microseconds since 1970.
    pub timestamp_micros: i64,
    /// The other keys of the event (`usageMetadata`, `finishReason` …).
    pub extra: JsonMap,
}

impl Event {
    /// A new event that says `text`.
    pub fn text(text: impl Into<String>) -> Self {
        Content::model(text).into()
    }

    /// The text that it says, without thoughts; empty when it says nothing.
    pub fn said(&self) -> String {
        self.content.as_ref().map(Content::text).unwrap_or_default()
    }

    /// With a state key set by it. See [`Context::set_state`](crate::Context::set_state) for the prefixes of keys.
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

/// A model's answer, or a piece of it, as the agent's own.
impl From<LlmResponse> for Event {
    fn from(response: LlmResponse) -> Self {
        let mut extra = response.extra;
        if let Some(reason) = response.finish_reason {
            extra.insert("finishReason".into(), reason.into());
        }
        Self {
            content: response.content,
            partial: response.partial,
            error_code: response.error_code,
            error_message: response.error_message,
            extra,
            ..Self::default()
        }
    }
}

/// What an event does beside saying something.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventActions {
    /// State keys to set; `null` deletes.
    pub state_delta: JsonMap,
    /// Artifacts saved, with their versions.
    pub artifact_delta: Vec<(String, u64)>,
    /// The function response is the answer; the model does not summarise it.
    pub skip_summarization: Option<bool>,
    /// The agent that goes on.
    pub transfer_to_agent: Option<String>,
    /// Ends the loops and parallel agents around the agent.
    pub escalate: Option<bool>,
    /// The agent has ended its run.
    pub end_of_agent: Option<bool>,
    /// Further keys.
    pub extra: JsonMap,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content::Part;

    #[test]
    fn a_response_becomes_an_event_with_the_reason_why_it_stopped() {
        let response = LlmResponse { finish_reason: Some("STOP".into()), ..LlmResponse::text("yes") };
        let event = Event::from(response);
        assert_eq!((event.said().as_str(), event.partial), ("yes", false));
        assert_eq!(event.extra.get("finishReason"), Some(&json!("STOP")));
    }

    #[test]
    fn an_event_says_its_text_without_thoughts() {
        let thought = Part { thought: true, ..Part::text("hm") };
        let content = Content { role: None, parts: vec![thought, Part::text("yes")] };
        assert_eq!(Event::from(content).said(), "yes");
        assert_eq!(Event::default().said(), "");
    }
}
