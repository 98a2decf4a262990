//! The provider for the responses API of OpenAI.

use std::sync::Arc;

use hatchery_core::{Aggregator, Content, FunctionDeclaration, LlmRequest, ModelErrorKind, StreamingMode};
use serde_json::{Value, json};

use crate::conformance::anthropic::event;
use crate::support::{
    MockProvider, MockResponse, call_error, content, deltas, generate, request, stream, texts, user_request,
};

fn completed() -> MockResponse {
    MockResponse::json(json!({ "status": "completed", "output": [] }))
}

async fn body_of(name: &str, request: LlmRequest) -> Value {
    let provider = MockProvider::start([completed()]).await;
    generate(provider.openai_named(&format!("openai-responses/{name}")).as_ref(), request).await.unwrap();
    provider.requests().remove(0).body
}

fn with_config(config: Value) -> LlmRequest {
    LlmRequest { config: serde_json::from_value(config).unwrap(), ..user_request("hi") }
}

#[tokio::test]
async fn thoughts_of_this_api_are_sent_back_in_their_place() {
    let model = content(json!({ "role": "model", "parts": [
        { "text": "hm", "thought": true, "thoughtSignature": "cmVhc29uaW5nOmVuYw==" },
        { "text": "of another", "thought": true, "thoughtSignature": "c2ln" },
        { "functionCall": { "id": "call_1", "name": "roll", "args": {} } },
    ] }));
    let body = body_of("gpt-5", request([Content::user("hi"), model])).await;
    let expected = json!([
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hi" }] },
        { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "hm" }], "encrypted_content": "enc" },
        { "type": "function_call", "call_id": "call_1", "name": "roll", "arguments": "{}" },
    ]);
    assert_eq!(body["input"], expected);
}

#[tokio::test]
async fn adjacent_thoughts_of_a_whole_response_keep_their_encrypted_forms() {
    let thought = |text: &str, encrypted: &str| {
        let summary = [json!({ "type": "summary_text", "text": text })];
        json!({ "type": "reasoning", "summary": summary, "encrypted_content": encrypted })
    };
    let thoughts = [thought("hm", "enc"), thought("so", "enc2")];
    let answer = MockResponse::json(json!({ "status": "completed", "output": thoughts }));
    let provider = MockProvider::start([answer, completed()]).await;
    let model = provider.openai_named("openai-responses/gpt-5");
    let mut aggregator = Aggregator::default();
    aggregator.push(generate(model.as_ref(), user_request("hi")).await.unwrap());
    let first = aggregator.finish().unwrap().content.unwrap();
    generate(model.as_ref(), request([Content::user("hi"), first])).await.unwrap();
    let input = &provider.requests()[1].body["input"];
    assert_eq!([&input[1], &input[2]], thoughts.each_ref());
}

#[tokio::test]
async fn encrypted_thoughts_are_requested_from_models_that_think() {
    for (name, thinks) in [
        ("gpt-5", true),
        ("gpt-5.1-codex", true),
        ("gpt-6-mini", true),
        ("o3-mini", true),
        ("o1", true),
        ("gpt-4o", false),
        ("gpt-4.1", false),
        ("gpt-5-chat-latest", false),
        ("olmo", false),
    ] {
        let body = body_of(name, user_request("hi")).await;
        assert_eq!(body.get("include").is_some(), thinks, "{name}");
        assert_eq!(body["store"], false);
    }
}

#[tokio::test]
async fn settings_have_the_names_of_this_api() {
    let schema = json!({ "type": "object", "properties": {} });
    let roll = FunctionDeclaration { name: "roll".into(), ..FunctionDeclaration::default() };
    let config = with_config(json!({
        "responseSchema": schema, "seed": 1, "safetySettings": [], "temperature": 0.5, "maxOutputTokens": 10,
        "thinkingConfig": { "thinkingLevel": "LOW", "includeThoughts": true },
        "toolConfig": { "functionCallingConfig": { "mode": "ANY", "allowedFunctionNames": ["roll"] } },
        "httpOptions": { "extraBody": { "user": "ada", "input": [] } },
    }));
    let body = body_of("gpt-5", LlmRequest { tools: vec![Arc::new(roll)], ..config.clone() }).await;
    let format = json!({ "type": "json_schema", "name": "response", "schema": schema, "strict": false });
    assert_eq!(
        body,
        json!({
            "model": "gpt-5", "store": false, "user": "ada", "max_output_tokens": 16,
            "include": ["reasoning.encrypted_content"],
            "tools": [{
                "type": "function", "name": "roll", "description": "", "strict": false,
                "parameters": { "type": "object", "properties": {} },
            }],
            "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hi" }] }],
            "text": { "format": format },
            "reasoning": { "effort": "low", "summary": "auto" },
            "tool_choice": { "type": "function", "name": "roll" },
        })
    );
    let plain = body_of("gpt-4.1", config).await;
    assert_eq!((plain.get("reasoning"), plain.get("tool_choice")), (None, None));
    assert_eq!(plain["temperature"], 0.5);
    let json_object = body_of("gpt-4o", with_config(json!({ "responseMimeType": "application/json" }))).await;
    assert_eq!(json_object["text"], json!({ "format": { "type": "json_object" } }));
    // The word JSON must be in the input, where the instructions are not.
    let named = json!({
        "type": "message", "role": "system", "content": [{ "type": "input_text", "text": "Answer with JSON." }],
    });
    assert_eq!(json_object["input"][0], named);
}

#[tokio::test]
async fn an_input_is_never_empty() {
    let body = body_of("gpt-5", request([])).await;
    let go_on = "Go on from here as your instructions say, without remarking on this line.";
    assert_eq!(
        body["input"],
        json!([{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": go_on }] }])
    );
}

#[tokio::test]
async fn a_file_that_is_not_accepted_is_named_in_text() {
    let media = content(json!({ "role": "user", "parts": [
        { "inlineData": { "mimeType": "image/heic", "data": "AAEC", "displayName": "a.heic" } },
        { "fileData": { "fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf" } },
        { "fileData": { "fileUri": "https://host/a.pdf", "mimeType": "application/pdf" } },
    ] }));
    let expected = json!([
        { "type": "input_text", "text": "[file a.heic of type image/heic: left out, this model does not accept it]" },
        {
            "type": "input_text",
            "text": "[file gs://bucket/a.pdf of type application/pdf: left out, this model does not accept it]",
        },
        { "type": "input_file", "file_url": "https://host/a.pdf" },
    ]);
    assert_eq!(body_of("gpt-5", request([media])).await["input"][0]["content"], expected);
}

#[tokio::test]
async fn a_schema_of_no_object_is_an_instruction() {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    let config = json!({ "responseSchema": list, "responseMimeType": "application/json" });
    let body = body_of("gpt-5", with_config(config)).await;
    assert_eq!(body.get("text"), None);
    assert!(body["instructions"].as_str().unwrap().ends_with(&format!("this JSON Schema: {list}")));
}

#[tokio::test]
async fn an_incomplete_response_has_its_reason() {
    for (reason, ours) in [("max_output_tokens", "MAX_TOKENS"), ("content_filter", "SAFETY"), ("odd", "OTHER")] {
        for (status, arguments) in [(Value::Null, "{\"si"), (json!("incomplete"), "")] {
            let call = json!({
                "type": "function_call", "call_id": "c", "name": "roll", "arguments": arguments, "status": status,
            });
            let incomplete =
                json!({ "status": "incomplete", "incomplete_details": { "reason": reason }, "output": [call.clone()] });
            let events = [
                json!({ "type": "response.output_item.done", "item": call }),
                json!({ "type": "response.incomplete", "response": incomplete }),
            ];
            let provider =
                MockProvider::start([MockResponse::json(&incomplete), MockResponse::events(events.map(event))]).await;
            let model = provider.openai_named("openai-responses/gpt-5");
            let response = generate(model.as_ref(), user_request("hi")).await.unwrap();
            assert_eq!((response.content, response.error_code.as_deref()), (None, Some(ours)));
            let deltas = deltas(model.as_ref(), user_request("hi")).await;
            assert_eq!((deltas.len(), deltas[0].error_code.as_deref()), (1, Some(ours)));
        }
    }
}

#[tokio::test]
async fn a_failed_response_is_an_error() {
    let failed =
        json!({ "status": "failed", "error": { "code": "rate_limit_exceeded", "message": "slow down" }, "output": [] });
    let event = event(json!({ "type": "response.failed", "response": failed }));
    let provider = MockProvider::start([MockResponse::json(&failed), MockResponse::events([event])]).await;
    let model = provider.openai_named("openai-responses/gpt-5");
    let error = generate(model.as_ref(), user_request("hi")).await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::RateLimited, "OpenAI reports: slow down"));
    let items = stream(model.as_ref(), user_request("hi")).await;
    assert_eq!(items[0].as_ref().unwrap_err(), &error);
}

#[tokio::test]
async fn an_item_without_deltas_is_taken_as_a_whole() {
    let message = |content: Value| json!({ "type": "message", "content": content });
    let events = [
        json!({ "type": "response.output_item.added", "item": message(json!([])) }),
        json!({ "type": "response.output_item.done", "item": message(json!([
            { "type": "output_text", "text": "whole" }, { "type": "refusal", "refusal": "no" },
        ])) }),
        json!({ "type": "response.output_item.added", "item": message(json!([])) }),
        json!({ "type": "response.refusal.delta", "delta": "never" }),
        json!({ "type": "response.output_item.done", "item": message(json!([{ "type": "refusal", "refusal": "never" }])) }),
        json!({ "type": "response.completed", "response": { "status": "completed" } }),
    ];
    let provider = MockProvider::start([MockResponse::events(events.map(event))]).await;
    let deltas = deltas(provider.openai_named("openai-responses/gpt-5").as_ref(), user_request("hi")).await;
    assert_eq!(texts(&deltas), ["whole", "no", "never"]);
}

#[tokio::test]
async fn a_malformed_call_is_an_error() {
    let call = json!({ "type": "function_call", "call_id": "c", "name": "roll", "arguments": "[1]" });
    let done = event(json!({ "type": "response.output_item.done", "item": call }));
    let end = event(json!({ "type": "response.completed", "response": { "status": "completed" } }));
    let provider = MockProvider::start([
        MockResponse::json(json!({ "status": "completed", "output": [call] })),
        MockResponse::events([done.clone(), end]),
        MockResponse::events([done]),
    ])
    .await;
    let model = provider.openai_named("openai-responses/gpt-5");
    let error = generate(model.as_ref(), user_request("hi")).await.unwrap_err();
    assert!(error.message.contains("the arguments of tool call `roll` are no JSON object"), "{error}");
    for _ in 0..2 {
        let items = stream(model.as_ref(), user_request("hi")).await;
        assert_eq!(items[0].as_ref().unwrap_err(), &error);
    }
}

#[tokio::test]
async fn a_tool_of_gemini_is_rejected() {
    let provider = MockProvider::start([]).await;
    let foreign = LlmRequest { model_tools: vec![json!({ "googleSearch": {} })], ..user_request("hi") };
    let model = provider.openai_named("openai-responses/gpt-5");
    let error = call_error(model.as_ref(), foreign, StreamingMode::Off).await;
    assert!(
        error.message.starts_with("the responses API does not have the model tool {\"googleSearch\":{}};"),
        "{error}"
    );
}
