//! Gemini's protocol: the Gemini API, Vertex AI, and an Apigee gateway.

use hatchery_models::Service;
use serde_json::{Value, json};

use super::{Fixture, TEXT, model_at, parameters};
use crate::support::event;

pub fn on_api() -> Fixture {
    Fixture {
        label: "Gemini",
        model: |provider| model_at(provider, Service::Gemini, "", "gemini-2.5-flash"),
        targets: [
            "/v1beta/models/gemini-2.5-flash:generateContent",
            "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        ],
        header: ("x-goog-api-key", "the-key"),
        bodies: [body(), body()],
        answer: answer(),
        events: events(),
        response: response(),
        empty: (empty(), vec![event(empty())]),
        text_event: |text| event(chunk(json!([{ "text": text }]))),
        error_event: event(json!({ "error": { "code": 503, "message": "overloaded", "status": "UNAVAILABLE" } })),
    }
}

pub fn on_vertex() -> Fixture {
    Fixture {
        label: "Vertex AI",
        model: |provider| model_at(provider, Service::Vertex, "", "vertex/gemini-2.5-flash"),
        targets: [
            "/v1beta1/projects/my-project/locations/europe-west4/publishers/google/models/gemini-2.5-flash:generateContent",
            "/v1beta1/projects/my-project/locations/europe-west4/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        ],
        header: ("authorization", "Bearer the-token"),
        ..on_api()
    }
}

pub fn on_apigee() -> Fixture {
    Fixture {
        label: "Apigee",
        model: |provider| model_at(provider, Service::Apigee, "/gateway", "apigee/gemini/v1/gemini-2.5-flash"),
        targets: [
            "/gateway/v1/models/gemini-2.5-flash:generateContent",
            "/gateway/v1/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        ],
        ..on_api()
    }
}

fn body() -> Value {
    json!({
        "contents": [
            { "role": "user", "parts": [
                { "text": "Roll it" },
                { "inlineData": { "mimeType": "image/png", "data": "AAEC" } },
                { "inlineData": { "mimeType": "application/pdf", "data": "AAEC" } },
                { "inlineData": { "mimeType": "text/plain", "data": "aGk=" } },
            ] },
            { "role": "model", "parts": [
                { "text": "Rolling." },
                { "functionCall": { "id": "call_1", "name": "roll", "args": { "sides": 6 } } },
            ] },
            { "role": "user", "parts": [
                { "functionResponse": { "id": "call_1", "name": "roll", "response": { "result": "4" } } },
            ] },
        ],
        "systemInstruction": { "parts": [{ "text": "Be brief." }] },
        "tools": [{ "functionDeclarations": [
            { "name": "roll", "description": "Rolls a die.", "parametersJsonSchema": parameters() },
        ] }],
        "generationConfig": { "temperature": 0.5, "topP": 0.9, "maxOutputTokens": 100, "stopSequences": ["END"] },
        "toolConfig": { "functionCallingConfig": { "mode": "AUTO" } },
    })
}

fn usage() -> Value {
    json!({
        "promptTokenCount": 10, "candidatesTokenCount": 15, "thoughtsTokenCount": 5, "cachedContentTokenCount": 4,
        "totalTokenCount": 30,
    })
}

fn grounding() -> Value {
    json!({ "webSearchQueries": ["dice"] })
}

fn parts() -> [Value; 3] {
    [
        json!({ "text": "hm", "thought": true }),
        json!({ "text": TEXT }),
        json!({ "functionCall": { "id": "call_2", "name": "roll", "args": { "sides": 6 } }, "thoughtSignature": "c2ln" }),
    ]
}

fn chunk(parts: Value) -> Value {
    json!({ "candidates": [{ "content": { "role": "model", "parts": parts } }], "modelVersion": "gemini-2.5-flash-001" })
}

fn answer() -> Value {
    let mut answer = chunk(json!(parts()));
    answer["candidates"][0]["finishReason"] = json!("STOP");
    answer["candidates"][0]["groundingMetadata"] = grounding();
    answer["usageMetadata"] = usage();
    answer
}

fn events() -> Vec<String> {
    let [thought, _, call] = parts();
    let mut end = chunk(json!([call]));
    end["candidates"][0]["finishReason"] = json!("STOP");
    end["candidates"][0]["groundingMetadata"] = grounding();
    end["usageMetadata"] = usage();
    [chunk(json!([thought])), chunk(json!([{ "text": "ü 漢 " }])), chunk(json!([{ "text": "🦀" }])), end]
        .map(event)
        .into()
}

fn response() -> Value {
    json!({
        "content": { "role": "model", "parts": parts() },
        "finishReason": "STOP", "usageMetadata": usage(), "modelVersion": "gemini-2.5-flash-001",
        "groundingMetadata": grounding(),
    })
}

fn empty() -> Value {
    json!({ "candidates": [{ "content": { "role": "model" }, "finishReason": "STOP" }] })
}
