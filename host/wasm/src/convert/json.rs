//! JSON as text, which is how dynamic values cross the border.

use hatchery_core::{Extra, JsonMap};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::BadValue;

/// A value as JSON text. Keys are strings and numbers are finite, so this cannot fail.
pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

/// Any JSON.
pub(crate) fn value(text: &str, what: &'static str) -> Result<Value, BadValue> {
    parse(text, what, "JSON")
}

/// A JSON object.
pub(crate) fn object(text: &str, what: &'static str) -> Result<JsonMap, BadValue> {
    parse(text, what, "a JSON object")
}

/// The keys that have no field of their own; nothing when there are none.
pub(super) fn extra(map: &JsonMap) -> Option<String> {
    (!map.is_empty()).then(|| text(map))
}

/// The other way round.
pub(super) fn from_extra(extra: Option<String>, what: &'static str) -> Result<Extra, BadValue> {
    extra.map_or_else(|| Ok(Extra::default()), |text| object(&text, what).map(Extra::from))
}

/// A structure of further keys.
pub(super) fn parse<T: DeserializeOwned>(text: &str, what: &'static str, wanted: &'static str) -> Result<T, BadValue> {
    serde_json::from_str(text).map_err(|error| BadValue { what, wanted, reason: error.to_string() })
}
