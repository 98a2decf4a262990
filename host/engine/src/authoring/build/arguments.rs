//! Deserialization of tool arguments.
//!
//! `tool.rs` of the Rust guest SDK repeats this code and the code of [`schema`](super::schema::schema). Guests do not
//! depend on crates of the host, and a shared crate for two functions would be a dependency of every component.

use hatchery_core::{JsonMap, ToolError};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Deserializes the arguments of a call. The error names the field and is sent to the model.
pub(super) fn read<T: DeserializeOwned>(tool: &str, args: JsonMap) -> Result<T, ToolError> {
    let mut args = Value::Object(args);
    normalize_integers(&mut args);
    serde_path_to_error::deserialize(args).map_err(|error| {
        let field = error.path().to_string();
        let reason = error.inner();
        ToolError::Recoverable(match field.as_str() {
            "." => format!("bad arguments for `{tool}`: {reason}"),
            _ => format!("bad arguments for `{tool}`: `{field}`: {reason}"),
        })
    })
}

/// Converts floats without a fraction to integers: some models write `20.0` where the schema requires an integer.
fn normalize_integers(value: &mut Value) {
    /// Every integer up to 2^53 is an exact `f64`.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MAX_EXACT) {
                #[allow(clippy::cast_possible_truncation, reason = "no fraction, and in the exact range")]
                let integer = float as i64;
                *value = integer.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_integers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_integers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
