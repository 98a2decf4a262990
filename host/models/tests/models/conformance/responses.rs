//! The responses API of OpenAI.

use hatchery_core::base64_bytes;
use hatchery_models::Service;
use serde_json::{Value, json};

use super::anthropic::event;
use super::{Fixture, TEXT, model_at, parameters};

pub fn on_api() -> Fixture {
    let mut streamed_body = body();
    streamed_body["stream"] = json!(true);
    Fixture {
        label: "OpenAI",
        model: |provider| model_at(provider, Service::OpenAi, "/v1", "openai-responses/gpt-5"),
        targets: ["/v1/responses"; 2],
        header: ("authorization", "Bearer the-key"),
        bodies: [body(), streamed_body],
        answer: completed(json!(output())),
        events: events().into_iter().map(event).collect(),
        response: response(),
        empty: (
            completed(json!([])),
            vec![event(json!({ "type": "response.completed", "response": completed(json!([])) }))],
        ),
        text_event: |text| event(json!({ "type": "response.output_text.delta", "delta": text })),
        error_event: event(
            json!({ "type": "error", "code": "server_error", "message": "overloaded", "sequence_number": 3 }),
        ),
    }
}

fn body() -> Value {
    json!({
        "model": "gpt-5",
        "instructions": "Be brief.",
        "input": [
            { "type": "message", "role": "user", "content": [
                { "type": "input_text", "text": "Roll it" },
                { "type": "input_image", "image_url": "data:image/png;base64,AAEC" },
                { "type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAEC" },
                { "type": "input_text", "text": "hi" },
            ] },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Rolling." }] },
            { "type": "function_call", "call_id": "call_1", "name": "roll", "arguments": "{\"sides\":6}" },
            { "type": "function_call_output", "call_id": "call_1", "output": "{\"result\":\"4\"}" },
        ],
        "tools": [{
            "type": "function", "name": "roll", "description": "Rolls a die.", "parameters": parameters(), "strict": false,
        }],
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 100,
        "tool_choice": "auto",
    })
}

fn output() -> [Value; 3] {
    let content = json!([{ "type": "output_text", "text": TEXT, "annotations": [] }]);
    [
        json!({
            "type": "reasoning", "id": "rs_1", "encrypted_content": "enc",
            "summary": [{ "type": "summary_text", "text": "hm" }, { "type": "summary_text", "text": "so" }],
        }),
        json!({ "type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": content }),
        json!({
            "type": "function_call", "id": "fc_1", "call_id": "call_2", "name": "roll", "arguments": "{\"sides\": 6}",
            "status": "completed",
        }),
    ]
}

fn completed(output: Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 5, "model": "gpt-5-001", "status": "completed", "error": null,
        "incomplete_details": null, "output": output,
        "usage": {
            "input_tokens": 10, "input_tokens_details": { "cached_tokens": 4 },
            "output_tokens": 20, "output_tokens_details": { "reasoning_tokens": 5 }, "total_tokens": 30,
        },
    })
}

fn events() -> Vec<Value> {
    let [reasoning, message, call] = output();
    let created = json!({ "id": "resp_1", "model": "gpt-5-001", "status": "in_progress", "output": [], "usage": null });
    let summary =
        |text: &str| json!({ "type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": text });
    let part = |index: u64| json!({ "type": "response.reasoning_summary_part.added", "summary_index": index });
    let text = |text: &str| json!({ "type": "response.output_text.delta", "content_index": 0, "delta": text });
    let added = |item: Value| json!({ "type": "response.output_item.added", "item": item });
    let done = |item: &Value| json!({ "type": "response.output_item.done", "item": item });
    vec![
        json!({ "type": "response.created", "response": created }),
        json!({ "type": "response.in_progress", "response": created }),
        added(json!({ "type": "reasoning", "id": "rs_1", "summary": [] })),
        part(0),
        summary("hm"),
        json!({ "type": "response.reasoning_summary_text.done", "text": "hm" }),
        part(1),
        summary("so"),
        done(&reasoning),
        added(json!({ "type": "message", "id": "m_1", "role": "assistant", "status": "in_progress", "content": [] })),
        text("ü 漢 "),
        text("🦀"),
        json!({ "type": "response.output_text.done", "text": TEXT }),
        done(&message),
        added(json!({ "type": "function_call", "call_id": "call_2", "name": "roll", "arguments": "" })),
        json!({ "type": "response.function_call_arguments.delta", "delta": "{\"sides\": 6}" }),
        json!({ "type": "response.function_call_arguments.done", "arguments": "{\"sides\": 6}" }),
        done(&call),
        json!({ "type": "response.completed", "response": completed(json!([reasoning, message, call])) }),
    ]
}

fn response() -> Value {
    json!({
        "content": { "role": "model", "parts": [
            { "text": "hm\n\nso", "thought": true, "thoughtSignature": base64_bytes::encode(b"reasoning:enc") },
            { "text": TEXT },
            { "functionCall": { "id": "call_2", "name": "roll", "args": { "sides": 6 } } },
        ] },
        "finishReason": "STOP",
        "usageMetadata": {
            "promptTokenCount": 10, "candidatesTokenCount": 15, "thoughtsTokenCount": 5, "cachedContentTokenCount": 4,
            "totalTokenCount": 30,
        },
        "modelVersion": "gpt-5-001",
        "customMetadata": { "id": "resp_1", "created_at": 5 },
    })
}
