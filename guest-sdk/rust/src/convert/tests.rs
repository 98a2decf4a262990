//! Round trips: every value arrives unchanged.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod shared_events;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((".*", inner), 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn map() -> impl Strategy<Value = JsonMap> {
    vec((".*", value()), 0..3).prop_map(|fields| fields.into_iter().collect())
}

fn text() -> impl Strategy<Value = Option<String>> {
    of(".*")
}

fn data() -> impl Strategy<Value = PartData> {
    prop_oneof![
        Just(PartData::Other),
        ".*".prop_map(PartData::Text),
        (".*", vec(any::<u8>(), 0..9), text()).prop_map(|(mime_type, data, display_name)| PartData::InlineData(Blob {
            mime_type,
            data,
            display_name
        })),
        (".*", text(), text()).prop_map(|(file_uri, mime_type, display_name)| {
            PartData::FileData(FileData { file_uri, mime_type, display_name })
        }),
        (text(), ".*", map(), map()).prop_map(|(id, name, args, extra)| PartData::FunctionCall(FunctionCall {
            id,
            name,
            args,
            extra
        })),
        (text(), ".*", map(), map()).prop_map(|(id, name, response, extra)| {
            PartData::FunctionResponse(FunctionResponse { id, name, response, extra })
        }),
        (text(), ".*", map()).prop_map(|(language, code, extra)| PartData::ExecutableCode(ExecutableCode {
            language,
            code,
            extra
        })),
        (text(), text(), map()).prop_map(|(outcome, output, extra)| {
            PartData::CodeExecutionResult(CodeExecutionResult { outcome, output, extra })
        }),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    (data(), any::<bool>(), of(vec(any::<u8>(), 0..9)), map())
        .prop_map(|(data, thought, thought_signature, extra)| Part { data, thought, thought_signature, extra })
}

fn content() -> impl Strategy<Value = Content> {
    (text(), vec(part(), 0..3)).prop_map(|(role, parts)| Content { role, parts })
}

fn actions() -> impl Strategy<Value = EventActions> {
    let flags = (of(any::<bool>()), text(), of(any::<bool>()), of(any::<bool>()), of(any::<bool>()));
    let artifacts = (vec((".*", any::<u64>()), 0..3), vec(".*", 0..3));
    (map(), artifacts, flags, map()).prop_map(|(state_delta, (artifact_delta, deleted_artifact_ids), flags, extra)| {
        let (skip_summarization, transfer_to_agent, escalate, end_of_agent, end_invocation) = flags;
        EventActions {
            state_delta,
            artifact_delta,
            deleted_artifact_ids,
            skip_summarization,
            transfer_to_agent,
            escalate,
            end_of_agent,
            end_invocation,
            extra,
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let names = (".*", ".*", ".*", text(), vec(".*", 0..3));
    let rest = (any::<bool>(), of(any::<bool>()), of(any::<bool>()), text(), text(), any::<i64>(), map());
    (names, of(content()), actions(), rest).prop_map(|(names, content, actions, rest)| {
        let (id, invocation_id, author, branch, long_running_tool_ids) = names;
        let (partial, turn_complete, interrupted, error_code, error_message, timestamp_micros, extra) = rest;
        Event {
            id,
            invocation_id,
            author,
            content,
            actions,
            partial,
            turn_complete,
            interrupted,
            branch,
            long_running_tool_ids,
            error_code,
            error_message,
            timestamp_micros,
            extra,
        }
    })
}

fn declaration() -> impl Strategy<Value = FunctionDeclaration> {
    (".*", ".*", of(value()), of(value())).prop_map(|(name, description, parameters, response)| FunctionDeclaration {
        name,
        description,
        parameters,
        response,
    })
}

fn request() -> impl Strategy<Value = LlmRequest> {
    (".*", vec(content(), 0..3), vec(".*", 0..3), vec(declaration(), 0..3), vec(value(), 0..3), map()).prop_map(
        |(model, contents, system_instructions, tools, model_tools, config)| LlmRequest {
            model,
            contents,
            system_instructions,
            tools,
            model_tools,
            config,
        },
    )
}

fn response() -> impl Strategy<Value = LlmResponse> {
    let live = (of(any::<bool>()), of(any::<bool>()));
    (of(content()), any::<bool>(), live, text(), text(), text(), map()).prop_map(
        |(content, partial, (turn_complete, interrupted), finish_reason, error_code, error_message, extra)| {
            LlmResponse {
                content,
                partial,
                turn_complete,
                interrupted,
                finish_reason,
                error_code,
                error_message,
                extra,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_event_is_unchanged_by_a_round_trip_through_the_contract(event in event()) {
        prop_assert_eq!(Event::try_from(wit::Event::from(event.clone())), Ok(event));
    }

    #[test]
    fn a_request_is_unchanged_by_a_round_trip_through_the_contract(request in request()) {
        prop_assert_eq!(LlmRequest::try_from(wit::LlmRequest::from(request.clone())), Ok(request));
    }

    #[test]
    fn a_response_is_unchanged_by_a_round_trip_through_the_contract(response in response()) {
        prop_assert_eq!(LlmResponse::try_from(wit::LlmResponse::from(response.clone())), Ok(response));
    }
}

#[test]
fn a_decision_is_read_with_its_payload() {
    let decided = |payload: Option<&str>| {
        let payload = payload.map(Into::into);
        ToolConfirmation::try_from(wit::ToolConfirmation { hint: "May it?".into(), confirmed: true, payload })
    };
    let confirmation = decided(Some(r#"{"days":2}"#)).unwrap();
    assert_eq!((confirmation.hint.as_str(), confirmation.confirmed), ("May it?", true));
    assert_eq!(confirmation.payload_as::<Value>().unwrap(), Some(json!({ "days": 2 })));
    let error = confirmation.payload_as::<std::collections::BTreeMap<String, bool>>().unwrap_err();
    assert!(error.message.starts_with("the payload of the confirmation: days: invalid type"), "{error}");
    assert_eq!(decided(None).unwrap().payload_as::<u32>().unwrap(), None);
    assert_eq!(decided(Some("{")).unwrap_err().code, "BAD_JSON");
}

#[test]
fn errors_are_unchanged_by_a_round_trip_through_the_contract() {
    let fatal = ToolError::fatal(Error::new("DENIED", "no"));
    for error in [ToolError::recoverable("try again"), fatal] {
        assert_eq!(ToolError::from(wit::ToolError::from(error.clone())), error);
    }
}

#[test]
fn invalid_json_is_an_error_that_names_its_field() {
    let call = wit::FunctionCall { id: None, name: "f".into(), args: "{".into(), extra: None };
    let error = PartData::try_from(wit::PartData::FunctionCall(call)).unwrap_err();
    assert_eq!(error.code, "BAD_JSON");
    assert!(error.message.starts_with("the arguments of a function call: EOF"), "{error}");

    let error = read_state(vec![("count".into(), "one".into())]).unwrap_err();
    assert!(error.message.starts_with("the state key `count`: "), "{error}");
}

#[test]
fn an_absent_object_is_empty() {
    let part = wit::Part { data: wit::PartData::Other, thought: false, thought_signature: None, extra: None };
    assert_eq!(Part::try_from(part).unwrap(), Part::default());
    assert_eq!(some_object(JsonMap::new()), None);
    assert_eq!(object(JsonMap::from_iter([("a".to_owned(), json!(1))])), r#"{"a":1}"#);
}
