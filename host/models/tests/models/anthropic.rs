//! The provider for the Anthropic Messages API.

use std::sync::Arc;

use hatchery_core::{Aggregator, Content, LlmRequest, Model, ModelErrorKind, ModelResolver, StreamingMode};
use hatchery_models::{ModelProviders, Service, Settings};
use serde_json::{Value, json};

use crate::conformance::anthropic::{answer, event, events};
use crate::support::{
    MockProvider, MockResponse, call_error, content, deltas, generate, request, stream, texts, user_request,
};

fn model(provider: &MockProvider) -> Arc<dyn Model> {
    let settings =
        Settings::default().with_base_url(Service::Anthropic, provider.url.as_str()).with_key(Service::Anthropic, "k");
    ModelProviders::with_defaults(settings).model("anthropic/claude-haiku-4-5").unwrap()
}

async fn body_of(request: LlmRequest) -> Value {
    let provider = MockProvider::start([MockResponse::json(answer())]).await;
    generate(model(&provider).as_ref(), request).await.unwrap();
    let received = provider.requests().remove(0);
    assert_eq!(received.headers["anthropic-version"], "2023-06-01");
    assert_eq!(received.body["model"], "claude-haiku-4-5");
    received.body
}

async fn messages_of(contents: Value) -> Value {
    let contents: Vec<Content> = serde_json::from_value(contents).unwrap();
    body_of(request(contents)).await["messages"].take()
}

fn with_config(config: Value) -> LlmRequest {
    LlmRequest { config: serde_json::from_value(config).unwrap(), ..user_request("hi") }
}

fn text(text: &str) -> Value {
    json!([{ "type": "text", "text": text }])
}

const CONTINUE: &str = "Go on from here as your instructions say, without remarking on this line.";

#[tokio::test]
async fn thoughts_are_sent_back_with_their_signatures() {
    let provider =
        MockProvider::start([MockResponse::events(events().into_iter().map(event)), MockResponse::json(answer())])
            .await;
    let model = model(&provider);
    let mut aggregator = Aggregator::default();
    deltas(model.as_ref(), user_request("hi")).await.into_iter().for_each(|delta| aggregator.push(delta));
    let answer = aggregator.finish().unwrap().content.unwrap();
    let results = json!({ "role": "user", "parts": [
        { "functionResponse": { "id": "toolu_1", "name": "roll", "response": { "error": "the die is lost" } } },
        { "functionResponse": { "id": "toolu_2", "name": "flip", "response": { "result": 1 } } },
    ] });
    generate(model.as_ref(), request([Content::user("hi"), answer, content(results)])).await.unwrap();
    let expected = json!([
        { "role": "user", "content": text("hi") },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "hm", "signature": "sig" },
            { "type": "redacted_thinking", "data": "xyz" },
            { "type": "thinking", "thinking": "so", "signature": "sig2" },
            { "type": "text", "text": "ü 漢 🦀" },
            { "type": "tool_use", "id": "toolu_1", "name": "roll", "input": { "sides": 6 } },
            { "type": "tool_use", "id": "toolu_2", "name": "flip", "input": {} },
        ] },
        { "role": "user", "content": [
            {
                "type": "tool_result", "tool_use_id": "toolu_1", "content": "{\"error\":\"the die is lost\"}",
                "is_error": true,
            },
            { "type": "tool_result", "tool_use_id": "toolu_2", "content": "{\"result\":1}" },
        ] },
    ]);
    assert_eq!(provider.requests()[1].body["messages"], expected);
}

#[tokio::test]
async fn adjacent_thoughts_of_a_whole_response_keep_their_signatures() {
    let blocks = json!([
        { "type": "thinking", "thinking": "hm", "signature": "sig" },
        { "type": "thinking", "thinking": "so", "signature": "sig2" },
        { "type": "text", "text": "ok" },
    ]);
    let thinking = json!({ "content": blocks, "stop_reason": "end_turn" });
    let provider = MockProvider::start([MockResponse::json(thinking), MockResponse::json(answer())]).await;
    let model = model(&provider);
    let mut aggregator = Aggregator::default();
    aggregator.push(generate(model.as_ref(), user_request("hi")).await.unwrap());
    let first = aggregator.finish().unwrap().content.unwrap();
    generate(model.as_ref(), request([Content::user("hi"), first, Content::user("and?")])).await.unwrap();
    assert_eq!(provider.requests()[1].body["messages"][1], json!({ "role": "assistant", "content": blocks }));
}

#[tokio::test]
async fn signatures_of_other_providers_are_not_sent() {
    let signed = json!({ "text": "hm", "thought": true, "thoughtSignature": "c2ln" });
    let messages = messages_of(json!([
        { "role": "user", "parts": [{ "text": "hi" }] },
        { "role": "model", "parts": [signed, { "text": "plain", "thought": true }, { "text": "ok" }] },
        { "role": "user", "parts": [{ "text": "and?" }] },
    ]))
    .await;
    assert_eq!(messages[1], json!({ "role": "assistant", "content": text("ok") }));
    // And the signatures of Anthropic are not sent to Gemini.
    let provider =
        MockProvider::start([MockResponse::json(json!({ "candidates": [{ "finishReason": "STOP" }] }))]).await;
    let parts = json!([
        { "text": "hm", "thought": true, "thoughtSignature": "dGhpbmtpbmc6c2ln" },
        { "thought": true, "thoughtSignature": "cmVkYWN0ZWQtdGhpbmtpbmc6eHl6" },
        { "text": "ok" },
    ]);
    let contents = [Content::user("hi"), content(json!({ "role": "model", "parts": parts })), Content::user("and?")];
    generate(provider.gemini().as_ref(), request(contents)).await.unwrap();
    let sent = &provider.requests()[0].body["contents"][1]["parts"];
    assert_eq!(*sent, json!([{ "text": "hm", "thought": true }, { "text": "ok" }]));
}

#[tokio::test]
async fn messages_alternate_and_begin_and_end_with_the_user() {
    let messages = messages_of(json!([
        { "role": "model", "parts": [{ "text": "one" }] },
        { "role": "model", "parts": [{ "functionCall": { "name": "odd name", "args": {} } }] },
        { "role": "user", "parts": [{ "text": " " }, { "text": "two" }] },
        { "role": "user", "parts": [{ "functionResponse": { "name": "odd name", "response": { "result": "x" } } }] },
        { "role": "user", "parts": [] },
        { "role": "model", "parts": [{ "text": "three" }] },
    ]))
    .await;
    let expected = json!([
        { "role": "user", "content": text(CONTINUE) },
        { "role": "assistant", "content": [
            { "type": "text", "text": "one" },
            { "type": "tool_use", "id": "call_odd_name", "name": "odd name", "input": {} },
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "call_odd_name", "content": "x" },
            { "type": "text", "text": "two" },
        ] },
        { "role": "assistant", "content": text("three") },
        { "role": "user", "content": text(CONTINUE) },
    ]);
    assert_eq!(messages, expected);
    assert_eq!(messages_of(json!([])).await, json!([{ "role": "user", "content": text(CONTINUE) }]));
}

#[tokio::test]
async fn files_are_sent_in_the_form_of_their_type_or_named() {
    let inline =
        |mime: &str, data: &str| json!({ "inlineData": { "mimeType": mime, "data": data, "displayName": "f" } });
    let file = |uri: &str, mime: &str| json!({ "fileData": { "fileUri": uri, "mimeType": mime } });
    let parts = json!([
        inline("image/webp", "AAEC"),
        inline("image/tiff", "AAEC"),
        inline("application/json", "e30="),
        file("https://x.example/a.png", "image/png"),
        file("https://x.example/a.pdf", "application/pdf"),
        file("gs://bucket/a.png", "image/png"),
        file("http://x.example/a.png", "image/png"),
        inline("image/jpg", "AAEC"),
        { "executableCode": { "language": "PYTHON", "code": "1\n" } },
        { "codeExecutionResult": { "output": "1" } },
    ]);
    let messages = messages_of(json!([{ "role": "user", "parts": parts }])).await;
    let expected = json!([
        { "type": "image", "source": { "type": "base64", "media_type": "image/webp", "data": "AAEC" } },
        { "type": "text", "text": "[file f of type image/tiff: left out, this model does not accept it]" },
        { "type": "document", "title": "f", "source": { "type": "text", "media_type": "text/plain", "data": "{}" } },
        { "type": "image", "source": { "type": "url", "url": "https://x.example/a.png" } },
        { "type": "document", "source": { "type": "url", "url": "https://x.example/a.pdf" } },
        { "type": "text", "text": "[file gs://bucket/a.png of type image/png: left out, this model does not accept it]" },
        { "type": "text", "text": "[file http://x.example/a.png of type image/png: left out, this model does not accept it]" },
        { "type": "image", "source": { "type": "base64", "media_type": "image/jpeg", "data": "AAEC" } },
        { "type": "text", "text": "```python\n1\n```\n" },
        { "type": "text", "text": "```\n1\n```\n" },
    ]);
    assert_eq!(messages[0]["content"], expected);
}

#[tokio::test]
async fn a_schema_is_closed_and_settings_of_other_providers_are_omitted() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "object", "properties": {} } } });
    let body = body_of(with_config(json!({
        "responseSchema": schema, "topK": 5, "seed": 1, "labels": { "a": "b" }, "safetySettings": [],
        "httpOptions": { "extraBody": { "service_tier": "auto", "model": "other", "messages": [] } },
    })))
    .await;
    let closed = json!({
        "type": "object",
        "properties": { "a": { "type": "object", "properties": {}, "additionalProperties": false } },
        "additionalProperties": false,
    });
    assert_eq!(
        body,
        json!({
            "model": "claude-haiku-4-5", "max_tokens": 8_192, "top_k": 5, "service_tier": "auto",
            "messages": [{ "role": "user", "content": text("hi") }],
            "output_config": { "format": { "type": "json_schema", "schema": closed } },
        })
    );
}

#[tokio::test]
async fn the_prompt_cache_covers_the_instructions_and_the_last_message() {
    let cache = json!({ "type": "ephemeral", "ttl": "1h" });
    let config = json!({ "httpOptions": { "extraBody": { "cache_control": cache } } });
    let tool = json!({ "name": "roll", "description": "" });
    let cached = LlmRequest {
        system_instructions: vec!["Be brief.".into()],
        tools: vec![Arc::new(serde_json::from_value(tool).unwrap())],
        ..with_config(config)
    };
    let body = body_of(cached.clone()).await;
    assert_eq!(body["system"], json!([{ "type": "text", "text": "Be brief.", "cache_control": cache }]));
    let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": "hi", "cache_control": cache }] }]);
    assert_eq!(body["messages"], messages);
    let input_schema = json!({ "type": "object", "properties": {} });
    assert_eq!(body["tools"], json!([{ "name": "roll", "description": "", "input_schema": input_schema }]));
    let without_instructions = body_of(LlmRequest { system_instructions: Vec::new(), ..cached }).await;
    assert_eq!(without_instructions["tools"][0]["cache_control"], cache);
    assert_eq!(without_instructions.get("cache_control"), None);
}

#[tokio::test]
async fn a_tool_of_the_model_is_passed_on_if_it_is_anthropics() {
    let search = json!({ "type": "web_search_20250305", "name": "web_search" });
    let body = body_of(LlmRequest { model_tools: vec![search.clone()], ..user_request("hi") }).await;
    assert_eq!(body["tools"], json!([search]));
    let provider = MockProvider::start([]).await;
    let foreign = LlmRequest { model_tools: vec![json!({ "googleSearch": {} })], ..user_request("hi") };
    let error = call_error(model(&provider).as_ref(), foreign, StreamingMode::On).await;
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert_eq!(
        error.message,
        "the Anthropic API does not have the model tool {\"googleSearch\":{}}; remove it, or use a Gemini model"
    );
}

#[tokio::test]
async fn each_stop_reason_is_mapped() {
    for (theirs, ours) in [
        ("end_turn", "STOP"),
        ("stop_sequence", "STOP"),
        ("pause_turn", "STOP"),
        ("max_tokens", "MAX_TOKENS"),
        ("model_context_window_exceeded", "MAX_TOKENS"),
        ("refusal", "SAFETY"),
        ("odd", "OTHER"),
    ] {
        let answer = json!({ "content": [{ "type": "text", "text": "half" }], "stop_reason": theirs });
        let provider = MockProvider::start([MockResponse::json(answer)]).await;
        let response = generate(model(&provider).as_ref(), user_request("hi")).await.unwrap();
        assert_eq!(response.finish_reason.as_deref(), Some(ours));
        assert_eq!(response.error_code.as_deref(), Some(ours).filter(|reason| *reason != "STOP"));
    }
}

fn call_events(json_piece: &str, reason: Option<&str>) -> Vec<String> {
    let mut events = vec![
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "one" } }),
        json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "tool_use", "id": "t", "name": "roll" } }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": json_piece } }),
    ];
    if let Some(reason) = reason {
        events.push(json!({ "type": "content_block_stop", "index": 1 }));
        events.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason } }));
    }
    events.into_iter().map(event).collect()
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_omitted_and_a_malformed_one_is_an_error() {
    let streamed = |events: Vec<String>| async {
        let provider = MockProvider::start([MockResponse::events(events)]).await;
        stream(model(&provider).as_ref(), user_request("hi")).await
    };
    for json_piece in ["{\"si", ""] {
        let cut_off = streamed(call_events(json_piece, Some("max_tokens"))).await;
        let last = cut_off.last().unwrap().as_ref().unwrap();
        assert_eq!((last.content.as_ref(), last.error_code.as_deref()), (None, Some("MAX_TOKENS")));
        assert_eq!(cut_off.len(), 2);
    }
    let items = streamed(call_events("{\"si", Some("tool_use"))).await;
    let error = items.last().unwrap().as_ref().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadResponse);
    assert!(error.message.contains("the arguments of tool call `roll` are no JSON object (EOF"), "{error}");
    // A stream that ends early makes none of its calls.
    for json_piece in ["{\"si", "{\"sides\":6}"] {
        let items = streamed(call_events(json_piece, None)).await;
        assert_eq!(texts(&[items[0].clone().unwrap()]), ["one"]);
        assert_eq!((items.len(), items[1].as_ref().unwrap_err().kind), (2, ModelErrorKind::Network));
    }
}

#[tokio::test]
async fn huge_numbers_of_tokens_are_added_without_an_overflow() {
    let usage = json!({ "input_tokens": u64::MAX, "cache_read_input_tokens": 1, "output_tokens": 1 });
    let answer = json!({ "content": [], "stop_reason": "end_turn", "usage": usage });
    let provider = MockProvider::start([MockResponse::json(answer)]).await;
    let response = generate(model(&provider).as_ref(), user_request("hi")).await.unwrap();
    assert_eq!(response.usage_metadata.unwrap().total_token_count, Some(u64::MAX));
}

#[tokio::test]
async fn events_after_the_last_one_are_ignored() {
    let late = json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "late" } });
    let events = [json!({ "type": "message_stop" }), late].map(event);
    let provider = MockProvider::start([MockResponse::events([events.concat()])]).await;
    assert!(deltas(model(&provider).as_ref(), user_request("hi")).await.is_empty());
}
