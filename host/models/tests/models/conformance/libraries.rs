//! Models of the libraries, at chat completions and at Anthropic's protocol.

use super::Fixture;

pub fn fixtures() -> Vec<Fixture> {
    let fixtures: Vec<Fixture> = Vec::new();
    #[cfg(feature = "genai")]
    let fixtures: Vec<_> = fixtures.into_iter().chain(genai::fixtures()).collect();
    #[cfg(feature = "rig")]
    let fixtures: Vec<_> = fixtures.into_iter().chain(rig::fixtures()).collect();
    fixtures
}

/// Shared by the fixtures of both libraries.
#[cfg(any(feature = "genai", feature = "rig"))]
mod common {
    use std::sync::Arc;

    use hatchery_core::{Model, ModelResolver};
    use hatchery_models::{Connection, ModelProviders, Service, Settings};
    use serde_json::{Value, json};

    use crate::conformance::{TEXT, openai, parameters};
    use crate::support::{MockProvider, event};

    /// Returns a model whose provider is at the URL of the mock provider.
    pub fn model(provider: &MockProvider, name: &str) -> Arc<dyn Model> {
        let connection = Connection {
            base_url: Some(provider.url.as_str().into()),
            api_key: Some("the-key".into()),
            ..Connection::default()
        };
        let settings = Settings {
            libraries: ["GROQ", "TOGETHER"].map(|prefix| (prefix.to_owned(), connection.clone())).into(),
            ..Settings::default()
        };
        let settings =
            settings.with_base_url(Service::Anthropic, provider.url.as_str()).with_key(Service::Anthropic, "the-key");
        ModelProviders::with_defaults(settings).model(name).unwrap()
    }

    pub fn chat_body(streamed: bool) -> Value {
        let mut body = json!({
            "model": "llama-3.3",
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
            "max_tokens": 100,
            "stop": ["END"],
            "tool_choice": "auto",
        });
        if streamed {
            body["stream"] = json!(true);
            body["stream_options"] = json!({ "include_usage": true });
        }
        body
    }

    /// Returns the response to the answer of chat completions, without the fields that libraries drop.
    pub fn chat_response() -> Value {
        let mut response = openai::response();
        response.as_object_mut().unwrap().shift_remove("customMetadata");
        response
    }

    /// Returns the stream of an answer of Anthropic with a thought, a text and a call.
    pub fn anthropic_events() -> Vec<Value> {
        let start =
            |index: u64, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
        let delta = |index: u64, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
        let stop = |index: u64| json!({ "type": "content_block_stop", "index": index });
        let json_piece = |piece: &str| json!({ "type": "input_json_delta", "partial_json": piece });
        let message = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": { "input_tokens": 10, "output_tokens": 1 },
        });
        vec![
            json!({ "type": "message_start", "message": message }),
            start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
            delta(0, json!({ "type": "thinking_delta", "thinking": "h" })),
            delta(0, json!({ "type": "thinking_delta", "thinking": "m" })),
            delta(0, json!({ "type": "signature_delta", "signature": "sig" })),
            stop(0),
            start(1, json!({ "type": "text", "text": "" })),
            delta(1, json!({ "type": "text_delta", "text": "ü 漢 " })),
            delta(1, json!({ "type": "text_delta", "text": "🦀" })),
            stop(1),
            start(2, json!({ "type": "tool_use", "id": "toolu_1", "name": "roll", "input": {} })),
            delta(2, json_piece("{\"si")),
            delta(2, json_piece("des\": 6}")),
            stop(2),
            json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use", "stop_sequence": null }, "usage": { "output_tokens": 20 } }),
            json!({ "type": "message_stop" }),
        ]
    }

    /// Returns the same answer, not streamed.
    pub fn anthropic_answer() -> Value {
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
            "content": [
                { "type": "thinking", "thinking": "hm", "signature": "sig" },
                { "type": "text", "text": TEXT },
                { "type": "tool_use", "id": "toolu_1", "name": "roll", "input": { "sides": 6 } },
            ],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": { "input_tokens": 10, "output_tokens": 20 },
        })
    }

    pub fn chat_text(text: &str) -> String {
        event(openai::chunk(json!({ "content": text }), Value::Null))
    }

    pub fn chat_error() -> String {
        event(json!({ "error": { "message": "overloaded", "type": "server_error" } }))
    }
}

#[cfg(feature = "genai")]
mod genai {
    use hatchery_core::ModelErrorKind;
    use serde_json::{Value, json};

    use super::common::{self, anthropic_answer, anthropic_events, chat_body, chat_response};
    use crate::conformance::{Fixture, anthropic, openai};
    use crate::support::{MockProvider, MockResponse, content, deltas, generate, request, stream, user_request};

    const CLAUDE: &str = "genai:anthropic::claude-x";

    pub fn fixtures() -> [Fixture; 1] {
        let body = |streamed| {
            let mut body = chat_body(streamed);
            body["stream"] = json!(streamed);
            body["tools"][0]["function"]["strict"] = json!(false);
            body
        };
        let mut response = chat_response();
        response.as_object_mut().unwrap().shift_remove("modelVersion");
        [Fixture {
            label: "Together (by genai)",
            model: |provider| common::model(provider, "genai:together::llama-3.3"),
            targets: ["/chat/completions"; 2],
            header: ("authorization", "Bearer the-key"),
            bodies: [body(false), body(true)],
            answer: openai::answer(),
            events: openai::events(),
            response,
            empty: (Value::Null, Vec::new()),
            text_event: common::chat_text,
            error_event: common::chat_error(),
        }]
    }

    #[tokio::test]
    async fn thoughts_go_back_with_their_signatures_whether_they_were_streamed_or_not() {
        for is_streamed in [false, true] {
            let events = anthropic_events().into_iter().map(anthropic::event).collect::<Vec<_>>();
            let answer =
                if is_streamed { MockResponse::events(events) } else { MockResponse::json(anthropic_answer()) };
            let provider = MockProvider::start([answer, MockResponse::json(anthropic_answer())]).await;
            let model = common::model(&provider, CLAUDE);
            let mut first = user_request("hi");
            first.config.extra.insert("thinkingConfig".into(), json!({ "thinkingBudget": 2048 }));
            let response = if is_streamed {
                crate::conformance::joined(deltas(model.as_ref(), first.clone()).await).unwrap()
            } else {
                generate(model.as_ref(), first.clone()).await.unwrap()
            };
            let result =
                json!({ "functionResponse": { "id": "toolu_1", "name": "roll", "response": { "result": "4" } } });
            let result = content(json!({ "role": "user", "parts": [result] }));
            let mut second =
                request([content(json!({ "parts": [{ "text": "hi" }] })), response.content.unwrap(), result]);
            second.config = first.config;
            generate(model.as_ref(), second).await.unwrap();
            let messages = &provider.requests()[1].body["messages"];
            assert_eq!(
                messages[1]["content"],
                json!([
                    { "type": "thinking", "thinking": "hm", "signature": "sig" },
                    { "type": "text", "text": "ü 漢 🦀" },
                    { "type": "tool_use", "id": "toolu_1", "name": "roll", "input": { "sides": 6 } },
                ]),
                "{is_streamed}"
            );
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_or_cannot_be_read_is_an_error() {
        let provider = MockProvider::start([
            MockResponse::events([common::chat_text("one")]),
            MockResponse::events([common::chat_text("one"), "data: {\"choices\":\n\n".into()]),
        ])
        .await;
        let model = common::model(&provider, "genai:together::llama-3.3");
        let items = stream(model.as_ref(), user_request("hi")).await;
        let error = items[1].as_ref().unwrap_err();
        assert_eq!(error.message, "the answer of Together (by genai) ended before it was complete");
        let items = stream(model.as_ref(), user_request("hi")).await;
        assert_eq!(items[1].as_ref().unwrap_err().kind, ModelErrorKind::BadResponse);
    }

    #[tokio::test]
    async fn settings_have_the_names_of_each_provider() {
        use ::genai::adapter::AdapterKind;
        use hatchery_models::libraries::genai::chat_options;
        let config = json!({ "topK": 40, "topP": 0.5, "maxOutputTokens": 7, "presencePenalty": 1, "thinkingConfig": { "thinkingLevel": "LOW" } });
        let config: hatchery_core::GenerateContentConfig = serde_json::from_value(config).unwrap();
        let body = |kind| chat_options(kind, &config, &Default::default()).unwrap().extra_body;
        assert_eq!(body(AdapterKind::Groq), Some(json!({ "top_k": 40, "presence_penalty": 1 })));
        assert_eq!(body(AdapterKind::Anthropic), Some(json!({ "top_k": 40 })));
        assert_eq!(body(AdapterKind::OpenAIResp), None);
        let gemini = json!({ "topK": 40.0, "topP": 0.5, "maxOutputTokens": 7, "presencePenalty": 1.0, "thinkingConfig": { "thinkingLevel": "LOW" } });
        assert_eq!(body(AdapterKind::Gemini), Some(json!({ "generationConfig": gemini })));
        let options = chat_options(AdapterKind::Groq, &config, &Default::default()).unwrap();
        assert_eq!((options.max_tokens, options.top_p), (Some(7), Some(0.5)));
        assert!(matches!(options.reasoning_effort, Some(::genai::chat::ReasoningEffort::Low)));
    }

    #[test]
    fn what_the_library_has_no_form_for_is_an_error() {
        use hatchery_models::libraries::ConversionError;
        use hatchery_models::libraries::genai::chat_request;
        let part = |part: Value| chat_request(&request([content(json!({ "parts": [part] }))])).unwrap_err();
        let zip = part(json!({ "inlineData": { "mimeType": "application/zip", "data": "AAEC" } }));
        assert_eq!(zip, ConversionError::UnsupportedContentType("application/zip".into()));
        let file = part(json!({ "fileData": { "fileUri": "gs://b/f" } }));
        assert_eq!(file.to_string(), "the file gs://b/f has no media type; set its `mimeType`");
        let mut search = user_request("hi");
        search.model_tools = vec![json!({ "googleSearch": {} })];
        assert!(matches!(chat_request(&search), Err(ConversionError::InvalidStructure(_))));
    }

    #[tokio::test]
    async fn arguments_that_are_no_json_are_a_bad_response() {
        let mut answer = openai::answer();
        answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = json!("{\"sides\":");
        let provider = MockProvider::start([MockResponse::json(answer)]).await;
        let model = common::model(&provider, "genai:together::llama-3.3");
        let error = generate(model.as_ref(), user_request("hi")).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadResponse, "{error}");
    }
}

#[cfg(feature = "rig")]
mod rig {
    use hatchery_core::ModelErrorKind;
    use serde_json::{Value, json};

    use super::common::{self, anthropic_answer, anthropic_events, chat_body, chat_response};
    use crate::conformance::{Fixture, anthropic, conversation, openai};
    use crate::support::{MockProvider, MockResponse, content, deltas, generate, request, stream, user_request};

    const CLAUDE: &str = "rig:anthropic:claude-x";

    pub fn fixtures() -> [Fixture; 1] {
        let body = |streamed| {
            let mut body = chat_body(streamed);
            body["messages"][0]["content"] = json!([{ "type": "text", "text": "Be brief." }]);
            // The library knows no model of this provider that sees.
            let omitted = json!({ "type": "text", "text": "(image omitted: model does not support images)" });
            body["messages"][1]["content"][1] = omitted;
            // The library has no names of files.
            body["messages"][1]["content"][2]["file"]["filename"] = json!("document.pdf");
            body
        };
        [Fixture {
            label: "groq (by rig)",
            model: |provider| common::model(provider, "rig:groq:llama-3.3"),
            targets: ["/chat/completions"; 2],
            header: ("authorization", "Bearer the-key"),
            bodies: [body(false), body(true)],
            answer: openai::answer(),
            events: openai::events(),
            response: chat_response(),
            empty: (Value::Null, Vec::new()),
            text_event: common::chat_text,
            error_event: common::chat_error(),
        }]
    }

    #[tokio::test]
    async fn thoughts_go_back_with_their_signatures_whether_they_were_streamed_or_not() {
        for is_streamed in [false, true] {
            let events = anthropic_events().into_iter().map(anthropic::event).collect::<Vec<_>>();
            let answer =
                if is_streamed { MockResponse::events(events) } else { MockResponse::json(anthropic_answer()) };
            let provider = MockProvider::start([answer, MockResponse::json(anthropic_answer())]).await;
            let model = common::model(&provider, CLAUDE);
            let response = if is_streamed {
                crate::conformance::joined(deltas(model.as_ref(), user_request("hi")).await).unwrap()
            } else {
                generate(model.as_ref(), user_request("hi")).await.unwrap()
            };
            let result =
                json!({ "functionResponse": { "id": "toolu_1", "name": "roll", "response": { "result": "4" } } });
            let result = content(json!({ "role": "user", "parts": [result] }));
            let mut second =
                request([content(json!({ "parts": [{ "text": "hi" }] })), response.content.unwrap(), result]);
            // The library writes calls of tools that a request lacks as text.
            second.tools = conversation().tools;
            generate(model.as_ref(), second).await.unwrap();
            let messages = &provider.requests()[1].body["messages"];
            assert_eq!(
                messages[1]["content"],
                json!([
                    { "type": "thinking", "thinking": "hm", "signature": "sig" },
                    { "type": "text", "text": "ü 漢 🦀" },
                    { "type": "tool_use", "id": "toolu_1", "name": "roll", "input": { "sides": 6 } },
                ]),
                "{is_streamed}"
            );
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_or_cannot_be_read_is_an_error() {
        let provider = MockProvider::start([
            MockResponse::events([common::chat_text("one")]),
            MockResponse::events([common::chat_text("one"), "data: {\"choices\":\n\n".into()]),
        ])
        .await;
        let model = common::model(&provider, "rig:groq:llama-3.3");
        let items = stream(model.as_ref(), user_request("hi")).await;
        let error = items[1].as_ref().unwrap_err();
        assert_eq!(error.message, "the answer of groq (by rig) ended before it was complete");
        let items = stream(model.as_ref(), user_request("hi")).await;
        assert_eq!(items[1].as_ref().unwrap_err().kind, ModelErrorKind::BadResponse);
    }

    #[tokio::test]
    async fn settings_have_the_names_of_each_provider() {
        use hatchery_models::libraries::rig::completion_request;
        use rig_core::providers::registry::Format;
        let mut request = user_request("hi");
        let config = json!({ "topK": 40, "topP": 0.5, "presencePenalty": 1.0 });
        request.config = serde_json::from_value(config).unwrap();
        let converted = |format| completion_request(Some(format), &request, &Default::default()).unwrap();
        let body = |format| converted(format).additional_params;
        assert_eq!(body(Format::OpenAi), Some(json!({ "presence_penalty": 1.0 })));
        assert_eq!(body(Format::Anthropic), Some(json!({ "top_k": 40 })));
        let gemini = json!({ "generationConfig": { "topK": 40, "presencePenalty": 1.0 } });
        assert_eq!(body(Format::Gemini), Some(gemini));
        let anthropic = converted(Format::Anthropic);
        assert_eq!((anthropic.max_tokens, anthropic.options.top_p), (Some(8192), Some(0.5)));
    }

    #[test]
    fn what_the_library_has_no_form_for_is_an_error() {
        use hatchery_models::libraries::ConversionError;
        use hatchery_models::libraries::rig::completion_request;
        let convert = |request| completion_request(None, &request, &Default::default());
        let part = |part: Value| convert(request([content(json!({ "parts": [part] }))])).unwrap_err();
        let zip = part(json!({ "inlineData": { "mimeType": "application/zip", "data": "AAEC" } }));
        assert_eq!(zip, ConversionError::UnsupportedContentType("application/zip".into()));
        let file = part(json!({ "fileData": { "fileUri": "gs://b/f" } }));
        assert_eq!(file.to_string(), "the file gs://b/f has no media type; set its `mimeType`");
        let mut search = user_request("hi");
        search.model_tools = vec![json!({ "googleSearch": {} })];
        assert!(matches!(convert(search), Err(ConversionError::InvalidStructure(_))));
        assert!(matches!(convert(request([])), Err(ConversionError::InvalidStructure(_))));
    }

    #[tokio::test]
    async fn arguments_that_are_no_json_are_a_bad_response() {
        let mut answer = openai::answer();
        answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = json!("{\"sides\":");
        let provider = MockProvider::start([MockResponse::json(answer)]).await;
        let model = common::model(&provider, "rig:groq:llama-3.3");
        let error = generate(model.as_ref(), user_request("hi")).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadResponse, "{error}");
    }
}
