//! Requests of chat completions to providers that refuse what OpenAI accepts, and the reverse.

use std::sync::Arc;

use hatchery_core::{Aggregator, Content, FunctionDeclaration, LlmRequest, ModelResolver};
use hatchery_models::{ModelProviders, Service, Settings};
use serde_json::{Value, json};

use crate::support::{MockProvider, MockResponse, content, deltas, event, generate, request, user_request};

async fn body_for(model: &str, request: LlmRequest) -> Value {
    let answer =
        json!({ "choices": [{ "message": { "role": "assistant", "content": "ok" }, "finish_reason": "stop" }] });
    let provider = MockProvider::start([MockResponse::json(answer)]).await;
    generate(provider.openai_named(model).as_ref(), request).await.unwrap();
    provider.requests().remove(0).body
}

fn with_config(config: Value) -> LlmRequest {
    LlmRequest { config: serde_json::from_value(config).unwrap(), ..user_request("hi") }
}

fn with_tool(request: LlmRequest) -> LlmRequest {
    let roll = FunctionDeclaration { name: "roll".into(), ..FunctionDeclaration::default() };
    LlmRequest { tools: vec![Arc::new(roll)], ..request }
}

/// A conversation with two calls, the first of which has an id that Mistral accepts.
fn calls() -> LlmRequest {
    request([
        Content::user("roll"),
        content(json!({ "role": "model", "parts": [
            { "text": "a die", "thought": true },
            { "functionCall": { "id": "Ab3dE6gH9", "name": "roll", "args": {} }, "thoughtSignature": "c2ln" },
            { "functionCall": { "id": "toolu_01-other", "name": "roll", "args": {} } },
        ] })),
        content(json!({ "role": "user", "parts": [
            { "functionResponse": { "id": "Ab3dE6gH9", "name": "roll", "response": { "result": 4 } } },
            { "functionResponse": { "id": "toolu_01-other", "name": "roll", "response": { "result": 5 } } },
        ] })),
        content(json!({ "role": "model", "parts": [{ "text": "4 and 5" }] })),
        Content::user("again"),
    ])
}

#[tokio::test]
async fn settings_have_the_names_of_mistral() {
    let config = json!({
        "temperature": 0.5, "maxOutputTokens": 100, "seed": 7, "responseLogprobs": true, "logprobs": 3,
        "thinkingConfig": { "thinkingLevel": "LOW" },
    });
    let expected = json!({
        "model": "mistral-large-latest", "messages": [{ "role": "user", "content": "hi" }],
        "temperature": 0.5, "max_tokens": 100, "random_seed": 7,
    });
    assert_eq!(body_for("openai/mistral-large-latest", with_config(config.clone())).await, expected);
    for model in ["openai/open-mistral-nemo", "openai/labs-devstral-small-2512", "openai/magistral-medium-latest"] {
        assert_eq!(body_for(model, with_config(config.clone())).await["max_tokens"], 100, "{model}");
    }
}

#[tokio::test]
async fn mistral_is_not_asked_for_the_usage_that_it_always_sends() {
    let end = || MockResponse::events(["data: [DONE]\n\n"]);
    let provider = MockProvider::start([end(), end()]).await;
    for model in ["openai/ministral-8b-latest", "gpt-5"] {
        assert!(deltas(provider.openai_named(model).as_ref(), user_request("hi")).await.is_empty());
    }
    let options: Vec<_> =
        provider.requests().iter().map(|request| request.body.get("stream_options").cloned()).collect();
    assert_eq!(options, [None, Some(json!({ "include_usage": true }))]);
}

#[tokio::test]
async fn a_call_has_an_id_of_nine_letters_or_digits_for_mistral() {
    let body = body_for("openai/mistral-small-latest", calls()).await;
    let ids = |calls: &Value, key: &str| {
        let calls = calls.as_array().unwrap().iter();
        calls.filter_map(|call| Some(call.get(key)?.as_str()?.to_owned())).collect::<Vec<_>>()
    };
    let called = ids(&body["messages"][1]["tool_calls"], "id");
    assert_eq!(called, ids(&body["messages"], "tool_call_id"));
    assert_eq!(called[0], "Ab3dE6gH9");
    assert!(called[1].len() == 9 && called[1].chars().all(|char| char.is_ascii_alphanumeric()), "{called:?}");
    assert_ne!(called[0], called[1]);
}

#[tokio::test]
async fn a_signature_of_gemini_goes_to_no_server_that_refuses_its_key() {
    for (model, is_sent) in [("gpt-5", false), ("openai/mistral-small-latest", false), ("openai/own-model", true)] {
        let body = body_for(model, calls()).await;
        assert_eq!(body["messages"][1]["tool_calls"][0].get("extra_content").is_some(), is_sent, "{model}");
    }
}

#[tokio::test]
async fn deepseek_gets_its_thoughts_back_with_every_message() {
    let body = body_for("openai/deepseek-v4-pro", calls()).await;
    let message = |index: usize| body["messages"][index].clone();
    assert_eq!((&message(1)["content"], &message(1)["reasoning_content"]), (&json!(""), &json!("a die")));
    assert_eq!(message(4), json!({ "role": "assistant", "content": "4 and 5", "reasoning_content": "" }));
    let others = body_for("openai/own-model", calls()).await["messages"].to_string();
    assert!(!others.contains("reasoning_content"), "{others}");
}

#[tokio::test]
async fn deepseek_gets_no_setting_that_it_refuses() {
    let config = |extra: Value| {
        with_tool(with_config(json!({
            "maxOutputTokens": 100, "responseLogprobs": true, "thinkingConfig": { "thinkingLevel": "MINIMAL" },
            "toolConfig": { "functionCallingConfig": { "mode": "ANY" } }, "httpOptions": { "extraBody": extra },
        })))
    };
    let body = body_for("openai/deepseek-chat", config(json!({}))).await;
    assert_eq!((&body["max_tokens"], &body["reasoning_effort"]), (&json!(100), &json!("low")));
    assert!(body.get("tool_choice").is_none() && body.get("logprobs").is_none(), "{body}");
    let body = body_for("openai/deepseek-chat", config(json!({ "thinking": { "type": "disabled" } }))).await;
    assert_eq!((&body["tool_choice"], &body["logprobs"]), (&json!("required"), &json!(true)));
}

#[tokio::test]
async fn deepseek_gets_a_schema_as_an_instruction() {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let body = body_for("openai/deepseek-chat", with_config(json!({ "responseSchema": schema }))).await;
    assert!(body.get("response_format").is_none(), "{body}");
    assert!(body["messages"][0]["content"].as_str().unwrap().contains("city"), "{body}");
    let models = ModelProviders::with_defaults(Settings::default());
    for (model, lacks_schemas) in [("openai/deepseek-chat", true), ("openai/mistral-large-latest", false)] {
        assert_eq!(models.capabilities(model).lacks_response_schema, lacks_schemas, "{model}");
    }
}

#[tokio::test]
async fn deepseek_gets_the_names_of_images() {
    for part in [
        json!({ "inlineData": { "mimeType": "image/png", "data": "AAEC" } }),
        json!({ "inlineData": { "mimeType": "", "data": "AAEC" } }),
        json!({ "fileData": { "mimeType": "image/png", "fileUri": "https://example.org/a.png" } }),
    ] {
        let history = [content(json!({ "role": "user", "parts": [part] }))];
        let body = body_for("openai/deepseek-chat", request(history)).await;
        assert!(body["messages"][0]["content"].is_string(), "{body}");
    }
}

#[tokio::test]
async fn openrouter_gets_the_signatures_of_its_thoughts_back() {
    let chunk =
        |delta: Value, reason: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] });
    let piece = |text: &str| {
        let detail = json!({ "type": "reasoning.text", "text": text, "format": "google-gemini-v1", "index": 0 });
        chunk(json!({ "reasoning": text, "reasoning_details": [detail] }), Value::Null)
    };
    let encrypted = json!({ "type": "reasoning.encrypted", "data": "c2ln", "id": "c", "index": 1 });
    let calls = json!([{ "index": 0, "id": "c", "function": { "name": "roll", "arguments": "{}" } }]);
    let stream = [
        piece("a d"),
        piece("ie"),
        chunk(json!({ "tool_calls": calls, "reasoning_details": [encrypted] }), Value::Null),
        chunk(json!({}), json!("tool_calls")),
    ];
    let details = json!([
        { "type": "reasoning.text", "text": "a die", "format": "google-gemini-v1", "index": 0 },
        encrypted,
    ]);
    let message = json!({ "reasoning": "a die", "reasoning_details": details, "tool_calls": calls });
    let complete = json!({ "choices": [{ "message": message, "finish_reason": "tool_calls" }] });
    let provider = MockProvider::start([
        MockResponse::events(stream.map(event)),
        MockResponse::json(&complete),
        MockResponse::json(&complete),
        MockResponse::json(&complete),
    ])
    .await;
    let (service, url) = (Service::OpenRouter, provider.url.as_str());
    let models = ModelProviders::with_defaults(Settings::default().with_base_url(service, url).with_key(service, "k"));
    let model = models.model("openrouter/google/gemini-3-pro-preview").unwrap();

    let mut aggregator = Aggregator::default();
    deltas(model.as_ref(), user_request("roll")).await.into_iter().for_each(|delta| aggregator.push(delta));
    let streamed = aggregator.finish().unwrap();
    let whole = generate(model.as_ref(), user_request("roll")).await.unwrap();
    for answer in [streamed, whole] {
        let answer = answer.content.unwrap();
        assert_eq!((answer.parts[0].thought, answer.parts[0].as_text()), (true, Some("a die")));
        let result =
            json!({ "role": "user", "parts": [{ "functionResponse": { "id": "c", "name": "roll", "response": {} } }] });
        generate(model.as_ref(), request([Content::user("roll"), answer, content(result)])).await.unwrap();
        assert_eq!(provider.requests().pop().unwrap().body["messages"][1]["reasoning_details"], details);
    }
}
