//! Chat completions: OpenAI, and a compatible server.

use hatchery_models::Service;
use serde_json::{Value, json};

use super::{Fixture, TEXT, model_at, parameters};
use crate::support::event;

pub fn on_api() -> Fixture {
    let mut streamed_body = body();
    streamed_body["stream"] = json!(true);
    streamed_body["stream_options"] = json!({ "include_usage": true });
    Fixture {
        label: "OpenAI",
        model: |provider| model_at(provider, Service::OpenAi, "/v1", "gpt-4.1"),
        targets: ["/v1/chat/completions"; 2],
        header: ("authorization", "Bearer the-key"),
        bodies: [body(), streamed_body],
        answer: answer(),
        events: events(),
        response: response(),
        empty: (
            json!({ "choices": [{ "message": { "role": "assistant", "content": "" }, "finish_reason": "stop" }] }),
            vec![event(chunk(json!({}), json!("stop"))), "data: [DONE]\n\n".into()],
        ),
        text_event: |text| event(chunk(json!({ "content": text }), Value::Null)),
        error_event: event(json!({ "error": { "message": "overloaded", "type": "server_error" } })),
    }
}

pub fn on_ollama() -> Fixture {
    let mut fixture = Fixture {
        label: "Ollama",
        model: |provider| model_at(provider, Service::Ollama, "/v1", "ollama/llama3.2"),
        ..on_api()
    };
    for body in &mut fixture.bodies {
        body["model"] = json!("llama3.2");
        body["messages"][1]["content"][2] = json!({
            "type": "text", "text": "[file a.pdf of type application/pdf: left out, this model does not accept it]",
        });
        let max_tokens = body.as_object_mut().unwrap().shift_remove("max_completion_tokens").unwrap();
        body["max_tokens"] = max_tokens;
    }
    fixture
}

fn body() -> Value {
    json!({
        "model": "gpt-4.1",
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": [
                { "type": "text", "text": "Roll it" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAEC" } },
                { "type": "file", "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAEC" } },
                { "type": "text", "text": "hi" },
            ] },
            { "role": "assistant", "content": "Rolling.", "tool_calls": [
                { "id": "call_1", "type": "function", "function": { "name": "roll", "arguments": "{\"sides\":6}" } },
            ] },
            { "role": "tool", "tool_call_id": "call_1", "content": "{\"result\":\"4\"}" },
        ],
        "tools": [{ "type": "function", "function": {
            "name": "roll", "description": "Rolls a die.", "parameters": parameters(),
        } }],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_completion_tokens": 100,
        "stop": ["END"],
        "tool_choice": "auto",
    })
}

fn usage() -> Value {
    json!({
        "prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30,
        "prompt_tokens_details": { "cached_tokens": 4 }, "completion_tokens_details": { "reasoning_tokens": 5 },
    })
}

pub fn answer() -> Value {
    json!({
        "id": "c-1", "object": "chat.completion", "created": 5, "model": "gpt-5-001",
        "choices": [{
            "index": 0,
            "message": {
                "role": "assistant", "content": TEXT, "refusal": null, "reasoning_content": "hm",
                "tool_calls": [
                    { "id": "call_2", "type": "function", "function": { "name": "roll", "arguments": "{\"sides\": 6}" } },
                ],
            },
            "finish_reason": "tool_calls",
        }],
        "usage": usage(),
    })
}

pub fn chunk(delta: Value, finish: Value) -> Value {
    json!({
        "id": "c-1", "object": "chat.completion.chunk", "created": 5, "model": "gpt-5-001",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }], "usage": null,
    })
}

pub fn events() -> Vec<String> {
    let call = |id: Option<&str>, name: Option<&str>, arguments: &str| json!({ "tool_calls": [{ "index": 0, "id": id, "function": { "name": name, "arguments": arguments } }] });
    let payloads = [
        chunk(json!({ "role": "assistant", "content": "", "refusal": null }), Value::Null),
        chunk(json!({ "reasoning_content": "hm" }), Value::Null),
        chunk(json!({ "content": "ü 漢 " }), Value::Null),
        chunk(json!({ "content": "🦀" }), Value::Null),
        chunk(call(Some("call_2"), Some("roll"), ""), Value::Null),
        chunk(call(None, None, "{\"si"), Value::Null),
        chunk(call(None, None, "des\":6}"), Value::Null),
        chunk(json!({}), json!("tool_calls")),
        json!({ "model": "gpt-5-001", "choices": [], "usage": usage() }),
    ];
    payloads.map(event).into_iter().chain(["data: [DONE]\n\n".to_owned()]).collect()
}

pub fn response() -> Value {
    json!({
        "content": { "role": "model", "parts": [
            { "text": "hm", "thought": true },
            { "text": TEXT },
            { "functionCall": { "id": "call_2", "name": "roll", "args": { "sides": 6 } } },
        ] },
        "finishReason": "STOP",
        "usageMetadata": {
            "promptTokenCount": 10, "candidatesTokenCount": 15, "thoughtsTokenCount": 5, "cachedContentTokenCount": 4,
            "totalTokenCount": 30,
        },
        "modelVersion": "gpt-5-001",
        "customMetadata": { "id": "c-1", "created": 5 },
    })
}
