//! Human-in-the-loop confirmation of tool calls: requests to the client, and validation of its decisions.
//!
//! A request shows the final arguments, after all callbacks. A decision is valid if it answers a request of the same
//! agent, which the proof in the request's event shows, and only once. Forged, repeated and late decisions are ignored.
//! The call then runs with exactly the arguments that were shown, or not at all.

use std::sync::Arc;

use hatchery_core::{
    CallContext, Claim, Content, Event, EventActions, EventData, Extra, FunctionCall, JsonMap, Part, PartData,
    REQUEST_CONFIRMATION, ToolConfirmation, new_function_call_id,
};
use imbl::Vector;
use serde_json::{Value, json};

use crate::provenance::Verifier;

/// Maximum number of requests for one call whose arguments keep changing.
pub(crate) const MAX_REQUESTS: usize = 3;

/// A call that a person has confirmed or rejected.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfirmedCall {
    /// The call as the model made it.
    pub call: FunctionCall,
    /// The decision.
    pub confirmation: ToolConfirmation,
    /// The request that the decision answers.
    pub request: ConfirmationRequest,
}

/// A request for a person's decision about a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfirmationRequest {
    /// The id of the call with which the person was asked.
    pub id: String,
    /// The arguments that the person was shown. The call may only run with these.
    pub args: JsonMap,
    /// The question.
    pub question: ToolConfirmation,
    /// The number of requests for the call so far, with this one.
    pub count: usize,
}

/// Creates the event that requests confirmation of those `calls` that `actions` list. Each call has its final
/// arguments. `None` if there are none.
pub(crate) fn request<'a>(
    calls: impl Iterator<Item = (&'a FunctionCall, &'a JsonMap)>,
    actions: &EventActions,
) -> Option<EventData> {
    let requested = &actions.requested_tool_confirmations;
    let unconfirmed = calls.filter_map(|(call, args)| Some((call, args, requested.get(call.id.as_deref()?)?)));
    let (ids, parts): (Vec<_>, Vec<_>) = unconfirmed
        .map(|(call, args, confirmation)| {
            let id = new_function_call_id();
            let args = JsonMap::from_iter([
                ("originalFunctionCall".into(), json!({"id": call.id, "name": call.name, "args": args})),
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

/// Returns true for an event that requests confirmation.
pub(crate) fn is_request(event: &Event) -> bool {
    event.function_calls().any(|call| call.name == REQUEST_CONFIRMATION)
}

/// Returns true for a message with decisions about calls.
pub(crate) fn is_decision(message: &Event) -> bool {
    message.function_responses().any(|response| response.name == REQUEST_CONFIRMATION)
}

/// Returns the calls of `agent` that the user decides about in `message`, which follows the events `before`.
pub(crate) fn decisions_in(
    before: &Vector<Arc<Event>>,
    message: &Event,
    agent: &str,
    verifier: &Verifier<'_>,
) -> Vec<ConfirmedCall> {
    let mut confirmed: Vec<ConfirmedCall> = Vec::new();
    for response in message.function_responses().filter(|response| response.name == REQUEST_CONFIRMATION) {
        let Some(confirmation) = parse_decision(&response.response) else { continue };
        let open = response.id.as_deref().and_then(|id| find_open_call(before, id, agent, verifier));
        let Some((call, request)) = open else { continue };
        if !confirmed.iter().any(|earlier| earlier.call.id == call.id) {
            confirmed.push(ConfirmedCall { call, confirmation, request });
        }
    }
    confirmed
}

/// Parses a decision. Some clients send it as JSON text under the key `response`.
fn parse_decision(response: &JsonMap) -> Option<ToolConfirmation> {
    match response.get("response") {
        Some(Value::String(text)) if response.len() == 1 => serde_json::from_str(text).ok(),
        _ => serde_json::from_value(Value::Object(response.clone())).ok(),
    }
}

/// Finds the call for which `agent` made the request with this id. `None` if the call is no longer waiting.
fn find_open_call(
    before: &Vector<Arc<Event>>,
    request_id: &str,
    agent: &str,
    verifier: &Verifier<'_>,
) -> Option<(FunctionCall, ConfirmationRequest)> {
    // A model can call a function of this name too, but only requests of the engine have a proof.
    let is_request = |call: &FunctionCall| call.name == REQUEST_CONFIRMATION && call.id.as_deref() == Some(request_id);
    let is_own = |event: &&Arc<Event>| event.author == agent;
    let request_index = before.iter().rposition(|event| {
        is_own(&event) && event.function_calls().any(is_request) && verifier.proves(event, Claim::Confirmation)
    })?;
    let request = before.get(request_index)?.function_calls().find(|call| is_request(call))?;
    let original = request.args.get("originalFunctionCall")?;
    let (id, name) = (original.get("id")?.as_str()?, original.get("name")?.as_str()?);
    let args = original.get("args")?.as_object()?.clone();
    let question = serde_json::from_value(request.args.get("toolConfirmation")?.clone()).ok()?;
    let is_original = |call: &&FunctionCall| call.id.as_deref() == Some(id) && call.name == name;
    let call_index = before
        .iter()
        .take(request_index)
        .rposition(|event| is_own(&event) && event.function_calls().any(|call| is_original(&call)))?;
    let call = before.get(call_index)?.function_calls().find(is_original)?;
    let has_response =
        |event: &&Arc<Event>| event.function_responses().any(|response| response.id.as_deref() == Some(id));
    let mut responses = before.iter().skip(request_index + 1).filter(is_own).filter(has_response);
    // The first response reports that the call is waiting. A second one is its result.
    let is_waiting = responses.next()?.actions.requested_tool_confirmations.contains_key(id);
    if !is_waiting || responses.next().is_some() {
        return None;
    }
    let is_request_for_call = |call: &FunctionCall| {
        let original = call.args.get("originalFunctionCall").filter(|_| call.name == REQUEST_CONFIRMATION);
        original.and_then(|original| original.get("id")?.as_str()) == Some(id)
    };
    let since_call = before.iter().take(request_index + 1).skip(call_index + 1).filter(is_own);
    let count = since_call.filter(|event| event.function_calls().any(is_request_for_call)).count();
    Some((call.clone(), ConfirmationRequest { id: request_id.into(), args, question, count }))
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
