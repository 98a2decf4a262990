//! Errors: [`Error`] ends an agent's run or a callback, and [`ToolError`] is the failure of a tool.
//!
//! Neither implements [`std::error::Error`]. This allows `?` to convert any standard error and plain text into them.

use std::fmt;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Code of an [`Error`] that was converted from another error or from text.
pub const COMPONENT_FAILED: &str = "COMPONENT_FAILED";

/// A failure with a stable code. `?` converts any standard error and text into it, with the code [`COMPONENT_FAILED`].
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    /// Stable code for programs, such as `NOT_FOUND`, `DENIED`, `LIMIT_REACHED`, `MODEL_RATE_LIMITED`.
    pub code: String,
    /// Human-readable message: the problem and the next step.
    pub message: String,
}

impl Error {
    /// Creates an error with its own code.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

impl<E: Into<Source>> From<E> for Error {
    fn from(error: E) -> Self {
        Self::new(COMPONENT_FAILED, describe(&*error.into()))
    }
}

impl From<ToolError> for Error {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Recoverable(message) => Self::new("TOOL_FAILED", message),
            ToolError::Fatal(error) => error,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// The failure of a tool. `?` converts any standard error, text and [`Error`] into [`ToolError::Recoverable`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolError {
    /// The message is sent to the model, which may try again or continue without the result.
    Recoverable(String),
    /// Ends the run.
    Fatal(Error),
}

impl ToolError {
    /// Creates a failure that is sent to the model.
    pub fn recoverable(message: impl Into<String>) -> Self {
        Self::Recoverable(message.into())
    }

    /// Creates a failure that ends the run.
    pub fn fatal(error: impl Into<Error>) -> Self {
        Self::Fatal(error.into())
    }
}

impl<E: Into<Source>> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::Recoverable(describe(&*error.into()))
    }
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        Self::Recoverable(error.message)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recoverable(message) => f.write_str(message),
            Self::Fatal(error) => error.fmt(f),
        }
    }
}

/// Formats an error with its causes as `outer: inner`. A cause that its outer error already contains is not repeated.
fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<u32, ToolError> {
        Ok(text.parse::<u32>()?)
    }

    #[test]
    fn a_standard_error_is_sent_to_the_model() {
        assert_eq!(parse("x"), Err(ToolError::recoverable("invalid digit found in string")));
    }

    #[test]
    fn text_becomes_either_error() {
        assert_eq!(ToolError::from("no"), ToolError::recoverable("no"));
        assert_eq!(Error::from(String::from("no")), Error::new(COMPONENT_FAILED, "no"));
    }

    #[test]
    fn an_error_of_the_host_is_sent_to_the_model_unless_made_fatal() {
        let denied = Error::new("DENIED", "memory is denied");
        assert_eq!(ToolError::from(denied.clone()), ToolError::recoverable("memory is denied"));
        assert_eq!(ToolError::fatal(denied.clone()), ToolError::Fatal(denied.clone()));
        assert_eq!(Error::from(ToolError::fatal(denied.clone())), denied);
    }

    #[test]
    fn causes_are_not_repeated() {
        #[derive(Debug)]
        struct Outer(std::num::ParseIntError);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bad port")
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let error = Error::from(Outer("x".parse::<u8>().unwrap_err()));
        assert_eq!(error.message, "bad port: invalid digit found in string");
        assert_eq!(format!("{error:?}"), "COMPONENT_FAILED: bad port: invalid digit found in string");
    }
}
