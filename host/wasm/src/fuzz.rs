//! What only guests reach, for fuzzing. No part of the interface: it may change at any time.

use std::sync::Arc;

use hatchery_core::{Event, EventData};

use crate::contract::bindings::hatchery::agent::types as wit;
use crate::contract::convert::FromWit;

/// The texts of an event of a guest, each of which a guest chooses freely.
#[derive(Debug, Clone, Default)]
pub struct GuestEvent {
    /// The text of its first part.
    pub text: String,
    /// `extra` of its first part.
    pub part_extra: String,
    /// The arguments of a call.
    pub args: String,
    /// `extra` of the call.
    pub call_extra: String,
    /// The answer of a tool.
    pub response: String,
    /// The value of a state key.
    pub state: String,
    /// `extra` of the actions.
    pub actions_extra: String,
    /// `extra` of the event.
    pub event_extra: String,
}

/// Converts an event of a guest as a run does; `None` when it is refused.
pub fn convert_event(event: GuestEvent) -> Option<Arc<Event>> {
    let extra = |text: String| Some(text).filter(|text| !text.is_empty());
    let part = |data, extra| wit::Part { data, thought: false, thought_signature: None, extra };
    let call = wit::FunctionCall {
        id: Some("call".into()),
        name: "tool".into(),
        args: event.args,
        extra: extra(event.call_extra),
    };
    let response =
        wit::FunctionResponse { id: Some("call".into()), name: "tool".into(), response: event.response, extra: None };
    let parts = vec![
        part(wit::PartData::Text(event.text), extra(event.part_extra)),
        part(wit::PartData::FunctionCall(call), None),
        part(wit::PartData::FunctionResponse(response), None),
    ];
    let actions = wit::EventActions {
        state_delta: vec![("key".into(), event.state)],
        artifact_delta: Vec::new(),
        skip_summarization: None,
        transfer_to_agent: None,
        escalate: None,
        end_of_agent: None,
        extra: extra(event.actions_extra),
    };
    let event = wit::Event {
        id: String::new(),
        invocation_id: String::new(),
        author: "agent".into(),
        content: Some(wit::Content { role: Some("model".into()), parts }),
        actions,
        partial: false,
        branch: None,
        long_running_tool_ids: Vec::new(),
        error_code: None,
        error_message: None,
        timestamp: 0,
        extra: extra(event.event_extra),
    };
    EventData::from_wit(event).ok().map(Event::new)
}
