//! `tool_recording`: a call of a tool.

use hatchery_core::{EventActions, FunctionCall, FunctionResponse, JsonMap, ToolError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{from_yaml_value, to_yaml_value};
use crate::{ToolCall, ToolOutcome};

#[derive(Serialize, Deserialize)]
pub(crate) struct ToolCallYaml {
    tool_call: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_response: Option<Value>,
    /// True if the result is not an object, but the value of `result` in the response.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    bare_result: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_error: Option<ToolErrorYaml>,
    /// True if the run ended before the tool returned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actions: Option<Value>,
}

#[derive(Serialize, Deserialize)]
struct ToolErrorYaml {
    /// `None` if the error is sent to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fatal: Option<FatalYaml>,
    message: String,
}

/// The tool and the code of an error that ends the run.
#[derive(Serialize, Deserialize)]
struct FatalYaml {
    tool: String,
    code: String,
}

impl From<&ToolCall> for ToolCallYaml {
    fn from(call: &ToolCall) -> Self {
        let (response, error) = match &call.outcome {
            ToolOutcome::Object(response) | ToolOutcome::Value(response) => (Some(to_yaml_value(response)), None),
            ToolOutcome::Error(error) => (Some(to_yaml_value(&error_response(&call.call, error))), Some(error.into())),
            ToolOutcome::Pending | ToolOutcome::Interrupted => (None, None),
        };
        Self {
            tool_call: to_yaml_value(&call.call),
            tool_response: response,
            bare_result: matches!(call.outcome, ToolOutcome::Value(_)),
            tool_error: error,
            stopped: call.outcome == ToolOutcome::Interrupted,
            actions: call.actions.as_ref().map(actions_to_value),
        }
    }
}

/// Returns the response that the model receives for an error. It is written for readers that do not know `tool_error`.
fn error_response(call: &FunctionCall, error: &ToolError) -> FunctionResponse {
    let response = JsonMap::from_iter([("error".into(), error.to_string().into())]);
    FunctionResponse { id: call.id.clone(), name: call.name.clone(), response, ..FunctionResponse::default() }
}

/// Serializes actions without empty maps.
fn actions_to_value(actions: &EventActions) -> Value {
    let mut yaml = to_yaml_value(actions);
    if let Value::Object(map) = &mut yaml {
        map.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    }
    yaml
}

impl TryFrom<ToolCallYaml> for ToolCall {
    type Error = String;

    fn try_from(yaml: ToolCallYaml) -> Result<Self, String> {
        let response = yaml.tool_response.filter(|response| !response.is_null());
        let outcome = match (yaml.tool_error, response, yaml.stopped) {
            (Some(error), _, _) => ToolOutcome::Error(error.into()),
            (None, Some(response), _) if yaml.bare_result => {
                ToolOutcome::Value(from_yaml_value(response, "tool_response")?)
            }
            (None, Some(response), _) => ToolOutcome::Object(from_yaml_value(response, "tool_response")?),
            (None, None, true) => ToolOutcome::Interrupted,
            (None, None, false) => ToolOutcome::Pending,
        };
        let actions = yaml.actions.map(|actions| from_yaml_value(actions, "actions")).transpose()?;
        Ok(Self { call: from_yaml_value(yaml.tool_call, "tool_call")?, outcome, actions })
    }
}

impl From<&ToolError> for ToolErrorYaml {
    fn from(error: &ToolError) -> Self {
        match error {
            ToolError::Recoverable(message) => Self { fatal: None, message: message.clone() },
            ToolError::Fatal { tool, code, message } => {
                let fatal = FatalYaml { tool: tool.clone(), code: code.clone().into_owned() };
                Self { fatal: Some(fatal), message: message.clone() }
            }
        }
    }
}

impl From<ToolErrorYaml> for ToolError {
    fn from(ToolErrorYaml { fatal, message }: ToolErrorYaml) -> Self {
        match fatal {
            Some(FatalYaml { tool, code }) => Self::Fatal { tool, code: code.into(), message },
            None => Self::Recoverable(message),
        }
    }
}
