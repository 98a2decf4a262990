//! The message to a remote agent: the events of the session since its last answer.

use std::sync::Arc;

use hatchery_core::{Event, Part as HostPart, PartData, USER_AUTHOR};
use serde_json::Value;

use super::Aggregation;
use crate::model::Part;
use crate::parts;

/// Prefix of the custom metadata keys of a remote agent's events, as in ADK.
pub(crate) const METADATA_PREFIX: &str = "a2a:";
pub(super) const TASK_ID: &str = "a2a:task_id";
pub(super) const CONTEXT_ID: &str = "a2a:context_id";
pub(super) const ARTIFACT_ID: &str = "a2a:artifact_id";
/// Set if the task waits for a message.
pub(super) const IS_WAITING: &str = "a2a:is_waiting";

/// A message before it is sent.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OutboundMessage {
    pub(super) parts: Vec<Part>,
    pub(super) context_id: Option<String>,
    /// The task that the message continues.
    pub(super) task_id: Option<String>,
}

/// A session as one agent sees it.
pub(super) struct History<'a> {
    pub(super) events: &'a [Arc<Event>],
    pub(super) agent: &'a str,
}

impl History<'_> {
    fn own(&self) -> impl DoubleEndedIterator<Item = (usize, &Arc<Event>)> {
        let own = self.events.iter().enumerate();
        own.filter(|(_, event)| event.author == self.agent && metadata(event, CONTEXT_ID).is_some())
    }

    /// Returns the ids of the artifacts that the agent has sent before.
    pub(super) fn artifact_ids(&self) -> impl Iterator<Item = &str> {
        self.own().filter_map(|(_, event)| metadata(event, ARTIFACT_ID))
    }

    /// Returns the next message. Its parts are empty if there is no new event.
    pub(super) fn outbound(&self, aggregation: Aggregation) -> OutboundMessage {
        let last = self.own().next_back();
        let context_id = last.and_then(|(_, event)| metadata(event, CONTEXT_ID)).map(Into::into);
        if let Some(answer) = self.answer() {
            return OutboundMessage { context_id, ..answer };
        }
        let waiting = last.filter(|(_, event)| {
            event.custom_metadata.as_ref().and_then(|it| it.get(IS_WAITING)) == Some(&Value::Bool(true))
        });
        let task_id = waiting.and_then(|(_, event)| metadata(event, TASK_ID)).map(Into::into);
        let since = last.map_or(0, |(index, _)| index + 1);
        OutboundMessage { parts: self.parts_since(since, aggregation), context_id, task_id }
    }

    /// Returns the id of the task of the newest answer. `None` if it had none.
    pub(super) fn last_task(&self) -> Option<String> {
        self.own().next_back().and_then(|(_, event)| metadata(event, TASK_ID)).map(Into::into)
    }

    /// Returns true if the user has answered calls of the agent, and the agent has not continued since.
    pub(super) fn has_answer(&self) -> bool {
        self.answer().is_some()
    }

    /// Returns the answers to calls of the agent in the newest message of the user, if it follows the agent's last
    /// event.
    fn answer(&self) -> Option<OutboundMessage> {
        let last = self.own().next_back()?.0;
        let newest = self.events.iter().skip(last + 1).rev().find(|event| event.author == USER_AUTHOR)?;
        let content = newest.content.as_ref()?;
        let caller = |id: &str| {
            let calls = |event: &Event| event.long_running_tool_ids.iter().any(|call| call == id);
            self.own().rev().find(|(_, event)| calls(event))
        };
        let (_, call_event) = content.function_responses().find_map(|response| caller(response.id.as_deref()?))?;
        let is_answer = |part: &&HostPart| match &part.data {
            PartData::FunctionResponse(response) => response.id.as_deref().is_some_and(|id| caller(id).is_some()),
            _ => false,
        };
        let parts = content.parts.iter().filter(is_answer).filter_map(|part| parts::send(part, &[]));
        let task_id = metadata(call_event, TASK_ID).map(Into::into);
        Some(OutboundMessage { parts: parts.collect(), context_id: None, task_id })
    }

    /// Returns the events since an index as parts: the user's events as they are, other agents' events as context.
    fn parts_since(&self, since: usize, aggregation: Aggregation) -> Vec<Part> {
        let (mut parts, mut is_context) = (Vec::new(), false);
        for event in self.events.iter().skip(since).filter(|event| event.author != self.agent) {
            let Some(content) = event.content.as_ref().filter(|_| !event.partial) else { continue };
            let is_user = event.author == USER_AUTHOR;
            let event_parts = content.parts.iter().filter(|part| !part.thought).filter_map(|part| {
                if is_user { parts::send(part, &[]) } else { convert(part, &event.author, aggregation) }
            });
            let event_parts: Vec<_> = event_parts.collect();
            if !is_user && !is_context && !event_parts.is_empty() {
                parts.push(Part::text("For context:"));
            }
            is_context = !is_user && (is_context || !event_parts.is_empty());
            parts.extend(event_parts);
        }
        parts
    }
}

/// Returns true for functions that only concern this host: transfers, and questions to its client.
fn is_internal(function: &str) -> bool {
    function == "transfer_to_agent" || function.starts_with("adk_")
}

/// Converts a part of another agent's event. `None` if it is not sent.
fn convert(part: &HostPart, author: &str, aggregation: Aggregation) -> Option<Part> {
    match (&part.data, aggregation) {
        (PartData::FunctionCall(call), _) if is_internal(&call.name) => None,
        (PartData::FunctionResponse(response), _) if is_internal(&response.name) => None,
        (PartData::Text(text), _) if text.trim().is_empty() => None,
        (PartData::Text(text), _) => Some(Part::text(format!("[{author}] said: {text}"))),
        (PartData::FunctionCall(_), Aggregation::ExternalHandoff) => None,
        (PartData::FunctionResponse(response), Aggregation::ExternalHandoff) => {
            let result = Value::Object(response.response.clone());
            Some(Part::text(format!("{} response: {result}", response.name)))
        }
        _ => parts::send(part, &[]),
    }
}

fn metadata<'a>(event: &'a Event, key: &str) -> Option<&'a str> {
    event.custom_metadata.as_ref()?.get(key)?.as_str()
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Content, EventData};
    use serde_json::json;

    use super::*;
    use crate::model::PartContent;

    fn event(author: &str, parts: Value, metadata: Value) -> Arc<Event> {
        let content: Content = serde_json::from_value(json!({"role": "user", "parts": parts})).unwrap();
        let calls = content.function_calls().filter_map(|call| call.id.clone()).collect();
        Event::new(EventData {
            author: author.into(),
            content: Some(Arc::new(content)),
            custom_metadata: Some(Box::new(metadata)),
            long_running_tool_ids: calls,
            ..EventData::default()
        })
    }

    fn say(author: &str, text: &str) -> Arc<Event> {
        event(author, json!([{"text": text}]), json!({}))
    }

    fn texts(outbound: &OutboundMessage) -> Vec<&str> {
        let text = |part: &Part| match &part.content {
            PartContent::Text(_) => true,
            _ => panic!("{part:?}"),
        };
        assert!(outbound.parts.iter().all(text));
        let texts = outbound.parts.iter().filter_map(|part| match &part.content {
            PartContent::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn what_other_agents_said_is_context() {
        let events = [say("user", "hello"), say("model", "hi"), say("user", "how are you?")];
        let outbound = History { events: &events, agent: "remote" }.outbound(Aggregation::default());
        assert_eq!(texts(&outbound), ["hello", "For context:", "[model] said: hi", "how are you?"]);
        assert_eq!((outbound.context_id, outbound.task_id), (None, None));
    }

    #[test]
    fn only_what_has_happened_since_the_last_answer_is_sent() {
        let ids = json!({TASK_ID: "t", CONTEXT_ID: "c"});
        let events = [say("user", "one"), event("remote", json!([{"text": "1"}]), ids), say("user", "two")];
        let outbound = History { events: &events, agent: "remote" }.outbound(Aggregation::default());
        assert_eq!(texts(&outbound), ["two"]);
        assert_eq!((outbound.context_id.as_deref(), outbound.task_id), (Some("c"), None));
    }

    #[test]
    fn a_task_that_waits_for_a_text_is_continued() {
        let ids = json!({TASK_ID: "t", CONTEXT_ID: "c", IS_WAITING: true});
        let events = [say("user", "book"), event("remote", json!([{"text": "Where to?"}]), ids), say("user", "Rome")];
        let outbound = History { events: &events, agent: "remote" }.outbound(Aggregation::default());
        assert_eq!((texts(&outbound), outbound.task_id.as_deref()), (vec!["Rome"], Some("t")));
    }

    #[test]
    fn answers_continue_the_task_of_the_call() {
        let ids = json!({TASK_ID: "t", CONTEXT_ID: "c"});
        let call = event("remote", json!([{"functionCall": {"id": "f", "name": "ask", "args": {}}}]), ids);
        let response = json!({"functionResponse": {"id": "f", "name": "ask", "response": {"ok": true}}});
        let other = json!({"functionResponse": {"id": "x", "name": "y", "response": {}}});
        let events = [say("user", "go"), call, event("user", json!([response, other]), json!({}))];
        let outbound = History { events: &events, agent: "remote" }.outbound(Aggregation::default());
        let OutboundMessage { parts, context_id, task_id } = outbound;
        assert_eq!((context_id.as_deref(), task_id.as_deref()), (Some("c"), Some("t")));
        let [Part { content: PartContent::Data(data), metadata, .. }] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!((&data["response"], &metadata["adk_type"]), (&json!({"ok": true}), &json!("function_response")));
    }

    #[test]
    fn calls_of_other_agents_are_kept_or_told() {
        let call = json!({"functionCall": {"id": "f", "name": "roll", "args": {}}});
        let response = json!({"functionResponse": {"id": "f", "name": "roll", "response": {"result": 3}}});
        let transfer = json!({"functionCall": {"id": "t", "name": "transfer_to_agent", "args": {}}});
        let events = [event("dice", json!([call, transfer]), json!({})), event("dice", json!([response]), json!({}))];
        let history = History { events: &events, agent: "remote" };
        assert_eq!(
            texts(&history.outbound(Aggregation::ExternalHandoff)),
            ["For context:", "roll response: {\"result\":3}"]
        );
        let kept = history.outbound(Aggregation::AsIs).parts;
        let types: Vec<_> = kept.iter().filter_map(|part| part.metadata.get("adk_type")?.as_str()).collect();
        assert_eq!(types, ["function_call", "function_response"]);
    }
}
