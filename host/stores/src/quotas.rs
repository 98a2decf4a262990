//! Storage quotas of sessions, users and apps. They are checked in one place, by [`QuotaSessions`] and
//! [`QuotaArtifacts`], which wrap the services of a host. So they apply to every backend, and to HTTP clients,
//! components and commands.
//!
//! | key | default | limits |
//! |---|---|---|
//! | `quotas.delta_keys` | 1 000 | keys that one event or request sets |
//! | `quotas.delta_bytes` | 1 MiB | their bytes |
//! | `quotas.session_state_keys` | 10 000 | keys of a session |
//! | `quotas.session_state_bytes` | 16 MiB | their bytes |
//! | `quotas.session_events` | 100 000 | events of a session |
//! | `quotas.session_bytes` | 256 MiB | bytes of their JSON |
//! | `quotas.user_sessions` | 10 000 | sessions of a user in an app |
//! | `quotas.user_bytes` | 4 GiB | bytes of the JSON of all their events |
//! | `quotas.user_state_keys` | 200 000 | `user:` keys and the keys of all sessions of the user |
//! | `quotas.user_state_bytes` | 128 MiB | their bytes |
//! | `quotas.app_state_keys` | 10 000 | `app:` keys |
//! | `quotas.app_state_bytes` | 16 MiB | their bytes |
//! | `quotas.session_artifacts` | 1 000 | versions of a session's artifacts |
//! | `quotas.session_artifact_bytes` | 256 MiB | their bytes |
//! | `quotas.user_artifacts` | 10 000 | versions of all artifacts of a user in an app |
//! | `quotas.user_artifact_bytes` | 1 GiB | their bytes |
//! | `quotas.user_runs` | none | active runs of a user in an app |
//! | `quotas.user_tokens_per_day` | none | tokens of models that a user of an app uses from midnight to midnight, UTC |
//!
//! 0 means no limit. The size of state is the size of its names and JSON values. When a quota is lowered, stored data
//! is kept: it can be read, replaced by smaller data and deleted.

mod artifacts;
mod sessions;
mod state_change;
mod tokens;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hatchery_core::{Services, StoreError, pluralize};

pub use artifacts::QuotaArtifacts;
pub use sessions::QuotaSessions;

/// One of the quotas, see [the table](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    /// Keys that one event or request sets.
    DeltaKeys,
    /// Bytes that one event or request sets.
    DeltaBytes,
    /// Keys of a session's own state.
    SessionStateKeys,
    /// Bytes of a session's own state.
    SessionStateBytes,
    SessionEvents,
    /// Bytes of the JSON of a session's events.
    SessionBytes,
    /// Sessions of a user in an app.
    UserSessions,
    /// Bytes of the JSON of all events of a user.
    UserBytes,
    /// Keys of a user's shared state and of all sessions of the user.
    UserStateKeys,
    /// Bytes of a user's shared state and of all sessions of the user.
    UserStateBytes,
    /// Keys of an app's shared state.
    AppStateKeys,
    /// Bytes of an app's shared state.
    AppStateBytes,
    /// Versions of a session's artifacts.
    SessionArtifacts,
    /// Bytes of a session's artifacts.
    SessionArtifactBytes,
    /// Versions of all artifacts of a user.
    UserArtifacts,
    /// Bytes of all artifacts of a user.
    UserArtifactBytes,
    /// Active runs of a user.
    UserRuns,
    /// Tokens of models that a user uses in a day.
    UserTokensPerDay,
}

/// The unit of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of items.
    Count,
    Bytes,
}

/// A row of the table of quotas.
struct Row {
    quota: Quota,
    /// The full key in `hatchery.yaml`.
    key: &'static str,
    default: u64,
    unit: Unit,
    /// The subject of the error message, before the value.
    subject: &'static str,
    /// The noun after the value in the error message, in singular and plural.
    object: [&'static str; 2],
    /// The advice for a client without a larger quota.
    remedy: &'static str,
}

const fn row(
    quota: Quota,
    key: &'static str,
    default: u64,
    unit: Unit,
    subject: &'static str,
    object: [&'static str; 2],
    remedy: &'static str,
) -> Row {
    Row { quota, key, default, unit, subject, object, remedy }
}

const MIB: u64 = 1 << 20;

/// All quotas, in the order of [`Quota`].
#[rustfmt::skip]
const TABLE: [Row; 18] = {
    use Quota::*;
    use Unit::*;
    [
        row(DeltaKeys, "quotas.delta_keys", 1_000, Count, "one change of state", ["key", "keys"], "set fewer at a time"),
        row(DeltaBytes, "quotas.delta_bytes", MIB, Bytes, "one change of state", [""; 2], "set less at a time"),
        row(SessionStateKeys, "quotas.session_state_keys", 10_000, Count, "the state of a session", ["key", "keys"], "delete some"),
        row(SessionStateBytes, "quotas.session_state_bytes", 16 * MIB, Bytes, "the state of a session", [""; 2], "delete some keys"),
        row(SessionEvents, "quotas.session_events", 100_000, Count, "a session", ["event", "events"], "begin a new session"),
        row(SessionBytes, "quotas.session_bytes", 256 * MIB, Bytes, "a session", ["of events"; 2], "begin a new session"),
        row(UserSessions, "quotas.user_sessions", 10_000, Count, "a user of an app", ["session", "sessions"], "delete some"),
        row(UserBytes, "quotas.user_bytes", 4096 * MIB, Bytes, "a user of an app", ["of events"; 2], "delete some sessions"),
        row(UserStateKeys, "quotas.user_state_keys", 200_000, Count, "a user of an app", ["key of state", "keys of state"], "delete some keys or sessions"),
        row(UserStateBytes, "quotas.user_state_bytes", 128 * MIB, Bytes, "a user of an app", ["of state"; 2], "delete some keys or sessions"),
        row(AppStateKeys, "quotas.app_state_keys", 10_000, Count, "an app", ["key of shared state", "keys of shared state"], "delete some"),
        row(AppStateBytes, "quotas.app_state_bytes", 16 * MIB, Bytes, "an app", ["of shared state"; 2], "delete some keys"),
        row(SessionArtifacts, "quotas.session_artifacts", 1_000, Count, "a session", ["version of artifacts", "versions of artifacts"], "delete some"),
        row(SessionArtifactBytes, "quotas.session_artifact_bytes", 256 * MIB, Bytes, "a session", ["of artifacts"; 2], "delete some"),
        row(UserArtifacts, "quotas.user_artifacts", 10_000, Count, "a user of an app", ["version of artifacts", "versions of artifacts"], "delete some"),
        row(UserArtifactBytes, "quotas.user_artifact_bytes", 1024 * MIB, Bytes, "a user of an app", ["of artifacts"; 2], "delete some"),
        row(UserRuns, "quotas.user_runs", 0, Count, "a user of an app", ["active run", "active runs"], "wait until one has ended"),
        row(UserTokensPerDay, "quotas.user_tokens_per_day", 0, Count, "a user of an app", ["token a day", "tokens a day"], "try again tomorrow, UTC"),
    ]
};

impl Quota {
    /// Returns all quotas.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.quota)
    }

    /// Returns the key in `hatchery.yaml`, such as `quotas.delta_keys`.
    pub fn key(self) -> &'static str {
        self.row().map_or("quotas", |row| row.key)
    }

    /// Returns the unit.
    pub fn unit(self) -> Unit {
        self.row().map_or(Unit::Count, |row| row.unit)
    }

    fn row(self) -> Option<&'static Row> {
        TABLE.get(self as usize)
    }
}

/// The values of all quotas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quotas([u64; TABLE.len()]);

impl Default for Quotas {
    fn default() -> Self {
        Self(TABLE.map(|row| row.default))
    }
}

impl Quotas {
    /// Returns the value of a quota; 0 means no limit.
    pub fn get(&self, quota: Quota) -> u64 {
        self.0.get(quota as usize).copied().unwrap_or_default()
    }

    /// Sets a quota; 0 means no limit.
    pub fn set(&mut self, quota: Quota, value: u64) {
        if let Some(entry) = self.0.get_mut(quota as usize) {
            *entry = value;
        }
    }

    /// Returns the quotas with another value for one of them.
    #[must_use]
    pub fn with(mut self, quota: Quota, value: u64) -> Self {
        self.set(quota, value);
        self
    }

    /// Checks a usage against a quota.
    ///
    /// # Errors
    /// [`StoreError::QuotaExceeded`] if it exceeds the quota.
    fn check(&self, quota: Quota, used: u64) -> Result<(), StoreError> {
        let max = self.get(quota);
        if max == 0 || used <= max {
            return Ok(());
        }
        Err(self.quota_exceeded(quota))
    }

    fn quota_exceeded(&self, quota: Quota) -> StoreError {
        let Some(Row { key, unit, subject, object, remedy, .. }) = quota.row() else {
            return StoreError::InvalidRequest("a quota is used up".into());
        };
        let [singular, plural] = object;
        let amount = match unit {
            Unit::Count => pluralize(self.get(quota), singular, plural),
            Unit::Bytes if plural.is_empty() => format_bytes(self.get(quota)),
            Unit::Bytes => format!("{} {plural}", format_bytes(self.get(quota))),
        };
        let verb = match quota {
            Quota::UserRuns => "have",
            Quota::UserTokensPerDay => "use",
            _ => "hold",
        };
        let message = format!("{subject} may {verb} at most {amount}: {remedy}");
        let is_request = matches!(quota, Quota::DeltaKeys | Quota::DeltaBytes);
        StoreError::QuotaExceeded { message, key, is_request }
    }
}

/// Default quotas, and the quotas of single apps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppQuotas {
    /// Quotas of apps without their own.
    pub default: Quotas,
    /// Quotas by the name of the app.
    pub apps: HashMap<String, Quotas>,
}

impl AppQuotas {
    /// Returns the quotas of an app.
    pub fn for_app(&self, app: &str) -> &Quotas {
        self.apps.get(app).unwrap_or(&self.default)
    }

    /// Wraps the session and artifact services so that they enforce these quotas.
    pub fn enforce(self, services: Services) -> Services {
        LiveQuotas::from(Arc::new(self)).enforce(services)
    }
}

/// Quotas that can be replaced while services enforce them. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LiveQuotas(Arc<ArcSwap<AppQuotas>>);

impl LiveQuotas {
    /// Replaces the quotas. The next write is the first that they apply to.
    pub fn set(&self, quotas: AppQuotas) {
        self.0.store(Arc::new(quotas));
    }

    /// Wraps the session and artifact services so that they enforce these quotas.
    pub fn enforce(&self, services: Services) -> Services {
        Services {
            sessions: Arc::new(QuotaSessions::with_live(services.sessions, self.clone())),
            artifacts: Arc::new(QuotaArtifacts::with_live(services.artifacts, self.clone())),
            ..services
        }
    }

    fn for_app(&self, app: &str) -> Quotas {
        self.0.load().for_app(app).clone()
    }
}

impl From<Arc<AppQuotas>> for LiveQuotas {
    fn from(quotas: Arc<AppQuotas>) -> Self {
        Self(Arc::new(ArcSwap::new(quotas)))
    }
}

impl From<Quotas> for AppQuotas {
    fn from(default: Quotas) -> Self {
        Self { default, apps: HashMap::new() }
    }
}

/// Writes an exceeded quota to the audit log.
fn audit(error: &StoreError, app: &str, user: &str, session: &str) {
    if let StoreError::QuotaExceeded { message, key, .. } = error {
        tracing::warn!(target: "hatchery::audit", app, user, session, limit = key, detail = message, "quota");
    }
}

/// Formats a number of bytes with the largest unit that divides it.
fn format_bytes(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units.into_iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    unit.map_or_else(|| format!("{bytes} bytes"), |(name, size)| format!("{} {name}", bytes / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_order_of_the_quotas_and_each_key_once() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.quota as usize, index, "{}", row.key);
            assert!(row.key.starts_with("quotas."), "{}", row.key);
        }
        let keys: std::collections::BTreeSet<_> = TABLE.iter().map(|row| row.key).collect();
        assert_eq!(keys.len(), TABLE.len());
    }

    #[test]
    fn the_table_of_the_documentation_is_this_one() {
        let documented: Vec<String> = include_str!("quotas.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//! | `quotas."))
            .map(|line| line.split('|').take(2).map(str::trim).collect::<Vec<_>>().join("="))
            .collect();
        let table: Vec<String> = TABLE
            .iter()
            .map(|row| {
                let default = match row.unit {
                    _ if row.default == 0 => "none".into(),
                    Unit::Bytes => format_bytes(row.default),
                    Unit::Count if row.default >= 1000 => format!("{} {:03}", row.default / 1000, row.default % 1000),
                    Unit::Count => row.default.to_string(),
                };
                format!("{}`={default}", row.key.trim_start_matches("quotas."))
            })
            .collect();
        assert_eq!(documented, table);
    }

    #[test]
    fn every_error_names_quota_value_and_key() {
        let quotas = Quotas::default();
        let errors: Vec<String> = Quota::all().map(|quota| quotas.quota_exceeded(quota).to_string()).collect();
        let expected = [
            "one change of state may hold at most 1000 keys: set fewer at a time; raise `quotas.delta_keys`",
            "one change of state may hold at most 1 MiB: set less at a time; raise `quotas.delta_bytes`",
            "the state of a session may hold at most 10000 keys: delete some; raise `quotas.session_state_keys`",
            "the state of a session may hold at most 16 MiB: delete some keys; raise `quotas.session_state_bytes`",
            "a session may hold at most 100000 events: begin a new session; raise `quotas.session_events`",
            "a session may hold at most 256 MiB of events: begin a new session; raise `quotas.session_bytes`",
            "a user of an app may hold at most 10000 sessions: delete some; raise `quotas.user_sessions`",
            "a user of an app may hold at most 4 GiB of events: delete some sessions; raise `quotas.user_bytes`",
            "a user of an app may hold at most 200000 keys of state: delete some keys or sessions; \
             raise `quotas.user_state_keys`",
            "a user of an app may hold at most 128 MiB of state: delete some keys or sessions; \
             raise `quotas.user_state_bytes`",
            "an app may hold at most 10000 keys of shared state: delete some; raise `quotas.app_state_keys`",
            "an app may hold at most 16 MiB of shared state: delete some keys; raise `quotas.app_state_bytes`",
            "a session may hold at most 1000 versions of artifacts: delete some; raise `quotas.session_artifacts`",
            "a session may hold at most 256 MiB of artifacts: delete some; raise `quotas.session_artifact_bytes`",
            "a user of an app may hold at most 10000 versions of artifacts: delete some; raise `quotas.user_artifacts`",
            "a user of an app may hold at most 1 GiB of artifacts: delete some; raise `quotas.user_artifact_bytes`",
            "a user of an app may have at most 0 active runs: wait until one has ended; raise `quotas.user_runs`",
            "a user of an app may use at most 0 tokens a day: try again tomorrow, UTC; raise `quotas.user_tokens_per_day`",
        ];
        let expected: Vec<String> =
            expected.iter().map(|text| format!("{text} in hatchery.yaml to allow more")).collect();
        assert_eq!(errors, expected);
    }

    #[test]
    fn zero_means_no_limit() {
        let quotas = Quotas::default().with(Quota::DeltaKeys, 0);
        quotas.check(Quota::DeltaKeys, u64::MAX).unwrap();
        Quotas::default().check(Quota::DeltaKeys, 1000).unwrap();
        assert_eq!(Quotas::default().check(Quota::DeltaKeys, 1001).unwrap_err().code(), "QUOTA_EXCEEDED");
    }
}
