//! What a client says, checked before a run begins: nothing of what is refused is stored, and no model is asked.

use std::sync::Arc;

use hatchery_core::{
    Event, FunctionResponse, MAX_JSON_DEPTH, PartData, RunError, USER_AUTHOR, check_message, invalid_message,
    is_json_too_deep,
};
use imbl::Vector;

use super::RunRequest;

/// Checks the request by itself.
///
/// # Errors
/// When there is neither a message nor a run to go on with, or a user cannot say this.
pub(super) fn check(request: &RunRequest) -> Result<(), RunError> {
    match &request.message {
        Some(message) => check_message(message)?,
        None if request.invocation_id.is_some() => {}
        None => return Err(RunError::BadInput("there is no message, and no invocation to go on with".into())),
    }
    match request.state_delta.iter().find(|(_, value)| is_json_too_deep(value)) {
        Some((key, _)) => Err(RunError::BadInput(format!(
            "the value of the state key `{}` is nested more than {MAX_JSON_DEPTH} levels deep",
            key.escape_debug()
        ))),
        None => Ok(()),
    }
}

/// Checks that each function response of the message answers a call of the session that waits for the user: one of a
/// long-running tool, one that asks for a confirmation, or one that an interrupted run has left open.
///
/// # Errors
/// [`RunError::InvalidMessage`] for any other.
pub(super) fn check_answers(request: &RunRequest, events: &Vector<Arc<Event>>) -> Result<(), RunError> {
    let parts = request.message.iter().flat_map(|message| message.parts.iter().enumerate());
    for (index, part) in parts {
        if let PartData::FunctionResponse(response) = &part.data {
            check_answer(response, events).map_err(|wrong| invalid_message(index, &wrong))?;
        }
    }
    Ok(())
}

fn check_answer(response: &FunctionResponse, events: &Vector<Arc<Event>>) -> Result<(), String> {
    let id = response.id.as_deref().unwrap_or_default();
    let by_agents = || events.iter().rev().filter(|event| event.author != USER_AUTHOR);
    let mut calls = by_agents().flat_map(|event| event.function_calls());
    let Some(call) = calls.find(|call| call.id.as_deref() == Some(id)) else {
        return Err(format!(
            "has a `functionResponse` of id `{}`, but the session has no such call",
            id.escape_debug()
        ));
    };
    if call.name != response.name {
        return Err(format!(
            "has a `functionResponse` named `{}`, but the call of id `{id}` is of `{}`",
            response.name.escape_debug(),
            call.name
        ));
    }
    let waits = by_agents().any(|event| event.long_running_tool_ids.iter().any(|waiting| waiting == id));
    let has_answer = || by_agents().flat_map(|event| event.function_responses()).any(|it| it.id.as_deref() == Some(id));
    if waits || !has_answer() {
        return Ok(());
    }
    Err(format!("has a `functionResponse` of id `{id}`, but that call of `{}` has its answer already", call.name))
}
