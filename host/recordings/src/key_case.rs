//! Conversion of the keys of ADK's structures: `camelCase` in JSON, `snake_case` in recordings. Data of users and
//! models (arguments, results, schemas, state) keeps its keys.

use hatchery_core::JsonMap;
use serde_json::Value;

/// Keys, in snake case, whose values are data of users and models.
const OPAQUE_KEYS: [&str; 12] = [
    "args",
    "response",
    "parameters",
    "parameters_json_schema",
    "response_schema",
    "response_json_schema",
    "custom_metadata",
    "labels",
    "state_delta",
    "artifact_delta",
    "requested_auth_configs",
    "requested_tool_confirmations",
];

/// Converts JSON to the format of recordings. Bytes are converted to URL-safe base64.
pub(crate) fn to_snake_case(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| entry_to_snake_case(&key, value)).collect())
        }
        Value::Array(items) => items.into_iter().map(to_snake_case).collect(),
        other => other,
    }
}

fn entry_to_snake_case(key: &str, value: Value) -> (String, Value) {
    let key = snake_case(key);
    let value = match (key.as_str(), value) {
        (name, value) if OPAQUE_KEYS.contains(&name) => value,
        ("data" | "thought_signature", Value::String(base64)) => replace_chars(&base64, [('+', '-'), ('/', '_')]),
        (_, value) => to_snake_case(value),
    };
    (key, value)
}

fn replace_chars(text: &str, replacements: [(char, char); 2]) -> Value {
    let replace = |c| replacements.iter().find(|(from, _)| *from == c).map_or(c, |(_, to)| *to);
    text.chars().map(replace).collect::<String>().into()
}

/// Converts the format of recordings to JSON. Keys with the value `null` are removed.
pub(crate) fn to_camel_case(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map_to_camel_case(map)),
        Value::Array(items) => items.into_iter().map(to_camel_case).collect(),
        other => other,
    }
}

/// Converts the keys of a map as [`to_camel_case`] does.
pub(crate) fn map_to_camel_case(map: JsonMap) -> JsonMap {
    let entries = map.into_iter().filter(|(_, value)| !value.is_null());
    entries
        .map(|(key, value)| {
            let value = match (snake_case(&key).as_str(), value) {
                (name, value) if OPAQUE_KEYS.contains(&name) => value,
                ("data" | "thought_signature", Value::String(base64)) => {
                    replace_chars(&base64, [('-', '+'), ('_', '/')])
                }
                (_, value) => to_camel_case(value),
            };
            (camel_case(&key), value)
        })
        .collect()
}

fn snake_case(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

pub(crate) fn camel_case(key: &str) -> String {
    let mut camel = String::with_capacity(key.len());
    let mut chars = key.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.next_if(|next| c == '_' && next.is_ascii_lowercase()) {
            Some(next) => camel.push(next.to_ascii_uppercase()),
            None => camel.push(c),
        }
    }
    camel
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_change_their_case_except_in_user_data() {
        let json =
            json!({"functionCall": {"willContinue": true, "args": {"cityName": {"aB": 1, "c_d": null}}}, "topP": 1});
        let yaml =
            json!({"function_call": {"will_continue": true, "args": {"cityName": {"aB": 1, "c_d": null}}}, "top_p": 1});
        assert_eq!(to_snake_case(json.clone()), yaml);
        assert_eq!(to_camel_case(yaml), json);
    }

    #[test]
    fn bytes_are_url_safe_and_null_values_are_removed() {
        let yaml = to_snake_case(json!({"inlineData": {"data": "+/+/"}, "thoughtSignature": "/w=="}));
        assert_eq!(yaml, json!({"inline_data": {"data": "-_-_"}, "thought_signature": "_w=="}));
        assert_eq!(to_camel_case(yaml), json!({"inlineData": {"data": "+/+/"}, "thoughtSignature": "/w=="}));
        assert_eq!(to_camel_case(json!({"video_metadata": null, "text": "x"})), json!({"text": "x"}));
    }
}
