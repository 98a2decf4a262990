//! Asking a person before a tool runs: the request that a client sees, and which of its answers count.
//!
//! A request shows the arguments as the tool would get them, after all callbacks. A decision counts when it answers a request that this
//! agent has made, by the proof in its event, and only once: forged, repeated and late ones do nothing. The call then runs with the
//! arguments that were shown, or not at all.

use std::sync::Arc;

use hatchery_core::{
    CallContext, Claim, Content, Event, EventActions, EventData, Extra, FunctionCall, JsonMap, Part, PartData,
    REQUEST_CONFIRMATION, ToolConfirmation, new_function_call_id,
};
use imbl::Vector;
use serde_json::{Value, json};

use crate::provenance::Verifier;

/// How often a person is asked about one call whose arguments keep changing.
pub(crate) const MAX_REQUESTS: usize = 3;

/// A call that a person has decided about.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfirmedCall {
    /// The call.
    pub call: FunctionCall,
    /// The decision.
    pub confirmation: ToolConfirmation,
    /// What was decided about.
    pub request: Request,
}

/// A request for a person's decision about a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// The arguments that the person was shown: the only ones with which the call may run.
    pub args: JsonMap,
    /// The question.
    pub question: ToolConfirmation,
    /// How many requests there have been about the call, this one included.
    pub count: usize,
}

/// Asks a person about those of the `calls`, each with its final arguments, for which `actions` ask. `None` when there are none.
pub(crate) fn request<'a>(
    calls: impl Iterator<Item = (&'a FunctionCall, &'a JsonMap)>,
    actions: &EventActions,
) -> Option<EventData> {
    let requested = &actions.requested_tool_confirmations;
    let asked = calls.filter_map(|(call, args)| Some((call, args, requested.get(call.id.as_deref()?)?)));
    let (ids, parts): (Vec<_>, Vec<_>) = asked
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

/// True for an event that asks a person.
pub(crate) fn is_request(event: &Event) -> bool {
    event.function_calls().any(|call| call.name == REQUEST_CONFIRMATION)
}

/// True for a message that decides about calls.
pub(crate) fn is_decision(message: &Event) -> bool {
    message.function_responses().any(|response| response.name == REQUEST_CONFIRMATION)
}

/// The calls of `agent` that the user decides about in `answer`, which follows the events `before` it.
pub(crate) fn decided(
    before: &Vector<Arc<Event>>,
    answer: &Event,
    agent: &str,
    verifier: &Verifier<'_>,
) -> Vec<ConfirmedCall> {
    let mut decided: Vec<ConfirmedCall> = Vec::new();
    for response in answer.function_responses().filter(|response| response.name == REQUEST_CONFIRMATION) {
        let Some(confirmation) = read(&response.response) else { continue };
        let open = response.id.as_deref().and_then(|id| open_call(before, id, agent, verifier));
        let Some((call, request)) = open else { continue };
        if !decided.iter().any(|earlier| earlier.call.id == call.id) {
            decided.push(ConfirmedCall { call, confirmation, request });
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
fn open_call(
    before: &Vector<Arc<Event>>,
    request_id: &str,
    agent: &str,
    verifier: &Verifier<'_>,
) -> Option<(FunctionCall, Request)> {
    // A model may call a function of this name too, but only the engine's own requests wait for an answer.
    let asks = |call: &FunctionCall| call.name == REQUEST_CONFIRMATION && call.id.as_deref() == Some(request_id);
    let own = |event: &&Arc<Event>| event.author == agent;
    let place = before.iter().rposition(|event| {
        own(&event) && event.function_calls().any(asks) && verifier.proves(event, Claim::Confirmation)
    })?;
    let request = before.get(place)?.function_calls().find(|call| asks(call))?;
    let original = request.args.get("originalFunctionCall")?;
    let (id, name) = (original.get("id")?.as_str()?, original.get("name")?.as_str()?);
    let args = original.get("args")?.as_object()?.clone();
    let question = serde_json::from_value(request.args.get("toolConfirmation")?.clone()).ok()?;
    let is_original = |call: &&FunctionCall| call.id.as_deref() == Some(id) && call.name == name;
    let call_place = before
        .iter()
        .take(place)
        .rposition(|event| own(&event) && event.function_calls().any(|call| is_original(&call)))?;
    let call = before.get(call_place)?.function_calls().find(is_original)?;
    let answers_call = |event: &&Arc<Event>| event.function_responses().any(|answer| answer.id.as_deref() == Some(id));
    let mut answers = before.iter().skip(place + 1).filter(own).filter(answers_call);
    // The first answer says that the call waits; one after it, that it has been dealt with.
    let waits = answers.next()?.actions.requested_tool_confirmations.contains_key(id);
    if !waits || answers.next().is_some() {
        return None;
    }
    let asks_about = |call: &FunctionCall| {
        let original = call.args.get("originalFunctionCall").filter(|_| call.name == REQUEST_CONFIRMATION);
        original.and_then(|original| original.get("id")?.as_str()) == Some(id)
    };
    let since = before.iter().take(place + 1).skip(call_place + 1).filter(own);
    let count = since.filter(|event| event.function_calls().any(asks_about)).count();
    Some((call.clone(), Request { args, question, count }))
}

/// What has become of a person's decision about a call of `tool`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Consent {
    /// They have agreed, and the tool runs.
    Given,
    /// They have not agreed.
    Denied,
    /// They have agreed to other arguments, and the tool does not run.
    Mismatch,
}

impl Consent {
    /// Writes the audit event.
    pub(crate) fn audit(self, tool: &str, cx: &CallContext) {
        let key = &cx.invocation.session_key;
        let (app, user, session, invocation) = (&*key.app, &*key.user, &*key.id, cx.invocation.id.as_str());
        let decision = match self {
            Self::Given => "given",
            Self::Denied => "denied",
            Self::Mismatch => {
                let detail = "the arguments have changed after a person agreed";
                tracing::warn!(
                    target: "hatchery::audit", app, user, session, invocation, action = tool, decision = "mismatch", detail, "consent"
                );
                return;
            }
        };
        tracing::info!(target: "hatchery::audit", app, user, session, invocation, action = tool, decision, "consent");
    }
}
