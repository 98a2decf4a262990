//! [`Error`], which ends an agent's run or a callback, and [`ToolError`], which a tool fails with.
//!
//! Neither implements [`std::error::Error`]: that is what lets `?` turn any error that does, and plain text, into them.

use std::fmt;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The code of an [`Error`] that was made from another error or from text.
pub const COMPONENT_FAILED: &str = "COMPONENT_FAILED";

/// A failure with a stable code. `?` makes it from any standard error and from text, with the code [`COMPONENT_FAILED`].
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    /// Stable, for programs, such as `NOT_FOUND`, `DENIED`, `LIMIT_REACHED`, `MODEL_RATE_LIMITED`.
    pub code: String,
    /// For people: what happened and what to do.
    pub message: String,
}

impl Error {
    /// An error with its own code.
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
            ToolError::Model(message) => Self::new("TOOL_FAILED", message),
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

/// How a tool fails. `?` makes [`ToolError::Model`] from any standard error, from text and from [`Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolError {
    /// The model is told, and may try again or do without.
    Model(String),
    /// The run ends.
    Fatal(Error),
}

impl ToolError {
    /// A failure that the model is told about.
    pub fn model(message: impl Into<String>) -> Self {
        Self::Model(message.into())
    }

    /// A failure that ends the run.
    pub fn fatal(error: impl Into<Error>) -> Self {
        Self::Fatal(error.into())
    }
}

impl<E: Into<Source>> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::Model(describe(&*error.into()))
    }
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        Self::Model(error.message)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(message) => f.write_str(message),
            Self::Fatal(error) => error.fmt(f),
        }
    }
}

/// The error with its causes, `outer: inner`; a cause that its outer error quotes is not repeated.
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
    fn a_standard_error_is_told_to_the_model() {
        assert_eq!(parse("x"), Err(ToolError::model("invalid digit found in string")));
    }

    #[test]
    fn text_becomes_either_error() {
        assert_eq!(ToolError::from("no"), ToolError::model("no"));
        assert_eq!(Error::from(String::from("no")), Error::new(COMPONENT_FAILED, "no"));
    }

    #[test]
    fn an_error_of_the_host_is_told_to_the_model_unless_made_fatal() {
        let denied = Error::new("DENIED", "memory is denied");
        assert_eq!(ToolError::from(denied.clone()), ToolError::model("memory is denied"));
        assert_eq!(ToolError::fatal(denied.clone()), ToolError::Fatal(denied.clone()));
        assert_eq!(Error::from(ToolError::fatal(denied.clone())), denied);
    }

    #[test]
    fn causes_are_told_once() {
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
