//! Round trips: a converted value is converted back to itself.

mod values;

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    Blob, CodeExecutionResult, CodeFile, CodeInput, CodeOutput, Content, Event, EventActions, EventData, Example,
    ExecutableCode, FunctionCall, FunctionResponse, JsonMap, LlmRequest, LlmResponse, ModelError, ModelErrorKind, Part,
    PartData, RunError, ToolConfirmation, ToolError,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use self::values::{content, event, example, file, json, maybe, request, response, text};
use super::*;
use crate::contract::bindings::exports::hatchery::agent::guest_code_executors;

/// Returns an event as a guest makes it; the host sets the time.
fn guest_event() -> impl Strategy<Value = wit::Event> {
    event().prop_map(|event| wit::Event { timestamp: 0, ..event.to_wit() })
}

/// Known keys in several spellings, and unknown ones.
fn key() -> impl Strategy<Value = String> {
    let keys = [
        "text",
        "functionCall",
        "function_call",
        "FunctionCall",
        "thought",
        "thoughtSignature",
        "inlineData",
        "id",
        "name",
        "args",
        "response",
        "language",
        "code",
        "outcome",
        "output",
        "stateDelta",
        "state_delta",
        "endInvocation",
        "requestedToolConfirmations",
        "compaction",
        "content",
        "author",
        "partial",
        "usageMetadata",
        "usage_metadata",
        "customMetadata",
        "timestamp",
        "x",
        "videoMetadata",
        "",
    ];
    proptest::sample::select(keys.to_vec()).prop_map(Into::into)
}

fn text_of(value: &Value) -> String {
    to_json(value)
}

/// Returns an event with this `extra` in one of its places.
fn with_extra(at: usize, extra: Option<String>) -> wit::Event {
    let data = match at {
        0 => PartData::FunctionCall(FunctionCall::default()),
        1 => PartData::FunctionResponse(FunctionResponse::default()),
        2 => PartData::ExecutableCode(ExecutableCode::default()),
        3 => PartData::CodeExecutionResult(CodeExecutionResult::default()),
        _ => PartData::Text("hi".into()),
    };
    let content = Some(Arc::new(Content::new("model", vec![data.into()])));
    let mut event = EventData { content, ..EventData::default() }.to_wit();
    let part = &mut event.content.as_mut().unwrap().parts[0];
    match (&mut part.data, at) {
        (wit::PartData::FunctionCall(it), _) => it.extra = extra,
        (wit::PartData::FunctionResponse(it), _) => it.extra = extra,
        (wit::PartData::ExecutableCode(it), _) => it.extra = extra,
        (wit::PartData::CodeExecutionResult(it), _) => it.extra = extra,
        (_, 4) => part.extra = extra,
        (_, 5) => event.actions.extra = extra,
        _ => event.extra = extra,
    }
    event
}

#[test]
fn the_shared_events_survive_conversion() {
    let events: JsonMap = serde_json::from_str(include_str!("../../../../../tests/fixtures/events.json")).unwrap();
    for (name, json) in events {
        let data: EventData = serde_json::from_value(json.clone()).unwrap();
        let back = EventData::from_wit(data.to_wit()).unwrap();
        assert_eq!(serde_json::to_value(&back).unwrap(), json, "{name}");
    }
}

#[test]
fn a_guest_s_extra_does_not_override_fields() {
    let refused = |at, extra: &str| EventData::from_wit(with_extra(at, Some(extra.into()))).unwrap_err().to_string();
    let fields = [
        (0, "`extra` of a function call", "args", "a function call"),
        (1, "`extra` of a function response", "response", "a function response"),
        (2, "`extra` of executable code", "code", "executable code"),
        (3, "`extra` of a code execution result", "outcome", "a code execution result"),
        (4, "`extra` of a part", "function_call", "a part"),
        (5, "`extra` of actions", "stateDelta", "actions"),
        (6, "`extra` of an event", "author", "an event"),
        (6, "`extra` of an event", "finish_reason", "an event"),
    ];
    for (at, what, key, noun) in fields {
        assert_eq!(
            refused(at, &format!("{{\"x\": 1, \"{key}\": {{}}}}")),
            format!("{what} is not an object of keys without a field: `{key}` is a field of {noun}; set the field")
        );
    }
    let usage = r#"{"usageMetadata": {"total_token_count": 1}}"#;
    assert_eq!(
        refused(6, usage),
        "`usageMetadata` of an event is not an object of keys without a field: `total_token_count` is a field of usage \
         metadata; set the field"
    );
}

#[test]
fn json_of_a_guest_that_cannot_be_read_again_is_refused() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse_json(&deep(100), "the answer").is_ok());
    assert_eq!(
        parse_json(&deep(101), "the answer").unwrap_err().to_string(),
        "the answer is not JSON that can be stored: it is nested more than 100 levels deep"
    );
    let args = format!("{{\"a\": {}}}", deep(101));
    let call = wit::FunctionCall { id: None, name: "roll".into(), args, extra: None };
    let error = PartData::from_wit(wit::PartData::FunctionCall(call)).unwrap_err().to_string();
    assert_eq!(
        error,
        "`args` of a function call is not JSON that can be stored: it is nested more than 100 levels deep"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_content_survives_conversion(content in content()) {
        prop_assert_eq!(Content::from_wit(content.to_wit()).unwrap(), content);
    }

    #[test]
    fn an_event_survives_conversion(event in event()) {
        prop_assert_eq!(EventData::from_wit(event.to_wit()).unwrap(), event);
    }

    #[test]
    fn an_event_of_a_guest_survives_json(event in guest_event()) {
        let event = Event::new(EventData::from_wit(event).unwrap());
        event.check_storable().unwrap();
        prop_assert_eq!(&**Event::from_json(event.json().clone()).unwrap(), &**event);
    }

    #[test]
    fn keys_in_extra_are_refused_or_stored_unchanged(at in 0..7_usize, key in key(), json in json()) {
        let extra = Some(text_of(&serde_json::json!({ key: json })));
        if let Ok(data) = EventData::from_wit(with_extra(at, extra)) {
            let event = Event::new(data);
            event.check_storable().unwrap();
            prop_assert_eq!(&**Event::from_json(event.json().clone()).unwrap(), &**event);
        }
    }

    #[test]
    fn a_request_survives_conversion(request in request()) {
        let back = LlmRequest::from_wit(request.to_wit()).unwrap();
        prop_assert_eq!(format!("{back:?}"), format!("{request:?}"));
    }

    #[test]
    fn a_response_survives_conversion(response in response()) {
        prop_assert_eq!(LlmResponse::from_wit(response.to_wit()).unwrap(), response);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_example_survives_conversion(example in example()) {
        prop_assert_eq!(Example::from_wit(example.to_wit()).unwrap(), example);
    }

    #[test]
    fn a_file_of_code_survives_conversion(file in file()) {
        prop_assert_eq!(CodeFile::from_wit(file.to_wit()).unwrap(), file);
    }

    #[test]
    fn code_input_survives_conversion(code in text(), files in vec(file(), 0..3), id in maybe()) {
        let input = CodeInput { code, input_files: files, execution_id: id };
        let wit = input.to_wit();
        prop_assert_eq!(all_from_wit::<CodeFile, _>(wit.input_files).unwrap(), input.input_files);
        prop_assert_eq!((wit.code, wit.execution_id), (input.code, input.execution_id));
    }

    #[test]
    fn code_output_survives_conversion(stdout in text(), stderr in text(), files in vec(file(), 0..3)) {
        let wit = guest_code_executors::CodeOutput {
            stdout: stdout.clone(),
            stderr: stderr.clone(),
            output_files: all_to_wit(&files),
        };
        let output = CodeOutput { stdout, stderr, output_files: files };
        prop_assert_eq!(CodeOutput::from_wit(wit).unwrap(), output);
    }

    #[test]
    fn a_confirmation_survives_conversion(hint in text(), confirmed in any::<bool>(), payload in option::of(json())) {
        let wit = ToolConfirmation { hint: hint.clone(), confirmed, payload: payload.clone() }.to_wit();
        let back = wit.payload.map(|json| parse_json(&json, "the payload").unwrap());
        prop_assert_eq!((wit.hint, wit.confirmed, back), (hint, confirmed, payload));
    }
}

#[test]
fn errors_are_converted_with_their_code_and_message() {
    let display = |error: wit::Error| format!("{}: {}", error.code, error.message);
    let limited = ModelError::new(ModelErrorKind::RateLimited, "m", "slow down");
    assert_eq!(display(limited.to_wit()), "MODEL_RATE_LIMITED: model `m`: slow down");
    assert_eq!(display(ToolError::Recoverable("no such street".into()).to_wit()), "TOOL_FAILED: no such street");
    let fatal = ToolError::Fatal { tool: "t".into(), code: "BROKEN".into(), message: "it is broken".into() };
    assert_eq!(display(fatal.to_wit()), "BROKEN: tool `t`: it is broken");
    assert_eq!(display(RunError::Cancelled.to_wit()), "CANCELLED: the run was cancelled");
}

#[test]
fn a_guests_error_of_a_model_keeps_its_kind_or_shows_its_code() {
    let error = |code: &str| to_model_error(wit::Error { code: code.into(), message: "no".into() }, "component:a/b");
    let timeout = error("MODEL_TIMEOUT");
    assert_eq!((timeout.kind, timeout.to_string().as_str()), (ModelErrorKind::Timeout, "model `component:a/b`: no"));
    let own = error("OUT_OF_TEA");
    assert_eq!(own.kind, ModelErrorKind::Server);
    assert_eq!(own.to_string(), "model `component:a/b`: no (OUT_OF_TEA)");
}

#[test]
fn arguments_that_are_not_an_object_are_refused_by_name() {
    let call = wit::FunctionCall { id: None, name: "roll".into(), args: "[1]".into(), extra: None };
    let error = PartData::from_wit(wit::PartData::FunctionCall(call)).unwrap_err().to_string();
    assert!(error.starts_with("`args` of a function call is not a JSON object: "), "{error}");
}

#[test]
fn the_size_of_an_event_is_the_size_of_its_texts_bytes_and_state() {
    let data = EventData {
        content: Some(Arc::new(Content::new(
            "model",
            vec![
                Part::text("12345"),
                PartData::InlineData(Blob { data: Bytes::from_static(b"123"), ..Blob::default() }).into(),
            ],
        ))),
        actions: EventActions {
            state_delta: [("key".to_owned(), Value::from(12))].into_iter().collect(),
            ..EventActions::default()
        },
        ..EventData::default()
    };
    assert_eq!(data.to_wit().estimated_size(), (5 + 5 + 3) + (3 + 2) + 3 * ITEM_SIZE);
}

#[test]
fn an_error_quotes_only_the_beginning_of_a_value() {
    let mut event = EventData::default().to_wit();
    event.actions.extra = Some(format!("{{\"requestedAuthConfigs\": \"{}\"}}", "x".repeat(1 << 20)));
    let error = EventData::from_wit(event).unwrap_err().to_string();
    assert!(error.starts_with("requestedAuthConfigs is not a JSON object: it is `\"xxx"), "{error}");
    assert!(error.len() < 2000, "{}", error.len());
}
