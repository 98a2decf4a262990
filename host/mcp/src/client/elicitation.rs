//! Elicitation: questions of a server to a person during a call, as a confirmation of the call.
//!
//! A question ends the call at the server, and the run pauses as for any confirmation, so that waiting holds nothing in
//! memory. With the answer the call is made again, and its question is answered at once. The questions and answers of a
//! call are in the session's state until it has ended.
//!
//! If the client of the run can be asked during the run, the question is passed on to it, and the call goes on.

use std::collections::BTreeMap;
use std::sync::Mutex;

use hatchery_core::sync::MutexExt;
use hatchery_core::{CallContext, InputKind, InputRequest, InputResponse, JsonMap, ToolError};
use hatchery_engine::validation::check_value;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Maximum number of questions of one call.
const MAX_QUESTIONS: usize = 8;

/// Prefix of the state keys of calls that wait for a person.
const STATE_PREFIX: &str = "mcp_elicitation:";

/// A question with a form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Question {
    message: String,
    schema: Value,
}

impl Question {
    /// Returns the question of a request. `None` if it asks a person to open a URL.
    fn of(request: &ElicitRequestParams) -> Option<Self> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else { return None };
        Some(Self { message: message.clone(), schema: serde_json::to_value(requested_schema).ok()? })
    }

    /// Returns an answer, with the schema's defaults for omitted properties.
    fn complete(&self, answer: JsonMap) -> Value {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        let defaults = properties.into_iter().flatten();
        let defaults = defaults.filter_map(|(key, schema)| Some((key.clone(), schema.get("default")?.clone())));
        let mut complete: JsonMap = defaults.collect();
        complete.extend(answer);
        Value::Object(complete)
    }
}

/// A question and a person's answer. Content of `None` is a refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Answer {
    question: Question,
    content: Option<Value>,
}

/// The questions of one call.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Questions {
    answers: Vec<Answer>,
    /// The question that a person is asked.
    open: Option<Question>,
}

/// The key of a question that is passed on.
const FORWARDED: &str = "elicitation";

/// The questions and answers of one call.
pub(super) struct Elicitation {
    cx: CallContext,
    questions: Mutex<Questions>,
    /// Notified when the server has asked a question without an answer.
    new_question: Notify,
    /// True if a person can be asked.
    is_possible: bool,
}

impl Elicitation {
    /// Continues with the questions of a call, after a person has decided about one.
    ///
    /// # Errors
    /// If the answer does not match the form. The text is for the model.
    pub(super) async fn resume(cx: &CallContext) -> Result<Self, ToolError> {
        let stored = state_key(cx).and_then(|key| cx.state(&key));
        let mut questions: Questions =
            stored.and_then(|stored| serde_json::from_value(stored).ok()).unwrap_or_default();
        if let (Some(decision), Some(question)) = (cx.confirmation(), questions.open.take()) {
            let content = match (&decision.payload, decision.confirmed) {
                (_, false) => None,
                (Some(Value::Object(answer)), true) => Some(question.complete(answer.clone())),
                (_, true) => Some(question.complete(JsonMap::new())),
            };
            if let Some(content) = &content {
                check_value(&question.schema, content.clone(), cx).await.map_err(|reason| {
                    ToolError::Recoverable(format!("the person's answer does not match the form: {reason}"))
                })?;
            }
            questions.answers.push(Answer { question, content });
        }
        let is_possible = cx.function_call_id.is_some() && !cx.invocation.is_in_tool;
        Ok(Self { cx: cx.clone(), questions: Mutex::new(questions), new_question: Notify::new(), is_possible })
    }

    /// Returns the answer to a request. `None` if a person is to be asked.
    pub(super) async fn answer(&self, request: &ElicitRequestParams) -> Option<ElicitResult> {
        match self.forward(request).await {
            Some(answer) => Some(answer),
            None => self.known_answer(request),
        }
    }

    /// Passes a request on to the client of the run. `None` if it does not answer during the run.
    async fn forward(&self, request: &ElicitRequestParams) -> Option<ElicitResult> {
        let question = Question::of(request).filter(|_| self.cx.has_interactive_input(InputKind::Form))?;
        let form = InputRequest::Form { message: question.message.clone(), schema: question.schema.clone() };
        let responses = self.cx.request_input(BTreeMap::from([(FORWARDED.to_owned(), form)])).await;
        match responses.ok()?.remove(FORWARDED)? {
            InputResponse::Form(Some(fields)) => {
                let content = question.complete(fields);
                Some(ElicitResult::new(ElicitationAction::Accept).with_content(content))
            }
            InputResponse::Form(None) => Some(ElicitResult::new(ElicitationAction::Decline)),
            InputResponse::Message(_) | InputResponse::Roots(_) => None,
        }
    }

    fn known_answer(&self, request: &ElicitRequestParams) -> Option<ElicitResult> {
        let decline = Some(ElicitResult::new(ElicitationAction::Decline));
        let Some(question) = Question::of(request) else { return decline };
        let mut questions = self.questions.lock_unpoisoned();
        if let Some(answer) = questions.answers.iter().find(|answer| answer.question == question) {
            return Some(match &answer.content {
                Some(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content.clone()),
                None => ElicitResult::new(ElicitationAction::Decline),
            });
        }
        if !self.is_possible || questions.answers.len() >= MAX_QUESTIONS {
            return decline;
        }
        questions.open.get_or_insert(question);
        drop(questions);
        self.new_question.notify_one();
        None
    }

    /// Waits until the server has asked a question without an answer.
    pub(super) async fn wait_for_question(&self) {
        self.new_question.notified().await;
    }

    /// Asks the person, if there is an open question, and returns the result of the call until then. Otherwise the call has
    /// ended, and its questions are forgotten.
    pub(super) fn pause(&self, server: &str, cx: &CallContext) -> Result<Option<Value>, ToolError> {
        let questions = self.questions.lock_unpoisoned();
        let Some(key) = state_key(cx) else { return Ok(None) };
        let Some(question) = &questions.open else {
            if !questions.answers.is_empty() {
                cx.set_state(key, Value::Null);
            }
            return Ok(None);
        };
        let payload = json!({"server": server, "requestedSchema": question.schema});
        cx.request_confirmation(format!("{server} asks: {}", question.message), Some(payload))
            .map_err(|error| ToolError::Recoverable(error.client_message()))?;
        cx.set_state(key, json!(*questions));
        Ok(Some(json!({"status": format!("waiting for a person to answer: {}", question.message)})))
    }
}

fn state_key(cx: &CallContext) -> Option<String> {
    cx.function_call_id.as_ref().map(|id| format!("{STATE_PREFIX}{id}"))
}
