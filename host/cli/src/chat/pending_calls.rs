//! Tool calls that are pending at the end of a turn: those that need approval or a credential, and long-running ones.

use std::collections::BTreeMap;
use std::fmt;

use hatchery_core::{
    Event, FunctionCall, FunctionResponse, JsonMap, REQUEST_CONFIRMATION, ToolConfirmation, USER_AUTHOR,
    confirmation_hint,
};
use serde::Deserialize;
use serde_json::Value;

use super::credential_request::CredentialRequest;
use crate::terminal::escape_control;

/// The calls that are pending after a turn, in the order of their events.
#[derive(Debug, Default, PartialEq)]
pub struct PendingCalls {
    /// Calls that a person must approve or reject.
    pub approvals: Vec<ApprovalRequest>,
    /// Calls that need a credential of the user.
    pub credentials: Vec<CredentialRequest>,
    /// Calls whose result is sent later.
    pub long_running: Vec<LongRunningCall>,
    /// The names of the tools that were called, by the ids of the calls.
    tools: BTreeMap<String, String>,
}

/// A tool call that a person must approve or reject.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    /// The id of the confirmation request, which the response must have.
    id: String,
    tool: String,
    args: JsonMap,
    confirmation: ToolConfirmation,
}

/// A tool call whose result is sent later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongRunningCall {
    id: String,
    tool: String,
}

/// A person's decision about a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// True if the call is approved.
    pub is_approved: bool,
    /// Data for the tool. `None` returns the payload of the request.
    pub payload: Option<Value>,
}

/// The arguments of a call of `adk_request_confirmation`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfirmationArgs {
    original_function_call: FunctionCall,
    #[serde(default)]
    tool_confirmation: ToolConfirmation,
}

impl PendingCalls {
    /// Returns true if the user must answer before the calls can be made.
    pub fn has_requests(&self) -> bool {
        !self.approvals.is_empty() || !self.credentials.is_empty()
    }

    /// Adds the pending calls of an event, and removes long-running calls that it reports as failed.
    pub fn add_event(&mut self, event: &Event) {
        if event.partial || event.author == USER_AUTHOR {
            return;
        }
        for call in event.function_calls() {
            let Some(id) = &call.id else { continue };
            self.tools.insert(id.clone(), call.name.clone());
            if let Some(request) = ApprovalRequest::from_call(id, call) {
                self.approvals.push(request);
            } else if event.long_running_tool_ids.contains(id) {
                match CredentialRequest::from_call(id, call, &event.author, &self.tools) {
                    Some(request) => self.credentials.push(request),
                    None => self.long_running.push(LongRunningCall { id: id.clone(), tool: call.name.clone() }),
                }
            }
        }
        // Responses without an error are intermediate results, such as a status.
        for response in event.function_responses().filter(|response| response.response.contains_key("error")) {
            self.long_running.retain(|call| Some(&call.id) != response.id.as_ref());
        }
    }
}

impl ApprovalRequest {
    fn from_call(id: &str, call: &FunctionCall) -> Option<Self> {
        if call.name != REQUEST_CONFIRMATION {
            return None;
        }
        let ConfirmationArgs { original_function_call: FunctionCall { name, args, .. }, tool_confirmation } =
            serde_json::from_value(call.args.clone().into()).ok()?;
        Some(Self { id: id.into(), tool: name, args, confirmation: tool_confirmation })
    }

    /// Returns the response with the decision.
    pub fn to_response(&self, decision: &Decision) -> FunctionResponse {
        let mut response = JsonMap::from_iter([("confirmed".into(), decision.is_approved.into())]);
        let payload = decision.payload.clone().or_else(|| self.confirmation.payload.clone());
        response.extend(payload.map(|payload| ("payload".into(), payload)));
        FunctionResponse {
            id: Some(self.id.clone()),
            name: REQUEST_CONFIRMATION.into(),
            response,
            ..FunctionResponse::default()
        }
    }
}

/// Shows the complete call, since a decision may depend on any part of it.
impl fmt::Display for ApprovalRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = Value::from(self.args.clone()).to_string();
        write!(f, "{}({}) needs approval", escape_control(&self.tool), escape_control(&args))?;
        let hint = &self.confirmation.hint;
        if !hint.is_empty() && *hint != confirmation_hint(&self.tool) {
            write!(f, "\n  {}", escape_control(hint))?;
        }
        match &self.confirmation.payload {
            Some(payload) => write!(f, "\n  payload: {}", escape_control(&payload.to_string())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for LongRunningCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is still running; its result has to be sent as a functionResponse with the id {}",
            escape_control(&self.tool),
            escape_control(&self.id)
        )
    }
}

const DECISION_SYNTAX: &str = "answer y or n, optionally followed by a JSON payload: y {\"amount\": 3}";

impl Decision {
    /// Returns an approval without a payload.
    pub fn approved() -> Self {
        Self { is_approved: true, payload: None }
    }

    /// Returns a rejection without a payload.
    pub fn rejected() -> Self {
        Self { is_approved: false, payload: None }
    }

    /// Parses `y` or `n`, optionally followed by a JSON payload.
    ///
    /// # Errors
    /// A message that explains the syntax.
    pub fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim();
        let (word, payload) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let is_approved = match word.to_lowercase().as_str() {
            "y" | "yes" => true,
            "n" | "no" => false,
            _ => return Err(DECISION_SYNTAX.into()),
        };
        if payload.trim().is_empty() {
            return Ok(Self { is_approved, payload: None });
        }
        let payload = serde_json::from_str(payload)
            .map_err(|error| format!("the payload is not valid JSON: {error}; {DECISION_SYNTAX}"))?;
        Ok(Self { is_approved, payload: Some(payload) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hatchery_core::EventData;
    use serde_json::json;

    use super::*;

    fn event(parts: Value, long_running: &[&str]) -> Arc<Event> {
        let content = serde_json::from_value(json!({"role": "model", "parts": parts})).unwrap();
        Event::new(EventData {
            author: "bank".into(),
            content: Some(Arc::new(content)),
            long_running_tool_ids: long_running.iter().map(|id| (*id).into()).collect(),
            ..EventData::default()
        })
    }

    fn confirmation_call(id: &str, confirmation: Value) -> Value {
        let original = json!({"id": "c1", "name": "wire", "args": {"amount": 5}});
        json!({"functionCall": {"id": id, "name": "adk_request_confirmation",
            "args": {"originalFunctionCall": original, "toolConfirmation": confirmation}}})
    }

    fn pending_after(events: &[Arc<Event>]) -> PendingCalls {
        let mut pending = PendingCalls::default();
        events.iter().for_each(|event| pending.add_event(event));
        pending
    }

    fn approval_request(confirmation: Value) -> ApprovalRequest {
        pending_after(&[event(json!([confirmation_call("q1", confirmation)]), &["q1"])]).approvals.remove(0)
    }

    fn response(request: &ApprovalRequest, decision: &Decision) -> Value {
        serde_json::to_value(request.to_response(decision)).unwrap()
    }

    #[test]
    fn an_approval_request_shows_the_call_the_hint_and_the_payload() {
        let text = |confirmation| approval_request(confirmation).to_string();
        assert_eq!(
            text(json!({"hint": "Really?\u{1b}", "confirmed": false, "payload": {"limit": 3}})),
            "wire({\"amount\":5}) needs approval\n  Really?\\u{1b}\n  payload: {\"limit\":3}"
        );
        for hint in [json!(null), json!(confirmation_hint("wire"))] {
            assert_eq!(text(json!({"hint": hint, "payload": null})), "wire({\"amount\":5}) needs approval");
        }
    }

    #[test]
    fn long_running_calls_are_pending_unless_they_have_failed() {
        let calls = json!([{"functionCall": {"id": "c1", "name": "order"}}, {"functionCall": {"id": "c2", "name": "ship"}},
            {"functionCall": {"id": "c3", "name": "add"}}]);
        let responses = json!([
            {"functionResponse": {"id": "c1", "name": "order", "response": {"status": "pending"}}},
            {"functionResponse": {"id": "c2", "name": "ship", "response": {"error": "no ship"}}},
        ]);
        let pending = pending_after(&[event(calls, &["c1", "c2"]), event(responses, &[])]);
        assert_eq!(pending.approvals, []);
        let texts: Vec<_> = pending.long_running.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["order is still running; its result has to be sent as a functionResponse with the id c1"]);
    }

    #[test]
    fn partial_events_and_malformed_requests_leave_nothing_pending() {
        let mut partial = EventData { partial: true, author: "bank".into(), ..EventData::default() };
        partial.content = event(json!([confirmation_call("q1", json!({}))]), &[]).content.clone();
        let malformed = json!([{"functionCall": {"id": "q2", "name": "adk_request_confirmation", "args": {}}}]);
        let pending = pending_after(&[Event::new(partial), event(malformed, &[])]);
        assert!(!pending.has_requests() && pending.long_running.is_empty(), "{pending:?}");
    }

    #[test]
    fn a_credential_is_requested_for_a_waiting_call_only_if_the_host_asks_for_it() {
        let config = json!({"authScheme": {"type": "apiKey", "in": "query", "name": "key"}});
        let request = json!([{"functionCall": {"id": "q1", "name": "adk_request_credential",
            "args": {"functionCallId": "c1", "authConfig": config}}}]);
        let call = || event(json!([{"functionCall": {"id": "c1", "name": "wire"}}]), &[]);
        let pending = pending_after(&[call(), event(request.clone(), &["q1"])]);
        let texts: Vec<_> = pending.credentials.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["wire needs your API key for the query parameter key"]);
        assert!(pending.has_requests() && pending.long_running.is_empty());
        assert!(!pending_after(&[call(), event(request, &[])]).has_requests());
    }

    #[test]
    fn a_response_has_the_decision_and_the_id_of_the_request() {
        let request = approval_request(json!({"hint": "Really?"}));
        assert_eq!(
            response(&request, &Decision::approved()),
            json!({"id": "q1", "name": "adk_request_confirmation", "response": {"confirmed": true}})
        );
    }

    #[test]
    fn the_payload_of_the_request_is_returned_unless_the_decision_has_one() {
        let request = approval_request(json!({"payload": {"limit": 3}}));
        let payload = |decision| response(&request, &decision)["response"]["payload"].take();
        assert_eq!(payload(Decision::rejected()), json!({"limit": 3}));
        assert_eq!(payload(Decision { is_approved: true, payload: Some(json!(9)) }), json!(9));
    }

    #[test]
    fn decisions_are_parsed_with_their_payload() {
        for (line, is_approved) in [("y", true), (" Yes ", true), ("n", false), ("NO\n", false)] {
            assert_eq!(Decision::parse(line), Ok(Decision { is_approved, payload: None }), "{line}");
        }
        let decision = Decision { is_approved: true, payload: Some(json!({"amount": 3})) };
        assert_eq!(Decision::parse("y  {\"amount\": 3}"), Ok(decision));
        for line in ["", "maybe", "yn"] {
            let error = Decision::parse(line).unwrap_err();
            assert_eq!(error, "answer y or n, optionally followed by a JSON payload: y {\"amount\": 3}", "{line}");
        }
        let error = Decision::parse("n {amount}").unwrap_err();
        assert!(error.starts_with("the payload is not valid JSON: key must be a string at line 1"), "{error}");
    }
}
