//! Asking a person before a tool runs: the request that a client sees, and which of its answers count.
//!
//! A decision counts when it answers a request that this agent has made for a call that it has made, and only once: forged, repeated and
//! late ones do nothing.

use std::sync::Arc;

use hatchery_core::confirmation::REQUEST_CONFIRMATION;
use hatchery_core::event::new_function_call_id;
use hatchery_core::{
    Content, Event, EventActions, EventData, Extra, FunctionCall, JsonMap, Part, PartData, ToolConfirmation,
};
use imbl::Vector;
use serde_json::{Value, json};

/// A call that a person has decided about.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The call.
    pub call: FunctionCall,
    /// The decision.
    pub confirmation: ToolConfirmation,
}

/// Asks a person about those of the `calls` for which `actions` ask; nothing when there are none.
pub(super) fn request<'a>(calls: impl Iterator<Item = &'a FunctionCall>, actions: &EventActions) -> Option<EventData> {
    let requested = &actions.requested_tool_confirmations;
    let asked = calls.filter_map(|call| Some((call, requested.get(call.id.as_deref()?)?)));
    let (ids, parts): (Vec<_>, Vec<_>) = asked
        .map(|(call, confirmation)| {
            let id = new_function_call_id();
            let args = JsonMap::from_iter([
                ("originalFunctionCall".into(), json!({"id": call.id, "name": call.name, "args": call.args})),
                ("toolConfirmation".into(), confirmation.clone()),
            ]);
            let call =
                FunctionCall { id: Some(id.clone()), name: REQUEST_CONFIRMATION.into(), args, extra: Extra::default() };
            (id, Part::from(PartData::FunctionCall(call)))
        })
        .unzip();
    let content = Some(Arc::new(Content::new("model", parts)));
    (!ids.is_empty()).then(|| EventData { content, long_running_tool_ids: ids, ..EventData::default() })
}

/// True for an event that asks a person.
pub(super) fn is_request(event: &Event) -> bool {
    event.function_calls().any(|call| call.name == REQUEST_CONFIRMATION)
}

/// True for a message that decides about calls.
pub(crate) fn is_decision(message: &Event) -> bool {
    message.function_responses().any(|response| response.name == REQUEST_CONFIRMATION)
}

/// The calls of `agent` that the user decides about in `answer`, which follows the events `before` it.
pub(crate) fn decided(before: &Vector<Arc<Event>>, answer: &Event, agent: &str) -> Vec<Decided> {
    let mut decided: Vec<Decided> = Vec::new();
    for response in answer.function_responses().filter(|response| response.name == REQUEST_CONFIRMATION) {
        let Some(confirmation) = read(&response.response) else { continue };
        let Some(call) = response.id.as_deref().and_then(|id| open_call(before, id, agent)) else { continue };
        if !decided.iter().any(|earlier| earlier.call.id == call.id) {
            decided.push(Decided { call, confirmation });
        }
    }
    decided
}

/// The decision in a response: the object itself, or its text under `response`, as some clients send it.
fn read(response: &JsonMap) -> Option<ToolConfirmation> {
    match response.get("response") {
        Some(Value::String(text)) if response.len() == 1 => serde_json::from_str(text).ok(),
        _ => serde_json::from_value(Value::Object(response.clone())).ok(),
    }
}

/// The call that `agent` has asked about with the request of this id, if it still waits.
fn open_call(before: &Vector<Arc<Event>>, request_id: &str, agent: &str) -> Option<FunctionCall> {
    // A model may call a function of this name too, but only the engine's own requests wait for an answer.
    let asks = |call: &FunctionCall| call.name == REQUEST_CONFIRMATION && call.id.as_deref() == Some(request_id);
    let place = before.iter().rposition(|event| {
        event.author == agent
            && event.long_running_tool_ids.iter().any(|id| id == request_id)
            && event.function_calls().any(asks)
    })?;
    let request = before.get(place)?.function_calls().find(|call| asks(call))?;
    let original = request.args.get("originalFunctionCall")?;
    let is_original = |call: &&FunctionCall| {
        call.id.as_deref() == original.get("id").and_then(Value::as_str)
            && original.get("name") == Some(&Value::from(call.name.as_str()))
            && original.get("args").and_then(Value::as_object) == Some(&call.args)
    };
    let own = |event: &&Arc<Event>| event.author == agent;
    let call = before.iter().take(place).filter(own).flat_map(|event| event.function_calls()).find(is_original)?;
    let id = call.id.as_deref()?;
    let answers_call = |event: &&Arc<Event>| event.function_responses().any(|answer| answer.id.as_deref() == Some(id));
    let mut answers = before.iter().skip(place + 1).filter(own).filter(answers_call);
    // The first answer says that the call waits; one after it, that it has been dealt with.
    let waits = answers.next()?.actions.requested_tool_confirmations.contains_key(id);
    (waits && answers.next().is_none()).then(|| call.clone())
}
