//! Values of a configuration that may come from the environment, such as tokens.

use std::{env, fmt};

use thiserror::Error;

/// A text, or a variable of the host's environment. Its `Debug` output does not show the text, which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum ConfigValue {
    /// The value itself.
    Text(String),
    /// The value of an environment variable, which is read when it is needed.
    Variable {
        /// The name of the variable.
        name: String,
        /// Text before the value, such as `Bearer `.
        prefix: String,
    },
}

/// An environment variable that is not set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the environment variable {0} of the host is not set")]
pub struct MissingVariable(pub String);

impl ConfigValue {
    /// Returns the value.
    ///
    /// # Errors
    /// If the variable is not set.
    pub fn read(&self) -> Result<String, MissingVariable> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Variable { name, prefix } => match env::var(name) {
                Ok(value) => Ok(format!("{prefix}{value}")),
                Err(_) => Err(MissingVariable(name.clone())),
            },
        }
    }
}

impl fmt::Debug for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("[hidden]"),
            Self::Variable { name, .. } => write!(f, "from {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_its_prefix_and_a_missing_one_is_named() {
        let variable = |name: &str| ConfigValue::Variable { name: name.into(), prefix: "Bearer ".into() };
        assert_eq!(ConfigValue::Text("a".into()).read().as_deref(), Ok("a"));
        assert_eq!(variable("CARGO_PKG_NAME").read().as_deref(), Ok("Bearer hatchery-core"));
        let error = variable("NO_SUCH_VARIABLE").read().unwrap_err();
        assert_eq!(error.to_string(), "the environment variable NO_SUCH_VARIABLE of the host is not set");
    }

    #[test]
    fn a_written_value_is_not_shown() {
        assert_eq!(format!("{:?}", ConfigValue::Text("s3cret".into())), "[hidden]");
    }
}
