//! Entry points for fuzzing that only guests can reach otherwise. Not part of the public interface: it may change at
//! any time.

use std::sync::Arc;

use hatchery_core::{Event, EventData};

use crate::contract::bindings::hatchery::agent::types as wit;
use crate::contract::convert::FromWit;

/// The free texts of a guest's event.
#[derive(Debug, Clone, Default)]
pub struct GuestEvent {
    /// The text of the first part.
    pub text: String,
    /// `extra` of the first part.
    pub part_extra: String,
    pub args: String,
    pub call_extra: String,
    pub response: String,
    pub state: String,
    pub actions_extra: String,
    pub event_extra: String,
}

/// Converts an event of a guest as a run does; `None` if it is refused.
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
        deleted_artifact_ids: Vec::new(),
        skip_summarization: None,
        transfer_to_agent: None,
        escalate: None,
        end_of_agent: None,
        end_invocation: None,
        extra: extra(event.actions_extra),
    };
    let event = wit::Event {
        id: String::new(),
        invocation_id: String::new(),
        author: "agent".into(),
        content: Some(wit::Content { role: Some("model".into()), parts }),
        actions,
        partial: false,
        turn_complete: None,
        interrupted: None,
        branch: None,
        long_running_tool_ids: Vec::new(),
        error_code: None,
        error_message: None,
        timestamp: 0,
        extra: extra(event.event_extra),
    };
    EventData::from_wit(event).ok().map(Event::new)
}
