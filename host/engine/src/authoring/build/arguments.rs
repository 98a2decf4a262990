//! Arguments of a call as a type.

use hatchery_core::{JsonMap, ToolError};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads the arguments of a call. What does not fit is told to the model, with the name of the field.
pub(super) fn read<T: DeserializeOwned>(tool: &str, args: JsonMap) -> Result<T, ToolError> {
    let mut args = Value::Object(args);
    write_whole_numbers_whole(&mut args);
    serde_path_to_error::deserialize(args).map_err(|error| {
        let field = error.path().to_string();
        let reason = error.inner();
        ToolError::Recoverable(match field.as_str() {
            "." => format!("bad arguments for `{tool}`: {reason}"),
            _ => format!("bad arguments for `{tool}`: `{field}`: {reason}"),
        })
    })
}

/// Some models write `20.0` where the schema wants an integer.
fn write_whole_numbers_whole(value: &mut Value) {
    // Up to here every whole `f64` is exact.
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MOST) {
                #[allow(clippy::cast_possible_truncation, reason = "whole and within the range")]
                let whole = float as i64;
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers_whole),
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers_whole),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
