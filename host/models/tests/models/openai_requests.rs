//! Requests of chat completions.

use std::sync::Arc;

use hatchery_core::{Content, FunctionDeclaration, LlmRequest, ModelErrorKind, ModelResolver, StreamingMode};
use hatchery_models::{ModelProviders, Service, Settings};
use serde_json::{Value, json};

use crate::support::{MockProvider, MockResponse, call_error, content, deltas, generate, request, user_request};

fn ok() -> MockResponse {
    MockResponse::json(
        json!({ "choices": [{ "message": { "role": "assistant", "content": "ok" }, "finish_reason": "stop" }] }),
    )
}

async fn body_of(request: LlmRequest) -> Value {
    body_for("gpt-5", request).await
}

async fn body_for(model: &str, request: LlmRequest) -> Value {
    let provider = MockProvider::start([ok()]).await;
    generate(provider.openai_named(model).as_ref(), request).await.unwrap();
    provider.requests().remove(0).body
}

/// Returns the body of a request to a server of this service, by the name of a model.
async fn body_at(service: Service, name: &str, request: LlmRequest) -> Value {
    let provider = MockProvider::start([ok()]).await;
    let settings = Settings::default().with_base_url(service, provider.url.as_str()).with_key(service, "k");
    let model = ModelProviders::with_defaults(settings).model(name).unwrap();
    generate(model.as_ref(), request).await.unwrap();
    provider.requests().remove(0).body
}

fn roll() -> Vec<Arc<FunctionDeclaration>> {
    vec![Arc::new(FunctionDeclaration { name: "roll".into(), ..FunctionDeclaration::default() })]
}

async fn refused(request: LlmRequest) -> String {
    let provider = MockProvider::start([ok()]).await;
    let error = call_error(provider.openai().as_ref(), request, StreamingMode::Off).await;
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert!(provider.requests().is_empty());
    error.message
}

fn with_config(config: Value) -> LlmRequest {
    LlmRequest { config: serde_json::from_value(config).unwrap(), ..user_request("hi") }
}

#[tokio::test]
async fn a_request_is_sent_to_chat_completions_with_the_key() {
    let provider = MockProvider::start([ok(), MockResponse::events(["data: [DONE]\n\n"])]).await;
    generate(provider.openai().as_ref(), user_request("hi")).await.unwrap();
    assert!(deltas(provider.openai().as_ref(), user_request("hi")).await.is_empty());
    let question = provider.requests();
    for question in &question {
        assert_eq!(question.target, "/v1/chat/completions");
        assert_eq!(question.headers["authorization"], "Bearer openai-key");
        assert_eq!(question.headers["content-type"], "application/json");
    }
    let messages = json!([{ "role": "user", "content": "hi" }]);
    assert_eq!(question[0].body, json!({ "model": "gpt-5", "messages": messages }));
    let streamed =
        json!({ "model": "gpt-5", "messages": messages, "stream": true, "stream_options": { "include_usage": true } });
    assert_eq!(question[1].body, streamed);
}

#[tokio::test]
async fn a_custom_base_url_needs_no_key() {
    let provider = MockProvider::start([ok()]).await;
    let settings = Settings::default().with_base_url(Service::OpenAi, format!("{}/v1/", provider.url));
    let model = ModelProviders::with_defaults(settings).model("openai/org/llama").unwrap();
    generate(model.as_ref(), user_request("hi")).await.unwrap();
    let question = provider.requests();
    assert_eq!(question[0].target, "/v1/chat/completions");
    assert_eq!(question[0].body["model"], "org/llama");
    assert!(!question[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn instructions_have_the_role_system_or_developer() {
    for (name, role) in
        [("gpt-5", "system"), ("o3-mini", "developer"), ("openai/o1", "developer"), ("openai/olmo", "system")]
    {
        let provider = MockProvider::start([ok()]).await;
        let question = LlmRequest { system_instructions: vec!["a".into(), "b".into()], ..user_request("hi") };
        generate(provider.openai_named(name).as_ref(), question).await.unwrap();
        assert_eq!(provider.requests()[0].body["messages"][0], json!({ "role": role, "content": "a\n\nb" }), "{name}");
    }
}

#[tokio::test]
async fn a_conversation_with_tools_becomes_messages() {
    let history = [
        Content::user("roll twice"),
        content(json!({ "role": "model", "parts": [
            { "text": "thinking", "thought": true },
            { "text": "Rolling" }, { "text": "." },
            { "functionCall": { "id": "adk-1", "name": "roll", "args": { "sides": 6 } }, "thoughtSignature": "c2ln" },
            { "functionCall": { "name": "flip" } },
        ] })),
        content(json!({ "role": "user", "parts": [
            { "functionResponse": { "id": "adk-1", "name": "roll", "response": { "result": 4 } } },
            { "functionResponse": { "name": "flip", "response": { "side": "head" } } },
            { "text": "look at these" },
            { "inlineData": { "mimeType": "image/png", "data": "AAEC" } },
        ] })),
        content(json!({ "role": "model", "parts": [{ "text": "only a thought", "thought": true }] })),
        content(json!({ "role": "model", "parts": [
            { "executableCode": { "language": "PYTHON", "code": "1+1" } },
            { "codeExecutionResult": { "output": "2\n" } },
            { "inlineData": { "mimeType": "image/png", "data": "AAEC" } },
        ] })),
        content(json!({ "parts": [{ "text": "thanks" }] })),
    ];
    let expected = json!([
        { "role": "user", "content": "roll twice" },
        { "role": "assistant", "content": "Rolling.", "tool_calls": [
            {
                "id": "adk-1", "type": "function", "function": { "name": "roll", "arguments": "{\"sides\":6}" },
                "extra_content": { "google": { "thought_signature": "c2ln" } },
            },
            { "id": "call_flip", "type": "function", "function": { "name": "flip", "arguments": "{}" } },
        ] },
        { "role": "tool", "tool_call_id": "adk-1", "content": "{\"result\":4}" },
        { "role": "tool", "tool_call_id": "call_flip", "content": "{\"side\":\"head\"}" },
        { "role": "user", "content": [
            { "type": "text", "text": "look at these" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAEC" } },
        ] },
        { "role": "assistant", "content": "```python\n1+1\n```\n```\n2\n```\n[image/png]" },
        { "role": "user", "content": "thanks" },
    ]);
    assert_eq!(body_for("openai/own-model", request(history)).await["messages"], expected);
}

#[tokio::test]
async fn each_media_type_has_its_form() {
    let media = content(json!({ "role": "user", "parts": [
        { "inlineData": { "data": "AAEC" } },
        { "inlineData": { "mimeType": "audio/wav", "data": "AAEC" } },
        { "inlineData": { "mimeType": "audio/mpeg", "data": "AAEC" } },
        { "inlineData": { "mimeType": "application/pdf", "data": "AAEC", "displayName": "a.pdf" } },
        { "inlineData": { "mimeType": "text/csv", "data": "YSxi" } },
        { "fileData": { "fileUri": "https://host/a.jpg", "mimeType": "image/jpeg" } },
    ] }));
    let expected = json!([
        { "type": "image_url", "image_url": { "url": "data:image/jpeg;base64,AAEC" } },
        { "type": "input_audio", "input_audio": { "data": "AAEC", "format": "wav" } },
        { "type": "input_audio", "input_audio": { "data": "AAEC", "format": "mp3" } },
        { "type": "file", "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAEC" } },
        { "type": "text", "text": "a,b" },
        { "type": "image_url", "image_url": { "url": "https://host/a.jpg" } },
    ]);
    assert_eq!(body_for("gpt-4o-audio-preview", request([media])).await["messages"][0]["content"], expected);
}

#[tokio::test]
async fn a_file_goes_to_no_server_or_model_that_refuses_its_type() {
    let media = || {
        request([content(json!({ "role": "user", "parts": [
            { "inlineData": { "mimeType": "image/jpg", "data": "AAEC", "displayName": "f" } },
            { "inlineData": { "mimeType": "image/gif", "data": "AAEC", "displayName": "f" } },
            { "inlineData": { "mimeType": "image/heic", "data": "AAEC", "displayName": "f" } },
            { "inlineData": { "mimeType": "image/svg+xml", "data": "PHN2Zy8+" } },
            { "inlineData": { "mimeType": "audio/wav", "data": "AAEC", "displayName": "f" } },
            { "inlineData": { "mimeType": "application/pdf", "data": "AAEC", "displayName": "f" } },
            { "fileData": { "fileUri": "https://host/a.png", "mimeType": "image/png" } },
            { "fileData": { "fileUri": "gs://bucket/a.png", "mimeType": "image/png" } },
        ] }))])
    };
    let kinds = |body: Value| {
        let kind = |part: &Value| match part["text"].as_str() {
            Some("<svg/>") => "svg".to_owned(),
            Some(text) if text.ends_with("left out, this model does not accept it]") => "-".to_owned(),
            _ => part["type"].as_str().unwrap().to_owned(),
        };
        body["messages"][0]["content"].as_array().unwrap().iter().map(kind).collect::<Vec<_>>()
    };
    let openai = body_for("gpt-5", media()).await;
    assert_eq!(openai["messages"][0]["content"][0]["image_url"]["url"], "data:image/jpeg;base64,AAEC");
    assert_eq!(kinds(openai), ["image_url", "image_url", "-", "svg", "-", "file", "image_url", "-"]);
    let ollama = body_at(Service::Ollama, "ollama/llava", media()).await;
    assert_eq!(kinds(ollama), ["image_url", "-", "-", "svg", "-", "-", "-", "-"]);
    let vllm = body_at(Service::Vllm, "vllm/qwen", media()).await;
    assert_eq!(kinds(vllm), ["image_url", "image_url", "image_url", "svg", "input_audio", "-", "image_url", "-"]);
    let openrouter = body_at(Service::OpenRouter, "openrouter/google/gemini", media()).await;
    assert_eq!(
        kinds(openrouter),
        ["image_url", "image_url", "image_url", "svg", "input_audio", "file", "image_url", "-"]
    );
}

#[tokio::test]
async fn a_conversation_ends_with_the_user_or_a_result() {
    let last = async |history: Vec<Content>| {
        let messages = body_of(request(history)).await["messages"].take();
        messages.as_array().unwrap().last().unwrap()["content"].clone()
    };
    let go_on = "Go on from here as your instructions say, without remarking on this line.";
    assert_eq!(last(vec![Content::user("hi"), Content::model("hello")]).await, go_on);
    assert_eq!(last(vec![]).await, go_on);
    assert_eq!(last(vec![Content::user("hi")]).await, "hi");
}

#[tokio::test]
async fn a_file_that_is_not_accepted_is_named_in_text() {
    let media = content(json!({ "role": "user", "parts": [
        { "inlineData": { "mimeType": "video/mp4", "data": "AAEC", "displayName": "a.mp4" } },
        { "inlineData": { "mimeType": "text/plain", "data": "/w==" } },
        { "inlineData": { "mimeType": "application/json", "data": "e30=" } },
        { "fileData": { "mimeType": "video/mp4", "fileUri": "gs://v" } },
    ] }));
    let expected = json!([
        { "type": "text", "text": "[file a.mp4 of type video/mp4: left out, this model does not accept it]" },
        { "type": "text", "text": "[file without a name of type text/plain: left out, this model does not accept it]" },
        { "type": "text", "text": "{}" },
        { "type": "text", "text": "[file gs://v of type video/mp4: left out, this model does not accept it]" },
    ]);
    assert_eq!(body_of(request([media])).await["messages"][0]["content"], expected);
}

#[tokio::test]
async fn unsupported_model_tools_are_rejected_by_name() {
    assert_eq!(
        refused(LlmRequest { model_tools: vec![json!({ "googleSearch": {} })], ..user_request("hi") }).await,
        "chat completions do not have the model tool {\"googleSearch\":{}}; remove it, or use a Gemini model"
    );
}

#[tokio::test]
async fn tools_keep_their_json_schemas() {
    let schema =
        json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } }, "required": ["n"] });
    let roll = FunctionDeclaration {
        name: "roll".into(),
        description: "Rolls.".into(),
        parameters: Some(schema.clone()),
        response: None,
    };
    let flip = FunctionDeclaration { name: "flip".into(), ..FunctionDeclaration::default() };
    let question = LlmRequest {
        tools: vec![Arc::new(roll), Arc::new(flip)],
        model_tools: vec![json!({ "type": "web_search" })],
        ..user_request("hi")
    };
    let expected = json!([
        { "type": "function", "function": { "name": "roll", "description": "Rolls.", "parameters": schema } },
        { "type": "function", "function": { "name": "flip", "description": "", "parameters": { "type": "object", "properties": {} } } },
        { "type": "web_search" },
    ]);
    assert_eq!(body_of(question).await["tools"], expected);
}

#[tokio::test]
async fn an_object_schema_without_properties_gets_the_key_that_openai_requires() {
    let schema = json!({ "type": "object", "additionalProperties": false });
    let flip = FunctionDeclaration { name: "flip".into(), parameters: Some(schema), ..FunctionDeclaration::default() };
    let question = || LlmRequest { tools: vec![Arc::new(flip.clone())], ..user_request("hi") };
    let expected = json!({ "type": "object", "additionalProperties": false, "properties": {} });
    assert_eq!(body_of(question()).await["tools"][0]["function"]["parameters"], expected);
    let completed = MockResponse::json(json!({ "status": "completed", "output": [] }));
    let provider = MockProvider::start([completed]).await;
    generate(provider.openai_named("openai-responses/gpt-5").as_ref(), question()).await.unwrap();
    assert_eq!(provider.requests()[0].body["tools"][0]["parameters"], expected);
}

#[tokio::test]
async fn settings_have_the_names_of_the_protocol() {
    let body = body_for("gpt-4.1", with_config(json!({
        "temperature": 0.5, "topP": 0.9, "topK": 40, "maxOutputTokens": 100, "stopSequences": ["END"], "presencePenalty": 0.1,
        "frequencyPenalty": 0.2, "seed": 7, "responseMimeType": "application/json", "responseLogprobs": true, "logprobs": 3,
        "thinkingConfig": {}, "safetySettings": [],
        "automaticFunctionCalling": { "disable": true },
        "httpOptions": { "extraBody": { "reasoning_effort": "low", "model": "other" } },
    })))
    .await;
    let expected = json!({
        "model": "gpt-4.1",
        "messages": [{ "role": "system", "content": "Answer with JSON." }, { "role": "user", "content": "hi" }],
        "temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 100, "stop": ["END"], "presence_penalty": 0.1,
        "frequency_penalty": 0.2, "seed": 7, "response_format": { "type": "json_object" }, "logprobs": true, "top_logprobs": 3,
        "reasoning_effort": "low",
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_reasoning_model_gets_no_setting_that_it_refuses() {
    let all = |thinking: Value, extra: Value| {
        with_config(json!({
            "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"], "presencePenalty": 0.1, "frequencyPenalty": 0.2,
            "responseLogprobs": true, "logprobs": 3, "seed": 7, "maxOutputTokens": 100, "thinkingConfig": thinking,
            "httpOptions": { "extraBody": extra },
        }))
    };
    let keys = |body: &Value| {
        let keys =
            ["temperature", "top_p", "stop", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs"];
        keys.into_iter().filter(|key| body.get(key).is_some()).count()
    };
    for model in ["o3-mini", "gpt-5", "gpt-5.1-codex", "gpt-5.6-luna", "openai/azure/gpt-5-mini"] {
        let body = body_for(model, all(json!({}), json!({}))).await;
        assert_eq!(
            (keys(&body), &body["seed"], &body["max_completion_tokens"]),
            (0, &json!(7), &json!(100)),
            "{model}"
        );
    }
    // Without reasoning they are sampled.
    for (model, thinking, extra, sent) in [
        ("gpt-5.1", json!({}), json!({}), 4),
        ("gpt-5.1", json!({ "thinkingLevel": "LOW" }), json!({}), 0),
        ("gpt-5.6", json!({}), json!({ "reasoning_effort": "none" }), 4),
        ("gpt-5-chat-latest", json!({}), json!({}), 7),
        ("openai/own-model", json!({}), json!({}), 7),
    ] {
        assert_eq!(keys(&body_for(model, all(thinking, extra)).await), sent, "{model}");
    }
    // Another server has other models of the same name.
    assert_eq!(keys(&body_at(Service::Vllm, "vllm/gpt-5", all(json!({}), json!({}))).await), 7);
}

#[tokio::test]
async fn the_effort_of_reasoning_is_one_that_the_model_has() {
    let config = |level: &str| with_config(json!({ "thinkingConfig": { "thinkingLevel": level } }));
    for (model, level, effort) in [
        ("gpt-5-mini", "MINIMAL", Some("minimal")),
        ("gpt-5.2", "MINIMAL", Some("low")),
        ("o3", "MINIMAL", Some("low")),
        ("gpt-5-codex", "MINIMAL", Some("low")),
        ("gpt-4.1", "HIGH", None),
        ("openai/own-model", "MINIMAL", Some("minimal")),
    ] {
        let body = body_for(model, config(level)).await;
        assert_eq!(body.get("reasoning_effort").and_then(Value::as_str), effort, "{model}");
    }
    for (model, effort) in [("gpt-5.2", Some("high")), ("gpt-5.6", None)] {
        let body = body_for(model, LlmRequest { tools: roll(), ..config("HIGH") }).await;
        assert_eq!(body.get("reasoning_effort").and_then(Value::as_str), effort, "{model}");
    }
}

#[tokio::test]
async fn json_is_named_in_a_request_that_asks_for_it() {
    let config = || with_config(json!({ "responseMimeType": "application/json" }));
    let first = async |request: LlmRequest| body_of(request).await["messages"][0]["content"].take();
    assert_eq!(first(config()).await, "Answer with JSON.");
    let instructed = LlmRequest { system_instructions: vec!["Return Json.".into()], ..config() };
    assert_eq!(first(instructed).await, "Return Json.");
    let asked = LlmRequest { contents: user_request("as json, please").contents, ..config() };
    assert_eq!(first(asked).await, "as json, please");
}

#[tokio::test]
async fn the_level_of_thinking_is_the_effort_of_reasoning() {
    let effort = |thinking: Value, extra: Value| async move {
        let config = json!({ "thinkingConfig": thinking, "httpOptions": { "extraBody": extra } });
        body_of(with_config(config)).await.get("reasoning_effort").cloned()
    };
    assert_eq!(effort(json!({ "thinkingLevel": "HIGH" }), json!({})).await, Some(json!("high")));
    let own = json!({ "reasoning_effort": "minimal" });
    assert_eq!(effort(json!({ "thinkingLevel": "HIGH" }), own).await, Some(json!("minimal")));
    for other in [json!({ "thinkingBudget": 0 }), json!({ "thinkingLevel": "THINKING_LEVEL_UNSPECIFIED" })] {
        assert_eq!(effort(other, json!({})).await, None);
    }
}

#[tokio::test]
async fn the_function_calling_mode_becomes_a_tool_choice() {
    let choice = |calling: Value| async move {
        let config = with_config(json!({ "toolConfig": { "functionCallingConfig": calling } }));
        assert_eq!(body_of(config.clone()).await.get("tool_choice"), None, "it is refused without tools");
        body_of(LlmRequest { tools: roll(), ..config }).await["tool_choice"].clone()
    };
    assert_eq!(choice(json!({ "mode": "ANY" })).await, "required");
    assert_eq!(choice(json!({ "mode": "NONE" })).await, "none");
    assert_eq!(choice(json!({ "mode": "AUTO" })).await, "auto");
    let one = choice(json!({ "mode": "ANY", "allowedFunctionNames": ["roll"] })).await;
    assert_eq!(one, json!({ "type": "function", "function": { "name": "roll" } }));
}

#[tokio::test]
async fn a_response_schema_is_strict_only_if_it_is_valid_in_strict_mode() {
    let format = |schema: Value| async move {
        body_of(with_config(json!({ "responseSchema": schema }))).await["response_format"].clone()
    };
    let closed = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"], "additionalProperties": false });
    let expected =
        json!({ "type": "json_schema", "json_schema": { "name": "response", "schema": closed, "strict": true } });
    assert_eq!(format(closed.clone()).await, expected);
    let with_a = |a: Value| {
        json!({
            "type": "object", "properties": { "a": a }, "required": ["a"], "additionalProperties": false,
            "$defs": { "b": { "type": "string" } },
        })
    };
    // A property may have the name of a keyword.
    let named = json!({
        "type": "object", "properties": { "default": { "type": "string", "format": "date" } }, "required": ["default"],
        "additionalProperties": false,
    });
    assert_eq!(format(named).await["json_schema"]["strict"], true);
    for open in [
        json!({ "type": "object" }),
        json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": false }),
        json!({ "type": "object", "properties": { "a": {} }, "required": ["a"] }),
        json!({ "type": "object", "properties": { "a": { "type": "object", "properties": {} } }, "required": ["a"], "additionalProperties": false }),
        with_a(json!({ "type": "string", "format": "uri" })),
        with_a(json!({ "type": "string", "default": "x" })),
        with_a(json!({ "oneOf": [{ "type": "string" }] })),
        with_a(json!({ "type": "array", "items": true })),
        with_a(json!({ "$ref": "#/$defs/b", "description": "b" })),
    ] {
        let format = format(open.clone()).await;
        assert_eq!(format["json_schema"]["strict"], false, "{open}");
        assert_eq!(format["json_schema"]["schema"], open);
    }
}

#[tokio::test]
async fn a_schema_of_no_object_is_an_instruction_for_openai() {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    let config = || with_config(json!({ "responseSchema": list, "responseMimeType": "application/json" }));
    let body = body_of(config()).await;
    assert_eq!(body.get("response_format"), None);
    let instruction =
        format!("Answer with JSON only, without a code block around it. It must be valid for this JSON Schema: {list}");
    assert_eq!(body["messages"][0], json!({ "role": "system", "content": instruction }));
    let vllm = body_at(Service::Vllm, "vllm/qwen", config()).await;
    assert_eq!(vllm["response_format"]["json_schema"]["schema"], list);
    assert_eq!(vllm["messages"][0]["role"], "user");
}

#[tokio::test]
async fn a_tool_has_the_schema_of_an_object() {
    for (given, sent) in [
        (json!({}), json!({ "type": "object", "properties": {} })),
        (json!({ "properties": { "a": {} } }), json!({ "properties": { "a": {} }, "type": "object" })),
    ] {
        let mut roll = FunctionDeclaration::clone(&roll()[0]);
        roll.parameters = Some(given);
        let body = body_of(LlmRequest { tools: vec![Arc::new(roll)], ..user_request("hi") }).await;
        assert_eq!(body["tools"][0]["function"]["parameters"], sent);
    }
}
