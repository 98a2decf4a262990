//! The keys of ADK's structures: `camelCase` in JSON, `snake_case` in recordings. What users and models write (arguments, answers, schemas,
//! state) keeps its keys.

use hatchery_core::JsonMap;
use serde_json::Value;

/// Keys, in recordings, whose values are not ADK's.
const NOT_ADKS: [&str; 12] = [
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

/// From JSON to the form of recordings. Bytes get the URL-safe alphabet.
pub(super) fn to_snake(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| entry_to_snake(&key, value)).collect()),
        Value::Array(items) => items.into_iter().map(to_snake).collect(),
        other => other,
    }
}

fn entry_to_snake(key: &str, value: Value) -> (String, Value) {
    let key = snake(key);
    let value = match (key.as_str(), value) {
        (name, value) if NOT_ADKS.contains(&name) => value,
        ("data" | "thought_signature", Value::String(base64)) => with_alphabet(&base64, [('+', '-'), ('/', '_')]),
        (_, value) => to_snake(value),
    };
    (key, value)
}

fn with_alphabet(base64: &str, changes: [(char, char); 2]) -> Value {
    let changed = |c| changes.iter().find(|(from, _)| *from == c).map_or(c, |(_, to)| *to);
    base64.chars().map(changed).collect::<String>().into()
}

/// From the form of recordings to JSON, without the keys that say nothing.
pub(super) fn to_camel(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map_to_camel(map)),
        Value::Array(items) => items.into_iter().map(to_camel).collect(),
        other => other,
    }
}

/// As [`to_camel`].
pub(super) fn map_to_camel(map: JsonMap) -> JsonMap {
    let told = map.into_iter().filter(|(_, value)| !value.is_null());
    told.map(|(key, value)| {
        let value = match (snake(&key).as_str(), value) {
            (name, value) if NOT_ADKS.contains(&name) => value,
            ("data" | "thought_signature", Value::String(base64)) => with_alphabet(&base64, [('-', '+'), ('_', '/')]),
            (_, value) => to_camel(value),
        };
        (camel(&key), value)
    })
    .collect()
}

fn snake(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

pub(super) fn camel(key: &str) -> String {
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
    fn keys_change_their_case_and_what_users_wrote_keeps_it() {
        let json =
            json!({"functionCall": {"willContinue": true, "args": {"cityName": {"aB": 1, "c_d": null}}}, "topP": 1});
        let yaml =
            json!({"function_call": {"will_continue": true, "args": {"cityName": {"aB": 1, "c_d": null}}}, "top_p": 1});
        assert_eq!(to_snake(json.clone()), yaml);
        assert_eq!(to_camel(yaml), json);
    }

    #[test]
    fn bytes_are_url_safe_and_keys_that_say_nothing_are_dropped() {
        let yaml = to_snake(json!({"inlineData": {"data": "+/+/"}, "thoughtSignature": "/w=="}));
        assert_eq!(yaml, json!({"inline_data": {"data": "-_-_"}, "thought_signature": "_w=="}));
        assert_eq!(to_camel(yaml), json!({"inlineData": {"data": "+/+/"}, "thoughtSignature": "/w=="}));
        assert_eq!(to_camel(json!({"video_metadata": null, "text": "x"})), json!({"text": "x"}));
    }
}
