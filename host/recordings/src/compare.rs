//! Comparison of a replayed call with the recorded one.

use hatchery_core::{FunctionCall, LiveRequest, LlmRequest};
use serde_json::{Value, json};

use crate::{diff, python_literal, yaml};

/// Config keys that describe the transport of a request and are not compared.
const TRANSPORT_KEYS: [&str; 2] = ["http_options", "labels"];
/// The prefix of call ids that the engine generates. They differ in each run.
const GENERATED_ID_PREFIX: &str = "adk-";
/// The text before arguments and results where the calls of another agent are part of the prompt as text.
const QUOTED_JSON_MARKERS: [&str; 2] = ["parameters: ", "result: "];

/// Returns a diff of two requests, or `None` if they are equivalent.
pub(crate) fn diff_requests(recorded: &LlmRequest, actual: &LlmRequest) -> Option<String> {
    diff_values(&normalize(recorded), &normalize(actual))
}

/// Returns a diff of the names and arguments of two tool calls, or `None` if they are equal.
pub(crate) fn diff_tool_calls(recorded: &FunctionCall, actual: &FunctionCall) -> Option<String> {
    let value = |call: &FunctionCall| with_sorted_keys(json!({ "name": call.name, "args": call.args }));
    diff_values(&value(recorded), &value(actual))
}

/// Returns a diff of two requests of a live conversation, or `None` if they are equivalent.
pub(crate) fn diff_live_requests(recorded: &LiveRequest, actual: &LiveRequest) -> Option<String> {
    let value = |request: &LiveRequest| {
        let mut value = yaml::live_request_to_value(request);
        items_mut(&mut value, "tool_responses").for_each(remove_generated_id);
        with_sorted_keys(value)
    };
    diff_values(&value(recorded), &value(actual))
}

/// Returns a diff of two JSON values, or `None` if they are equal.
pub(crate) fn diff_values(recorded: &Value, actual: &Value) -> Option<String> {
    (recorded != actual).then(|| diff::unified_diff(["recorded", "now"], recorded, actual))
}

fn normalize(request: &LlmRequest) -> Value {
    let mut value = yaml::request_to_value(request);
    if let Some(config) = value.get_mut("config").and_then(Value::as_object_mut) {
        config.retain(|key, _| !TRANSPORT_KEYS.contains(&key.as_str()));
    }
    for content in items_mut(&mut value, "contents") {
        for part in items_mut(content, "parts") {
            for key in ["function_call", "function_response"] {
                part.get_mut(key).map(remove_generated_id);
            }
            if let Some(Value::String(text)) = part.get_mut("text") {
                *text = with_normalized_json(text);
            }
        }
    }
    with_sorted_keys(value)
}

fn items_mut<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

fn remove_generated_id(call: &mut Value) {
    let is_generated = call.get("id").and_then(Value::as_str).is_some_and(|id| id.starts_with(GENERATED_ID_PREFIX));
    if let (true, Some(call)) = (is_generated, call.as_object_mut()) {
        call.shift_remove("id");
    }
}

/// Rewrites arguments or a result at the end of a string as JSON with sorted keys. The string may contain them as JSON
/// or as a Python literal.
fn with_normalized_json(text: &str) -> String {
    let ends_of_markers = QUOTED_JSON_MARKERS.iter().filter_map(|marker| Some(text.find(marker)? + marker.len()));
    let Some((before, quoted)) = ends_of_markers.min().and_then(|index| text.split_at_checked(index)) else {
        return text.to_owned();
    };
    match serde_json::from_str(quoted).ok().or_else(|| python_literal::parse(quoted)) {
        Some(value) => format!("{before}{}", with_sorted_keys(value)),
        None => text.to_owned(),
    }
}

pub(crate) fn with_sorted_keys(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hatchery_core::{Content, FunctionCall, PartData};

    use super::*;

    fn request_with(content: Content) -> LlmRequest {
        LlmRequest { contents: [Arc::new(content)].into_iter().collect(), ..LlmRequest::default() }
    }

    fn text_request(text: &str) -> LlmRequest {
        request_with(Content::user(text))
    }

    fn call_request(id: &str) -> LlmRequest {
        let call = FunctionCall { id: Some(id.into()), name: "t".into(), ..FunctionCall::default() };
        request_with(Content::new("model", vec![PartData::FunctionCall(call).into()]))
    }

    #[test]
    fn transport_options_and_generated_ids_are_ignored() {
        let mut request = call_request("adk-1");
        request.config.extra.insert("httpOptions".into(), json!({"timeout": 1}));
        request.config.extra.insert("labels".into(), json!({"a": "b"}));
        assert_eq!(diff_requests(&request, &call_request("adk-2")), None);
        assert!(
            diff_requests(&call_request("a"), &call_request("b"))
                .unwrap()
                .contains("-            \"id\": \"a\",\n+            \"id\": \"b\",")
        );
    }

    #[test]
    fn python_literals_and_json_are_equivalent() {
        let json = text_request("[a] called tool `t` with parameters: {\"x\":1,\"y\":[true,null]}");
        let python = text_request("[a] called tool `t` with parameters: {'y': [True, None], 'x': 1}");
        assert_eq!(diff_requests(&python, &json), None);
        let result = text_request("[a] `t` tool returned result: {'text': \"it's\"}");
        assert_eq!(diff_requests(&result, &text_request("[a] `t` tool returned result: {\"text\": \"it's\"}")), None);
        assert!(diff_requests(&python, &text_request("[a] called tool `t` with parameters: {'x': 2}")).is_some());
        assert!(diff_requests(&text_request("result: ?"), &text_request("result: !")).is_some());
    }

    #[test]
    fn arguments_are_compared_independent_of_their_order() {
        let call = |text| FunctionCall {
            name: "t".into(),
            args: serde_json::from_str(text).unwrap(),
            ..FunctionCall::default()
        };
        let (ab, ba) = (call(r#"{"a": {"x": 1, "y": 2}, "b": 1}"#), call(r#"{"b": 1, "a": {"y": 2, "x": 1}}"#));
        assert_eq!(diff_tool_calls(&ab, &ba), None);
        let other = FunctionCall { name: "u".into(), ..ab.clone() };
        assert!(diff_tool_calls(&ab, &other).unwrap().contains("-  \"name\": \"t\"\n+  \"name\": \"u\""));
    }
}
