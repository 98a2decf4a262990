//! Encoding of the internal model in the wire formats of both versions, and decoding.

pub(crate) mod v0_3;
pub(crate) mod v1_0;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::A2aError;
use crate::model::{Operation, Outcome, Task, Update};

/// A wire version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Version {
    /// 0.3, whose method names have slashes.
    V0_3,
    /// 1.0.
    #[default]
    V1_0,
}

impl Version {
    /// Returns the version as headers and cards write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::V0_3 => "0.3",
            Self::V1_0 => "1.0",
        }
    }

    /// Returns the version that a client or a card names, by its major and minor number. `None` if it is not supported.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let mut numbers = name.trim().split('.');
        match (numbers.next()?, numbers.next()) {
            ("0", Some("3")) => Some(Self::V0_3),
            ("1", Some("0") | None) => Some(Self::V1_0),
            _ => None,
        }
    }

    /// Returns the operation of a JSON-RPC method with its parameters, and the version that has the method. `None` if
    /// no version has it.
    pub(crate) fn decode_call(method: &str, params: Value) -> Option<(Self, Result<Operation, A2aError>)> {
        match v1_0::decode_call(method, params) {
            Ok(operation) => Some((Self::V1_0, operation)),
            Err(params) => v0_3::decode_call(method, params).map(|operation| (Self::V0_3, operation)),
        }
    }

    /// Returns the JSON-RPC method of an operation and its parameters.
    pub(crate) fn encode_call(self, operation: Operation) -> (&'static str, Value) {
        match self {
            Self::V0_3 => v0_3::encode_call(operation),
            Self::V1_0 => v1_0::encode_call(operation),
        }
    }

    pub(crate) fn encode_outcome(self, outcome: Outcome) -> Value {
        match self {
            Self::V0_3 => v0_3::encode_outcome(outcome),
            Self::V1_0 => v1_0::encode_outcome(outcome),
        }
    }

    pub(crate) fn encode_update(self, update: Update) -> Value {
        match self {
            Self::V0_3 => v0_3::encode_update(update),
            Self::V1_0 => v1_0::encode_update(update),
        }
    }

    /// Decodes an item of a stream.
    ///
    /// # Errors
    /// The reason why it is not an item of a stream.
    pub(crate) fn decode_update(self, value: Value) -> Result<Update, String> {
        match self {
            Self::V0_3 => v0_3::decode_update(value),
            Self::V1_0 => v1_0::decode_update(value),
        }
    }

    /// Decodes a task.
    ///
    /// # Errors
    /// The reason why it is not a task.
    pub(crate) fn decode_task(self, value: Value) -> Result<Task, String> {
        match self {
            Self::V0_3 => v0_3::decode_task(value),
            Self::V1_0 => v1_0::decode_task(value),
        }
    }
}

/// Reads a value of a peer without copying its texts. Unknown keys are ignored.
fn take<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| describe(&error))
}

/// Reads a value of a peer. Unknown keys are ignored.
fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| describe(&error))
}

/// Returns a reason with the key that has the wrong type.
fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    match (error.path().to_string().as_str(), error.inner()) {
        (".", reason) => reason.to_string(),
        (key, reason) => format!("`{key}`: {reason}"),
    }
}

/// Writes a wire type. Wire types consist of texts, numbers, lists and mappings, so this cannot fail.
fn write(wire: impl serde::Serialize) -> Value {
    serde_json::to_value(wire).unwrap_or_default()
}

fn encode_bytes(bytes: &Bytes) -> String {
    STANDARD.encode(bytes)
}

/// Decodes Base64 of either alphabet, with or without padding.
fn decode_bytes(text: &str) -> Result<Bytes, String> {
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { base64::alphabet::URL_SAFE } else { base64::alphabet::STANDARD };
    let decoded = GeneralPurpose::new(&alphabet, lenient).decode(text);
    decoded.map(Bytes::from).map_err(|error| format!("a file is not Base64: {error}"))
}

/// Returns URL-safe Base64, without `/` and `+`.
pub(crate) fn encode_url_safe(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// Reverses [`encode_url_safe`]. `None` if the text is invalid.
pub(crate) fn decode_url_safe(text: &str) -> Option<String> {
    // The characters of one alphabet only, so that a text has one spelling.
    let bytes = decode_bytes(text).ok().filter(|_| !text.contains(['+', '/', '=']))?;
    let decoded = String::from_utf8(bytes.into()).ok()?;
    (encode_url_safe(&decoded) == text).then_some(decoded)
}

/// Deserializes a value, with the default for `null`.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    <Option<T> as serde::Deserialize>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
