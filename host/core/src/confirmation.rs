//! Confirmation of tool calls by a person (human in the loop).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of the function call that requests a confirmation from the client. Its response carries the decision.
pub const REQUEST_CONFIRMATION: &str = "adk_request_confirmation";

/// Returns the hint for a tool that provides none. It describes the response that the client must send.
pub fn confirmation_hint(tool: &str) -> String {
    format!(
        "Please approve or reject the tool call {tool}() by responding with a FunctionResponse with an expected \
         ToolConfirmation payload."
    )
}

/// A request for confirmation, or the decision about it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolConfirmation {
    /// The question to the person.
    #[serde(deserialize_with = "crate::event::null_as_default")]
    pub hint: String,
    /// Whether the person has approved the call.
    #[serde(deserialize_with = "crate::event::null_as_default")]
    pub confirmed: bool,
    /// Additional data of the tool in a request, and of the person in a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}
