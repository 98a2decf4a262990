//! The provider for the Gemini API.

use std::sync::Arc;

use hatchery_core::{Content, FunctionDeclaration, LlmRequest, ModelErrorKind, ModelResolver, StreamingMode};
use hatchery_models::{ModelProviders, Service, Settings};
use serde_json::{Value, json};

use crate::support::{
    MockProvider, MockResponse, call_error, content, deltas, deltas_of_all_splits, event, generate, parts, request,
    stream, texts, user_request,
};

fn ok() -> MockResponse {
    MockResponse::json(
        json!({ "candidates": [{ "content": { "parts": [{ "text": "ok" }] }, "finishReason": "STOP" }] }),
    )
}

async fn body_of(request: LlmRequest) -> Value {
    let provider = MockProvider::start([ok()]).await;
    generate(provider.gemini().as_ref(), request).await.unwrap();
    provider.requests().remove(0).body
}

fn continue_message() -> Value {
    json!({
        "role": "user",
        "parts": [{ "text": "Go on from here as your instructions say, without remarking on this line." }],
    })
}

#[tokio::test]
async fn a_request_is_sent_to_the_url_of_the_model_with_the_key() {
    let provider = MockProvider::start([ok(), MockResponse::events([end("STOP")])]).await;
    generate(provider.gemini().as_ref(), user_request("hi")).await.unwrap();
    deltas(provider.gemini().as_ref(), user_request("hi")).await;
    let question = provider.requests();
    assert_eq!(question[0].target, "/v1beta/models/gemini-2.5-flash:generateContent");
    assert_eq!(question[1].target, "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse");
    for question in question {
        assert_eq!(question.headers["x-goog-api-key"], "gemini-key");
        assert_eq!(question.headers["content-type"], "application/json");
        assert_eq!(question.body, json!({ "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }] }));
    }
}

#[tokio::test]
async fn a_name_cannot_escape_from_its_segment_of_the_url() {
    let provider = MockProvider::start([ok(), ok()]).await;
    let settings = Settings::default()
        .with_base_url(Service::Gemini, format!("{}/proxy/", provider.url))
        .with_key(Service::Gemini, "k");
    let providers = ModelProviders::with_defaults(settings);
    for name in ["models/gemini-x", "gemini-/../../x?y#z"] {
        generate(providers.model(name).unwrap().as_ref(), user_request("hi")).await.unwrap();
    }
    assert_eq!(provider.requests()[0].target, "/proxy/v1beta/models/gemini-x:generateContent");
    assert_eq!(provider.requests()[1].target, "/proxy/v1beta/models/gemini-%2F..%2F..%2Fx%3Fy%23z:generateContent");
}

#[tokio::test]
async fn every_kind_of_part_has_the_form_that_gemini_expects() {
    let history = [
        content(json!({ "parts": [
            { "text": "look" },
            { "inlineData": { "mimeType": "image/png", "data": "AAEC/w==", "displayName": "a.png" } },
            { "fileData": { "mimeType": "video/mp4", "fileUri": "gs://v", "displayName": "v" }, "videoMetadata": { "fps": 1 } },
        ] })),
        content(json!({ "role": "model", "parts": [
            { "text": "I see", "thought": true, "thoughtSignature": "c2ln" },
            { "functionCall": { "id": "adk-1", "name": "a", "args": { "x": 1 } }, "thoughtSignature": "-_8" },
            { "functionCall": { "id": "own", "name": "b", "args": {} } },
            { "executableCode": { "language": "PYTHON", "code": "1" } },
            { "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": "1" } },
        ] })),
        content(json!({ "role": "model", "parts": [] })),
        content(json!({ "role": "user", "parts": [
            { "functionResponse": { "id": "adk-1", "name": "a", "response": { "y": 2 }, "willContinue": false } },
            { "functionResponse": { "id": "own", "name": "b", "response": {} } },
            { "text": "and?" },
        ] })),
    ];
    let expected = json!({ "contents": [
        { "role": "user", "parts": [
            { "text": "look" },
            { "inlineData": { "mimeType": "image/png", "data": "AAEC/w==" } },
            { "fileData": { "fileUri": "gs://v", "mimeType": "video/mp4" }, "videoMetadata": { "fps": 1 } },
        ] },
        { "role": "model", "parts": [
            { "text": "I see", "thought": true, "thoughtSignature": "c2ln" },
            { "functionCall": { "name": "a", "args": { "x": 1 } }, "thoughtSignature": "+/8=" },
            { "functionCall": { "id": "own", "name": "b", "args": {} } },
            { "executableCode": { "language": "PYTHON", "code": "1" } },
            { "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": "1" } },
        ] },
        { "role": "user", "parts": [
            { "functionResponse": { "name": "a", "response": { "y": 2 }, "willContinue": false } },
            { "functionResponse": { "id": "own", "name": "b", "response": {} } },
            { "text": "and?" },
        ] },
    ] });
    assert_eq!(body_of(request(history)).await, expected);
}

#[tokio::test]
async fn a_file_that_gemini_does_not_accept_is_named_in_text() {
    let media = content(json!({ "role": "user", "parts": [
        { "inlineData": { "mimeType": "application/zip", "data": "AAEC", "displayName": "a.zip" } },
        { "inlineData": { "mimeType": "application/json", "data": "e30=" } },
        { "inlineData": { "mimeType": "Application/JSON; charset=utf-8", "data": "e30=" } },
        { "inlineData": { "mimeType": "image/svg+xml", "data": "PHN2Zy8+" } },
        { "fileData": { "mimeType": "application/zip", "fileUri": "gs://z" }, "videoMetadata": { "fps": 1 } },
        { "fileData": { "fileUri": "gs://v" } },
    ] }));
    let expected = json!([
        { "text": "[file a.zip of type application/zip: left out, this model does not accept it]" },
        { "text": "{}" },
        { "text": "{}" },
        { "text": "<svg/>" },
        { "text": "[file gs://z of type application/zip: left out, this model does not accept it]" },
        { "fileData": { "fileUri": "gs://v" } },
    ]);
    assert_eq!(body_of(request([media])).await["contents"][0]["parts"], expected);
}

#[tokio::test]
async fn calls_follow_a_user_message_or_other_calls() {
    let call = |name| content(json!({ "role": "model", "parts": [{ "functionCall": { "name": name, "args": {} } }] }));
    let answer =
        || content(json!({ "role": "user", "parts": [{ "functionResponse": { "name": "a", "response": {} } }] }));
    let summary = || content(json!({ "role": "model", "parts": [{ "text": "So far." }] }));
    let roles = async |history: Vec<Content>| {
        let body = body_of(request(history)).await;
        let brief = |content: &Value| match &content["parts"][0] {
            _ if *content == continue_message() => "go on",
            part if part.get("functionCall").is_some() => "call",
            part if part.get("functionResponse").is_some() => "answer",
            _ => "words",
        };
        body["contents"].as_array().unwrap().iter().map(brief).collect::<Vec<_>>()
    };
    assert_eq!(roles(vec![call("a"), answer()]).await, ["go on", "call", "answer"]);
    assert_eq!(roles(vec![summary(), call("a"), answer()]).await, ["words", "go on", "call", "answer"]);
    let in_a_row =
        vec![content(json!({ "parts": [{ "text": "hi" }] })), call("a"), call("b"), answer(), call("a"), answer()];
    assert_eq!(roles(in_a_row).await, ["words", "call", "call", "answer", "call", "answer"]);
}

#[tokio::test]
async fn instructions_tools_and_settings_are_in_their_fields() {
    let declaration = FunctionDeclaration {
        name: "roll".into(),
        description: "Rolls.".into(),
        parameters: Some(json!({ "type": "object", "properties": { "sides": { "type": "integer" } } })),
        response: Some(json!({ "type": "object" })),
    };
    let bare = FunctionDeclaration { name: "flip".into(), ..FunctionDeclaration::default() };
    let mut question = user_request("hi");
    question.system_instructions = vec!["Be brief.".into(), "Be kind.".into()];
    question.tools = vec![Arc::new(declaration), Arc::new(bare)];
    question.model_tools = vec![json!({ "googleSearch": {} })];
    question.config = serde_json::from_value(json!({
        "temperature": 0.5, "topP": 0.9, "topK": 40, "maxOutputTokens": 100, "stopSequences": ["END"], "presencePenalty": 0.1,
        "frequencyPenalty": 0.2, "seed": 7, "responseSchema": { "type": "object" }, "thinkingConfig": { "thinkingBudget": 0 },
        "safetySettings": [{ "category": "C", "threshold": "T" }], "toolConfig": { "functionCallingConfig": { "mode": "ANY" } },
        "cachedContent": "cachedContents/1", "labels": { "a": "b" },
        "httpOptions": { "timeout": 60000, "extraBody": { "store": true, "contents": [] } },
        "automaticFunctionCalling": { "disable": true },
    }))
    .unwrap();
    let expected = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }],
        "systemInstruction": { "parts": [{ "text": "Be brief.\n\nBe kind." }] },
        "tools": [
            { "functionDeclarations": [
                {
                    "name": "roll",
                    "description": "Rolls.",
                    "parametersJsonSchema": { "type": "object", "properties": { "sides": { "type": "integer" } } },
                    "responseJsonSchema": { "type": "object" },
                },
                { "name": "flip", "description": "" },
            ] },
            { "googleSearch": {} },
        ],
        "generationConfig": {
            "temperature": 0.5, "topP": 0.9, "topK": 40.0, "maxOutputTokens": 100, "stopSequences": ["END"], "presencePenalty": 0.1,
            "frequencyPenalty": 0.2, "seed": 7, "responseMimeType": "application/json", "responseJsonSchema": { "type": "object" },
            "thinkingConfig": { "thinkingBudget": 0 },
        },
        "safetySettings": [{ "category": "C", "threshold": "T" }],
        "toolConfig": { "functionCallingConfig": { "mode": "ANY" } },
        "cachedContent": "cachedContents/1",
        "store": true,
    });
    assert_eq!(body_of(question).await, expected);
}

#[tokio::test]
async fn a_conversation_that_does_not_end_with_the_user_gets_a_user_message() {
    assert_eq!(body_of(request([])).await["contents"], json!([continue_message()]));
    let ends_with_model =
        request([Content::user("hi"), Content::model("hello"), Content { role: None, parts: vec![] }]);
    let contents = body_of(ends_with_model).await["contents"].clone();
    assert_eq!(contents.as_array().unwrap().len(), 3);
    assert_eq!(contents[2], continue_message());
}

#[tokio::test]
async fn gemma_gets_its_instructions_in_a_user_message() {
    let provider = MockProvider::start([ok()]).await;
    let settings =
        Settings::default().with_base_url(Service::Gemini, provider.url.as_str()).with_key(Service::Gemini, "k");
    let model = ModelProviders::with_defaults(settings).model("models/gemma-3-27b-it").unwrap();
    generate(model.as_ref(), LlmRequest { system_instructions: vec!["Be brief.".into()], ..user_request("hi") })
        .await
        .unwrap();
    let contents = json!([
        { "role": "user", "parts": [{ "text": "Be brief." }] },
        { "role": "user", "parts": [{ "text": "hi" }] },
    ]);
    assert_eq!(provider.requests()[0].body, json!({ "contents": contents }));
}

async fn answer_to(body: Value) -> hatchery_core::LlmResponse {
    let provider = MockProvider::start([MockResponse::json(body)]).await;
    generate(provider.gemini().as_ref(), user_request("hi")).await.unwrap()
}

#[tokio::test]
async fn a_null_in_an_answer_means_absent() {
    let args = json!({ "x": null });
    let response = answer_to(json!({
        "candidates": [{
            "content": { "role": "model", "parts": [{ "functionCall": { "name": "a", "args": args }, "thought": null }] },
            "finishReason": "STOP", "safetyRatings": null, "avgLogprobs": null,
        }, null],
        "usageMetadata": { "promptTokenCount": 3, "cachedContentTokenCount": null }, "error": null,
    }))
    .await;
    let content = response.content.unwrap();
    assert_eq!(serde_json::to_value(&content.function_calls().next().unwrap().args).unwrap(), args);
    assert_eq!(response.usage_metadata.unwrap().prompt_token_count, Some(3));
    assert_eq!(answer_to(json!({ "candidates": null })).await.error_code.as_deref(), Some("UNKNOWN_ERROR"));
}

#[tokio::test]
async fn a_candidate_becomes_a_response_with_all_of_its_fields() {
    let response = answer_to(json!({
        "candidates": [{
            "content": { "parts": [
                { "text": "thinking", "thought": true },
                { "text": "hello", "thoughtSignature": "c2ln" },
                { "functionCall": { "name": "a", "args": { "x": 1 } } },
                { "newKind": { "y": 2 } },
            ] },
            "finishReason": "STOP", "index": 0, "avgLogprobs": -0.5,
            "groundingMetadata": { "webSearchQueries": ["q"] }, "citationMetadata": { "citations": [] },
        }],
        "usageMetadata": { "promptTokenCount": 3, "candidatesTokenCount": 4, "thoughtsTokenCount": 5, "totalTokenCount": 12, "new": 1 },
        "modelVersion": "gemini-2.5-flash-001",
    }))
    .await;
    let json = serde_json::to_value(&response).unwrap();
    assert_eq!(
        json,
        json!({
            "content": { "role": "model", "parts": [
                { "text": "thinking", "thought": true },
                { "text": "hello", "thoughtSignature": "c2ln" },
                { "functionCall": { "name": "a", "args": { "x": 1 } } },
                { "newKind": { "y": 2 } },
            ] },
            "finishReason": "STOP",
            "usageMetadata": { "promptTokenCount": 3, "candidatesTokenCount": 4, "thoughtsTokenCount": 5, "totalTokenCount": 12, "new": 1 },
            "modelVersion": "gemini-2.5-flash-001",
            "groundingMetadata": { "webSearchQueries": ["q"] },
            "avgLogprobs": -0.5,
            "customMetadata": { "citationMetadata": { "citations": [] } },
        })
    );
    let history = request([Content::user("hi"), response.content.unwrap(), Content::user("more")]);
    assert_eq!(body_of(history).await["contents"][1], json["content"]);
}

#[tokio::test]
async fn a_finish_reason_other_than_stop_is_an_error_with_that_code() {
    let cut = answer_to(json!({
        "candidates": [{ "content": { "parts": [{ "text": "half" }] }, "finishReason": "MAX_TOKENS", "finishMessage": "too long" }],
    }))
    .await;
    assert_eq!(texts(std::slice::from_ref(&cut)), ["half"]);
    assert_eq!((cut.error_code.as_deref(), cut.error_message.as_deref()), (Some("MAX_TOKENS"), Some("too long")));
    let blocked = answer_to(json!({ "candidates": [{ "finishReason": "SAFETY" }] })).await;
    assert_eq!((blocked.content, blocked.error_code.as_deref()), (None, Some("SAFETY")));
    assert_eq!(blocked.error_message.as_deref(), Some("the provider blocked the answer"));
}

#[tokio::test]
async fn a_stream_with_a_blocked_prompt_is_complete() {
    let blocked = event(json!({ "promptFeedback": { "blockReason": "SAFETY" } }));
    let provider = MockProvider::start([MockResponse::events([blocked])]).await;
    let deltas = deltas(provider.gemini().as_ref(), user_request("hi")).await;
    assert_eq!((deltas.len(), deltas[0].error_code.as_deref()), (1, Some("SAFETY")));
}

#[tokio::test]
async fn a_blocked_prompt_and_an_empty_answer_are_errors_of_the_response() {
    let blocked = answer_to(json!({
        "promptFeedback": { "blockReason": "OTHER", "blockReasonMessage": "not this" },
        "usageMetadata": { "promptTokenCount": 3 },
    }))
    .await;
    assert_eq!((blocked.error_code.as_deref(), blocked.error_message.as_deref()), (Some("OTHER"), Some("not this")));
    assert_eq!(blocked.usage_metadata.unwrap().prompt_token_count, Some(3));
    for body in [json!({}), json!({ "usageMetadata": { "promptTokenCount": 3 } }), json!({ "promptFeedback": {} })] {
        let empty = answer_to(body).await;
        assert_eq!(empty.error_code.as_deref(), Some("UNKNOWN_ERROR"));
        assert_eq!(empty.error_message.as_deref(), Some("Gemini answered without a candidate and without a reason"));
    }
}

#[tokio::test]
async fn an_invalid_key_is_an_auth_error_although_the_status_is_400() {
    let body = json!({ "error": { "code": 400, "message": "API key not valid.", "details": [{ "reason": "API_KEY_INVALID" }] } });
    let provider = MockProvider::start([MockResponse::json(body).status(400)]).await;
    let error = call_error(provider.gemini().as_ref(), user_request("hi"), StreamingMode::Off).await;
    assert_eq!((error.kind, error.status), (ModelErrorKind::Auth, Some(400)));
}

/// An event with a finish reason only.
fn end(reason: &str) -> String {
    event(json!({ "candidates": [{ "finishReason": reason }] }))
}

fn piece(parts: Value) -> Value {
    json!({ "candidates": [{ "content": { "role": "model", "parts": parts } }] })
}

/// A stream with all that the format allows: comments, CRLF, its own line for each kind, characters of two to four
/// bytes.
fn varied_stream() -> String {
    let last = json!({
        "candidates": [{ "content": { "parts": [{ "text": "" }] }, "finishReason": "STOP" }],
        "usageMetadata": { "totalTokenCount": 9 }, "modelVersion": "v1",
    });
    format!(
        ": keep-alive\n\n{}data:{}\r\n\r\n:\r\nid: 1\nevent: x\ndata: {}\n\nretry: 5\n\ndata: {last}",
        event(piece(json!([{ "text": "thé", "thought": true }]))),
        piece(json!([{ "text": "ü 漢 🦀" }])),
        piece(json!([{ "functionCall": { "name": "a", "args": { "k": "ß" } }, "thoughtSignature": "c2ln" }])),
    )
}

#[tokio::test]
async fn a_stream_has_the_same_deltas_wherever_its_chunks_are_split() {
    let uncut = deltas_of_all_splits(&varied_stream(), MockProvider::gemini).await;
    assert_eq!(texts(&uncut), ["thé", "ü 漢 🦀", ""]);
    assert!(parts(&uncut)[0].thought);
    assert_eq!(uncut.len(), 4);
    assert_eq!(uncut[2].content.as_ref().unwrap().function_calls().next().unwrap().args["k"], "ß");
    assert_eq!(uncut[3].finish_reason.as_deref(), Some("STOP"));
    assert_eq!(uncut[3].usage_metadata.as_ref().unwrap().total_token_count, Some(9));
    assert_eq!(uncut[3].model_version.as_deref(), Some("v1"));
}

#[tokio::test]
async fn an_error_in_a_stream_follows_the_earlier_responses_and_ends_it() {
    let error = event(json!({ "error": { "code": 503, "message": "overloaded", "status": "UNAVAILABLE" } }));
    let late = event(piece(json!([{ "text": "late" }])));
    let provider =
        MockProvider::start([MockResponse::events([event(piece(json!([{ "text": "one" }]))), error, late])]).await;
    let items = stream(provider.gemini().as_ref(), user_request("hi")).await;
    assert_eq!(items.len(), 2);
    let error = items[1].as_ref().unwrap_err();
    assert_eq!((error.kind, error.status), (ModelErrorKind::Server, Some(503)));
    assert_eq!(error.message, "Gemini reports: overloaded");
}

#[tokio::test]
async fn a_payload_with_only_usage_is_a_delta_and_an_empty_one_is_not() {
    let usage = event(json!({ "usageMetadata": { "totalTokenCount": 2 } }));
    let provider = MockProvider::start([MockResponse::events([event(json!({})), usage, end("STOP")])]).await;
    let deltas = deltas(provider.gemini().as_ref(), user_request("hi")).await;
    assert_eq!(deltas.len(), 2);
    assert_eq!(deltas[0].usage_metadata.as_ref().unwrap().total_token_count, Some(2));
    assert_eq!(deltas[0].error_code, None);
}

async fn calls_of(payloads: Vec<Value>) -> Vec<Value> {
    let events = payloads.into_iter().map(|parts| event(piece(parts))).chain([end("STOP")]);
    let provider = MockProvider::start([MockResponse::events(events)]).await;
    let deltas = deltas(provider.gemini().as_ref(), user_request("hi")).await;
    parts(&deltas).iter().map(|part| serde_json::to_value(part).unwrap()).collect()
}

fn arg(path: &str, value: Value, goes_on: bool) -> Value {
    let key = if value.is_string() { "stringValue" } else { "numberValue" };
    json!({ "functionCall": { "partialArgs": [{ "jsonPath": path, key: value }], "willContinue": goes_on } })
}

#[tokio::test]
async fn a_call_with_streamed_arguments_is_returned_once_and_complete() {
    let calls = calls_of(vec![
        json!([{ "functionCall": { "id": "c", "name": "book", "willContinue": true }, "thoughtSignature": "c2ln" }]),
        json!([arg("$.location.city", json!("Par"), true), arg("$.location.city", json!("is"), true)]),
        json!([arg("$.guests", json!(2.0), true), arg("$.list[1]['a b']", json!("x"), true)]),
        json!([{ "functionCall": {} }, { "text": "done" }]),
    ])
    .await;
    let expected = json!([
        {
            "functionCall": {
                "id": "c",
                "name": "book",
                "args": { "location": { "city": "Paris" }, "guests": 2.0, "list": [null, { "a b": "x" }] },
            },
            "thoughtSignature": "c2ln",
        },
        { "text": "done" },
    ]);
    assert_eq!(Value::Array(calls), expected);
}

#[tokio::test]
async fn a_partial_argument_without_a_value_changes_nothing() {
    let partial = |arg: Value| json!([{ "functionCall": { "partialArgs": [arg], "willContinue": true } }]);
    let calls = calls_of(vec![
        json!([{ "functionCall": { "name": "book", "willContinue": true } }]),
        json!([arg("$.city", json!("Par"), true), arg("$.guests", json!(2.0), true)]),
        partial(json!({ "jsonPath": "$.city", "willContinue": true })),
        partial(json!({ "jsonPath": "$.city", "stringValue": null })),
        partial(json!({ "jsonPath": "$.date" })),
        partial(json!({ "jsonPath": "$.guests", "nullValue": "NULL_VALUE" })),
        json!([arg("$.city", json!("is"), true), { "functionCall": {} }]),
    ])
    .await;
    let expected = json!([{ "functionCall": { "name": "book", "args": { "city": "Paris", "guests": null } } }]);
    assert_eq!(Value::Array(calls), expected);
}

#[tokio::test]
async fn streamed_calls_are_neither_mixed_up_nor_lost() {
    let calls = calls_of(vec![
        json!([{ "functionCall": { "willContinue": false } }]),
        json!([{ "functionCall": { "name": "a", "willContinue": true } }, arg("$.x", json!("1"), false)]),
        json!([{ "functionCall": { "name": "b", "willContinue": true } }, arg("$.x", json!("2"), true)]),
        json!([{ "functionCall": { "name": "c", "args": { "x": "3" } } }]),
        json!([{ "functionCall": { "name": "d", "willContinue": true } }, arg("$.x[99999999]", json!("4"), false)]),
    ])
    .await;
    let expected = json!([
        { "functionCall": { "name": "a", "args": { "x": "1" } } },
        { "functionCall": { "name": "b", "args": { "x": "2" } } },
        { "functionCall": { "name": "c", "args": { "x": "3" } } },
        { "functionCall": { "name": "d", "args": { "x": [] } } },
    ]);
    assert_eq!(Value::Array(calls), expected);
}

#[tokio::test]
async fn a_call_whose_arguments_are_cut_off_is_not_made() {
    let begin = || event(piece(json!([{ "functionCall": { "name": "delete", "willContinue": true } }])));
    let path = || event(piece(json!([arg("$.path", json!("/home"), true)])));
    let provider = MockProvider::start([
        MockResponse::events([begin(), path(), end("MAX_TOKENS")]),
        MockResponse::events([begin(), path()]),
        MockResponse::events([begin(), path(), end("STOP")]),
    ])
    .await;
    let model = provider.gemini();
    let cut_off = deltas(model.as_ref(), user_request("hi")).await;
    assert_eq!((parts(&cut_off), cut_off[0].finish_reason.as_deref()), (vec![], Some("MAX_TOKENS")));
    let broken = stream(model.as_ref(), user_request("hi")).await;
    let error = broken[0].as_ref().unwrap_err();
    assert_eq!((broken.len(), error.kind), (1, ModelErrorKind::Network));
    assert_eq!(error.message, "the answer of Gemini ended before it was complete");
    let finished = deltas(model.as_ref(), user_request("hi")).await;
    assert_eq!(parts(&finished).len(), 1);
}
