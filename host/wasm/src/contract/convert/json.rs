//! JSON as text, which is how dynamic values cross the border.

use hatchery_core::{Extra, JsonMap, KnownKeys, MAX_JSON_DEPTH, is_json_too_deep, known_key};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::BadValue;

/// A value as JSON text. Keys are strings and numbers are finite, so this cannot fail.
pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

/// Any JSON that can be stored in an event.
pub(crate) fn value(text: &str, what: &'static str) -> Result<Value, BadValue> {
    let value = parse(text, what, "JSON")?;
    check_depth(&value, what)?;
    Ok(value)
}

/// A JSON object that can be stored in an event.
pub(crate) fn object(text: &str, what: &'static str) -> Result<JsonMap, BadValue> {
    let map: JsonMap = parse(text, what, "a JSON object")?;
    map.values().try_for_each(|value| check_depth(value, what))?;
    Ok(map)
}

fn check_depth(value: &Value, what: &'static str) -> Result<(), BadValue> {
    if is_json_too_deep(value) {
        let reason = format!("it is nested more than {MAX_JSON_DEPTH} levels deep");
        return Err(BadValue { what, wanted: "JSON that can be stored", reason });
    }
    Ok(())
}

/// The keys that have no field of their own; nothing when there are none.
pub(super) fn extra(map: &JsonMap) -> Option<String> {
    (!map.is_empty()).then(|| text(map))
}

/// Reads the keys that have no field of their own in `T`.
///
/// # Errors
/// When there is one that has: it would be stored beside the field and override it.
pub(super) fn from_extra<T: KnownKeys>(extra: Option<String>, what: &'static str) -> Result<Extra, BadValue> {
    let Some(text) = extra else { return Ok(Extra::default()) };
    let map = object(&text, what)?;
    check_unknown::<T>(&map, what)?;
    Ok(map.into())
}

/// Checks that none of the keys has a field of its own in `T`.
pub(super) fn check_unknown<T: KnownKeys>(map: &JsonMap, what: &'static str) -> Result<(), BadValue> {
    match known_key::<T>(map) {
        Some(key) => {
            let reason = format!("`{key}` is a field of {}; set the field", T::NOUN);
            Err(BadValue { what, wanted: "an object of keys without a field", reason })
        }
        None => Ok(()),
    }
}

/// A structure of further keys.
pub(super) fn parse<T: DeserializeOwned>(text: &str, what: &'static str, wanted: &'static str) -> Result<T, BadValue> {
    serde_json::from_str(text).map_err(|error| BadValue { what, wanted, reason: error.to_string() })
}
