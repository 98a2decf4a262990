//! Calls that a turn leaves open: those that a person has to approve or reject, and those whose result comes later.

use std::fmt;

use hatchery_core::{
    Content, Event, FunctionCall, FunctionResponse, JsonMap, PartData, REQUEST_CONFIRMATION, ToolConfirmation,
    USER_AUTHOR, confirmation_hint,
};
use serde::Deserialize;
use serde_json::Value;

use crate::terminal::harmless;

/// The calls that the events of a turn leave open, in their order.
#[derive(Debug, Default, PartialEq)]
pub struct OpenCalls {
    /// Those that a person is asked about.
    pub questions: Vec<Question>,
    /// Those whose result comes later.
    pub pending: Vec<Pending>,
}

/// A call that a person has to approve or reject.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The id that the answer carries.
    id: String,
    tool: String,
    args: JsonMap,
    asked: ToolConfirmation,
}

/// A call whose result comes later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    id: String,
    tool: String,
}

/// What a person has decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Whether the call may go on.
    pub confirmed: bool,
    /// What the tool is told along with it; nothing gives it back what it has shown.
    pub payload: Option<Value>,
}

/// The arguments of a call of `adk_request_confirmation`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    original_function_call: FunctionCall,
    #[serde(default)]
    tool_confirmation: ToolConfirmation,
}

impl OpenCalls {
    /// Takes an event into account.
    pub fn note(&mut self, event: &Event) {
        if event.partial || event.author == USER_AUTHOR {
            return;
        }
        for call in event.function_calls() {
            let Some(id) = &call.id else { continue };
            if let Some(question) = Question::read(id, call) {
                self.questions.push(question);
            } else if event.long_running_tool_ids.contains(id) {
                self.pending.push(Pending { id: id.clone(), tool: call.name.clone() });
            }
        }
        // Other answers of such a call are only the beginning.
        for failed in event.function_responses().filter(|answer| answer.response.contains_key("error")) {
            self.pending.retain(|pending| Some(&pending.id) != failed.id.as_ref());
        }
    }
}

impl Question {
    fn read(id: &str, call: &FunctionCall) -> Option<Self> {
        if call.name != REQUEST_CONFIRMATION {
            return None;
        }
        let Asked { original_function_call: FunctionCall { name, args, .. }, tool_confirmation } =
            serde_json::from_value(call.args.clone().into()).ok()?;
        Some(Self { id: id.into(), tool: name, args, asked: tool_confirmation })
    }

    fn answer(&self, decision: &Decision) -> FunctionResponse {
        let mut response = JsonMap::from_iter([("confirmed".into(), decision.confirmed.into())]);
        let payload = decision.payload.clone().or_else(|| self.asked.payload.clone());
        response.extend(payload.map(|payload| ("payload".into(), payload)));
        FunctionResponse {
            id: Some(self.id.clone()),
            name: REQUEST_CONFIRMATION.into(),
            response,
            ..FunctionResponse::default()
        }
    }
}

/// Everything that a decision depends on, nothing of it cut.
impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = Value::from(self.args.clone()).to_string();
        write!(f, "{}({}) waits for approval", harmless(&self.tool), harmless(&args))?;
        if !self.asked.hint.is_empty() && self.asked.hint != confirmation_hint(&self.tool) {
            write!(f, "\n  {}", harmless(&self.asked.hint))?;
        }
        match &self.asked.payload {
            Some(payload) => write!(f, "\n  payload: {}", harmless(&payload.to_string())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the result of {} comes later, as a functionResponse of id {}",
            harmless(&self.tool),
            harmless(&self.id)
        )
    }
}

impl Decision {
    /// The same for every question.
    pub fn of(confirmed: bool) -> Self {
        Self { confirmed, payload: None }
    }

    /// Reads `y` or `n`, with or without a payload in JSON behind it; the error says how to answer.
    pub fn read(line: &str) -> Result<Self, String> {
        let line = line.trim();
        let (word, payload) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let confirmed = match word.to_lowercase().as_str() {
            "y" | "yes" => true,
            "n" | "no" => false,
            _ => return Err("answer y or n; a payload in JSON may follow, such as y {\"amount\": 3}".into()),
        };
        if payload.trim().is_empty() {
            return Ok(Self::of(confirmed));
        }
        let payload = serde_json::from_str(payload).map_err(|error| format!("the payload is not JSON: {error}"))?;
        Ok(Self { confirmed, payload: Some(payload) })
    }
}

/// The message that answers questions.
pub fn answers<'a>(decided: impl IntoIterator<Item = (&'a Question, &'a Decision)>) -> Content {
    let answer =
        |(question, decision): (&Question, &Decision)| PartData::FunctionResponse(question.answer(decision)).into();
    Content::new("user", decided.into_iter().map(answer).collect())
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

    fn request(id: &str, confirmation: Value) -> Value {
        let original = json!({"id": "c1", "name": "wire", "args": {"amount": 5}});
        json!({"functionCall": {"id": id, "name": "adk_request_confirmation",
            "args": {"originalFunctionCall": original, "toolConfirmation": confirmation}}})
    }

    fn open(events: &[Arc<Event>]) -> OpenCalls {
        let mut open = OpenCalls::default();
        events.iter().for_each(|event| open.note(event));
        open
    }

    fn question(confirmation: Value) -> Question {
        open(&[event(json!([request("q1", confirmation)]), &["q1"])]).questions.remove(0)
    }

    fn response(question: &Question, decision: &Decision) -> Value {
        serde_json::to_value(answers([(question, decision)])).unwrap()
    }

    #[test]
    fn a_question_shows_the_call_the_hint_and_the_payload() {
        let shown = |confirmation| question(confirmation).to_string();
        assert_eq!(
            shown(json!({"hint": "Really?\u{1b}", "confirmed": false, "payload": {"limit": 3}})),
            "wire({\"amount\":5}) waits for approval\n  Really?\\u{1b}\n  payload: {\"limit\":3}"
        );
        for hint in [json!(null), json!(confirmation_hint("wire"))] {
            assert_eq!(shown(json!({"hint": hint, "payload": null})), "wire({\"amount\":5}) waits for approval");
        }
    }

    #[test]
    fn calls_whose_result_comes_later_are_pending_unless_they_have_failed() {
        let calls = json!([{"functionCall": {"id": "c1", "name": "order"}}, {"functionCall": {"id": "c2", "name": "ship"}},
            {"functionCall": {"id": "c3", "name": "add"}}]);
        let answers = json!([
            {"functionResponse": {"id": "c1", "name": "order", "response": {"status": "pending"}}},
            {"functionResponse": {"id": "c2", "name": "ship", "response": {"error": "no ship"}}},
        ]);
        let open = open(&[event(calls, &["c1", "c2"]), event(answers, &[])]);
        assert_eq!(open.questions, []);
        let shown: Vec<_> = open.pending.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["the result of order comes later, as a functionResponse of id c1"]);
    }

    #[test]
    fn pieces_and_calls_that_are_no_question_leave_nothing_open() {
        let mut piece = EventData { partial: true, author: "bank".into(), ..EventData::default() };
        piece.content = event(json!([request("q1", json!({}))]), &[]).content.clone();
        let malformed = json!([{"functionCall": {"id": "q2", "name": "adk_request_confirmation", "args": {}}}]);
        assert_eq!(open(&[Event::new(piece), event(malformed, &[])]), OpenCalls::default());
    }

    #[test]
    fn an_answer_carries_the_decision_under_the_question_s_id() {
        let question = question(json!({"hint": "Really?"}));
        assert_eq!(
            response(&question, &Decision::of(true)),
            json!({"role": "user", "parts": [{"functionResponse":
                {"id": "q1", "name": "adk_request_confirmation", "response": {"confirmed": true}}}]})
        );
    }

    #[test]
    fn a_payload_is_given_back_unless_there_is_another() {
        let question = question(json!({"payload": {"limit": 3}}));
        let payload =
            |decision| response(&question, &decision)["parts"][0]["functionResponse"]["response"]["payload"].take();
        assert_eq!(payload(Decision::of(false)), json!({"limit": 3}));
        assert_eq!(payload(Decision { confirmed: true, payload: Some(json!(9)) }), json!(9));
    }

    #[test]
    fn decisions_are_read_with_their_payload() {
        for (line, confirmed) in [("y", true), (" Yes ", true), ("n", false), ("NO\n", false)] {
            assert_eq!(Decision::read(line), Ok(Decision::of(confirmed)), "{line}");
        }
        let decision = Decision { confirmed: true, payload: Some(json!({"amount": 3})) };
        assert_eq!(Decision::read("y  {\"amount\": 3}"), Ok(decision));
        for line in ["", "maybe", "yn"] {
            let error = Decision::read(line).unwrap_err();
            assert_eq!(error, "answer y or n; a payload in JSON may follow, such as y {\"amount\": 3}", "{line}");
        }
        let error = Decision::read("n {amount}").unwrap_err();
        assert!(error.starts_with("the payload is not JSON: key must be a string at line 1"), "{error}");
    }
}
