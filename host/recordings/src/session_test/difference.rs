//! Comparison of the events of a turn with the recorded ones, by what people and models see: authors, texts, calls and
//! responses. Ids, times, state and metadata differ in each run, or follow from the rest.

use std::sync::Arc;

use hatchery_core::{Event, JsonMap, Part, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL};
use serde_json::Value;

use crate::compare::{diff_values, with_sorted_keys};

/// Returns a diff of the events of a turn, or `None` if they are equivalent.
pub(super) fn diff_events(recorded: &[Arc<Event>], actual: &[Arc<Event>]) -> Option<String> {
    diff_values(&normalize(recorded), &normalize(actual))
}

/// Returns the events as JSON. Events of one branch are in order, and branches are sorted: agents that run in parallel
/// end in any order.
fn normalize(events: &[Arc<Event>]) -> Value {
    let mut events: Vec<&Event> = events.iter().map(AsRef::as_ref).collect();
    events.sort_by(|one, other| one.branch.cmp(&other.branch));
    events.into_iter().filter_map(normalize_event).collect()
}

/// Returns an event as JSON; `None` if nobody sees it.
fn normalize_event(event: &Event) -> Option<Value> {
    let parts: Vec<_> = event.content.iter().flat_map(|content| &content.parts).map(normalize_part).collect();
    if parts.is_empty() && event.error_code.is_none() {
        return None;
    }
    let mut json = JsonMap::new();
    json.insert("author".into(), event.author.as_str().into());
    json.insert("parts".into(), parts.into());
    if let Some(code) = &event.error_code {
        json.insert("errorCode".into(), code.as_str().into());
    }
    Some(with_sorted_keys(json.into()))
}

fn normalize_part(part: &Part) -> Value {
    let mut json = serde_json::to_value(part).unwrap_or_default();
    remove(&mut json, "thoughtSignature");
    for key in ["functionCall", "functionResponse"] {
        if let Some(call) = json.get_mut(key) {
            normalize_call(call);
        }
    }
    // The type of a file says enough in a diff.
    if let Some(file) = json.get_mut("inlineData") {
        remove(file, "data");
    }
    json
}

fn normalize_call(call: &mut Value) {
    remove(call, "id");
    match call.get("name").and_then(Value::as_str) {
        // Its arguments have the state of an authorization, which is random.
        Some(REQUEST_CREDENTIAL) => remove(call, "args"),
        Some(REQUEST_CONFIRMATION) => {
            let original = call.get_mut("args").and_then(|args| args.get_mut("originalFunctionCall"));
            if let Some(original) = original {
                remove(original, "id");
            }
        }
        _ => {}
    }
}

fn remove(json: &mut Value, key: &str) {
    if let Some(fields) = json.as_object_mut() {
        fields.shift_remove(key);
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::EventData;
    use serde_json::json;

    use super::*;

    fn events(json: Value) -> Vec<Arc<Event>> {
        let events: Vec<EventData> = serde_json::from_value(json).unwrap();
        events.into_iter().map(Event::new).collect()
    }

    fn event(author: &str, part: Value) -> Value {
        json!({"author": author, "content": {"role": "model", "parts": [part]}})
    }

    fn diff(recorded: Value, actual: Value) -> Option<String> {
        diff_events(&events(recorded), &events(actual))
    }

    #[test]
    fn ids_times_and_metadata_are_not_compared() {
        let call = |id: &str, time: u32| {
            json!([
                {"id": id, "invocationId": id, "timestamp": f64::from(time), "author": "a", "longRunningToolIds": [id],
                 "usageMetadata": {"totalTokenCount": time}, "actions": {"stateDelta": {"at": time}},
                 "content": {"role": "model", "parts": [
                    {"functionCall": {"id": id, "name": "roll", "args": {"sides": 6}}, "thoughtSignature": "aGk="}]}},
                {"author": "a", "content": {"role": "user", "parts": [
                    {"functionResponse": {"id": id, "name": "roll", "response": {"result": 3}}}]}},
                {"author": "a", "actions": {"stateDelta": {"only": id}}},
                event("a", json!({"functionCall": {"id": id, "name": "adk_request_confirmation", "args": {
                    "originalFunctionCall": {"id": id, "name": "roll"}}}})),
                event("a", json!({"functionCall": {"id": id, "name": "adk_request_credential", "args": {"state": id}}})),
            ])
        };
        assert_eq!(diff(call("one", 1), call("two", 2)), None);
    }

    #[test]
    fn authors_texts_arguments_results_and_errors_are_compared() {
        let text = |author, text| json!([event(author, json!({"text": text}))]);
        let call =
            |sides: u32| json!([event("a", json!({"functionCall": {"name": "roll", "args": {"sides": sides}}}))]);
        let result =
            |n: u32| json!([event("a", json!({"functionResponse": {"name": "roll", "response": {"result": n}}}))]);
        let error = |code| json!([{"author": "a", "errorCode": code}]);
        for (recorded, actual, lines) in [
            (text("a", "Hi"), text("b", "Hi"), ["-    \"author\": \"a\",", "+    \"author\": \"b\","]),
            (text("a", "Hi"), text("a", "Ho"), ["-        \"text\": \"Hi\"", "+        \"text\": \"Ho\""]),
            (call(6), call(20), ["-            \"sides\": 6", "+            \"sides\": 20"]),
            (result(1), result(2), ["-            \"result\": 1", "+            \"result\": 2"]),
            (error("ONE"), error("TWO"), ["-    \"errorCode\": \"ONE\",", "+    \"errorCode\": \"TWO\","]),
        ] {
            let diff = diff(recorded, actual).unwrap();
            for line in lines {
                assert!(diff.lines().any(|it| it == line), "{line:?} is not in\n{diff}");
            }
        }
        let longer = json!([event("a", json!({"text": "Hi"})), event("a", json!({"text": "more"}))]);
        let added = diff(text("a", "Hi"), longer).unwrap();
        assert!(added.contains("+        \"text\": \"more\""), "{added}");
    }

    #[test]
    fn the_order_matters_in_a_branch_but_not_between_branches() {
        let in_branch = |branch: &str, text: &str| json!({"author": branch, "branch": branch, "content": {"role": "model", "parts": [{"text": text}]}});
        let (a1, a2, b) = (in_branch("a", "1"), in_branch("a", "2"), in_branch("b", "3"));
        assert_eq!(diff(json!([a1, a2, b]), json!([b, a1, a2])), None);
        assert!(diff(json!([a1, a2, b]), json!([a2, a1, b])).is_some());
    }
}
