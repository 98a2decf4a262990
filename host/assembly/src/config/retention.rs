//! The key `retention` of `hatchery.yaml`: the deletion of old sessions.

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The deletion of old sessions. By default, sessions are never deleted, and a deleted session leaves nothing behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// Number of days without an event after which a session is deleted.
    #[serde(deserialize_with = "positive")]
    pub max_idle_days: Option<u32>,
    /// Maximum number of sessions of a user in an app. The least recently used ones beyond it are deleted.
    #[serde(deserialize_with = "positive")]
    pub user_sessions: Option<u64>,
    /// Whether the artifacts of deleted sessions stay, also of those that clients delete.
    pub keep_artifacts: bool,
}

/// Reads a number that is not 0: that would delete every session.
fn positive<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default + PartialEq>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let number: Option<T> = Deserialize::deserialize(deserializer)?;
    if number.as_ref().is_some_and(|number| *number == T::default()) {
        return Err(D::Error::custom("must be at least 1; leave it out to keep sessions"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    #[test]
    fn rules_are_days_and_a_number_of_sessions() {
        let parse = |yaml: &str| Config::parse(yaml, Path::new("hatchery.yaml")).map(|config| config.retention);
        let rules = RetentionConfig { max_idle_days: Some(90), user_sessions: Some(200), keep_artifacts: false };
        assert_eq!(parse("retention: {max_idle_days: 90, user_sessions: 200}").unwrap(), rules);
        let keeps = RetentionConfig { keep_artifacts: true, ..RetentionConfig::default() };
        assert_eq!(parse("retention: {keep_artifacts: true}").unwrap(), keeps);
        assert_eq!(parse("").unwrap(), RetentionConfig::default());
        let error = parse("retention: {max_idle_days: 0}").unwrap_err().to_string();
        assert!(error.contains("must be at least 1; leave it out to keep sessions"), "{error}");
    }
}
