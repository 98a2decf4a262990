//! Requests of tool calls to a person, for confirmation or for a credential, and validation of the answers.
//!
//! A request for confirmation shows the final arguments, after all callbacks. An answer is valid if it answers a
//! request of the same agent, which the proof in the request's event shows, and only once. Forged, repeated and late
//! answers are ignored. After a decision the call runs with exactly the arguments that were shown, or not at all.

use std::sync::Arc;

use hatchery_core::{
    CallContext, Claim, Content, Event, EventActions, EventData, Extra, FunctionCall, FunctionResponse, JsonMap, Part,
    PartData, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, ToolConfirmation, new_function_call_id,
};
use imbl::Vector;
use serde_json::{Value, json};

use super::credential::{is_declined, is_received};
use crate::provenance::Verifier;

/// Maximum number of requests for one call whose arguments keep changing.
pub(crate) const MAX_REQUESTS: usize = 3;

/// A call for which a person has answered a request.
#[derive(Debug, Clone, PartialEq)]
pub struct AnsweredCall {
    /// The call as the model made it.
    pub call: FunctionCall,
    pub answer: UserAnswer,
}

/// A person's answer to a request about a call.
#[derive(Debug, Clone, PartialEq)]
pub enum UserAnswer {
    /// The call is confirmed or rejected.
    Decision {
        /// The decision of the person.
        confirmation: ToolConfirmation,
        /// The request that the decision answers.
        request: Box<ConfirmationRequest>,
    },
    /// A credential has been granted, which the [credential service](hatchery_core::CredentialService) has.
    Credential {
        /// The id of the call with which the person was asked.
        request_id: String,
    },
    /// A credential is not granted. The call is not made.
    CredentialDeclined {
        /// The id of the call with which the person was asked.
        request_id: String,
    },
}

impl UserAnswer {
    /// Returns the id of the call with which the person was asked.
    pub fn request_id(&self) -> &str {
        match self {
            Self::Decision { request, .. } => &request.id,
            Self::Credential { request_id } | Self::CredentialDeclined { request_id } => request_id,
        }
    }
}

/// A request for a person's decision about a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfirmationRequest {
    /// The id of the call with which the person was asked.
    pub id: String,
    /// The arguments that the person was shown. The call may only run with these.
    pub args: JsonMap,
    pub question: ToolConfirmation,
    /// The number of requests for the call so far, with this one.
    pub count: usize,
}

/// Creates the event with the requests for confirmations and credentials that `actions` contains for `calls`, which are
/// paired with their final arguments. `None` if there are no requests.
pub(crate) fn request<'a>(
    calls: impl Iterator<Item = (&'a FunctionCall, &'a JsonMap)>,
    actions: &EventActions,
) -> Option<EventData> {
    let EventActions { requested_auth_configs, requested_tool_confirmations, .. } = actions;
    let requests = calls.flat_map(|(call, args)| {
        let requested = |map: &Extra| map.get(call.id.as_deref()?).cloned();
        let credential = requested(requested_auth_configs).map(|config| {
            let args = [("functionCallId".into(), json!(call.id)), ("authConfig".into(), config)];
            (REQUEST_CREDENTIAL, JsonMap::from_iter(args))
        });
        let confirmation = requested(requested_tool_confirmations).map(|confirmation| {
            let original = json!({"id": call.id, "name": call.name, "args": args});
            let args = [("originalFunctionCall".into(), original), ("toolConfirmation".into(), confirmation)];
            (REQUEST_CONFIRMATION, JsonMap::from_iter(args))
        });
        credential.into_iter().chain(confirmation)
    });
    let (ids, parts): (Vec<_>, Vec<_>) = requests
        .map(|(name, args)| {
            let id = new_function_call_id();
            let call = FunctionCall { id: Some(id.clone()), name: name.into(), args, extra: Extra::default() };
            (id, Part::from(PartData::FunctionCall(call)))
        })
        .unzip();
    let content = Some(Arc::new(Content::new("model", parts)));
    (!ids.is_empty()).then(|| EventData { content, long_running_tool_ids: ids, ..EventData::default() })
}

/// Returns true for the name of a call that asks a person.
pub(crate) fn is_request_name(name: &str) -> bool {
    name == REQUEST_CONFIRMATION || name == REQUEST_CREDENTIAL
}

/// Returns true for an event that requests a confirmation or a credential.
pub(crate) fn is_request(event: &Event) -> bool {
    event.function_calls().any(|call| is_request_name(&call.name))
}

/// Returns true for a message with answers to such requests.
pub(crate) fn is_answer(message: &Event) -> bool {
    message.function_responses().any(|response| is_request_name(&response.name))
}

/// Returns the calls of `agent` that the user answers for in `message`, which follows the events `before`.
pub(crate) fn answers_in(
    before: &Vector<Arc<Event>>,
    message: &Event,
    agent: &str,
    verifier: &Verifier<'_>,
) -> Vec<AnsweredCall> {
    let mut answered: Vec<AnsweredCall> = Vec::new();
    for response in message.function_responses().filter(|response| is_request_name(&response.name)) {
        let Some(open) = find_open_call(before, response, agent, verifier) else { continue };
        if !answered.iter().any(|earlier| earlier.call.id == open.call.id) {
            answered.push(open);
        }
    }
    answered
}

/// Parses a decision. Some clients send it as JSON text under the key `response`.
fn parse_decision(response: &JsonMap) -> Option<ToolConfirmation> {
    match response.get("response") {
        Some(Value::String(text)) if response.len() == 1 => serde_json::from_str(text).ok(),
        _ => serde_json::from_value(Value::Object(response.clone())).ok(),
    }
}

/// Finds the call for which `agent` made the request that is answered. `None` if the call is no longer waiting.
fn find_open_call(
    before: &Vector<Arc<Event>>,
    response: &FunctionResponse,
    agent: &str,
    verifier: &Verifier<'_>,
) -> Option<AnsweredCall> {
    let request_id = response.id.as_deref()?;
    let is_own = |event: &&Arc<Event>| event.author == agent;
    let (request_index, request) = find_request(before, &response.name, request_id, verifier)?;
    before.get(request_index).filter(is_own)?;
    let id = original_id(request)?;
    let is_original = |call: &&FunctionCall| call.id.as_deref() == Some(id) && !is_request_name(&call.name);
    let call_index = before
        .iter()
        .take(request_index)
        .rposition(|event| is_own(&event) && event.function_calls().any(|call| is_original(&call)))?;
    let call = before.get(call_index)?.function_calls().find(is_original)?;
    let has_response =
        |event: &&Arc<Event>| event.function_responses().any(|response| response.id.as_deref() == Some(id));
    let mut responses = before.iter().skip(request_index + 1).filter(is_own).filter(has_response);
    // The first response reports that the call is waiting. A second one is its result.
    let is_waiting = responses.next()?.actions.requests_answer(id);
    if !is_waiting || responses.next().is_some() {
        return None;
    }
    if response.name == REQUEST_CREDENTIAL {
        let request_id = request_id.to_owned();
        let answer = match &response.response {
            status if is_received(status) => UserAnswer::Credential { request_id },
            status if is_declined(status) => UserAnswer::CredentialDeclined { request_id },
            _ => return None,
        };
        return Some(AnsweredCall { call: call.clone(), answer });
    }
    let original = request.args.get("originalFunctionCall")?;
    if original.get("name")?.as_str()? != call.name {
        return None;
    }
    let args = original.get("args")?.as_object()?.clone();
    let question = serde_json::from_value(request.args.get("toolConfirmation")?.clone()).ok()?;
    let is_request_for_call = |call: &FunctionCall| call.name == REQUEST_CONFIRMATION && original_id(call) == Some(id);
    let since_call = before.iter().take(request_index + 1).skip(call_index + 1).filter(is_own);
    let count = since_call.filter(|event| event.function_calls().any(is_request_for_call)).count();
    let request = ConfirmationRequest { id: request_id.into(), args, question, count };
    let confirmation = parse_decision(&response.response)?;
    Some(AnsweredCall { call: call.clone(), answer: UserAnswer::Decision { confirmation, request: Box::new(request) } })
}

/// Finds the request with this name and id that this host has made, with the index of its event. A model can call a
/// function of this name too, but only requests of the engine have a proof.
pub(crate) fn find_request<'a>(
    events: &'a Vector<Arc<Event>>,
    name: &str,
    id: &str,
    verifier: &Verifier<'_>,
) -> Option<(usize, &'a FunctionCall)> {
    let is_request = |call: &&FunctionCall| call.name == name && call.id.as_deref() == Some(id);
    let index = events.iter().rposition(|event| {
        event.function_calls().any(|call| is_request(&call)) && verifier.proves(event, Claim::Confirmation)
    })?;
    Some((index, events.get(index)?.function_calls().find(is_request)?))
}

/// Returns the id of the call that a request is about.
fn original_id(request: &FunctionCall) -> Option<&str> {
    let confirmed = request.args.get("originalFunctionCall").and_then(|original| original.get("id"));
    confirmed.or_else(|| request.args.get("functionCallId"))?.as_str()
}

/// The outcome of a person's decision about a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Consent {
    /// Confirmed. The tool runs.
    Given,
    /// Rejected.
    Denied,
    /// Confirmed with other arguments. The tool does not run.
    Mismatch,
}

impl Consent {
    /// Writes an event to the audit log.
    pub(crate) fn audit(self, tool: &str, cx: &CallContext) {
        let key = &cx.invocation.session_key;
        let (app, user, session, invocation) = (&*key.app, &*key.user, &*key.id, cx.invocation.id.as_str());
        let decision = match self {
            Self::Given => "given",
            Self::Denied => "denied",
            Self::Mismatch => {
                let detail = "the arguments have changed since a person approved";
                tracing::warn!(
                    target: "hatchery::audit", app, user, session, invocation, action = tool, decision = "mismatch", detail, "consent"
                );
                return;
            }
        };
        tracing::info!(target: "hatchery::audit", app, user, session, invocation, action = tool, decision, "consent");
    }
}
