//! The current session: its state, events, user message, confirmation and progress.

use serde_json::Value;

use super::super::Progress;
use super::super::scope::Scope;
use crate::bindings::wit::session::{Info, RemainingLimits as WitRemainingLimits, StreamingMode as WitStreamingMode};
use crate::bindings::wit::types;
use crate::confirmation::ToolConfirmation;
use crate::convert::read;
use crate::error::Error;
use crate::run_info::{RemainingLimits, StreamingMode};

/// Maximum number of events of one call, regardless of its `limit`.
const MAX_EVENTS: u32 = 1000;

pub(crate) fn current() -> Result<Info, types::Error> {
    let scope = Scope::for_session()?;
    let info = scope.mock.borrow().info.clone();
    let RemainingLimits { model_calls, tokens, events, bytes } = info.remaining;
    Ok(Info {
        app: info.app,
        user: info.user,
        session: info.session,
        invocation_id: info.invocation_id,
        agent: scope.call.agent.clone(),
        branch: info.branch,
        function_call_id: scope.call.function_call_id.clone(),
        streaming_mode: match info.streaming_mode {
            StreamingMode::None => WitStreamingMode::None,
            StreamingMode::Sse => WitStreamingMode::Sse,
            StreamingMode::Bidi => WitStreamingMode::Bidi,
        },
        is_resumable: info.is_resumable,
        depth: info.depth,
        remaining: WitRemainingLimits { model_calls, tokens, events, bytes },
    })
}

pub(crate) fn user_content() -> Result<types::Content, types::Error> {
    let content = Scope::for_session()?.mock.borrow().user_content.clone();
    let nothing = "there is no user message; add `.user_says(\"…\")` to the test's host";
    Ok(content.ok_or_else(|| Error::new("NOT_SET_UP", nothing))?.into())
}

pub(crate) fn run_metadata() -> Result<String, types::Error> {
    let metadata = Scope::for_session()?.mock.borrow().run_metadata.clone();
    Ok(Value::Object(metadata).to_string())
}

pub(crate) fn get_state(key: &str) -> Result<Option<String>, types::Error> {
    let scope = Scope::for_session()?;
    let state = scope.mock.borrow().state_for(&scope.call);
    Ok(state.get(key).map(Value::to_string))
}

pub(crate) fn get_all_state() -> Result<Vec<(String, String)>, types::Error> {
    let scope = Scope::for_session()?;
    let state = scope.mock.borrow().state_for(&scope.call);
    Ok(state.into_iter().map(|(key, value)| (key, value.to_string())).collect())
}

pub(crate) fn set_state(key: &str, json: &str) -> Result<(), types::Error> {
    let scope = Scope::for_change()?;
    let value = read(json, "the state value")?;
    scope.call.actions.borrow_mut().state_delta.insert(key.to_owned(), value);
    Ok(())
}

pub(crate) fn idempotency_key() -> Result<Option<String>, types::Error> {
    Ok(Scope::for_session()?.call.idempotency_key.clone())
}

pub(crate) fn confirmation() -> Result<Option<types::ToolConfirmation>, types::Error> {
    let decision = Scope::for_session()?.call.decision.clone();
    Ok(decision.map(|ToolConfirmation { hint, confirmed, payload }| types::ToolConfirmation {
        hint,
        confirmed,
        payload: payload.map(|payload| payload.to_string()),
    }))
}

pub(crate) fn request_confirmation(hint: &str, payload: Option<&str>) -> Result<(), types::Error> {
    let scope = Scope::for_change()?;
    let payload = payload.map(|json| read(json, "the payload of a confirmation")).transpose()?;
    if scope.call.function_call_id.is_none() {
        return Err(Error::new("BAD_INPUT", "a confirmation can only be requested in a tool call").into());
    }
    let confirmation = ToolConfirmation { hint: hint.to_owned(), confirmed: false, payload };
    *scope.call.requested_confirmation.borrow_mut() = Some(confirmation);
    Ok(())
}

pub(crate) fn report_progress(progress: f64, total: Option<f64>, message: Option<&str>) -> Result<(), types::Error> {
    let scope = Scope::for_change()?;
    if !(progress.is_finite() && total.is_none_or(f64::is_finite)) {
        let message = "progress and its total must be finite numbers; leave an unknown total out";
        return Err(Error::new("BAD_INPUT", message).into());
    }
    let report = Progress { progress, total, message: message.map(str::to_owned) };
    scope.mock.borrow_mut().progress.push(report);
    Ok(())
}

pub(crate) fn event_count() -> Result<u64, types::Error> {
    Ok(Scope::for_session()?.mock.borrow().events.len() as u64)
}

pub(crate) fn events(offset: u64, limit: u32) -> Result<Vec<types::Event>, types::Error> {
    let scope = Scope::for_session()?;
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let mock = scope.mock.borrow();
    let events = mock.events.iter().skip(offset).take(limit.min(MAX_EVENTS) as usize);
    Ok(events.cloned().map(Into::into).collect())
}
