//! Confirmations of a run, as questions to the person at the client.

use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_core::{
    Content, Event, FunctionCall, FunctionResponse, InputClient, InputError, InputRequest, InputResponse, JsonMap,
    PartData, REQUEST_CONFIRMATION, ToolConfirmation, confirmation_hint, hash_arguments,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A request for confirmation that an agent has made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Question {
    /// The id of the request's call.
    id: String,
    message: String,
    /// The JSON Schema of the form. `None` asks for consent only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<Value>,
}

impl Question {
    fn from_call(call: &FunctionCall) -> Option<Self> {
        let confirmation: ToolConfirmation = serde_json::from_value(call.args.get("toolConfirmation")?.clone()).ok()?;
        let original = call.args.get("originalFunctionCall")?;
        let name = original.get("name")?.as_str()?;
        let message = match confirmation.hint {
            // The default text describes how programs answer.
            hint if hint == confirmation_hint(name) => {
                format!("Allow the call of `{name}` with {}?", original.get("args").unwrap_or(&Value::Null))
            }
            hint => hint,
        };
        Some(Self { id: call.id.clone()?, message, schema: confirmation.payload.as_ref().and_then(form) })
    }

    /// Returns the answer of a person as the response to the request.
    fn respond(&self, answer: Option<JsonMap>) -> PartData {
        let mut response = JsonMap::from_iter([("confirmed".to_owned(), answer.is_some().into())]);
        if let (Some(fields), Some(schema)) = (answer, &self.schema) {
            let mut payload = defaults(schema);
            payload.extend(fields);
            response.insert("payload".into(), payload.into());
        }
        let (id, name) = (Some(self.id.clone()), REQUEST_CONFIRMATION.into());
        PartData::FunctionResponse(FunctionResponse { id, name, response, ..FunctionResponse::default() })
    }
}

/// Returns the form for the payload of a request: its `requestedSchema`, or one field for each of its values, which are
/// the defaults. `None` if it has neither.
fn form(payload: &Value) -> Option<Value> {
    if let Some(schema) = payload.get("requestedSchema") {
        return Some(schema.clone());
    }
    let field = |(name, value): (&String, &Value)| {
        let kind = match value {
            Value::String(_) => "string",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some((name.clone(), json!({"type": kind, "default": value})))
    };
    let fields: JsonMap =
        payload.as_object().filter(|fields| !fields.is_empty())?.iter().map(field).collect::<Option<_>>()?;
    Some(json!({"type": "object", "properties": fields}))
}

/// Returns the defaults of a form's fields.
fn defaults(schema: &Value) -> JsonMap {
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone()))).collect()
}

/// Returns the questions of a run that waits for their answers.
pub(super) fn questions(events: &[Arc<Event>]) -> Vec<Question> {
    let calls = events.iter().flat_map(|event| event.function_calls());
    calls.filter(|call| call.name == REQUEST_CONFIRMATION).filter_map(Question::from_call).collect()
}

/// Asks the person at the client. Returns the message that continues the run.
///
/// # Errors
/// As [`InputClient::request`].
pub(super) async fn ask(questions: &[Question], client: &dyn InputClient) -> Result<Content, InputError> {
    let mut requests = BTreeMap::new();
    let mut keys = Vec::with_capacity(questions.len());
    for question in questions {
        let schema = question.schema.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        // The ids of calls differ when a call is made again.
        let hash = hash_arguments(&(&question.message, &schema));
        let count = keys.iter().filter(|key: &&String| key.starts_with(&hash)).count();
        let key = format!("{hash}-{count}");
        requests.insert(key.clone(), InputRequest::Form { message: question.message.clone(), schema });
        keys.push(key);
    }
    let mut responses = client.request(requests).await?;
    let parts = keys.iter().zip(questions).map(|(key, question)| {
        let answer = match responses.remove(key) {
            Some(InputResponse::Form(answer)) => answer,
            Some(InputResponse::Message(_) | InputResponse::Roots(_)) | None => None,
        };
        question.respond(answer).into()
    });
    Ok(Content::new("user", parts.collect()))
}
