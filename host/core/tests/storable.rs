//! Unknown keys that override fields, values that cannot be parsed again, and invalid user messages.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    Blob, ClientMessage, CodeExecutionResult, Compaction, Content, Event, EventActions, EventData, ExecutableCode,
    Extra, FileData, FunctionCall, FunctionResponse, JsonMap, KnownKeys, Part, PartData, Timestamp, UsageMetadata,
    check_message, known_key,
};
use serde::Serialize;
use serde_json::{Value, json};

fn map(value: Value) -> JsonMap {
    value.as_object().unwrap().clone()
}

/// Checks that the list of a type's keys contains the keys of the JSON of `values`, and that each is rejected in every
/// spelling.
fn check_keys<T: KnownKeys + Serialize>(values: &[T], aliases: &[&str]) {
    let written = values.iter().map(|value| serde_json::to_value(value).unwrap());
    let written: BTreeSet<String> = written.flat_map(|value| map(value).into_iter().map(|(key, _)| key)).collect();
    let all: BTreeSet<String> = written.into_iter().chain(aliases.iter().map(|key| (*key).to_owned())).collect();
    assert_eq!(T::KEYS.iter().map(|key| (*key).to_owned()).collect::<BTreeSet<_>>(), all, "{}", T::NOUN);
    for key in all {
        let snake: String = key
            .chars()
            .flat_map(|c| if c.is_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] })
            .collect();
        for spelling in [key.clone(), snake, key.to_uppercase()] {
            let extra = JsonMap::from_iter([("x".to_owned(), json!(1)), (spelling.clone(), json!(1))]);
            assert_eq!(known_key::<T>(&extra), Some(spelling.as_str()), "{}", T::NOUN);
        }
    }
    assert_eq!(known_key::<T>(&map(json!({"x": 1, "videoMetadata": {}}))), None);
}

fn some() -> Option<String> {
    Some("x".into())
}

#[test]
fn every_key_of_every_type_is_known_in_every_spelling() {
    let none = Extra::default;
    let call = FunctionCall { id: some(), name: "n".into(), args: JsonMap::new(), extra: none() };
    let response = FunctionResponse { id: some(), name: "n".into(), response: JsonMap::new(), extra: none() };
    let code = ExecutableCode { language: some(), code: "c".into(), extra: none() };
    let result = CodeExecutionResult { outcome: some(), output: some(), extra: none() };
    let data = [
        PartData::Text("t".into()),
        PartData::InlineData(Blob { mime_type: "a/b".into(), data: Bytes::new(), display_name: None }),
        PartData::FileData(FileData { file_uri: "f".into(), mime_type: None, display_name: None }),
        PartData::FunctionCall(call.clone()),
        PartData::FunctionResponse(response.clone()),
        PartData::ExecutableCode(code.clone()),
        PartData::CodeExecutionResult(result.clone()),
    ];
    let parts = data.map(|data| Part { data, thought: true, thought_signature: Some(Bytes::new()), extra: none() });
    check_keys(&parts, &[]);
    check_keys(&[call], &[]);
    check_keys(&[response], &[]);
    check_keys(&[code], &[]);
    check_keys(&[result], &[]);
    let usage = UsageMetadata {
        prompt_token_count: Some(1),
        candidates_token_count: Some(1),
        thoughts_token_count: Some(1),
        cached_content_token_count: Some(1),
        total_token_count: Some(1),
        extra: none(),
    };
    check_keys(std::slice::from_ref(&usage), &[]);
    let compaction = Compaction {
        start_timestamp: Timestamp::default(),
        end_timestamp: Timestamp::default(),
        compacted_content: Content::default(),
        extra: none(),
    };
    check_keys(std::slice::from_ref(&compaction), &[]);
    let some_map = || Extra::from(map(json!({"c1": {}})));
    let actions = EventActions {
        state_delta: JsonMap::new(),
        artifact_delta: Default::default(),
        deleted_artifact_ids: ["a.txt".to_owned()].into(),
        skip_summarization: Some(true),
        transfer_to_agent: some(),
        escalate: Some(true),
        end_of_agent: Some(true),
        end_invocation: Some(true),
        requested_auth_configs: some_map(),
        requested_tool_confirmations: some_map(),
        compaction: Some(Box::new(compaction)),
        extra: none(),
    };
    check_keys(std::slice::from_ref(&actions), &[]);
    let value = || Some(Box::new(json!(1)));
    let event = EventData {
        id: "i".into(),
        invocation_id: "e".into(),
        author: "a".into(),
        content: Some(Arc::default()),
        actions,
        partial: true,
        turn_complete: Some(true),
        interrupted: Some(true),
        error_code: some(),
        error_message: some(),
        finish_reason: some(),
        usage_metadata: Some(Box::new(usage)),
        avg_logprobs: Some(0.5),
        model_version: some(),
        branch: some(),
        grounding_metadata: value(),
        custom_metadata: value(),
        input_transcription: value(),
        output_transcription: value(),
        long_running_tool_ids: vec!["c1".into()],
        timestamp: Timestamp::default(),
    };
    check_keys(&[event], &[]);
}

fn event_with_part(part: Part) -> EventData {
    EventData { content: Some(Arc::new(Content::new("model", vec![part]))), ..EventData::default() }
}

fn event_with_call(call: FunctionCall) -> EventData {
    event_with_part(PartData::FunctionCall(call).into())
}

/// Returns a value with this many levels.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

fn store_error(data: EventData) -> String {
    Event::new(data).check_storable().unwrap_err().to_string()
}

#[test]
fn an_event_whose_unknown_keys_override_its_fields_is_not_stored() {
    let extra = |value: Value| Extra::from(map(value));
    assert_eq!(
        store_error(event_with_part(Part {
            extra: extra(json!({"functionCall": {"name": "pay"}})),
            ..Part::text("hi")
        })),
        "`content.parts[0]` has `functionCall` among its further keys, but that is a field of a part"
    );
    assert_eq!(
        store_error(event_with_part(Part { extra: extra(json!({"text": "other"})), ..Part::text("hi") })),
        "`content.parts[0]` has `text` among its further keys, but that is a field of a part"
    );
    assert_eq!(
        store_error(event_with_call(FunctionCall { extra: extra(json!({"args": {}})), ..FunctionCall::default() })),
        "`content.parts[0].functionCall` has `args` among its further keys, but that is a field of a function call"
    );
    let actions = EventActions { extra: extra(json!({"state_delta": {"a": 1}})), ..EventActions::default() };
    assert_eq!(
        store_error(EventData { actions, ..EventData::default() }),
        "`actions` has `state_delta` among its further keys, but that is a field of actions"
    );
    let usage = UsageMetadata { extra: extra(json!({"totalTokenCount": 1})), ..UsageMetadata::default() };
    assert_eq!(
        store_error(EventData { usage_metadata: Some(Box::new(usage)), ..EventData::default() }),
        "`usageMetadata` has `totalTokenCount` among its further keys, but that is a field of usage metadata"
    );
    assert_eq!(
        store_error(event_with_part(Part { extra: extra(json!({"x": null})), ..Part::text("hi") })),
        "its JSON differs from the event"
    );
    let fine = Part { extra: extra(json!({"videoMetadata": {"fps": 2}})), ..Part::text("hi") };
    Event::new(event_with_part(fine)).check_storable().unwrap();
}

#[test]
fn an_event_that_is_nested_too_deeply_to_be_parsed_is_not_stored() {
    let args = |levels| FunctionCall { args: map(json!({ "a": nested(levels) })), ..FunctionCall::default() };
    let deepest = Event::new(event_with_call(args(100)));
    deepest.check_storable().unwrap();
    assert_eq!(**Event::from_json(deepest.json().clone()).unwrap(), **deepest);
    assert_eq!(
        store_error(event_with_call(args(101))),
        "`content.parts[0].functionCall.args` is nested more than 100 levels deep"
    );
    let response = FunctionResponse { response: args(110).args, ..FunctionResponse::default() };
    assert_eq!(
        store_error(event_with_part(PartData::FunctionResponse(response).into())),
        "`content.parts[0].functionResponse.response` is nested more than 100 levels deep"
    );
    let actions = EventActions { state_delta: args(110).args, ..EventActions::default() };
    assert_eq!(
        store_error(EventData { actions, ..EventData::default() }),
        "`actions.stateDelta` is nested more than 100 levels deep"
    );
    let custom_metadata = Some(Box::new(nested(101)));
    assert_eq!(
        store_error(EventData { custom_metadata, ..EventData::default() }),
        "`customMetadata` is nested more than 100 levels deep"
    );
    // The deepest place of all: a call in a summary.
    let part = PartData::FunctionCall(args(100)).into();
    let compaction = Compaction { compacted_content: Content::new("model", vec![part]), ..Compaction::default() };
    let actions = EventActions { compaction: Some(Box::new(compaction)), ..EventActions::default() };
    let event = Event::new(EventData { actions, ..EventData::default() });
    event.check_storable().unwrap();
    Event::from_json(event.json().clone()).unwrap();
}

fn parse_message(message: Value) -> Result<Content, String> {
    let message: ClientMessage = serde_json::from_value(message).unwrap();
    Content::try_from(message).map_err(|error| format!("{}: {error}", error.code()))
}

#[test]
fn client_messages_are_accepted_in_both_spellings() {
    for message in [
        json!({"role": "user", "parts": [{"text": "hi"}, {"text": ""}]}),
        json!({"role": null, "parts": [{"text": "hi", "thought": null, "thoughtSignature": null}]}),
        json!({"parts": [{"text": "hi", "thought": false, "partMetadata": {"a": 1}}]}),
        json!({"parts": [{"inlineData": {"displayName": "a.png", "mimeType": "image/png", "data": "AAAA"}}]}),
        json!({"parts": [{"inline_data": {"display_name": "a.png", "mime_type": "image/png", "data": "AAAA"}}]}),
        json!({"parts": [{"inlineData": {"mimeType": "video/mp4", "data": ""}, "videoMetadata": {"fps": 2}}]}),
        json!({"parts": [{"fileData": {"fileUri": "gs://a/b", "mimeType": "a/b"}, "video_metadata": {"fps": 2}}]}),
        json!({"parts": [{"file_data": {"file_uri": "gs://a/b"}}]}),
        json!({"parts": [{"functionResponse": {"id": "c1", "name": "order", "response": {}, "willContinue": true}}]}),
        json!({"parts": [{"function_response": {"id": "c1", "name": "order", "response": {"a": 1}}}]}),
        json!({"parts": [{"text": "hi", "inlineData": null}]}),
    ] {
        assert!(parse_message(message.clone()).is_ok(), "{message}: {:?}", parse_message(message.clone()));
    }
}

#[test]
fn client_messages_are_kept_in_one_spelling_and_without_nulls() {
    let sent = json!({"parts": [
        {"file_data": {"file_uri": "gs://a/b"}, "video_metadata": {"start_offset": "1s", "fps": null}, "part_metadata": {"my_key": 1}},
        {"function_response": {
            "id": "c1", "name": "order", "response": {"my_key": null}, "will_continue": false, "scheduling": null,
            "parts": [{"inline_data": {"mime_type": "a/b", "data": "AAAA"}}],
        }},
    ]});
    let kept = json!({"parts": [
        {"fileData": {"fileUri": "gs://a/b"}, "videoMetadata": {"startOffset": "1s"}, "partMetadata": {"my_key": 1}},
        {"functionResponse": {
            "id": "c1", "name": "order", "response": {"my_key": null}, "willContinue": false,
            "parts": [{"inlineData": {"mimeType": "a/b", "data": "AAAA"}}],
        }},
    ]});
    assert_eq!(serde_json::to_value(parse_message(sent).unwrap()).unwrap(), kept);
}

#[test]
fn invalid_messages_are_rejected_with_part_and_key() {
    let kinds = "`text`, `inlineData`, `fileData` or `functionResponse`";
    let response = |response: Value| json!({"parts": [{ "functionResponse": response }]});
    for (message, wrong) in [
        (json!({"parts": []}), "newMessage has no parts; send at least one, such as {\"text\": \"hello\"}".to_owned()),
        (json!({}), "newMessage has no parts; send at least one, such as {\"text\": \"hello\"}".into()),
        (
            json!({"role": "model", "parts": [{"text": "I agree."}]}),
            "newMessage.role is `model`; a user's message has the role `user`, or none".into(),
        ),
        (
            json!({"parts": [{"text": "hi"}, {"foo": 1}]}),
            format!("newMessage.parts[1] has `foo`, which is not a supported kind of data; send {kinds}"),
        ),
        (json!({"parts": [{}]}), format!("newMessage.parts[0] is empty; send {kinds}")),
        (json!({"parts": [{"text": null}]}), format!("newMessage.parts[0] is empty; send {kinds}")),
        (json!({"parts": [{"text": "hi", "foo": 1}]}), "newMessage.parts[0] has the unknown key `foo`".into()),
        (
            json!({"parts": [{"text": "hi", "videoMetadata": {}}]}),
            "newMessage.parts[0] has the unknown key `videoMetadata`".into(),
        ),
        (
            json!({"parts": [{"text": "hi", "partMetadata": 1}]}),
            "newMessage.parts[0] has `partMetadata` that is not an object, or is nested more than 100 levels deep"
                .into(),
        ),
        (
            json!({"parts": [{"text": "hi", "function_call": {"name": "pay", "args": {}}}]}),
            "newMessage.parts[0] has both `text` and `functionCall`; a part holds one kind of data".into(),
        ),
        (
            json!({"parts": [{"functionCall": {"id": "c1", "name": "pay", "args": {}}}]}),
            "newMessage.parts[0] is a `functionCall`, which only a model can make".into(),
        ),
        (
            json!({"parts": [{"executableCode": {"code": "1"}}]}),
            "newMessage.parts[0] is `executableCode`, which only a model can write".into(),
        ),
        (
            json!({"parts": [{"codeExecutionResult": {"outcome": "OUTCOME_OK"}}]}),
            "newMessage.parts[0] is a `codeExecutionResult`, which only code execution produces".into(),
        ),
        (
            json!({"parts": [{"text": "hm", "thought": true}]}),
            "newMessage.parts[0] has `thought`, which marks a model's thinking; leave it out".into(),
        ),
        (
            json!({"parts": [{"text": "hm", "thoughtSignature": "c2ln"}]}),
            "newMessage.parts[0] has a `thoughtSignature`, which only a model creates; leave it out".into(),
        ),
        (
            json!({"parts": [{"inlineData": {"data": "AAAA"}}]}),
            "newMessage.parts[0] has `inlineData` without `mimeType`, such as `image/png`".into(),
        ),
        (json!({"parts": [{"fileData": {}}]}), "newMessage.parts[0] has `fileData` without `fileUri`".into()),
        (
            response(json!({"name": "order", "response": {}})),
            "newMessage.parts[0] has a `functionResponse` without `id`; send the function call's id".into(),
        ),
        (
            response(json!({"id": "c1", "response": {}})),
            "newMessage.parts[0] has a `functionResponse` without `name`; send the function call's name".into(),
        ),
        (
            response(json!({"id": "c1", "name": "order", "foo": 1})),
            "newMessage.parts[0] has the unknown key `foo` in its `functionResponse`".into(),
        ),
        (
            response(json!({"id": "c1", "name": "order", "response": {"a": nested(101)}})),
            "newMessage.parts[0] has a `functionResponse.response` that is nested more than 100 levels deep".into(),
        ),
    ] {
        assert_eq!(parse_message(message.clone()), Err(format!("INVALID_MESSAGE: {wrong}")), "{message}");
    }
    let long = "é\n".repeat(1000);
    let error = parse_message(json!({"parts": [JsonMap::from_iter([(long, json!(1))])]})).unwrap_err();
    assert!(error.len() < 500 && !error.contains('\n'), "{error}");
    assert!(check_message(&Content::user("hi")).is_ok());
}
