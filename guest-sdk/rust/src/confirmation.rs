//! [`ToolConfirmation`]: what a person is asked before a tool goes on, and what they have decided.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;

/// What a person is asked before a tool goes on, and what they have decided.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolConfirmation {
    /// The question.
    pub hint: String,
    /// True once they have agreed.
    pub confirmed: bool,
    /// What the tool wants to know or to show; in the answer, what the person gave.
    pub payload: Option<Value>,
}

impl ToolConfirmation {
    /// What the person gave; nothing when they gave nothing.
    ///
    /// # Errors
    /// When it is of another shape than `T`.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let read = |error| Error::new("BAD_PAYLOAD", format!("the payload of the confirmation: {error}"));
        self.payload.clone().map(serde_path_to_error::deserialize).transpose().map_err(read)
    }
}
