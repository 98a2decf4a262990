//! Answers of a schema: how a model is held to it, and what its answer is worth.
//!
//! A model without tools, or one that keeps to a schema beside tools, gets it as its response schema. Any other, and one whose text is to
//! hold a plan or code, gives its answer by calling [`SET_MODEL_RESPONSE`]: a call that does not fit is an error that the model can mend;
//! one that fits ends the agent's run with a last event whose text is the answer. Both follow from stored events alone.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Event, FunctionDeclaration, JsonMap, LlmAgent, LlmRequest, Planner, RunError, Tool, ToolError,
};
use serde_json::{Value, json};

use super::code;
use crate::tools::schema::{self, Failure};

/// The tool's name.
pub(super) const SET_MODEL_RESPONSE: &str = "set_model_response";

/// The tool's argument for an answer that is not an object, and the key of every answer in the tool's own.
const RESULT: &str = "result";

/// Keys of a schema that others refer to from its top.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The tool that holds the agent's model to its output schema, if there is one. It has to be the last of the agent's tools: what it puts
/// into a request depends on what the others have put there.
pub(super) fn tool(llm: &LlmAgent) -> Option<Arc<dyn Tool>> {
    let is_text_taken = code::on_host(llm).is_some() || matches!(llm.planner, Some(Planner::PlanReAct));
    let tool = |schema| Arc::new(SetModelResponse::new(schema, is_text_taken)) as Arc<dyn Tool>;
    llm.output_schema.as_ref().map(tool)
}

/// The answer in an event, if a call of the tool has given it.
pub(super) fn answer(event: &Event) -> Option<&Value> {
    let mut given = event.function_responses().filter(|response| response.name == SET_MODEL_RESPONSE);
    given.find_map(|response| response.response.get(RESULT))
}

/// Makes sure that answers can be checked.
///
/// # Errors
/// When the agent's schema cannot be used.
pub(super) async fn ensure_usable(llm: &LlmAgent, cx: &CallContext) -> Result<(), RunError> {
    let Some(schema) = &llm.output_schema else { return Ok(()) };
    let result = schema::check_schema(schema, &cx.invocation).await;
    result.map_err(|failure| match failure {
        Failure::Cancelled => RunError::Cancelled,
        Failure::Unusable(reason) | Failure::Unfit(reason) | Failure::TooMuch(reason) => RunError::Agent {
            agent: cx.agent.to_string(),
            code: "OUTPUT_SCHEMA_UNUSABLE".into(),
            message: format!(
                "its output schema cannot be used, so no answer of it could be checked; mend `output_schema`: {reason}"
            ),
        },
    })
}

/// What a final answer is worth: JSON of the schema. An answer that is not stays a text, and a warning says why.
///
/// # Errors
/// When the run is cancelled.
pub(super) async fn read(schema: &Value, text: String, cx: &CallContext) -> Result<Value, RunError> {
    let reason = match serde_json::from_str(&text) {
        Ok(answer) => match schema::check(schema, answer, &cx.invocation).await {
            Ok(answer) => return Ok(answer),
            Err(Failure::Cancelled) => return Err(RunError::Cancelled),
            Err(Failure::Unfit(reason) | Failure::Unusable(reason) | Failure::TooMuch(reason)) => reason,
        },
        Err(error) => format!("it is not JSON: {error}"),
    };
    let agent = &*cx.agent;
    tracing::warn!(agent, "the answer of agent `{agent}` does not fit its output schema and stays a text: {reason}");
    Ok(Value::String(text))
}

/// Takes the final answer.
struct SetModelResponse {
    declaration: Arc<FunctionDeclaration>,
    schema: Value,
    /// The answer is not an object, so it is an argument of its own.
    is_wrapped: bool,
    /// What the model writes is not only its answer, so a response schema would keep it from writing the rest.
    is_text_taken: bool,
}

impl SetModelResponse {
    fn new(schema: &Value, is_text_taken: bool) -> Self {
        let is_wrapped = !is_object(schema);
        let declaration = FunctionDeclaration {
            name: SET_MODEL_RESPONSE.into(),
            description: "Gives your final answer. Call it once, when you have all you need.".into(),
            parameters: Some(if is_wrapped { wrapped(schema.clone()) } else { schema.clone() }),
            response: None,
        };
        Self { declaration: Arc::new(declaration), schema: schema.clone(), is_wrapped, is_text_taken }
    }
}

#[async_trait]
impl Tool for SetModelResponse {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        let has_tools = !request.tools.is_empty() || !request.model_tools.is_empty();
        if self.is_text_taken || has_tools && !request.capabilities.schema_with_tools {
            request.tools.push(self.declaration.clone());
            request.system_instructions.push(format!(
                "When you have all you need, give your final answer by calling `{SET_MODEL_RESPONSE}`, and not as text. Should it \
                 report an error, mend the answer and call it again."
            ));
        } else {
            request.config.response_schema = Some(self.schema.clone());
            request.config.response_mime_type = Some("application/json".into());
        }
        Ok(())
    }

    async fn call(&self, mut args: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        let answer = if self.is_wrapped { args.remove(RESULT).unwrap_or_default() } else { Value::Object(args) };
        Ok(json!({ RESULT: answer }))
    }
}

fn is_object(schema: &Value) -> bool {
    let is_object = |kind: &Value| kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("object"));
    schema.get("type").map_or(schema.get("properties").is_some(), is_object)
        && schema.get("nullable") != Some(&Value::Bool(true))
}

/// An object with one property of this schema. Its definitions stay at the top; what refers to another part of it follows that part.
fn wrapped(mut schema: Value) -> Value {
    let mut parameters = JsonMap::new();
    if let Value::Object(schema) = &mut schema {
        parameters.extend(DEFINITIONS.iter().filter_map(|key| schema.remove_entry(*key)));
    }
    redirect(&mut schema);
    parameters.values_mut().for_each(redirect);
    parameters.insert("type".into(), json!("object"));
    parameters.insert("properties".into(), json!({ RESULT: schema }));
    parameters.insert("required".into(), json!([RESULT]));
    Value::Object(parameters)
}

/// Has references to parts of a schema lead to where [`wrapped`] puts them.
fn redirect(schema: &mut Value) {
    match schema {
        Value::Object(schema) => {
            for (key, value) in schema {
                match value {
                    Value::String(target) if key == "$ref" => redirect_one(target),
                    value => redirect(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redirect),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn redirect_one(target: &mut String) {
    let Some(pointer) = target.strip_prefix('#') else { return };
    let first = pointer.strip_prefix('/').map(|rest| rest.split('/').next().unwrap_or_default());
    let moves = first.map_or(pointer.is_empty(), |first| !DEFINITIONS.contains(&first));
    if moves {
        *target = format!("#/properties/{RESULT}{pointer}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_are_arguments_by_themselves() {
        for (schema, object) in [
            (json!({"type": "object"}), true),
            (json!({"type": "OBJECT"}), true),
            (json!({"properties": {}}), true),
            (json!({"type": "array"}), false),
            (json!({"type": ["object", "null"]}), false),
            (json!({"type": "OBJECT", "nullable": true}), false),
            (json!({"$ref": "#/$defs/x"}), false),
        ] {
            assert_eq!(is_object(&schema), object, "{schema}");
        }
    }

    #[test]
    fn what_a_wrapped_schema_refers_to_is_still_there() {
        let schema = json!({"type": "array", "items": {"$ref": "#/$defs/town"}, "$defs": {"town": {"type": "string"}}});
        let parameters = wrapped(schema);
        let check = |value| schema::fault_of(&parameters, value);
        assert_eq!(check(json!({"result": ["Rome"]})), "");
        assert_eq!(check(json!({"result": [1]})), "at `/result/0`: 1 is not of type \"string\"");
    }

    #[test]
    fn a_wrapped_schema_that_refers_to_itself_still_does() {
        let tree = json!({"type": "array", "items": {"$ref": "#/$defs/tree"}, "$defs": {"tree": {"$ref": "#"}}});
        let check = |value| schema::fault_of(&wrapped(tree.clone()), value);
        assert_eq!(check(json!({"result": [[], [[]]]})), "");
        assert_eq!(check(json!({"result": [[], [1]]})), "at `/result/1/0`: 1 is not of type \"array\"");
        let pair = json!({"type": ["object", "null"], "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}});
        let fault = schema::fault_of(&wrapped(pair), json!({"result": {"b": 1}}));
        assert_eq!(fault, "at `/result/b`: 1 is not of type \"string\"");
    }
}
