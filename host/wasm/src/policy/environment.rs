//! Environment variables of a component.

use serde::Deserialize;

/// The value of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "the value of a variable is a string, or `{from: VARIABLE OF THE HOST}`"
)]
pub enum Variable {
    /// A literal value.
    Text(String),
    /// The value of a variable of the host, read when the component is loaded.
    Host {
        /// Name of the host's variable.
        from: String,
    },
}
