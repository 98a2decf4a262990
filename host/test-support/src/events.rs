//! Typical events, and the short form of events.

use std::sync::Arc;

use hatchery_core::{Content, Event, EventActions, EventData, JsonMap, Part, UsageMetadata};
use serde_json::{Value, json};

/// Returns a model response with metadata: about 500 bytes of JSON.
pub fn typical_event(number: usize) -> Arc<Event> {
    let text =
        format!("Answer {number}: the dice show {} and {}, which is what you asked for.", number % 6, number % 5);
    Event::new(EventData {
        invocation_id: hatchery_core::new_invocation_id(),
        author: "dice_agent".into(),
        content: Some(Arc::new(Content::new("model", vec![Part::text(text)]))),
        finish_reason: Some("STOP".into()),
        usage_metadata: Some(Box::new(UsageMetadata {
            prompt_token_count: Some(1200),
            candidates_token_count: Some(18),
            total_token_count: Some(1218),
            ..UsageMetadata::default()
        })),
        model_version: Some("scripted-1".into()),
        ..EventData::default()
    })
}

/// Returns a short message of a user that changes a key of the state.
pub fn short_event(number: usize) -> Arc<Event> {
    let state_delta = map(json!({ "turn": number }));
    Event::new(EventData {
        author: "user".into(),
        content: Some(Arc::new(Content::user("Roll two dice, please."))),
        actions: EventActions { state_delta, ..EventActions::default() },
        ..EventData::default()
    })
}

/// Formats an event: `author: text`, `author: call name{args}`, `author: answer name{response}`; `~` marks partial
/// events.
pub fn brief(event: &Event) -> String {
    let content = event.content.as_deref().cloned().unwrap_or_default();
    let text = Some(content.text()).filter(|text| !text.is_empty());
    let calls = content.function_calls().map(|call| format!("call {}{}", call.name, Value::Object(call.args.clone())));
    let responses = content
        .function_responses()
        .map(|response| format!("answer {}{}", response.name, Value::Object(response.response.clone())));
    let error = event
        .error_code
        .as_ref()
        .map(|code| format!("error {code}: {}", event.error_message.as_deref().unwrap_or_default()));
    let parts: Vec<_> = text.into_iter().chain(calls).chain(responses).chain(error).collect();
    let partial = if event.partial { "~" } else { "" };
    format!("{}{partial}: {}", event.author, parts.join("; "))
}

/// Formats events.
pub fn briefs(events: &[Arc<Event>]) -> Vec<String> {
    events.iter().map(|event| brief(event)).collect()
}

/// Converts a JSON object.
pub fn map(value: Value) -> JsonMap {
    value.as_object().unwrap().clone()
}
