//! What has to be the same in a recorded call and in that of a replay.

use hatchery_core::{JsonMap, LlmRequest};
use serde_json::{Value, json};

use super::{diff, literal, wire};

/// Settings of a request that say how it travels and not what is asked.
const TRANSPORT: [&str; 2] = ["http_options", "labels"];
/// How the ids of calls begin that the model did not name: they are new in each run.
const GENERATED_ID: &str = "adk-";
/// What comes before arguments and answers where another agent's are retold.
const RETOLD: [&str; 2] = ["parameters: ", "result: "];

/// How two requests differ; nothing when they ask the same.
pub(super) fn requests(recorded: &LlmRequest, now: &LlmRequest) -> Option<String> {
    difference(comparable(recorded), comparable(now))
}

/// How two calls of tools differ.
pub(super) fn tool_calls(recorded: (&str, &JsonMap), now: (&str, &JsonMap)) -> Option<String> {
    let value = |(name, args): (&str, &JsonMap)| sorted(json!({ "name": name, "args": args }));
    difference(value(recorded), value(now))
}

fn difference(recorded: Value, now: Value) -> Option<String> {
    (recorded != now).then(|| diff::of_values(["recorded", "now"], &recorded, &now))
}

fn comparable(request: &LlmRequest) -> Value {
    let mut value = wire::request(request);
    if let Some(config) = value.get_mut("config").and_then(Value::as_object_mut) {
        config.retain(|key, _| !TRANSPORT.contains(&key.as_str()));
    }
    for content in items(&mut value, "contents") {
        for part in items(content, "parts") {
            for call in ["function_call", "function_response"] {
                part.get_mut(call).map(without_generated_id);
            }
            if let Some(Value::String(text)) = part.get_mut("text") {
                *text = with_json(text);
            }
        }
    }
    sorted(value)
}

fn items<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

fn without_generated_id(call: &mut Value) {
    let generated = call.get("id").and_then(Value::as_str).is_some_and(|id| id.starts_with(GENERATED_ID));
    if let (true, Some(call)) = (generated, call.as_object_mut()) {
        call.shift_remove("id");
    }
}

/// The text with what it retells as JSON, whether it is retold as JSON or as Python writes it.
fn with_json(text: &str) -> String {
    let places = RETOLD.iter().filter_map(|marker| Some(text.find(marker)? + marker.len()));
    let Some((before, retold)) = places.min().and_then(|place| text.split_at_checked(place)) else {
        return text.to_owned();
    };
    match serde_json::from_str(retold).ok().or_else(|| literal::parse(retold)) {
        Some(value) => format!("{before}{}", sorted(value)),
        None => text.to_owned(),
    }
}

fn sorted(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hatchery_core::{Content, FunctionCall, PartData};

    use super::*;

    fn said(text: &str) -> LlmRequest {
        LlmRequest { contents: [Arc::new(Content::user(text))].into_iter().collect(), ..LlmRequest::default() }
    }

    fn called(id: &str) -> LlmRequest {
        let call = FunctionCall { id: Some(id.into()), name: "t".into(), ..FunctionCall::default() };
        let content = Content::new("model", vec![PartData::FunctionCall(call).into()]);
        LlmRequest { contents: [Arc::new(content)].into_iter().collect(), ..LlmRequest::default() }
    }

    #[test]
    fn how_a_request_travels_and_generated_ids_do_not_matter() {
        let mut request = called("adk-1");
        request.config.extra.insert("httpOptions".into(), json!({"timeout": 1}));
        request.config.extra.insert("labels".into(), json!({"a": "b"}));
        assert_eq!(requests(&request, &called("adk-2")), None);
        assert!(
            requests(&called("a"), &called("b"))
                .unwrap()
                .contains("-            \"id\": \"a\",\n+            \"id\": \"b\",")
        );
    }

    #[test]
    fn what_is_retold_in_python_and_in_json_is_the_same() {
        let json = said("[a] called tool `t` with parameters: {\"x\":1,\"y\":[true,null]}");
        let python = said("[a] called tool `t` with parameters: {'y': [True, None], 'x': 1}");
        assert_eq!(requests(&python, &json), None);
        let result = said("[a] `t` tool returned result: {'text': \"it's\"}");
        assert_eq!(requests(&result, &said("[a] `t` tool returned result: {\"text\": \"it's\"}")), None);
        assert!(requests(&python, &said("[a] called tool `t` with parameters: {'x': 2}")).is_some());
        assert!(requests(&said("result: ?"), &said("result: !")).is_some());
    }

    #[test]
    fn arguments_are_compared_whatever_their_order() {
        let args = |text| serde_json::from_str::<JsonMap>(text).unwrap();
        let (ab, ba) = (args(r#"{"a": {"x": 1, "y": 2}, "b": 1}"#), args(r#"{"b": 1, "a": {"y": 2, "x": 1}}"#));
        assert_eq!(tool_calls(("t", &ab), ("t", &ba)), None);
        assert!(tool_calls(("t", &ab), ("u", &ab)).unwrap().contains("-  \"name\": \"t\"\n+  \"name\": \"u\""));
    }
}
