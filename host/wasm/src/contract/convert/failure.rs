//! Errors: those of a run as guests see them, and those of guests, cut to a size that fits into a log line and into an answer to a model.

use hatchery_core::{ModelError, ModelErrorKind, RunError, ToolError};

use super::{ToWit, wit};

/// Most bytes of an error's message.
const MAX_MESSAGE: usize = 16 << 10;

/// Most bytes of an error's code.
const MAX_CODE: usize = 64;

/// Stands for what was cut off.
const CUT: char = '…';

impl ToWit for RunError {
    type Wit = wit::Error;

    fn to_wit(&self) -> wit::Error {
        wit::Error { code: self.code().into(), message: self.to_string() }
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

/// A guest's error as one of the model `model`. Codes that model errors have keep their meaning.
pub(crate) fn model_error(error: wit::Error, model: &str) -> ModelError {
    let wit::Error { code, message } = bounded(error);
    match ModelErrorKind::from_code(&code) {
        Some(kind) => ModelError::new(kind, model, message),
        None => ModelError::new(ModelErrorKind::Server, model, format!("{message} ({code})")),
    }
}

/// A guest's error of a tool or a code executor.
pub(crate) fn bounded_tool_error(error: wit::ToolError, tool: &str) -> ToolError {
    match error {
        wit::ToolError::Model(message) => ToolError::Recoverable(bounded_message(message)),
        wit::ToolError::Fatal(error) => {
            let wit::Error { code, message } = bounded(error);
            ToolError::Fatal { tool: tool.into(), code: code.into(), message }
        }
    }
}

/// An event whose error, if it has one, is of a bounded size.
pub(crate) fn bounded_event(event: wit::Event) -> wit::Event {
    wit::Event {
        error_code: event.error_code.map(bounded_code),
        error_message: event.error_message.map(bounded_message),
        ..event
    }
}

/// A response whose error, if it has one, is of a bounded size.
pub(crate) fn bounded_response(response: wit::LlmResponse) -> wit::LlmResponse {
    wit::LlmResponse {
        error_code: response.error_code.map(bounded_code),
        error_message: response.error_message.map(bounded_message),
        ..response
    }
}

/// An error with a code and a message of bounded sizes.
pub(crate) fn bounded(error: wit::Error) -> wit::Error {
    wit::Error { code: bounded_code(error.code), message: bounded_message(error.message) }
}

/// The begin of an error's message.
fn bounded_message(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        cut(&mut message, MAX_MESSAGE - CUT.len_utf8());
        message.push(CUT);
    }
    message
}

/// The begin of an error's code.
fn bounded_code(mut code: String) -> String {
    cut(&mut code, MAX_CODE);
    code
}

fn cut(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_cut_to_a_bounded_size_between_characters() {
        let long = wit::Error { code: "ä".repeat(100), message: "ü".repeat(MAX_MESSAGE) };
        let error = bounded(long);
        assert_eq!(error.code, "ä".repeat(32));
        assert_eq!(error.message.len(), MAX_MESSAGE - 1);
        assert!(error.message.ends_with("ü…"));
    }

    #[test]
    fn an_error_that_fits_stays_as_it_is() {
        let error = bounded(wit::Error { code: "C".repeat(64), message: "m".repeat(16 << 10) });
        assert_eq!((error.code, error.message), ("C".repeat(64), "m".repeat(16 << 10)));
    }
}
