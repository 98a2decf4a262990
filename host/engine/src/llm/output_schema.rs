//! Structured output: makes a model answer with JSON of the agent's output schema, and validates the answer.
//!
//! The schema is the response schema of the request if the model supports one, beside tools if the agent has some.
//! Otherwise, and if the text contains a plan or code, the model answers by calling [`SET_MODEL_RESPONSE`]. A call that
//! does not match the schema is an error, and the model can call again. A call that matches ends the agent's run with a
//! last event whose text is the answer. Both depend on stored events only, so they work in a replayed run.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Event, FunctionDeclaration, JsonMap, LlmAgent, LlmRequest, Planner, RunError, Tool, ToolError,
};
use serde_json::{Value, json};

use super::code;
use crate::tools::schema::{self, Failure};

/// The name of the tool.
pub(super) const SET_MODEL_RESPONSE: &str = "set_model_response";

/// The tool's argument for an answer that is not an object, and the key of the answer in the tool's response.
const RESULT: &str = "result";

/// Keys of a schema with definitions, which references expect at the top level.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Returns the tool for the agent's output schema. `None` if it has no schema. It must be the last of the agent's
/// tools, because it prepares a request depending on the tools in it.
pub(super) fn tool(llm: &LlmAgent) -> Option<Arc<dyn Tool>> {
    let text_has_other_content = code::on_host(llm).is_some() || matches!(llm.planner, Some(Planner::PlanReAct));
    let tool = |schema| Arc::new(SetModelResponse::new(schema, text_has_other_content)) as Arc<dyn Tool>;
    llm.output_schema.as_ref().map(tool)
}

/// Returns the answer in an event with a response of the tool.
pub(super) fn answer(event: &Event) -> Option<&Value> {
    let mut responses = event.function_responses().filter(|response| response.name == SET_MODEL_RESPONSE);
    responses.find_map(|response| response.response.get(RESULT))
}

/// Checks that the agent's output schema is valid.
///
/// # Errors
/// If it is invalid, or the run is cancelled.
pub(super) async fn ensure_usable(llm: &LlmAgent, cx: &CallContext) -> Result<(), RunError> {
    let Some(schema) = &llm.output_schema else { return Ok(()) };
    let result = schema::check_schema(schema, &cx.invocation).await;
    result.map_err(|failure| match failure {
        Failure::Cancelled => RunError::Cancelled,
        Failure::InvalidSchema(reason) | Failure::Mismatch(reason) | Failure::LimitExceeded(reason) => {
            RunError::Agent {
                agent: cx.agent.to_string(),
                code: "OUTPUT_SCHEMA_UNUSABLE".into(),
                message: format!(
                    "its output schema is invalid, so its answers cannot be checked; fix `output_schema`: {reason}"
                ),
            }
        }
    })
}

/// Parses a final answer as JSON of the schema. An invalid answer is returned as a string, and the reason is logged.
///
/// # Errors
/// If the run is cancelled.
pub(super) async fn parse_answer(schema: &Value, text: String, cx: &CallContext) -> Result<Value, RunError> {
    let reason = match serde_json::from_str(&text) {
        Ok(answer) => match schema::check(schema, answer, &cx.invocation).await {
            Ok(answer) => return Ok(answer),
            Err(Failure::Cancelled) => return Err(RunError::Cancelled),
            Err(Failure::Mismatch(reason) | Failure::InvalidSchema(reason) | Failure::LimitExceeded(reason)) => reason,
        },
        Err(error) => format!("it is not JSON: {error}"),
    };
    let agent = &*cx.agent;
    tracing::warn!(
        agent,
        "the answer of agent `{agent}` does not match its output schema and is returned as text: {reason}"
    );
    Ok(Value::String(text))
}

/// Takes the final answer as its arguments.
struct SetModelResponse {
    declaration: Arc<FunctionDeclaration>,
    schema: Value,
    /// True if the answer is not an object, so that it is the argument [`RESULT`].
    is_wrapped: bool,
    /// True if the model also writes plans or code, which a response schema would prevent.
    text_has_other_content: bool,
}

impl SetModelResponse {
    fn new(schema: &Value, text_has_other_content: bool) -> Self {
        let is_wrapped = !is_object(schema);
        let declaration = FunctionDeclaration {
            name: SET_MODEL_RESPONSE.into(),
            description: "Gives your final answer. Call it once, when you have all you need.".into(),
            parameters: Some(if is_wrapped { wrap_schema(schema.clone()) } else { schema.clone() }),
            response: None,
        };
        Self { declaration: Arc::new(declaration), schema: schema.clone(), is_wrapped, text_has_other_content }
    }
}

#[async_trait]
impl Tool for SetModelResponse {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        let capabilities = request.capabilities;
        let has_tools = !request.tools.is_empty() || !request.model_tools.is_empty();
        let takes_schema = if has_tools { capabilities.schema_with_tools } else { !capabilities.lacks_response_schema };
        if self.text_has_other_content || !takes_schema {
            request.tools.push(self.declaration.clone());
            request.system_instructions.push(format!(
                "When you have all you need, give your final answer by calling `{SET_MODEL_RESPONSE}`, and not as text. If it \
                 returns an error, correct the answer and call it again."
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

/// Returns the schema of an object with the property [`RESULT`] of this schema. Definitions stay at the top level, and
/// other references are adjusted.
fn wrap_schema(mut schema: Value) -> Value {
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

/// Adjusts references in a schema to the new position of their targets in [`wrap_schema`].
fn redirect(schema: &mut Value) {
    match schema {
        Value::Object(schema) => {
            for (key, value) in schema {
                match value {
                    Value::String(target) if key == "$ref" => redirect_reference(target),
                    value => redirect(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redirect),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn redirect_reference(target: &mut String) {
    let Some(pointer) = target.strip_prefix('#') else { return };
    let first = pointer.strip_prefix('/').map(|rest| rest.split('/').next().unwrap_or_default());
    let is_moved = first.map_or(pointer.is_empty(), |first| !DEFINITIONS.contains(&first));
    if is_moved {
        *target = format!("#/properties/{RESULT}{pointer}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_schemas_of_objects_are_not_wrapped() {
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
    fn references_of_a_wrapped_schema_still_resolve() {
        let schema = json!({"type": "array", "items": {"$ref": "#/$defs/town"}, "$defs": {"town": {"type": "string"}}});
        let parameters = wrap_schema(schema);
        let check = |value| schema::fault_of(&parameters, value);
        assert_eq!(check(json!({"result": ["Rome"]})), "");
        assert_eq!(check(json!({"result": [1]})), "at `/result/0`: 1 is not of type \"string\"");
    }

    #[test]
    fn a_wrapped_recursive_schema_is_still_recursive() {
        let tree = json!({"type": "array", "items": {"$ref": "#/$defs/tree"}, "$defs": {"tree": {"$ref": "#"}}});
        let check = |value| schema::fault_of(&wrap_schema(tree.clone()), value);
        assert_eq!(check(json!({"result": [[], [[]]]})), "");
        assert_eq!(check(json!({"result": [[], [1]]})), "at `/result/1/0`: 1 is not of type \"array\"");
        let pair = json!({"type": ["object", "null"], "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}});
        let fault = schema::fault_of(&wrap_schema(pair), json!({"result": {"b": 1}}));
        assert_eq!(fault, "at `/result/b`: 1 is not of type \"string\"");
    }
}
