//! The keys `quotas` and `durability` of `hatchery.yaml`: storage quotas and crash safety of SQLite.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use hatchery_stores::quotas::Unit;
use hatchery_stores::{AppQuotas, Durability, Quota, Quotas};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::Config;
use crate::byte_size::ByteSize;

/// The keys below `quotas:`.
static KEYS: LazyLock<Vec<&'static str>> = LazyLock::new(|| Quota::all().map(short_key).collect());

fn short_key(quota: Quota) -> &'static str {
    quota.key().trim_start_matches("quotas.")
}

/// Quotas that differ from the defaults. 0 means unlimited.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct QuotaOverrides(BTreeMap<&'static str, u64>);

impl QuotaOverrides {
    /// Returns true if no quota is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns these quotas, with `defaults` for the quotas that are not set.
    #[must_use]
    pub fn with_defaults(&self, defaults: &Self) -> Self {
        let mut quotas = defaults.0.clone();
        quotas.extend(&self.0);
        Self(quotas)
    }

    fn apply(&self, mut quotas: Quotas) -> Quotas {
        for quota in Quota::all() {
            if let Some(value) = self.0.get(short_key(quota)) {
                quotas.set(quota, *value);
            }
        }
        quotas
    }
}

impl Config {
    /// Returns the quotas of all apps. `apps.NAME.quotas` overrides `app_defaults.quotas`, which overrides `quotas`.
    pub(crate) fn app_quotas(&self) -> AppQuotas {
        let default = self.app_defaults.quotas.apply(self.quotas.apply(Quotas::default()));
        let with_quotas = self.apps.iter().filter(|(_, app)| !app.quotas.is_empty());
        let apps = with_quotas.map(|(name, app)| (name.clone(), app.quotas.apply(default.clone()))).collect();
        AppQuotas { default, apps }
    }
}

impl<'de> Deserialize<'de> for QuotaOverrides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(QuotasVisitor)
    }
}

struct QuotasVisitor;

impl<'de> Visitor<'de> for QuotasVisitor {
    type Value = QuotaOverrides;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of quotas to their values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<QuotaOverrides, A::Error> {
        let mut quotas = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let quota = Quota::all().find(|quota| short_key(*quota) == key);
            let quota = quota.ok_or_else(|| de::Error::unknown_field(&key, &KEYS))?;
            let value = match quota.unit() {
                Unit::Count => map.next_value::<u64>()?,
                Unit::Bytes => map.next_value::<ByteSize>()?.bytes() as u64,
            };
            quotas.insert(short_key(quota), value);
        }
        Ok(QuotaOverrides(quotas))
    }
}

/// The kind of crash that sessions in SQLite survive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DurabilityConfig {
    /// A crash of the process.
    #[default]
    Process,
    /// A crash of the process or a power failure. Every event is synced to disk.
    Power,
}

impl From<DurabilityConfig> for Durability {
    fn from(config: DurabilityConfig) -> Self {
        match config {
            DurabilityConfig::Process => Self::Process,
            DurabilityConfig::Power => Self::Power,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("/srv/agents/hatchery.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn quotas_of_an_app_override_the_defaults_of_all_apps_which_override_the_built_in_quotas() {
        let config = parse(
            "quotas: {delta_keys: 10, user_bytes: 2 GiB}\napp_defaults: {quotas: {session_events: 5}}\n\
             apps: {dice: {quotas: {delta_keys: 0, session_events: 7}}, trip: {max_events: 3}}\n",
        );
        let quotas = config.unwrap().app_quotas();
        let values = |app: &str| {
            let quotas = quotas.for_app(app);
            [Quota::DeltaKeys, Quota::SessionEvents, Quota::UserBytes, Quota::DeltaBytes].map(|quota| quotas.get(quota))
        };
        assert_eq!(values("trip"), [10, 5, 2 << 30, 1 << 20]);
        assert_eq!(values("dice"), [0, 7, 2 << 30, 1 << 20]);
        assert_eq!(Config::default().app_quotas(), AppQuotas::default());
    }

    #[test]
    fn a_wrong_quota_is_an_error_with_its_position() {
        let error = parse("quotas:\n  delta_key: 3\n").unwrap_err();
        let expected = "/srv/agents/hatchery.yaml:2:3: quotas: unknown field `delta_key`, expected one of `delta_keys`, \
                        `delta_bytes`, ";
        assert!(error.starts_with(expected), "{error}");
        let error = parse("quotas:\n  delta_bytes: much\n").unwrap_err();
        assert!(error.contains("`much` is not a size"), "{error}");
        let error = parse("quotas: {delta_keys: -1}").unwrap_err();
        assert!(
            error.contains("quotas.delta_keys: invalid type: integer `-1`, expected a whole number from 0 on"),
            "{error}"
        );
    }

    #[test]
    fn durability_covers_process_crashes_by_default() {
        assert_eq!(Durability::from(parse("").unwrap().durability), Durability::Process);
        assert_eq!(Durability::from(parse("durability: power").unwrap().durability), Durability::Power);
        let error = parse("durability: disk").unwrap_err();
        assert!(error.contains("durability: unknown variant `disk`, expected `process` or `power`"), "{error}");
    }
}
