//! Events.

use crate::bindings::hatchery::agent::types::{Event, EventActions};
use crate::content;

/// Returns a new event with a text.
pub(crate) fn event(words: &str) -> Event {
    Event {
        id: String::new(),
        invocation_id: String::new(),
        author: String::new(),
        content: Some(content("model", words)),
        actions: EventActions {
            state_delta: Vec::new(),
            artifact_delta: Vec::new(),
            deleted_artifact_ids: Vec::new(),
            skip_summarization: None,
            transfer_to_agent: None,
            escalate: None,
            end_of_agent: None,
            end_invocation: None,
            extra: None,
        },
        partial: false,
        turn_complete: None,
        interrupted: None,
        branch: None,
        long_running_tool_ids: Vec::new(),
        error_code: None,
        error_message: None,
        timestamp: 0,
        extra: None,
    }
}
