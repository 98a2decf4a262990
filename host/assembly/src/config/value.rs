//! Values that may come from the environment of the host.

use std::collections::BTreeMap;
use std::fmt;

use hatchery_core::ConfigValue;
use serde::Deserialize;

/// A value, or the name of an environment variable of the host. A value is not shown.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum ValueConfig {
    Text(String),
    Variable {
        from: String,
        #[serde(default)]
        prefix: String,
    },
}

impl fmt::Debug for ValueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("[hidden]"),
            Self::Variable { from, prefix } => {
                f.debug_struct("Variable").field("from", from).field("prefix", prefix).finish()
            }
        }
    }
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

/// Returns the values by name.
pub(super) fn settings<C: FromIterator<(String, ConfigValue)>>(values: &BTreeMap<String, ValueConfig>) -> C {
    values.iter().map(|(name, value)| (name.clone(), value.into())).collect()
}
