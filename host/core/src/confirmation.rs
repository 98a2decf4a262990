//! Asking a person before a tool does something.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The function that a client sees called when a person is asked; its response carries the decision.
pub const REQUEST_CONFIRMATION: &str = "adk_request_confirmation";

/// The hint when the tool gives none: it tells the client what to send, not the person what is asked.
pub fn confirmation_hint(tool: &str) -> String {
    format!(
        "Please approve or reject the tool call {tool}() by responding with a FunctionResponse with an expected \
         ToolConfirmation payload."
    )
}

/// What a person is asked, and what they have decided.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolConfirmation {
    /// The question.
    #[serde(deserialize_with = "crate::event::null_as_default")]
    pub hint: String,
    /// True once they have agreed.
    #[serde(deserialize_with = "crate::event::null_as_default")]
    pub confirmed: bool,
    /// What the tool wants to know or to show, and in the answer what the person gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}
