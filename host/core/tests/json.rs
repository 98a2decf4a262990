//! The JSON format of contents and events, which clients and stores rely on.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;

use bytes::Bytes;
use hatchery_core::{
    Blob, CodeExecutionResult, Content, Event, EventActions, EventData, ExecutableCode, Extra, FileData, FunctionCall,
    FunctionResponse, JsonMap, KnownKeys, Part, PartData, Session, State, Timestamp,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn object() -> impl Strategy<Value = JsonMap> {
    prop::collection::btree_map("x[a-z]{1,5}", json_value(), 0..3).prop_map(|map| map.into_iter().collect())
}

fn extra() -> impl Strategy<Value = Extra> {
    object().prop_map(Extra::from)
}

fn json_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop::collection::vec(any::<u8>().prop_map(Value::from), 0..3).prop_map(Value::from),
    ]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn maybe() -> impl Strategy<Value = Option<String>> {
    prop::option::of(".{0,10}")
}

fn data() -> impl Strategy<Value = PartData> {
    prop_oneof![
        Just(PartData::Other),
        ".{0,30}".prop_map(PartData::Text),
        ("[a-z]{1,5}/[a-z]{1,5}", bytes(), maybe()).prop_map(|(mime_type, data, display_name)| {
            PartData::InlineData(Blob { mime_type, data, display_name })
        }),
        (".{0,20}", maybe(), maybe()).prop_map(|(file_uri, mime_type, display_name)| {
            PartData::FileData(FileData { file_uri, mime_type, display_name })
        }),
        (maybe(), ".{0,10}", object(), extra())
            .prop_map(|(id, name, args, extra)| PartData::FunctionCall(FunctionCall { id, name, args, extra })),
        (maybe(), ".{0,10}", object(), extra()).prop_map(|(id, name, response, extra)| {
            PartData::FunctionResponse(FunctionResponse { id, name, response, extra })
        }),
        (maybe(), ".{0,30}", extra()).prop_map(|(language, code, extra)| PartData::ExecutableCode(ExecutableCode {
            language,
            code,
            extra
        })),
        (maybe(), maybe(), extra()).prop_map(|(outcome, output, extra)| {
            PartData::CodeExecutionResult(CodeExecutionResult { outcome, output, extra })
        }),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    (data(), any::<bool>(), prop::option::of(bytes()), extra())
        .prop_map(|(data, thought, thought_signature, extra)| Part { data, thought, thought_signature, extra })
}

proptest! {
    #[test]
    fn a_content_survives_its_json(role in maybe(), parts in prop::collection::vec(part(), 0..5)) {
        let content = Content { role, parts };
        let json = serde_json::to_string(&content).unwrap();
        prop_assert_eq!(serde_json::from_str::<Content>(&json).unwrap(), content);
    }

    #[test]
    fn a_time_before_2106_survives_its_json(micros in 0..4_294_967_296_000_000i64) {
        let time = Timestamp::from_micros(micros);
        let json = serde_json::to_string(&time).unwrap();
        let read: Timestamp = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(read.as_micros(), micros);
    }
}

/// Events in the format of ADK clients, each with every key in the form in which the host writes it. The conversions of
/// the contract and of the guest SDKs are tested with the same file.
const EVENTS: &str = include_str!("../../../tests/fixtures/events.json");

#[test]
fn the_shared_events_survive_their_json() {
    let events: JsonMap = serde_json::from_str(EVENTS).unwrap();
    for (name, json) in &events {
        let data: EventData = serde_json::from_value(json.clone()).unwrap();
        let event = Event::new(data);
        event.check_storable().unwrap();
        assert_eq!(&serde_json::from_slice::<Value>(event.json()).unwrap(), json, "{name}");
    }
}

#[test]
fn the_shared_events_have_every_key() {
    let events: JsonMap = serde_json::from_str(EVENTS).unwrap();
    let keys = |select: fn(&Value) -> Option<&Value>| -> BTreeSet<&str> {
        let objects = events.values().filter_map(select).filter_map(Value::as_object);
        objects.flat_map(|object| object.keys().map(String::as_str)).collect()
    };
    let is_complete = |found: &BTreeSet<&str>, known: &[&str]| known.iter().all(|key| found.contains(key));
    assert!(is_complete(&keys(|value| Some(value)), EventData::KEYS));
    let actions = keys(|event| event.get("actions"));
    assert!(is_complete(&actions, EventActions::KEYS), "{actions:?}");
    let parts: BTreeSet<&str> = events
        .values()
        .filter_map(|event| event.pointer("/content/parts")?.as_array())
        .flatten()
        .flat_map(|part| part.as_object().unwrap().keys().map(String::as_str))
        .collect();
    assert!(is_complete(&parts, Part::KEYS), "{parts:?}");
}

#[test]
fn snake_case_parts_and_url_safe_base64_are_accepted() {
    let json = json!({"parts": [{"inline_data": {"mime_type": "image/png", "data": "-_-_"}}]});
    let content: Content = serde_json::from_value(json).unwrap();
    let PartData::InlineData(blob) = &content.parts[0].data else { panic!("{content:?}") };
    assert_eq!((blob.mime_type.as_str(), blob.data.as_ref()), ("image/png", [0xfb, 0xff, 0xbf].as_slice()));
}

#[test]
fn nulls_and_milliseconds_are_accepted_in_events() {
    let json = json!({"id": "1", "partial": null, "longRunningToolIds": null, "timestamp": 1_700_000_000_123i64,
        "actions": {"stateDelta": null, "requestedAuthConfigs": null, "endInvocation": true}});
    let event = Event::from_json(json.to_string()).unwrap();
    assert_eq!(event.timestamp.as_seconds(), 1_700_000_000.123);
    assert_eq!((event.actions.end_invocation, event.actions.end_of_agent), (Some(true), None));
}

#[test]
fn an_event_parsed_from_json_keeps_that_json() {
    let json = r#"{"id":"1","author":"a","unknown":1,"timestamp":1.0}"#;
    assert_eq!(Event::from_json(json).unwrap().json(), json.as_bytes());
}

#[test]
fn later_actions_win_when_merged() {
    let mut first: EventActions =
        serde_json::from_value(json!({"stateDelta": {"a": 1, "b": 1}, "escalate": true, "transferToAgent": "x"}))
            .unwrap();
    let second = serde_json::from_value(json!({"stateDelta": {"b": 2}, "transferToAgent": "y", "route": "r"})).unwrap();
    first.merge(second);
    let expected = json!({"stateDelta": {"a": 1, "b": 2}, "artifactDelta": {}, "escalate": true, "transferToAgent": "y", "route": "r"});
    assert_eq!(serde_json::to_value(&first).unwrap(), expected);
}

#[test]
fn null_and_the_removal_marker_delete_state() {
    let mut state = State::from(json!({"a": 1, "b": 2, "c": 3}).as_object().unwrap());
    state.apply(json!({"a": null, "b": "__ADK_SENTINEL_REMOVED__"}).as_object().unwrap());
    assert_eq!(serde_json::to_value(&state).unwrap(), json!({"c": 3}));
}

#[test]
fn a_session_is_parsed_from_its_json() {
    let json = json!({
        "id": "s1", "appName": "app", "userId": "ada", "state": {"a": 1, "user:b": 2},
        "events": [{"id": "1", "author": "root", "actions": {"stateDelta": {}, "artifactDelta": {}}, "timestamp": 2.5}],
        "lastUpdateTime": 2.5,
    });
    let session = Session::from_json(&json.to_string()).unwrap();
    assert_eq!((&*session.key.app, &*session.key.user, &*session.key.id), ("app", "ada", "s1"));
    assert_eq!((session.revision, session.created), (1, Timestamp::from_micros(2_500_000)));
    let again = serde_json::to_string(&session).unwrap();
    assert_eq!(
        serde_json::to_value(Session::from_json(&again).unwrap()).unwrap(),
        serde_json::to_value(&session).unwrap()
    );
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap()["state"], json["state"]);
    assert!(Session::from_json("{}").unwrap_err().to_string().contains("missing field `id`"));
}

#[test]
fn an_event_knows_whether_it_ends_in_the_result_of_code() {
    let event = |parts: Vec<Part>| {
        Event::new(EventData { content: Some(Content::new("model", parts).into()), ..EventData::default() })
    };
    let result = || Part::from(PartData::CodeExecutionResult(CodeExecutionResult::default()));
    assert!(event(vec![Part::text("a"), result()]).has_trailing_code_execution_result());
    assert!(!event(vec![result(), Part::text("a")]).has_trailing_code_execution_result());
    assert!(!Event::new(EventData::default()).has_trailing_code_execution_result());
}
