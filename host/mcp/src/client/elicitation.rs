//! Elicitation: questions of a server to a person during a call, as a confirmation of the call.
//!
//! A question ends the call at the server, and the run pauses as for any confirmation, so that waiting holds nothing in
//! memory. With the answer the call is made again, and its question is answered immediately. The questions and answers
//! of a call are in the session's state until it has ended, with a proof of the host, since components and clients can
//! write that state. A decision counts only for the question that the person was asked.
//!
//! If the client of the run supports questions during the run, the question is forwarded to it, and the call continues.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hatchery_core::sync::MutexExt;
use hatchery_core::{CallContext, InputKind, InputRequest, InputResponse, JsonMap, ToolConfirmation, ToolError};
use hatchery_engine::validation::check_value;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Maximum number of questions of one call.
const MAX_QUESTIONS: usize = 8;

/// Prefix of the state keys of calls that wait for a person.
const STATE_PREFIX: &str = "mcp_elicitation:";

/// The purpose of the proofs of stored questions.
const PROOF_PURPOSE: &str = "mcp elicitation";

/// A question with a form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Question {
    message: String,
    schema: Value,
}

impl Question {
    /// Returns the question of a request. `None` if it asks a person to open a URL.
    fn from_request(request: &ElicitRequestParams) -> Option<Self> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else { return None };
        Some(Self { message: message.clone(), schema: serde_json::to_value(requested_schema).ok()? })
    }

    /// Returns the question to the person.
    fn hint(&self, server: &str) -> String {
        format!("{server} asks: {}", self.message)
    }

    /// Returns the answer of a person's decision.
    ///
    /// # Errors
    /// If it does not match the form. The text is for the model.
    async fn answer(self, decision: &ToolConfirmation, cx: &CallContext) -> Result<Answer, ToolError> {
        let content = match (&decision.payload, decision.confirmed) {
            (_, false) => None,
            (Some(Value::Object(answer)), true) => Some(self.complete(answer.clone())),
            (_, true) => Some(self.complete(JsonMap::new())),
        };
        if let Some(content) = &content {
            check_value(&self.schema, content.clone(), cx).await.map_err(|reason| {
                ToolError::Recoverable(format!("the person's answer does not match the form: {reason}"))
            })?;
        }
        Ok(Answer { question: self, content })
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
    /// The question to the person.
    open: Option<Question>,
}

/// The key of a question that is passed on.
const FORWARDED: &str = "elicitation";

/// Questions in the state of a session.
#[derive(Serialize, Deserialize)]
struct StoredQuestions {
    /// The JSON text of [`Questions`].
    questions: String,
    proof: String,
}

impl Questions {
    /// Returns the questions of a call that waits for a person.
    ///
    /// # Errors
    /// If they were changed from outside.
    fn load(cx: &CallContext) -> Result<Self, ForgedQuestions> {
        let stored = state_key(cx).and_then(|key| cx.state(&key)).filter(|stored| !stored.is_null());
        let Some(stored) = stored else { return Ok(Self::default()) };
        let StoredQuestions { questions, proof } = serde_json::from_value(stored).map_err(|_| ForgedQuestions)?;
        let is_own = cx.invocation.signer.verify_strings(PROOF_PURPOSE, &signed_texts(cx, &questions), &proof);
        is_own.then(|| serde_json::from_str(&questions).ok()).flatten().ok_or(ForgedQuestions)
    }

    fn to_state(&self, cx: &CallContext) -> Value {
        let questions = json!(self).to_string();
        let proof = cx.invocation.signer.sign_strings(PROOF_PURPOSE, &signed_texts(cx, &questions));
        json!(StoredQuestions { questions, proof })
    }
}

/// Stored questions that the host has not written.
struct ForgedQuestions;

/// Returns the data that a proof covers: a call of one session and its questions.
fn signed_texts<'a>(cx: &'a CallContext, questions: &'a str) -> [&'a str; 5] {
    let key = &cx.invocation.session_key;
    [&key.app, &key.user, &key.id, cx.function_call_id.as_deref().unwrap_or_default(), questions]
}

/// The questions and answers of one call.
pub(super) struct Elicitation {
    server: String,
    cx: CallContext,
    /// Number of questions that were passed on.
    forwarded: AtomicUsize,
    questions: Mutex<Questions>,
    /// Notified when the server has asked a question without an answer.
    new_question: Notify,
    /// True if a person can be asked.
    is_possible: bool,
}

impl Elicitation {
    /// Continues with the questions of a call, after a person has decided about one. If its state or the question to
    /// the person was changed from outside, nothing is accepted in the person's name: all questions are declined.
    ///
    /// # Errors
    /// If the answer does not match the form. The text is for the model.
    pub(super) async fn resume(server: &str, cx: &CallContext) -> Result<Self, ToolError> {
        let loaded = Questions::load(cx);
        let mut is_changed = loaded.is_err();
        let mut questions = loaded.unwrap_or_default();
        if let (Some(decision), Some(question)) = (cx.confirmation(), questions.open.take()) {
            if decision.hint == question.hint(server) {
                questions.answers.push(question.answer(decision, cx).await?)
            } else {
                is_changed = true
            }
        }
        if is_changed {
            let session = &cx.invocation.session_key;
            tracing::warn!(server, %session, "the questions of a call were changed in its session, so they are declined");
        }
        let is_possible = cx.function_call_id.is_some() && !cx.invocation.is_in_tool && !is_changed;
        Ok(Self {
            server: server.to_owned(),
            cx: cx.clone(),
            forwarded: AtomicUsize::new(0),
            questions: Mutex::new(questions),
            new_question: Notify::new(),
            is_possible,
        })
    }

    /// Returns the answer to a request. `None` if a person must be asked.
    pub(super) async fn answer(&self, request: &ElicitRequestParams) -> Option<ElicitResult> {
        match self.forward(request).await {
            Some(answer) => Some(answer),
            None => self.known_answer(request),
        }
    }

    /// Passes a request on to the client of the run. `None` if it does not answer during the run, or not as the form
    /// demands.
    async fn forward(&self, request: &ElicitRequestParams) -> Option<ElicitResult> {
        let question = Question::from_request(request).filter(|_| self.cx.has_interactive_input(InputKind::Form))?;
        if self.forwarded.fetch_add(1, Ordering::Relaxed) >= MAX_QUESTIONS {
            return Some(ElicitResult::new(ElicitationAction::Decline));
        }
        let form = InputRequest::Form { message: question.hint(&self.server), schema: question.schema.clone() };
        let responses = self.cx.request_input(BTreeMap::from([(FORWARDED.to_owned(), form)])).await;
        match responses.ok()?.remove(FORWARDED)? {
            InputResponse::Form(Some(fields)) => {
                let content = question.complete(fields);
                let is_valid = check_value(&question.schema, content.clone(), &self.cx).await.is_ok();
                is_valid.then(|| ElicitResult::new(ElicitationAction::Accept).with_content(content))
            }
            InputResponse::Form(None) => Some(ElicitResult::new(ElicitationAction::Decline)),
            InputResponse::Message(_) | InputResponse::Roots(_) => None,
        }
    }

    fn known_answer(&self, request: &ElicitRequestParams) -> Option<ElicitResult> {
        let decline = Some(ElicitResult::new(ElicitationAction::Decline));
        let Some(question) = Question::from_request(request) else { return decline };
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

    /// Asks the person, if there is an open question, and returns the result of the call until then. Otherwise the call
    /// has ended, and its questions are forgotten.
    pub(super) fn pause(&self, server: &str, cx: &CallContext) -> Result<Option<Value>, ToolError> {
        let questions = self.questions.lock_unpoisoned();
        let Some(key) = state_key(cx) else { return Ok(None) };
        let Some(question) = &questions.open else {
            forget(cx);
            return Ok(None);
        };
        let payload = json!({"server": server, "requestedSchema": question.schema});
        cx.request_confirmation(question.hint(server), Some(payload))
            .map_err(|error| ToolError::Recoverable(error.client_message()))?;
        cx.set_state(key, questions.to_state(cx));
        Ok(Some(json!({"status": format!("waiting for a person to answer: {}", question.message)})))
    }
}

/// Removes the questions and answers of a call that has ended from the state of its session.
pub(super) fn forget(cx: &CallContext) {
    if let Some(key) = state_key(cx)
        && cx.state(&key).is_some_and(|stored| !stored.is_null())
    {
        cx.set_state(key, Value::Null);
    }
}

fn state_key(cx: &CallContext) -> Option<String> {
    cx.function_call_id.as_ref().map(|id| format!("{STATE_PREFIX}{id}"))
}
