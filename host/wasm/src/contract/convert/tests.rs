//! Round trips: a converted value is converted back to itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    Blob, CodeExecutionResult, CodeFile, CodeInput, CodeOutput, Compaction, Content, Event, EventActions, EventData,
    Example, ExecutableCode, Extra, FileData, FunctionCall, FunctionDeclaration, FunctionResponse,
    GenerateContentConfig, JsonMap, LlmRequest, LlmResponse, ModelError, ModelErrorKind, Part, PartData, RunError,
    Timestamp, ToolConfirmation, ToolError, UsageMetadata,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::contract::bindings::exports::hatchery::agent::guest_code_executors;

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000_i32..1000).prop_map(|quarters| Value::from(f64::from(quarters) / 4.0 + 0.125)),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(prop_oneof![inner.clone(), Just(Value::Null)], 0..3).prop_map(Value::from),
            object(inner).prop_map(Value::Object),
        ]
    })
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = JsonMap> {
    vec(("[a-z]{1,6}", value), 0..3)
        .prop_map(|entries| entries.into_iter().map(|(key, value)| (format!("x-{key}"), value)).collect())
}

fn map() -> impl Strategy<Value = JsonMap> {
    object(json())
}

fn text() -> impl Strategy<Value = String> {
    ".{0,12}"
}

fn maybe() -> impl Strategy<Value = Option<String>> {
    option::of(text())
}

fn extra() -> impl Strategy<Value = Extra> {
    map().prop_map(Extra::from)
}

fn data() -> impl Strategy<Value = PartData> {
    let bytes = vec(any::<u8>(), 0..20);
    prop_oneof![
        Just(PartData::Other),
        text().prop_map(PartData::Text),
        (text(), bytes, maybe()).prop_map(|(mime_type, data, display_name)| {
            PartData::InlineData(Blob { mime_type, data: data.into(), display_name })
        }),
        (text(), maybe(), maybe()).prop_map(|(file_uri, mime_type, display_name)| {
            PartData::FileData(FileData { file_uri, mime_type, display_name })
        }),
        (maybe(), text(), map(), extra()).prop_map(|(id, name, args, extra)| PartData::FunctionCall(FunctionCall {
            id,
            name,
            args,
            extra
        })),
        (maybe(), text(), map(), extra()).prop_map(|(id, name, response, extra)| {
            PartData::FunctionResponse(FunctionResponse { id, name, response, extra })
        }),
        (maybe(), text(), extra()).prop_map(|(language, code, extra)| PartData::ExecutableCode(ExecutableCode {
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
    (data(), any::<bool>(), option::of(vec(any::<u8>(), 0..9)), extra()).prop_map(
        |(data, thought, signature, extra)| Part {
            data,
            thought,
            thought_signature: signature.map(Bytes::from),
            extra,
        },
    )
}

fn content() -> impl Strategy<Value = Content> {
    (maybe(), vec(part(), 0..3)).prop_map(|(role, parts)| Content { role, parts })
}

fn usage() -> impl Strategy<Value = UsageMetadata> {
    (option::of(any::<u64>()), option::of(any::<u64>()), extra()).prop_map(|(prompt, total, extra)| UsageMetadata {
        prompt_token_count: prompt,
        total_token_count: total,
        extra,
        ..UsageMetadata::default()
    })
}

fn compaction() -> impl Strategy<Value = Box<Compaction>> {
    (0i64..1 << 50, 0i64..1 << 50, content()).prop_map(|(start, end, compacted_content)| {
        let (start_timestamp, end_timestamp) = (Timestamp::from_micros(start), Timestamp::from_micros(end));
        Box::new(Compaction { start_timestamp, end_timestamp, compacted_content, extra: Extra::default() })
    })
}

fn actions() -> impl Strategy<Value = EventActions> {
    let flags = (
        option::of(any::<bool>()),
        option::of(any::<bool>()),
        option::of(any::<bool>()),
        maybe(),
        option::of(any::<bool>()),
    );
    let artifacts = proptest::collection::btree_map(text(), any::<u64>(), 0..3);
    let state = object(prop_oneof![json(), Just(Value::Null)]);
    let deleted = proptest::collection::btree_set(text(), 0..3);
    (state, artifacts, deleted, flags, extra(), extra(), option::of(compaction()), extra()).prop_map(
        |(state_delta, artifact_delta, deleted_artifact_ids, flags, auth, confirmations, compaction, extra)| {
            EventActions {
                deleted_artifact_ids,
                state_delta,
                artifact_delta: artifact_delta.into_iter().collect::<BTreeMap<_, _>>(),
                skip_summarization: flags.0,
                escalate: flags.1,
                end_of_agent: flags.2,
                transfer_to_agent: flags.3,
                end_invocation: flags.4,
                requested_auth_configs: auth,
                requested_tool_confirmations: confirmations,
                compaction,
                extra,
            }
        },
    )
}

fn event() -> impl Strategy<Value = EventData> {
    let names = (text(), text(), text(), maybe(), maybe(), maybe());
    let boxed = || option::of(json().prop_map(Box::new));
    let metadata = (option::of(usage().prop_map(Box::new)), maybe(), maybe(), boxed(), boxed(), boxed());
    let rest = (any::<bool>(), option::of(any::<bool>()), any::<i64>(), vec(text(), 0..2), option::of(-8_i32..0));
    (names, option::of(content()), actions(), metadata, rest).prop_map(|(names, content, actions, metadata, rest)| {
        EventData {
            id: names.0,
            invocation_id: names.1,
            author: names.2,
            branch: names.3,
            error_code: names.4,
            error_message: names.5,
            content: content.map(Arc::new),
            actions,
            usage_metadata: metadata.0,
            finish_reason: metadata.1,
            model_version: metadata.2,
            grounding_metadata: metadata.3,
            custom_metadata: metadata.4,
            input_transcription: metadata.5.clone(),
            output_transcription: metadata.5,
            partial: rest.0,
            turn_complete: rest.1,
            interrupted: rest.1,
            timestamp: Timestamp::from_micros(rest.2),
            long_running_tool_ids: rest.3,
            avg_logprobs: rest.4.map(|quarters| f64::from(quarters) / 4.0),
        }
    })
}

fn declaration() -> impl Strategy<Value = FunctionDeclaration> {
    (text(), text(), option::of(json()), option::of(json())).prop_map(|(name, description, parameters, response)| {
        FunctionDeclaration { name, description, parameters, response }
    })
}

fn request() -> impl Strategy<Value = LlmRequest> {
    let config = (option::of(any::<u64>()), option::of(vec(text(), 0..2)), option::of(json()), map());
    let config = config.prop_map(|(max_output_tokens, stop_sequences, response_schema, extra)| GenerateContentConfig {
        max_output_tokens,
        stop_sequences,
        response_schema,
        extra,
        ..GenerateContentConfig::default()
    });
    (text(), vec(content(), 0..3), vec(text(), 0..2), vec(declaration(), 0..2), vec(json(), 0..2), config).prop_map(
        |(model, contents, system_instructions, tools, model_tools, config)| LlmRequest {
            model,
            contents: contents.into_iter().map(Arc::new).collect(),
            system_instructions,
            tools: tools.into_iter().map(Arc::new).collect(),
            model_tools,
            config,
            ..LlmRequest::default()
        },
    )
}

fn response() -> impl Strategy<Value = LlmResponse> {
    let texts = (maybe(), maybe(), maybe(), maybe());
    (option::of(content()), any::<bool>(), texts, option::of(usage()), option::of(json())).prop_map(
        |(content, partial, texts, usage_metadata, other)| LlmResponse {
            content,
            partial,
            turn_complete: partial.then_some(true),
            interrupted: (!partial).then_some(true),
            finish_reason: texts.0,
            error_code: texts.1,
            error_message: texts.2,
            model_version: texts.3,
            usage_metadata,
            grounding_metadata: other.clone(),
            custom_metadata: other,
            avg_logprobs: partial.then_some(-0.5),
        },
    )
}

fn example() -> impl Strategy<Value = Example> {
    (content(), vec(content(), 0..3)).prop_map(|(input, output)| Example { input, output })
}

fn file() -> impl Strategy<Value = CodeFile> {
    (text(), vec(any::<u8>(), 0..20), text()).prop_map(|(name, content, mime_type)| CodeFile {
        name,
        content: content.into(),
        mime_type,
    })
}

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
