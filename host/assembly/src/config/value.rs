//! Values that can come from the environment.

use std::collections::BTreeMap;

use hatchery_egress::Setting;
use serde::Deserialize;

/// A value, or the name of an environment variable of the host.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum ConfigValue {
    Text(String),
    Variable {
        from: String,
        #[serde(default)]
        prefix: String,
    },
}

impl ConfigValue {
    /// Returns the variable, if the value comes from one.
    pub(crate) fn variable(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Variable { from, .. } => Some(from),
        }
    }
}

impl From<&ConfigValue> for Setting {
    fn from(setting: &ConfigValue) -> Self {
        match setting.clone() {
            ConfigValue::Text(text) => Self::Text(text),
            ConfigValue::Variable { from, prefix } => Self::Variable { name: from, prefix },
        }
    }
}

/// Returns the values as settings, by name.
pub(super) fn settings<C: FromIterator<(String, Setting)>>(values: &BTreeMap<String, ConfigValue>) -> C {
    values.iter().map(|(name, value)| (name.clone(), value.into())).collect()
}
