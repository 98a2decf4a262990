//! Human confirmation of tool calls.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;

/// A confirmation request for a tool call, with a person's decision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolConfirmation {
    /// The question to the person.
    pub hint: String,
    /// True once the person has agreed.
    pub confirmed: bool,
    /// Data to show or to fill in; in a decision, the data that the person entered.
    pub payload: Option<Value>,
}

impl ToolConfirmation {
    /// Returns the data that the person entered. `None` without data.
    ///
    /// # Errors
    /// If it is not a `T`.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let read = |error| Error::new("BAD_PAYLOAD", format!("the payload of the confirmation: {error}"));
        self.payload.clone().map(serde_path_to_error::deserialize).transpose().map_err(read)
    }
}
