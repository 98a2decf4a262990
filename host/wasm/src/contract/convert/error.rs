//! Conversion of errors. Errors of guests are truncated to a size that fits into a log line and an answer to a model.

use hatchery_core::{ModelError, ModelErrorKind, RunError, ToolError};

use super::{ToWit, wit};

const MAX_MESSAGE: usize = 16 << 10;

const MAX_CODE: usize = 64;

/// Replaces the part that was cut off.
const CUT: char = '…';

impl ToWit for RunError {
    type Wit = wit::Error;

    fn to_wit(&self) -> wit::Error {
        wit::Error { code: self.code().into(), message: self.redact() }
    }
}

impl ToWit for ModelError {
    type Wit = wit::Error;

    fn to_wit(&self) -> wit::Error {
        RunError::Model(self.clone()).to_wit()
    }
}

impl ToWit for ToolError {
    type Wit = wit::Error;

    fn to_wit(&self) -> wit::Error {
        RunError::Tool(self.clone()).to_wit()
    }
}

/// Converts an error of a guest to one of `model`. Codes of model errors keep their meaning.
pub(crate) fn to_model_error(error: wit::Error, model: &str) -> ModelError {
    let wit::Error { code, message } = truncate_error(error);
    match ModelErrorKind::from_code(&code) {
        Some(kind) => ModelError::new(kind, model, message),
        None => ModelError::new(ModelErrorKind::Server, model, format!("{message} ({code})")),
    }
}

/// Converts an error of a tool or a code executor.
pub(crate) fn to_tool_error(error: wit::ToolError, tool: &str) -> ToolError {
    match error {
        wit::ToolError::Recoverable(message) => ToolError::Recoverable(truncate_message(message)),
        wit::ToolError::Fatal(error) => {
            let wit::Error { code, message } = truncate_error(error);
            ToolError::Fatal { tool: tool.into(), code: code.into(), message }
        }
    }
}

/// Truncates the error of an event, if it has one.
pub(crate) fn truncate_event_error(event: wit::Event) -> wit::Event {
    wit::Event {
        error_code: event.error_code.map(truncate_code),
        error_message: event.error_message.map(truncate_message),
        ..event
    }
}

/// Truncates the error of a response, if it has one.
pub(crate) fn truncate_response_error(response: wit::LlmResponse) -> wit::LlmResponse {
    wit::LlmResponse {
        error_code: response.error_code.map(truncate_code),
        error_message: response.error_message.map(truncate_message),
        ..response
    }
}

/// Truncates the code and the message of an error.
pub(crate) fn truncate_error(error: wit::Error) -> wit::Error {
    wit::Error { code: truncate_code(error.code), message: truncate_message(error.message) }
}

fn truncate_message(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        truncate(&mut message, MAX_MESSAGE - CUT.len_utf8());
        message.push(CUT);
    }
    message
}

fn truncate_code(mut code: String) -> String {
    truncate(&mut code, MAX_CODE);
    code
}

fn truncate(text: &mut String, max: usize) {
    text.truncate(text.floor_char_boundary(max));
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_cut_to_a_bounded_size_between_characters() {
        let long = wit::Error { code: "ä".repeat(100), message: "ü".repeat(MAX_MESSAGE) };
        let error = truncate_error(long);
        assert_eq!(error.code, "ä".repeat(32));
        assert_eq!(error.message.len(), MAX_MESSAGE - 1);
        assert!(error.message.ends_with("ü…"));
    }

    #[test]
    fn an_error_that_fits_stays_as_it_is() {
        let error = truncate_error(wit::Error { code: "C".repeat(64), message: "m".repeat(16 << 10) });
        assert_eq!((error.code, error.message), ("C".repeat(64), "m".repeat(16 << 10)));
    }
}
