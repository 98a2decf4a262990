//! Settings of Claude models, which differ between their versions.

use std::sync::Arc;

use hatchery_core::{FunctionDeclaration, LlmRequest, ModelResolver};
use hatchery_models::{ModelProviders, Service, Settings};
use serde_json::{Value, json};

use crate::conformance::anthropic::{answer, on_vertex};
use crate::support::{MockProvider, MockResponse, content, generate, request, user_request};

/// Returns the body of a request to the model of this name.
async fn body_for(name: &str, request: LlmRequest) -> Value {
    let provider = MockProvider::start([MockResponse::json(answer())]).await;
    let settings =
        Settings::default().with_base_url(Service::Anthropic, provider.url.as_str()).with_key(Service::Anthropic, "k");
    let model = ModelProviders::with_defaults(settings).model(name).unwrap();
    generate(model.as_ref(), request).await.unwrap();
    provider.requests().remove(0).body
}

fn roll() -> Vec<Arc<FunctionDeclaration>> {
    vec![Arc::new(FunctionDeclaration { name: "roll".into(), ..FunctionDeclaration::default() })]
}

fn with_config(config: Value) -> LlmRequest {
    LlmRequest { config: serde_json::from_value(config).unwrap(), ..user_request("hi") }
}

#[tokio::test]
async fn thinking_is_set_by_budget_or_level() {
    let none = Value::Null;
    let budget = |tokens: u64| json!({ "type": "enabled", "budget_tokens": tokens });
    let adaptive = json!({ "type": "adaptive" });
    let shown = json!({ "type": "adaptive", "display": "summarized" });
    let high = json!({ "includeThoughts": true, "thinkingLevel": "HIGH" });
    let off = json!({ "thinkingBudget": 0 });
    let some = json!({ "thinkingBudget": 2_000 });
    let dynamic = json!({ "thinkingBudget": -1 });
    let disabled = json!({ "type": "disabled" });
    for (model, config, thinking, max_tokens, effort) in [
        ("claude-haiku-4-5", &off, &disabled, 8_192, &none),
        ("claude-haiku-4-5", &json!({ "thinkingBudget": 100 }), &budget(1_024), 9_216, &none),
        ("claude-haiku-4-5", &some, &budget(2_000), 10_192, &none),
        ("claude-haiku-4-5", &json!({ "thinkingBudget": u64::MAX }), &budget(u64::MAX), u64::MAX, &none),
        // Models that do not think adaptively get a budget.
        ("claude-haiku-4-5", &dynamic, &budget(4_096), 12_288, &none),
        ("claude-3-7-sonnet-latest", &high, &budget(16_384), 24_576, &none),
        ("claude-opus-4-6", &some, &budget(2_000), 10_192, &none),
        ("claude-opus-4-6", &dynamic, &adaptive, 8_192, &none),
        ("claude-opus-4-6", &high, &shown, 8_192, &json!({ "effort": "high" })),
        // Newer models think adaptively only, and older ones do not think.
        ("claude-opus-4-7", &some, &adaptive, 8_192, &none),
        ("claude-opus-5", &off, &none, 8_192, &none),
        ("claude-3-5-sonnet-20241022", &some, &none, 8_192, &none),
        ("claude-3-haiku-20240307", &off, &none, 4_096, &none),
        ("anthropic/own-model", &some, &budget(2_000), 10_192, &none),
    ] {
        let body = body_for(model, with_config(json!({ "thinkingConfig": config }))).await;
        assert_eq!(
            (&body["thinking"], &body["max_tokens"], &body["output_config"]),
            (thinking, &json!(max_tokens), effort),
            "{model} {config}"
        );
    }
}

#[tokio::test]
async fn thinking_leaves_tokens_for_the_answer() {
    for (limit, thinking) in [
        (8_000, json!({ "type": "enabled", "budget_tokens": 4_096 })),
        (4_096, json!({ "type": "enabled", "budget_tokens": 2_048 })),
        (1_500, json!({ "type": "enabled", "budget_tokens": 1_024 })),
        (1_024, Value::Null),
    ] {
        let config = json!({ "maxOutputTokens": limit, "thinkingConfig": { "thinkingBudget": 4_096 } });
        let body = body_for("claude-sonnet-4-5", with_config(config)).await;
        assert_eq!((&body["thinking"], &body["max_tokens"]), (&thinking, &json!(limit)));
    }
}

#[tokio::test]
async fn a_model_gets_no_sampling_that_it_refuses() {
    let config = |thinking: Value| {
        with_config(json!({
            "temperature": 1.5, "topP": 0.9, "topK": 5, "stopSequences": [" ", "END"], "thinkingConfig": thinking,
        }))
    };
    for (model, thinking, temperature, top_p, top_k) in [
        ("claude-3-5-haiku-20241022", Value::Null, json!(1.0), json!(0.9), json!(5)),
        ("claude-opus-4-1", Value::Null, json!(1.0), Value::Null, json!(5)),
        ("claude-sonnet-4-6", Value::Null, json!(1.0), Value::Null, json!(5)),
        ("claude-sonnet-4-6", json!({ "thinkingBudget": 2_000 }), Value::Null, Value::Null, Value::Null),
        ("claude-sonnet-4-6", json!({ "thinkingBudget": 0 }), json!(1.0), Value::Null, json!(5)),
        ("claude-opus-4-7", Value::Null, Value::Null, Value::Null, Value::Null),
        ("anthropic/own-model", Value::Null, json!(1.0), json!(0.9), json!(5)),
    ] {
        let mut request = config(thinking);
        request.config.extra.retain(|_, value| !value.is_null());
        let body = body_for(model, request).await;
        assert_eq!((&body["temperature"], &body["top_p"], &body["top_k"]), (&temperature, &top_p, &top_k), "{model}");
        assert_eq!(body["stop_sequences"], json!(["END"]));
    }
    let only_top_p = body_for("claude-sonnet-4-6", with_config(json!({ "topP": 0.9 }))).await;
    assert_eq!(only_top_p["top_p"], 0.9);
}

#[tokio::test]
async fn a_model_without_schemas_is_instructed() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let question = || LlmRequest {
        system_instructions: vec!["Be brief.".into()],
        ..with_config(json!({ "responseSchema": schema, "responseMimeType": "application/json" }))
    };
    let instruction = format!(
        "Be brief.\n\nAnswer with JSON only, without a code block around it. It must be valid for this JSON Schema: {schema}"
    );
    for (model, is_instructed) in [
        ("claude-3-7-sonnet-latest", true),
        ("claude-sonnet-4-20250514", true),
        ("claude-opus-4-1", true),
        ("claude-sonnet-4-5", false),
        ("claude-opus-5", false),
        ("anthropic/own-model", false),
    ] {
        let body = body_for(model, question()).await;
        assert_eq!(body.get("output_config").is_none(), is_instructed, "{model}");
        assert_eq!(body["system"][0]["text"] == instruction, is_instructed, "{model}");
    }
}

#[tokio::test]
async fn a_schema_is_sent_without_the_keywords_that_are_refused() {
    let sent = async |schema: Value| {
        body_for("claude-haiku-4-5", with_config(json!({ "responseSchema": schema }))).await["output_config"]["format"]
            ["schema"]
            .take()
    };
    let limited = json!({ "type": "object", "additionalProperties": true, "properties": {
        "minimum": { "type": "integer", "format": "uint32", "minimum": 0, "maximum": 9 },
        "day": { "type": "string", "format": "date", "minLength": 1, "enum": ["2026-01-01"] },
        "list": { "type": "array", "minItems": 2, "maxItems": 3, "items": { "type": "string", "maxLength": 5 } },
        "some": { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/either" } },
    }, "$defs": { "either": { "oneOf": [{ "type": "string" }, { "type": "null" }] } } });
    let expected = json!({ "type": "object", "additionalProperties": false, "properties": {
        "minimum": { "type": "integer" },
        "day": { "type": "string", "format": "date", "enum": ["2026-01-01"] },
        "list": { "type": "array", "items": { "type": "string" } },
        "some": { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/either" } },
    }, "$defs": { "either": { "anyOf": [{ "type": "string" }, { "type": "null" }] } } });
    assert_eq!(sent(limited).await, expected);
    // Schemas of which the rest would mean something else are instructions.
    for other in [
        json!({ "type": "object" }),
        json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        json!({ "type": "object", "properties": { "a": { "not": { "type": "string" } } } }),
        json!({ "type": "object", "properties": { "a": { "type": "array", "items": { "$ref": "#" } } } }),
        json!({
            "type": "object", "properties": { "a": { "$ref": "#/$defs/b" } },
            "$defs": { "b": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/c" }] }, "c": { "$ref": "#/$defs/b" } },
        }),
    ] {
        let body = body_for("claude-haiku-4-5", with_config(json!({ "responseSchema": other }))).await;
        assert_eq!(body.get("output_config"), None, "{other}");
        assert!(body["system"][0]["text"].as_str().unwrap().ends_with(&other.to_string()));
    }
}

#[tokio::test]
async fn vertex_gets_neither_schemas_nor_addresses() {
    let provider = MockProvider::start([MockResponse::json(answer())]).await;
    let image = json!({ "fileData": { "fileUri": "https://x.example/a.png", "mimeType": "image/png" } });
    let mut question = request([content(json!({ "role": "user", "parts": [image] }))]);
    question.config.response_schema = Some(json!({ "type": "object", "properties": {} }));
    generate((on_vertex().model)(&provider).as_ref(), question).await.unwrap();
    let body = provider.requests().remove(0).body;
    assert_eq!(body.get("output_config"), None);
    assert!(body["system"][0]["text"].as_str().unwrap().starts_with("Answer with JSON only"));
    assert_eq!(
        body["messages"][0]["content"],
        json!([{
            "type": "text",
            "text": "[file https://x.example/a.png of type image/png: left out, this model does not accept it]",
        }])
    );
}

#[tokio::test]
async fn a_tool_choice_is_mapped() {
    for (calling, choice) in [
        (json!({ "mode": "ANY" }), json!({ "type": "any" })),
        (json!({ "mode": "ANY", "allowedFunctionNames": ["roll"] }), json!({ "type": "tool", "name": "roll" })),
        (json!({ "mode": "NONE" }), json!({ "type": "none" })),
    ] {
        let config = json!({ "toolConfig": { "functionCallingConfig": calling } });
        let body = body_for("claude-haiku-4-5", LlmRequest { tools: roll(), ..with_config(config.clone()) }).await;
        assert_eq!(body["tool_choice"], choice);
        assert_eq!(
            body_for("claude-haiku-4-5", with_config(config)).await.get("tool_choice"),
            None,
            "it is refused without tools"
        );
    }
}

#[tokio::test]
async fn a_model_that_thinks_is_not_forced_to_call_a_tool() {
    for (mode, choice) in [("ANY", Value::Null), ("NONE", json!({ "type": "none" }))] {
        let config = json!({
            "toolConfig": { "functionCallingConfig": { "mode": mode } }, "thinkingConfig": { "thinkingBudget": 2_000 },
        });
        let body = body_for("claude-haiku-4-5", LlmRequest { tools: roll(), ..with_config(config) }).await;
        assert_eq!(body["tool_choice"], choice);
    }
}

#[tokio::test]
async fn a_newer_model_is_never_forced_to_call_a_tool() {
    for (model, choice) in [("claude-opus-5-5", Value::Null), ("claude-opus-5", json!({ "type": "any" }))] {
        let config = json!({ "toolConfig": { "functionCallingConfig": { "mode": "ANY" } } });
        let body = body_for(model, LlmRequest { tools: roll(), ..with_config(config) }).await;
        assert_eq!(body["tool_choice"], choice, "{model}");
    }
}

#[tokio::test]
async fn thoughts_that_the_api_binds_to_their_conversation_are_dropped_by_it_after_a_change() {
    let thought = json!({ "text": "hm", "thought": true, "thoughtSignature": "dGhpbmtpbmc6c2ln" });
    let history = || {
        let model = content(json!({ "role": "model", "parts": [thought, { "text": "ok" }] }));
        let mut question = request([content(json!({ "parts": [{ "text": "hi" }] })), model]);
        let headers = json!({ "headers": { "anthropic-beta": "own-2026-01-01" } });
        question.config.extra.insert("httpOptions".into(), headers);
        question
    };
    let feature = "thinking-binding-controls-2026-08-01";
    let bound = json!({ "type": "adaptive", "block_binding": { "prefix_mismatch_behavior": "drop_block" } });
    for (model, thinking, features) in [
        ("claude-opus-5-5", bound, vec![feature, "own-2026-01-01"]),
        ("claude-opus-5", Value::Null, vec!["own-2026-01-01"]),
    ] {
        let provider = MockProvider::start([MockResponse::json(answer())]).await;
        let settings = Settings::default()
            .with_base_url(Service::Anthropic, provider.url.as_str())
            .with_key(Service::Anthropic, "k");
        let claude = ModelProviders::with_defaults(settings).model(model).unwrap();
        generate(claude.as_ref(), history()).await.unwrap();
        let received = provider.requests().remove(0);
        assert_eq!(received.body["thinking"], thinking, "{model}");
        let sent: Vec<_> =
            received.headers.get_all("anthropic-beta").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(sent, features, "{model}");
    }
    // Without thoughts there is nothing to drop.
    assert_eq!(body_for("claude-opus-5-5", user_request("hi")).await.get("thinking"), None);
}
