//! Values that may come from the environment of the host.

use hatchery_core::ConfigValue;
use serde::Deserialize;

/// A value, or the name of an environment variable of the host.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum ValueConfig {
    Text(String),
    Variable {
        from: String,
        #[serde(default)]
        prefix: String,
    },
}

impl ValueConfig {
    /// Returns the variable, if the value comes from one.
    pub(crate) fn variable(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Variable { from, .. } => Some(from),
        }
    }
}

impl From<&ValueConfig> for ConfigValue {
    fn from(setting: &ValueConfig) -> Self {
        match setting.clone() {
            ValueConfig::Text(text) => Self::Text(text),
            ValueConfig::Variable { from, prefix } => Self::Variable { name: from, prefix },
        }
    }
}
