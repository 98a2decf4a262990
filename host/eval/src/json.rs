//! Spellings of ADK's JSON: keys in camelCase or snake_case, and `null` for absent values.

use hatchery_core::JsonMap;
use hatchery_core::suggestion::explain_syntax_error;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Keys whose values belong to an agent or a tool, and are kept as they are.
const OPAQUE_KEYS: [&str; 3] = ["args", "response", "state"];

/// Converts a JSON object, in which `null` is the same as no key. The error has the path of the value, such as
/// `evalCases[0].conversation`, and names no types of the program.
pub(crate) fn from_object<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    // A structure could be parsed from an array of its fields, too.
    if !value.is_object() {
        return Err("it must be a JSON object".into());
    }
    serde_path_to_error::deserialize(without_nulls(value)).map_err(|error| {
        let problem =
            explain_syntax_error(&error.inner().to_string()).replace("expected a mapping", "expected an object");
        match error.path().to_string().as_str() {
            "." => problem,
            path => format!("{path}: {problem}"),
        }
    })
}

/// Removes the keys whose value is `null`, which means the same as an absent key. Arguments, responses and state keep
/// them.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = map.into_iter().filter(|(_, value)| !value.is_null());
            let convert = |(key, value): (String, Value)| {
                let value = if is_opaque(&key) { value } else { without_nulls(value) };
                (key, value)
            };
            Value::Object(entries.map(convert).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// Returns the JSON with its keys in snake_case, as ADK's newer routes write eval sets. Keys in arguments, responses
/// and state are kept.
pub fn to_snake_case(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let convert = |(key, value): (String, Value)| {
                let value = if is_opaque(&key) { value } else { to_snake_case(value) };
                (snake_case(&key), value)
            };
            Value::Object(map.into_iter().map(convert).collect::<JsonMap>())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(to_snake_case).collect()),
        other => other,
    }
}

fn is_opaque(key: &str) -> bool {
    OPAQUE_KEYS.contains(&key)
}

fn snake_case(key: &str) -> String {
    let mut text = String::with_capacity(key.len() + 4);
    for character in key.chars() {
        if character.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nulls_are_removed_but_for_values_of_agents() {
        let json = json!({"a": null, "parts": [{"text": "x", "thought": null}], "args": {"n": null}});
        assert_eq!(without_nulls(json), json!({"parts": [{"text": "x"}], "args": {"n": null}}));
    }

    #[test]
    fn keys_become_snake_case_except_for_keys_of_agents() {
        let json = json!({"evalSetId": "s", "evalCases": [{"functionCall": {"args": {"maxCount": 1}}}]});
        let expected = json!({"eval_set_id": "s", "eval_cases": [{"function_call": {"args": {"maxCount": 1}}}]});
        assert_eq!(to_snake_case(json), expected);
    }
}
