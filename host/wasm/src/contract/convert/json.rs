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
pub(crate) fn parse_json(text: &str, subject: &'static str) -> Result<Value, BadValue> {
    let value = parse(text, subject, "JSON")?;
    check_depth(&value, subject)?;
    Ok(value)
}

/// Parses a JSON object that can be stored in an event.
pub(crate) fn parse_object(text: &str, subject: &'static str) -> Result<JsonMap, BadValue> {
    let map: JsonMap = parse(text, subject, "a JSON object")?;
    map.values().try_for_each(|value| check_depth(value, subject))?;
    Ok(map)
}

fn check_depth(value: &Value, subject: &'static str) -> Result<(), BadValue> {
    if is_json_too_deep(value) {
        let reason = format!("it is nested more than {MAX_JSON_DEPTH} levels deep");
        return Err(BadValue { subject, expected: "JSON that can be stored", reason });
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
/// If a key has a field: it would be stored in addition to the field and override it.
pub(super) fn from_extra<T: KnownKeys>(extra: Option<String>, subject: &'static str) -> Result<Extra, BadValue> {
    let Some(text) = extra else { return Ok(Extra::default()) };
    let map = parse_object(&text, subject)?;
    check_unknown::<T>(&map, subject)?;
    Ok(map.into())
}

/// Checks that no key has a field in `T`.
pub(super) fn check_unknown<T: KnownKeys>(map: &JsonMap, subject: &'static str) -> Result<(), BadValue> {
    match known_key::<T>(map) {
        Some(key) => {
            let reason = format!("`{key}` is a field of {}; set the field", T::NOUN);
            Err(BadValue { subject, expected: "an object of keys without a field", reason })
        }
        None => Ok(()),
    }
}

/// Parses a structure of keys.
pub(super) fn parse<T: DeserializeOwned>(
    text: &str,
    subject: &'static str,
    expected: &'static str,
) -> Result<T, BadValue> {
    serde_json::from_str(text).map_err(|error| BadValue { subject, expected, reason: error.to_string() })
}
