//! Shared code of the conversions of all libraries: errors, and the choice of tools.

use hatchery_core::{GenerateContentConfig, ModelError, ModelErrorKind};
use serde_json::Value;
use thiserror::Error;

use crate::failure::Origin;
use crate::openai::tool_choice_of;

/// Content that this crate or a library cannot represent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConversionError {
    /// A text should be JSON and is not.
    #[error("{what} cannot be read as JSON: {reason}")]
    Json {
        /// The name of the text.
        what: String,
        reason: String,
    },
    /// A message or a setting that the library has no form for.
    #[error("{0}")]
    InvalidStructure(String),
    /// A file of a type that the library has no form for.
    #[error(
        "files of type `{0}` cannot be sent by this library; remove the file, or choose a model without the library"
    )]
    UnsupportedContentType(String),
}

impl ConversionError {
    pub(super) fn json(what: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Json { what: what.into(), reason: reason.to_string() }
    }

    /// Returns the error of a model whose request cannot be converted.
    pub(super) fn in_request(self, origin: &Origin) -> ModelError {
        origin.error(ModelErrorKind::BadRequest, self.to_string())
    }

    /// Returns the error of a model whose answer cannot be converted.
    pub(super) fn in_response(self, origin: &Origin) -> ModelError {
        origin.bad_response(self)
    }
}

/// The choice of tools that the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToolChoice {
    Auto,
    Never,
    Any,
    One(String),
}

impl ToolChoice {
    pub(super) fn from_config(config: &GenerateContentConfig) -> Option<Self> {
        let choice = tool_choice_of(config.extra.get("toolConfig")?, Value::clone)?;
        match choice.as_str()? {
            "auto" => Some(Self::Auto),
            "none" => Some(Self::Never),
            "required" => Some(Self::Any),
            name => Some(Self::One(name.to_owned())),
        }
    }
}
