//! Live connections to the Realtime API of OpenAI.

use hatchery_core::{StreamingMode, UsageMetadata};

use super::*;

/// The beginning of a connection to OpenAI, with the session's settings.
fn begin_realtime(session: Value) -> Vec<Step> {
    vec![
        Step::Send(json!({"type": "session.created", "session": {}})),
        Step::Expect(json!({"type": "session.update", "session": session})),
        Step::Send(json!({"type": "session.updated", "session": {}})),
    ]
}

fn realtime_session() -> Value {
    let format = json!({"type": "audio/pcm", "rate": 24000});
    json!({
        "type": "realtime",
        "model": "gpt-realtime",
        "output_modalities": ["audio"],
        "audio": {
            "input": {"format": format, "transcription": {"model": "gpt-4o-mini-transcribe"}},
            "output": {"format": format},
        },
    })
}

async fn start_realtime(scripts: Vec<Vec<Step>>) -> Server {
    let handshake = ["/v1/realtime?model=gpt-realtime", "authorization", "Bearer s3cret"];
    Server::start_for(Service::OpenAi, "gpt-realtime", "/v1", handshake, scripts).await
}

fn item(item: Value) -> Step {
    Step::Expect(json!({"type": "conversation.item.create", "item": item}))
}

fn respond() -> Step {
    Step::Expect(json!({"type": "response.create"}))
}

#[tokio::test]
async fn a_realtime_session_has_the_settings_of_the_request_and_its_history() {
    let mut session = realtime_session();
    session["output_modalities"] = json!(["text"]);
    session["audio"]["output"]["voice"] = json!("marin");
    session["audio"]["input"]["transcription"] = json!({"model": "whisper-1"});
    session["instructions"] = json!("Be brief.");
    session["tools"] = json!([{"type": "function", "name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}]);
    session["max_output_tokens"] = json!(9);
    session["tracing"] = json!("auto");
    let text = |role: &str, kind: &str, text: &str| {
        item(json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]}))
    };
    let history = vec![
        text("user", "input_text", "hi"),
        text("assistant", "output_text", "hello"),
        text("user", "input_text", "go on"),
        respond(),
    ];
    let server = start_realtime(vec![script(begin_realtime(session), history)]).await;
    let live = LiveConnectConfig {
        response_modalities: vec!["TEXT".into()],
        speech_config: Some(json!({"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "marin"}}})),
        input_audio_transcription: Some(json!({"model": "whisper-1"})),
        ..LiveConnectConfig::default()
    };
    let config = json!({"maxOutputTokens": 9, "httpOptions": {"extraBody": {"tracing": "auto", "model": "x"}}});
    let mut request = LlmRequest {
        system_instructions: vec!["Be brief.".into()],
        tools: vec![Arc::new(FunctionDeclaration { name: "f".into(), ..FunctionDeclaration::default() })],
        config: serde_json::from_value(config).unwrap(),
        live_connect_config: Some(live),
        ..user_request("hi")
    };
    request.contents.extend([Arc::new(Content::model("hello")), Arc::new(Content::user("go on"))]);
    let _connection = server.connect(request).await.unwrap();
    server.check().await;
}

#[tokio::test]
async fn a_realtime_model_hears_speaks_calls_tools_and_is_interrupted() {
    let event = |kind: &str, members: Value| {
        let mut event = json!({"type": kind});
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        Step::Send(event)
    };
    let speech = || event("response.output_audio.delta", json!({"delta": "AQI="}));
    let transcript = |text: &str| event("response.output_audio_transcript.delta", json!({"delta": text}));
    let transcribed =
        |kind: &str, members: Value| event(&format!("conversation.item.input_audio_transcription.{kind}"), members);
    let call = json!({"type": "function_call", "call_id": "c1", "name": "roll_die", "arguments": "{\"sides\":6}"});
    let usage = json!({
        "input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_token_details": {"cached_tokens": 2, "text_tokens": 3},
    });
    let done = |status: &str, output: Value| {
        let response = json!({"status": status, "output": output, "usage": usage.clone(), "status_details": null});
        event("response.done", json!({"response": response, "item_id": null}))
    };
    let rest = vec![
        // 16 kHz become 24 kHz.
        Step::Expect(json!({"type": "input_audio_buffer.append", "audio": "AADIAJABWAIgA+gD"})),
        transcribed("delta", json!({"item_id": "i1", "delta": "Roll"})),
        transcribed("completed", json!({"item_id": "i1", "transcript": "Roll"})),
        transcribed("completed", json!({"item_id": "i2", "transcript": "a die"})),
        event("response.created", json!({})),
        speech(),
        transcript("One moment"),
        done("completed", json!([call])),
        item(json!({"type": "function_call_output", "call_id": "c1", "output": "{\"result\":4}"})),
        respond(),
        event("error", json!({"error": {"code": "conversation_already_has_active_response", "message": "no"}})),
        event("response.created", json!({})),
        transcript("A fo"),
        event("input_audio_buffer.speech_started", json!({})),
        done("cancelled", json!([])),
        Step::Expect(json!({"type": "session.update", "session": {
            "type": "realtime", "audio": {"input": {"turn_detection": null}}
        }})),
        Step::Expect(json!({"type": "input_audio_buffer.commit"})),
        respond(),
        event("response.output_text.delta", json!({"delta": "Four"})),
        done("completed", json!([{"type": "message"}])),
        event("error", json!({"error": {"type": "invalid_request_error", "message": "s3cret is wrong"}})),
    ];
    let server = start_realtime(vec![script(begin_realtime(realtime_session()), rest)]).await;
    let connection = server.connect(empty_request()).await.unwrap();
    let samples: Vec<u8> = [300_i16, 600, 900, 1200].iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let blob = Blob { mime_type: "audio/pcm;rate=16000".into(), data: samples.into(), display_name: None };
    connection.send(LiveRequest::Blob(blob)).await.unwrap();
    let transcription =
        |text: &str, finished| LiveResponse::InputTranscription(Transcription { text: text.into(), finished });
    let is_usage = |usage: &UsageMetadata| usage.total() == 7 && usage.cached_content_token_count == Some(2);
    let usage = |response: &LiveResponse| matches!(response, LiveResponse::Usage(usage) if is_usage(usage));
    let first = received(&*connection, 7).await;
    let expected = [
        transcription("Roll", false),
        transcription("", true),
        transcription("a die", true),
        LiveResponse::Content(audio(&[1, 2])),
        output("One moment"),
    ];
    assert_eq!(first[..5], expected);
    let args = JsonMap::from_iter([("sides".to_owned(), json!(6))]);
    let call = FunctionCall { id: Some("c1".into()), name: "roll_die".into(), args, ..FunctionCall::default() };
    assert!(usage(&first[5]) && first[6] == LiveResponse::ToolCalls(vec![call]), "{first:?}");
    let result = FunctionResponse {
        id: Some("c1".into()),
        name: "roll_die".into(),
        response: JsonMap::from_iter([("result".to_owned(), json!(4))]),
        ..FunctionResponse::default()
    };
    connection.send(LiveRequest::ToolResponses(vec![result])).await.unwrap();
    let second = received(&*connection, 3).await;
    assert_eq!(second[..2], [output("A fo"), LiveResponse::Interrupted]);
    assert!(usage(&second[2]), "{second:?}");
    connection.send(LiveRequest::ActivityStart).await.unwrap();
    connection.send(LiveRequest::ActivityEnd).await.unwrap();
    let third = received(&*connection, 3).await;
    assert_eq!(third[0], LiveResponse::Content(Content::model("Four")));
    assert!(usage(&third[1]) && third[2] == LiveResponse::TurnComplete, "{third:?}");
    let error = receive(&*connection).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert!(error.message.starts_with("OpenAI reports:") && !error.message.contains("s3cret"), "{error}");
    server.check().await;
}

#[tokio::test]
async fn a_message_during_a_response_is_answered_after_it() {
    let done = || Step::Send(json!({"type": "response.done", "response": {"status": "completed"}}));
    let delta = |text: &str| Step::Send(json!({"type": "response.output_text.delta", "delta": text}));
    let created = || Step::Send(json!({"type": "response.created"}));
    let message = |text: &str| {
        item(json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}))
    };
    let rest = vec![
        message("hi"),
        respond(),
        created(),
        delta("hello"),
        message("and now?"),
        respond(),
        Step::Send(json!({"type": "error", "error": {"code": "conversation_already_has_active_response"}})),
        done(),
        respond(),
        created(),
        delta("now, too"),
        done(),
    ];
    let server = start_realtime(vec![script(begin_realtime(realtime_session()), rest)]).await;
    let connection = server.connect(empty_request()).await.unwrap();
    let text = |text: &str| LiveResponse::Content(Content::model(text));
    connection.send(text_request("hi")).await.unwrap();
    assert_eq!(received(&*connection, 1).await, [text("hello")]);
    connection.send(text_request("and now?")).await.unwrap();
    let rest = received(&*connection, 3).await;
    assert_eq!(rest, [LiveResponse::TurnComplete, text("now, too"), LiveResponse::TurnComplete]);
    server.check().await;
}

#[tokio::test]
async fn a_call_that_the_limit_of_tokens_cuts_off_is_not_made_and_the_conversation_goes_on() {
    let done = |status: &str| {
        let call = json!({"type": "function_call", "call_id": "c1", "name": "roll_die", "arguments": "{\"sides\":"});
        Step::Send(json!({"type": "response.done", "response": {"status": status, "output": [call]}}))
    };
    let server =
        start_realtime(vec![script(begin_realtime(realtime_session()), vec![done("incomplete"), done("completed")])])
            .await;
    let connection = server.connect(empty_request()).await.unwrap();
    assert_eq!(received(&*connection, 1).await, [LiveResponse::TurnComplete]);
    let error = receive(&*connection).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadResponse);
    server.check().await;
}

#[tokio::test]
async fn a_realtime_model_is_not_called_and_its_refusals_are_reported() {
    let error = json!({"type": "error", "error": {"code": "invalid_api_key", "message": "no such key"}});
    let server = start_realtime(vec![vec![
        Step::Send(error),
        Step::Expect(json!({"type": "session.update", "session": realtime_session()})),
    ]])
    .await;
    let refused = server.connect(empty_request()).await.err().unwrap();
    assert_eq!((refused.kind, &*refused.message), (ModelErrorKind::Auth, "OpenAI reports: no such key"));
    let model = ModelProviders::with_defaults(server.settings.clone()).model("gpt-realtime").unwrap();
    let error = model.generate(user_request("hi"), StreamingMode::Off).await.err().unwrap();
    assert!(error.message.starts_with("the model answers in live runs only"), "{error}");
    server.check().await;
}
