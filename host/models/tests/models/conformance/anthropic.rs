//! Anthropic's protocol: its own API, and Vertex AI.

use hatchery_core::base64_bytes;
use hatchery_models::Service;
use serde_json::{Value, json};

use super::{Fixture, TEXT, model_at, parameters};

pub fn on_api() -> Fixture {
    let mut streamed_body = body();
    streamed_body["stream"] = json!(true);
    Fixture {
        label: "Anthropic",
        model: |provider| model_at(provider, Service::Anthropic, "", "claude-sonnet-4-5"),
        targets: ["/v1/messages"; 2],
        header: ("x-api-key", "the-key"),
        bodies: [body(), streamed_body],
        answer: answer(),
        events: events().into_iter().map(event).collect(),
        response: response(),
        empty: empty(),
        text_event: |text| event(delta(0, json!({ "type": "text_delta", "text": text }))),
        error_event: event(
            json!({ "type": "error", "error": { "type": "overloaded_error", "message": "overloaded" } }),
        ),
    }
}

pub fn on_vertex() -> Fixture {
    let mut fixture = Fixture {
        label: "Vertex AI",
        model: |provider| model_at(provider, Service::Vertex, "", "vertex/claude-sonnet-4-5@20250929"),
        targets: [
            "/v1/projects/my-project/locations/europe-west4/publishers/anthropic/models/claude-sonnet-4-5@20250929:rawPredict",
            "/v1/projects/my-project/locations/europe-west4/publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict",
        ],
        header: ("authorization", "Bearer the-token"),
        ..on_api()
    };
    for body in &mut fixture.bodies {
        body.as_object_mut().unwrap().shift_remove("model");
        body["anthropic_version"] = json!("vertex-2023-10-16");
    }
    fixture
}

/// Formats an event with its type as the name.
pub fn event(json: Value) -> String {
    format!("event: {}\ndata: {json}\n\n", json["type"].as_str().unwrap())
}

fn body() -> Value {
    json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "system": [{ "type": "text", "text": "Be brief." }],
        "messages": [
            { "role": "user", "content": [
                { "type": "text", "text": "Roll it" },
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAEC" } },
                {
                    "type": "document", "title": "a.pdf",
                    "source": { "type": "base64", "media_type": "application/pdf", "data": "AAEC" },
                },
                { "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "hi" } },
            ] },
            { "role": "assistant", "content": [
                { "type": "text", "text": "Rolling." },
                { "type": "tool_use", "id": "call_1", "name": "roll", "input": { "sides": 6 } },
            ] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "call_1", "content": "4" }] },
        ],
        "tools": [{ "name": "roll", "description": "Rolls a die.", "input_schema": parameters() }],
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "tool_choice": { "type": "auto" },
    })
}

pub fn answer() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
        "content": [
            { "type": "thinking", "thinking": "hm", "signature": "sig" },
            { "type": "redacted_thinking", "data": "xyz" },
            { "type": "thinking", "thinking": "so", "signature": "sig2" },
            { "type": "text", "text": TEXT, "citations": [{ "type": "char_location", "cited_text": "a" }] },
            { "type": "tool_use", "id": "toolu_1", "name": "roll", "input": { "sides": 6 } },
            { "type": "tool_use", "id": "toolu_2", "name": "flip", "input": {} },
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {
            "input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 20,
            "service_tier": "standard",
        },
    })
}

fn start(index: u64, block: Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: u64, delta: Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn stop(index: u64) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn message_start() -> Value {
    json!({ "type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929", "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1 },
    } })
}

fn message_end(reason: &str) -> [Value; 2] {
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    [
        json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 20 } }),
        json!({ "type": "message_stop" }),
    ]
}

pub fn events() -> Vec<Value> {
    let json_piece = |piece: &str| json!({ "type": "input_json_delta", "partial_json": piece });
    let mut events = vec![
        message_start(),
        start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        json!({ "type": "ping" }),
        delta(0, json!({ "type": "thinking_delta", "thinking": "h" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "m" })),
        delta(0, json!({ "type": "signature_delta", "signature": "sig" })),
        stop(0),
        start(1, json!({ "type": "redacted_thinking", "data": "xyz" })),
        stop(1),
        start(2, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        delta(2, json!({ "type": "thinking_delta", "thinking": "so" })),
        delta(2, json!({ "type": "signature_delta", "signature": "sig2" })),
        stop(2),
        start(3, json!({ "type": "text", "text": "" })),
        delta(3, json!({ "type": "text_delta", "text": "ü 漢 " })),
        delta(3, json!({ "type": "text_delta", "text": "🦀" })),
        delta(3, json!({ "type": "citations_delta", "citation": { "type": "char_location", "cited_text": "a" } })),
        delta(3, json!({ "type": "unheard_of_delta", "x": 1 })),
        stop(3),
        start(4, json!({ "type": "tool_use", "id": "toolu_1", "name": "roll", "input": {} })),
        delta(4, json_piece("")),
        delta(4, json_piece("{\"si")),
        delta(4, json_piece("des\": 6}")),
        stop(4),
        start(5, json!({ "type": "tool_use", "id": "toolu_2", "name": "flip", "input": {} })),
        stop(5),
        json!({ "type": "unheard_of" }),
    ];
    events.extend(message_end("tool_use"));
    events
}

fn response() -> Value {
    let signature = |signature: &'static str| base64_bytes::encode(signature.as_bytes());
    json!({
        "content": { "role": "model", "parts": [
            { "text": "hm", "thought": true, "thoughtSignature": signature("thinking:sig") },
            { "thought": true, "thoughtSignature": signature("redacted-thinking:xyz") },
            { "text": "so", "thought": true, "thoughtSignature": signature("thinking:sig2") },
            { "text": TEXT },
            { "functionCall": { "id": "toolu_1", "name": "roll", "args": { "sides": 6 } } },
            { "functionCall": { "id": "toolu_2", "name": "flip", "args": {} } },
        ] },
        "finishReason": "STOP",
        "usageMetadata": {
            "promptTokenCount": 17, "candidatesTokenCount": 20, "cachedContentTokenCount": 4, "totalTokenCount": 37,
            "cacheCreationTokenCount": 3,
        },
        "modelVersion": "claude-sonnet-4-5-20250929",
        "groundingMetadata": { "citations": [{ "type": "char_location", "cited_text": "a" }] },
        "customMetadata": { "id": "msg_1" },
    })
}

fn empty() -> (Value, Vec<String>) {
    let answer = json!({ "id": "msg_1", "content": [], "stop_reason": "end_turn", "usage": { "input_tokens": 1 } });
    let [end, stop] = message_end("end_turn");
    (answer, [message_start(), end, stop].map(event).into())
}
