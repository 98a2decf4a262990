//! Values of the configuration that can come from the environment.

use std::fmt;

use thiserror::Error;

/// A value that is written down, or taken from the environment of the host. Its `Debug` output shows no written value,
/// which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Setting {
    /// The value.
    Text(String),
    /// The value of an environment variable, which is read for each connection.
    Variable {
        /// The name of the variable.
        name: String,
        /// Text before the value, such as `Bearer `.
        prefix: String,
    },
}

/// A variable that a setting needs is not set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{key}` needs the environment variable {name} of the host, which is not set")]
pub struct MissingVariable {
    /// The setting.
    pub key: String,
    /// The variable.
    pub name: String,
}

impl Setting {
    /// Returns the value.
    ///
    /// # Errors
    /// If the variable is not set. The error names `key`, which needs it.
    pub fn value(&self, key: &str) -> Result<String, MissingVariable> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Variable { name, prefix } => match std::env::var(name) {
                Ok(value) => Ok(format!("{prefix}{value}")),
                Err(_) => Err(MissingVariable { key: key.into(), name: name.clone() }),
            },
        }
    }
}

impl fmt::Debug for Setting {
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
    fn a_variable_is_read_and_a_missing_one_is_named() {
        let set = Setting::Variable { name: "CARGO_PKG_NAME".into(), prefix: "of ".into() };
        assert_eq!(set.value("headers.X"), Ok("of hatchery-egress".into()));
        let missing = Setting::Variable { name: "HATCHERY_NO_SUCH".into(), prefix: String::new() };
        assert_eq!(
            missing.value("headers.X").unwrap_err().to_string(),
            "`headers.X` needs the environment variable HATCHERY_NO_SUCH of the host, which is not set"
        );
    }

    #[test]
    fn a_written_value_is_not_shown() {
        assert_eq!(format!("{:?}", Setting::Text("s3cret".into())), "[hidden]");
    }
}
