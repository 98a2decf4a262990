//! JSON as text, the form of dynamic values in the contract.

use hatchery_core::{Extra, JsonMap, KnownKeys, MAX_JSON_DEPTH, is_json_too_deep, known_key};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::BadValue;

/// Serializes a value. It cannot fail, since keys are strings and numbers are finite.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

/// Parses JSON that can be stored in an event.
pub(crate) fn parse_json(text: &str, what: &'static str) -> Result<Value, BadValue> {
    let value = parse(text, what, "JSON")?;
    check_depth(&value, what)?;
    Ok(value)
}

/// Parses a JSON object that can be stored in an event.
pub(crate) fn parse_object(text: &str, what: &'static str) -> Result<JsonMap, BadValue> {
    let map: JsonMap = parse(text, what, "a JSON object")?;
    map.values().try_for_each(|value| check_depth(value, what))?;
    Ok(map)
}

fn check_depth(value: &Value, what: &'static str) -> Result<(), BadValue> {
    if is_json_too_deep(value) {
        let reason = format!("it is nested more than {MAX_JSON_DEPTH} levels deep");
        return Err(BadValue { what, expected: "JSON that can be stored", reason });
    }
    Ok(())
}

/// Serializes the keys without a field; `None` if there are none.
pub(super) fn extra(map: &JsonMap) -> Option<String> {
    (!map.is_empty()).then(|| to_json(map))
}

/// Parses keys that have no field in `T`.
///
/// # Errors
/// If a key has a field: it would be stored beside the field and override it.
pub(super) fn from_extra<T: KnownKeys>(extra: Option<String>, what: &'static str) -> Result<Extra, BadValue> {
    let Some(text) = extra else { return Ok(Extra::default()) };
    let map = parse_object(&text, what)?;
    check_unknown::<T>(&map, what)?;
    Ok(map.into())
}

/// Checks that no key has a field in `T`.
pub(super) fn check_unknown<T: KnownKeys>(map: &JsonMap, what: &'static str) -> Result<(), BadValue> {
    match known_key::<T>(map) {
        Some(key) => {
            let reason = format!("`{key}` is a field of {}; set the field", T::NOUN);
            Err(BadValue { what, expected: "an object of keys without a field", reason })
        }
        None => Ok(()),
    }
}

/// Parses a structure of keys.
pub(super) fn parse<T: DeserializeOwned>(
    text: &str,
    what: &'static str,
    expected: &'static str,
) -> Result<T, BadValue> {
    serde_json::from_str(text).map_err(|error| BadValue { what, expected, reason: error.to_string() })
}
