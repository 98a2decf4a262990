//! Responses of chat completions.

use hatchery_core::{LlmResponse, ModelErrorKind};
use serde_json::{Value, json};

use crate::support::{
    MockProvider, MockResponse, deltas, deltas_of_all_splits, event, generate, parts, stream, texts, user_request,
};

async fn answer_to(body: Value) -> LlmResponse {
    let provider = MockProvider::start([MockResponse::json(body)]).await;
    generate(provider.openai().as_ref(), user_request("hi")).await.unwrap()
}

#[tokio::test]
async fn a_completion_becomes_a_response_with_all_of_its_fields() {
    let response = answer_to(json!({
        "id": "c-1", "object": "chat.completion", "created": 5, "model": "gpt-5-001", "system_fingerprint": "fp", "service_tier": null,
        "choices": [{
            "index": 0,
            "message": {
                "role": "assistant", "content": "Rolling.", "refusal": null, "reasoning_content": "hm",
                "tool_calls": [
                    {
                        "id": "call_1", "type": "function", "function": { "name": "roll", "arguments": "{\"sides\": 6}" },
                        "extra_content": { "google": { "thought_signature": "c2ln" } },
                    },
                    { "id": "call_2", "type": "function", "function": { "name": "flip", "arguments": "" } },
                ],
            },
            "finish_reason": "tool_calls",
        }],
        "usage": {
            "prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30,
            "prompt_tokens_details": { "cached_tokens": 4 }, "completion_tokens_details": { "reasoning_tokens": 5 },
        },
    }))
    .await;
    let expected = json!({
        "content": { "role": "model", "parts": [
            { "text": "hm", "thought": true },
            { "text": "Rolling." },
            { "functionCall": { "id": "call_1", "name": "roll", "args": { "sides": 6 } }, "thoughtSignature": "c2ln" },
            { "functionCall": { "id": "call_2", "name": "flip", "args": {} } },
        ] },
        "finishReason": "STOP",
        "usageMetadata": {
            "promptTokenCount": 10, "candidatesTokenCount": 15, "thoughtsTokenCount": 5, "cachedContentTokenCount": 4,
            "totalTokenCount": 30,
        },
        "modelVersion": "gpt-5-001",
        "customMetadata": { "id": "c-1", "created": 5, "system_fingerprint": "fp" },
    });
    assert_eq!(serde_json::to_value(response).unwrap(), expected);
}

#[tokio::test]
async fn a_refusal_is_text() {
    let message = json!({ "role": "assistant", "content": null, "refusal": "I will not." });
    let response = answer_to(json!({ "choices": [{ "message": message, "finish_reason": "stop" }] })).await;
    assert_eq!(texts(&[response]), ["I will not."]);
}

#[tokio::test]
async fn thoughts_under_both_of_their_names_are_read_once() {
    let both = json!({ "reasoning": "hm", "reasoning_content": "hm", "content": "Rolling." });
    let newer = json!({ "reasoning": "hm", "reasoning_content": "", "content": "Rolling." });
    let older = json!({ "reasoning": "", "reasoning_content": "hm", "content": "Rolling." });
    for message in [both, newer, older] {
        let response = answer_to(json!({ "choices": [{ "message": message, "finish_reason": "stop" }] })).await;
        let events = [event(chunk(message.clone(), json!("stop")))];
        let provider = MockProvider::start([MockResponse::events(events)]).await;
        let streamed = deltas(provider.openai().as_ref(), user_request("hi")).await;
        for responses in [&[response][..], &streamed[..]] {
            assert_eq!(texts(responses), ["hm", "Rolling."], "{message}");
            assert!(parts(responses)[0].thought, "{message}");
        }
    }
}

#[tokio::test]
async fn a_content_of_chunks_has_thoughts_and_texts() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let thinking =
        |texts: &[&str]| json!({ "type": "thinking", "thinking": texts.iter().map(|it| text(it)).collect::<Vec<_>>() });
    let read = |responses: &[LlmResponse]| {
        let parts = parts(responses).into_iter();
        parts.map(|part| (part.thought, part.as_text().unwrap().to_owned())).collect::<Vec<_>>()
    };
    let thought = |text: &str| (true, text.to_owned());
    let said = |text: &str| (false, text.to_owned());

    let reference = json!({ "type": "reference", "reference_ids": [1] });
    let content = json!([thinking(&["h", "m"]), text("Rolling"), reference, text(" on.")]);
    let message = json!({ "role": "assistant", "content": content, "tool_calls": null });
    let response = answer_to(json!({ "choices": [{ "message": message, "finish_reason": "stop" }] })).await;
    assert_eq!(read(&[response]), [thought("hm"), said("Rolling"), said(" on.")]);

    let deltas = streamed([
        chunk(json!({ "role": "assistant", "content": "" }), Value::Null),
        chunk(json!({ "content": [thinking(&["h"])] }), Value::Null),
        chunk(json!({ "content": [{ "type": "thinking", "thinking": "m", "closed": true }] }), Value::Null),
        chunk(json!({ "content": [text("Rolling")] }), Value::Null),
        chunk(json!({ "content": " on." }), json!("stop")),
    ])
    .await;
    assert_eq!(read(&deltas), [thought("h"), thought("m"), said("Rolling"), said(" on.")]);
}

#[tokio::test]
async fn each_finish_reason_is_mapped() {
    for (theirs, ours) in [
        ("length", "MAX_TOKENS"),
        ("model_length", "MAX_TOKENS"),
        ("content_filter", "SAFETY"),
        ("odd", "OTHER"),
        ("function_call", "STOP"),
    ] {
        let message = json!({ "content": "half" });
        let response = answer_to(json!({ "choices": [{ "message": message, "finish_reason": theirs }] })).await;
        assert_eq!(response.finish_reason.as_deref(), Some(ours));
        assert_eq!(response.error_code.as_deref(), Some(ours).filter(|reason| *reason != "STOP"));
    }
}

#[tokio::test]
async fn a_malformed_completion_is_a_bad_response() {
    let call = json!({ "id": "c", "function": { "name": "roll", "arguments": "{\"sides\":" } });
    let broken_call =
        |reason: &str| json!({ "choices": [{ "message": { "tool_calls": [call.clone()] }, "finish_reason": reason }] });
    let cases = [
        (json!({ "choices": [] }), "OpenAI sent an answer that cannot be read: it has no choices"),
        (json!([]), "OpenAI sent an answer that cannot be read: "),
        (
            broken_call("tool_calls"),
            "OpenAI sent an answer that cannot be read: the arguments of tool call `roll` are no JSON object (EOF",
        ),
    ];
    for (body, start) in cases {
        let provider = MockProvider::start([MockResponse::json(&body)]).await;
        let error = generate(provider.openai().as_ref(), user_request("hi")).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadResponse, "{body}");
        assert!(error.message.starts_with(start), "{error}");
    }
    let cut_off = answer_to(broken_call("length")).await;
    assert_eq!((cut_off.content, cut_off.error_code.as_deref()), (None, Some("MAX_TOKENS")));
}

#[tokio::test]
async fn an_error_with_status_200_is_an_error() {
    let cases = [
        (json!({ "message": "m", "code": 429 }), ModelErrorKind::RateLimited),
        (json!({ "message": "m", "type": "invalid_request_error" }), ModelErrorKind::BadRequest),
        (json!({ "message": "m", "code": "invalid_api_key" }), ModelErrorKind::Auth),
        (json!({ "message": "m" }), ModelErrorKind::Server),
        (json!("m"), ModelErrorKind::Server),
    ];
    for (error, kind) in cases {
        let provider = MockProvider::start([MockResponse::json(json!({ "error": error }))]).await;
        let error = generate(provider.openai().as_ref(), user_request("hi")).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (kind, "OpenAI reports: m"));
    }
}

#[tokio::test]
async fn an_account_without_credit_is_an_error_at_once() {
    let error =
        json!({ "message": "no quota", "type": "insufficient_quota", "param": null, "code": "insufficient_quota" });
    let refusal = || MockResponse::json(json!({ "error": error })).status(429);
    let provider = MockProvider::start([refusal(), refusal(), refusal()]).await;
    let mut request = user_request("hi");
    let codes = json!({ "retryOptions": { "initialDelay": 0.001, "httpStatusCodes": [429] } });
    for (options, requests) in [(json!({}), 1), (codes, 2)] {
        request.config.extra.insert("httpOptions".into(), options);
        let error = generate(provider.openai().as_ref(), request.clone()).await.unwrap_err();
        assert_eq!((error.kind, error.status), (ModelErrorKind::Auth, Some(429)));
        let message = "OpenAI answered HTTP 429: no quota (check the plan and the billing of the account)";
        assert_eq!(error.message, message);
        assert_eq!(provider.requests().len(), requests);
    }
    let provider = MockProvider::start([MockResponse::json(json!({ "error": error }))]).await;
    let error = generate(provider.openai().as_ref(), user_request("hi")).await.unwrap_err();
    let message = "OpenAI reports: no quota (check the plan and the billing of the account)";
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::Auth, message));
}

fn chunk(delta: Value, finish: Value) -> Value {
    json!({
        "id": "c-1", "object": "chat.completion.chunk", "created": 5, "model": "gpt-5-001",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }], "usage": null,
    })
}

fn call_piece(index: u64, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }] })
}

fn varied_stream() -> String {
    let payloads = [
        chunk(json!({ "role": "assistant", "content": "", "refusal": null }), Value::Null),
        chunk(json!({ "reasoning_content": "hm" }), Value::Null),
        chunk(json!({ "content": "ü 漢 " }), Value::Null),
        chunk(json!({ "content": "🦀" }), Value::Null),
        chunk(call_piece(0, Some("call_0"), Some("roll"), ""), Value::Null),
        chunk(call_piece(0, None, None, "{\"si"), Value::Null),
        chunk(call_piece(1, Some("call_1"), Some("flip"), "{}"), Value::Null),
        chunk(call_piece(0, None, None, "des\":6}"), Value::Null),
        chunk(json!({}), json!("tool_calls")),
        json!({ "model": "gpt-5-001", "choices": [], "usage": { "prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3 } }),
    ];
    let events: String = payloads
        .iter()
        .enumerate()
        .map(|(index, payload)| match index % 3 {
            0 => format!("data: {payload}\n\n"),
            1 => format!("data:{payload}\r\n\r\n: keep-alive\r\n\r\n"),
            _ => format!("event: message\nid: {index}\ndata: {payload}\n\n"),
        })
        .collect();
    format!("{events}data: [DONE]\n\n")
}

#[tokio::test]
async fn a_stream_has_the_same_deltas_wherever_its_chunks_are_split() {
    let uncut = deltas_of_all_splits(&varied_stream(), MockProvider::openai).await;
    let contents: Vec<_> = uncut.iter().map(|delta| serde_json::to_value(&delta.content).unwrap()).collect();
    let one = |part: Value| json!({ "role": "model", "parts": [part] });
    let calls = json!({ "role": "model", "parts": [
        { "functionCall": { "id": "call_0", "name": "roll", "args": { "sides": 6 } } },
        { "functionCall": { "id": "call_1", "name": "flip", "args": {} } },
    ] });
    let expected = [
        one(json!({ "text": "hm", "thought": true })),
        one(json!({ "text": "ü 漢 " })),
        one(json!({ "text": "🦀" })),
        calls,
        Value::Null,
    ];
    assert_eq!(contents, expected);
    assert_eq!(uncut[3].finish_reason.as_deref(), Some("STOP"));
    assert_eq!(uncut[3].custom_metadata, Some(json!({ "id": "c-1", "created": 5 })));
    assert_eq!(uncut[4].usage_metadata.as_ref().unwrap().total_token_count, Some(3));
    assert_eq!(uncut[4].model_version.as_deref(), Some("gpt-5-001"));
}

async fn streamed(payloads: impl IntoIterator<Item = Value>) -> Vec<LlmResponse> {
    let provider = MockProvider::start([MockResponse::events(payloads.into_iter().map(event))]).await;
    deltas(provider.openai().as_ref(), user_request("hi")).await
}

#[tokio::test]
async fn calls_are_only_made_once_the_stream_is_marked_as_complete() {
    let call = event(chunk(call_piece(0, Some("c"), Some("roll"), "{}"), Value::Null));
    let provider = MockProvider::start([
        MockResponse::events([call.clone(), "data: [DONE]\n\n".to_owned()]),
        MockResponse::events([call]),
    ])
    .await;
    let complete = deltas(provider.openai().as_ref(), user_request("hi")).await;
    assert_eq!(complete[0].content.as_ref().unwrap().function_calls().count(), 1);
    let items = stream(provider.openai().as_ref(), user_request("hi")).await;
    let error = items[0].as_ref().unwrap_err();
    assert_eq!((items.len(), error.kind), (1, ModelErrorKind::Network));
    assert_eq!(error.message, "the answer of OpenAI ended before it was complete");
}

#[tokio::test]
async fn empty_arguments_and_null_are_no_arguments() {
    for arguments in ["", " ", "null", "{}"] {
        let deltas = streamed([chunk(call_piece(0, Some("c"), Some("roll"), arguments), json!("tool_calls"))]).await;
        assert!(deltas[0].content.as_ref().unwrap().function_calls().next().unwrap().args.is_empty(), "{arguments}");
    }
}

#[tokio::test]
async fn arguments_that_are_sent_as_an_object_are_read() {
    let function = json!({ "name": "roll", "arguments": { "sides": 6, "seed": null } });
    let message = json!({ "tool_calls": [{ "index": 0, "id": "c", "function": function }] });
    let response = answer_to(json!({ "choices": [{ "message": message, "finish_reason": "tool_calls" }] })).await;
    for responses in [vec![response], streamed([chunk(message.clone(), json!("tool_calls"))]).await] {
        let call = responses[0].content.as_ref().unwrap().function_calls().next().unwrap().clone();
        assert_eq!(Value::Object(call.args), json!({ "sides": 6, "seed": null }));
    }
}

#[tokio::test]
async fn an_empty_finish_reason_is_none() {
    for none in ["", "null"] {
        let deltas = streamed([
            chunk(json!({ "content": "Rol" }), json!(none)),
            chunk(json!({ "content": "ling." }), json!(none)),
            chunk(json!({}), json!("stop")),
        ])
        .await;
        assert_eq!(texts(&deltas), ["Rol", "ling."]);
        assert_eq!(deltas[0].error_code, None);
        assert_eq!(deltas[2].finish_reason.as_deref(), Some("STOP"));
    }
}

#[tokio::test]
async fn calls_without_an_index_or_with_the_same_one_are_distinguished_by_their_ids() {
    let call = |id: &str| json!({ "tool_calls": [{ "id": id, "function": { "name": id, "arguments": "{}" } }] });
    let deltas = streamed([
        chunk(call("a"), Value::Null),
        chunk(call("b"), Value::Null),
        chunk(call_piece(0, Some("c"), Some("c"), "{}"), Value::Null),
        chunk(call_piece(0, Some("d"), Some("d"), "{\"x\":"), Value::Null),
        chunk(json!({ "tool_calls": [{ "function": { "arguments": "1}" } }] }), json!("tool_calls")),
    ])
    .await;
    let ids: Vec<_> =
        deltas[0].content.as_ref().unwrap().function_calls().map(|call| call.id.clone().unwrap()).collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
    assert_eq!(deltas[0].content.as_ref().unwrap().function_calls().last().unwrap().args["x"], 1);
}

#[tokio::test]
async fn a_streamed_refusal_is_text_and_a_truncated_call_is_omitted() {
    let cut_off = [chunk(call_piece(0, Some("c"), Some("roll"), ""), Value::Null), chunk(json!({}), json!("length"))];
    assert!(parts(&streamed(cut_off).await).is_empty());
    let deltas = streamed([
        chunk(json!({ "refusal": "I will " }), Value::Null),
        chunk(json!({ "refusal": "not." }), Value::Null),
        chunk(call_piece(0, Some("c"), Some("roll"), "{\"si"), Value::Null),
        chunk(json!({}), json!("length")),
    ])
    .await;
    assert_eq!(texts(&deltas), ["I will ", "not."]);
    assert_eq!(parts(&deltas).len(), 2);
    assert_eq!(deltas[2].error_code.as_deref(), Some("MAX_TOKENS"));
}

#[tokio::test]
async fn only_the_first_choice_is_used() {
    let other = json!({ "choices": [{ "index": 1, "delta": { "content": "other" } }] });
    assert_eq!(texts(&streamed([other, chunk(json!({ "content": "first" }), json!("stop"))]).await), ["first"]);
}

#[tokio::test]
async fn the_log_probabilities_of_tokens_become_their_mean() {
    let logprobs = |all: &[f64]| {
        let tokens: Vec<_> = all.iter().map(|logprob| json!({ "token": "a", "logprob": logprob })).collect();
        json!({ "content": tokens, "refusal": null })
    };
    let with = |mut chunk: Value, logprobs: Value| {
        chunk["choices"][0]["logprobs"] = logprobs;
        chunk
    };
    let choice =
        json!({ "message": { "content": "ab" }, "finish_reason": "stop", "logprobs": logprobs(&[-0.5, -1.5]) });
    assert_eq!(answer_to(json!({ "choices": [choice] })).await.avg_logprobs, Some(-1.0));
    let deltas = streamed([
        with(chunk(json!({ "content": "a" }), Value::Null), logprobs(&[-0.5])),
        with(chunk(json!({ "content": "b" }), Value::Null), logprobs(&[-1.5])),
        with(chunk(json!({}), json!("stop")), Value::Null),
    ])
    .await;
    assert_eq!(deltas.iter().map(|delta| delta.avg_logprobs).collect::<Vec<_>>(), [None, None, Some(-1.0)]);
    for other in [logprobs(&[]), json!({ "token_logprobs": [-0.5] }), json!("none")] {
        let deltas = streamed([with(chunk(json!({ "content": "a" }), json!("stop")), other)]).await;
        assert_eq!((texts(&deltas), deltas[0].avg_logprobs), (vec!["a".to_owned()], None));
    }
}

#[tokio::test]
async fn payloads_after_done_are_ignored() {
    let late = event(chunk(json!({ "content": "late" }), Value::Null));
    let provider = MockProvider::start([MockResponse::events([format!("data: [DONE]\n\n{late}")])]).await;
    assert!(deltas(provider.openai().as_ref(), user_request("hi")).await.is_empty());
}

#[tokio::test]
async fn an_error_in_a_stream_follows_the_earlier_responses() {
    let error = event(json!({ "error": { "message": "overloaded", "type": "server_error" } }));
    let provider =
        MockProvider::start([MockResponse::events([event(chunk(json!({ "content": "one" }), Value::Null)), error])])
            .await;
    let items = stream(provider.openai().as_ref(), user_request("hi")).await;
    assert_eq!(texts(&[items[0].clone().unwrap()]), ["one"]);
    let error = items[1].as_ref().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::Server, "OpenAI reports: overloaded"));
    assert_eq!(items.len(), 2);
}

#[tokio::test]
async fn arguments_that_are_no_object_end_the_stream_with_a_bad_response() {
    let events =
        [chunk(call_piece(0, Some("c"), Some("roll"), "[1]"), Value::Null), chunk(json!({}), json!("tool_calls"))];
    let provider = MockProvider::start([MockResponse::events(events.map(event))]).await;
    let items = stream(provider.openai().as_ref(), user_request("hi")).await;
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].as_ref().unwrap_err().kind, ModelErrorKind::BadResponse);
}
