//! `scripted-live:`: scripts as live models.

use std::sync::Arc;

use futures::FutureExt;
use hatchery_core::{
    Blob, Content, FunctionResponse, LiveConnectConfig, LiveConnection, LiveRequest, LiveResponse, LlmRequest, Model,
    ModelErrorKind, PartData, StreamingMode,
};
use hatchery_models::ModelProvider;
use hatchery_models::scripted::ScriptedProvider;
use serde_json::json;
use tempfile::TempDir;

use crate::support::user_request;

const SCRIPT: &str = "
turns:
  - when: {user: count}
    reply:
      - call: {name: count, args: {by: 2}}
  - when: {tool: count}
    reply: 'counted {tool.result}'
  - when: {user: long}
    reply: [{text: ['one ', 'two']}]
    chunk_delay_ms: 600000
  - when: {user: break}
    reply: never
    error: {code: 503, message: out of order}
  - reply: [{text: ['You said: ', '{user}']}]
";

fn model() -> (TempDir, Arc<dyn Model>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("answers.yaml"), SCRIPT).unwrap();
    let model = ScriptedProvider::new(folder.path()).create("scripted-live:answers.yaml").unwrap();
    (folder, model)
}

/// Opens a connection with this output.
async fn connect(model: &Arc<dyn Model>, modality: &str) -> Box<dyn LiveConnection> {
    let config = LiveConnectConfig { response_modalities: vec![modality.into()], ..LiveConnectConfig::default() };
    model.connect(LlmRequest { live_connect_config: Some(config), ..LlmRequest::default() }).await.unwrap()
}

fn text(text: &str) -> LiveRequest {
    LiveRequest::content(Content::user(text))
}

fn sound(bytes: usize) -> LiveRequest {
    LiveRequest::Blob(Blob { mime_type: "audio/pcm".into(), data: vec![0; bytes].into(), display_name: None })
}

/// Returns the responses until the end of the turn, each as a short text.
async fn turn(connection: &dyn LiveConnection) -> Vec<String> {
    let mut responses = Vec::new();
    loop {
        match connection.receive().await.expect("an open connection").unwrap() {
            LiveResponse::TurnComplete => return responses,
            LiveResponse::Usage(_) => {}
            LiveResponse::Content(content) => match &content.parts[0].data {
                PartData::InlineData(blob) => responses.push(format!("{}: {} bytes", blob.mime_type, blob.data.len())),
                _ => responses.push(content.text()),
            },
            LiveResponse::OutputTranscription(words) => responses.push(format!("“{}”", words.text)),
            LiveResponse::InputTranscription(words) => responses.push(format!("heard “{}”", words.text)),
            LiveResponse::Interrupted => responses.push("interrupted".into()),
            LiveResponse::ToolCalls(calls) => {
                let id = calls[0].id.clone().expect("an id");
                assert_eq!((calls[0].name.as_str(), &calls[0].args["by"]), ("count", &json!(2)));
                let response = json!({"result": 5}).as_object().unwrap().clone();
                let response =
                    FunctionResponse { id: Some(id), name: "count".into(), response, ..FunctionResponse::default() };
                connection.send(LiveRequest::ToolResponses(vec![response])).await.unwrap();
            }
            LiveResponse::ToolCallsCancelled(ids) => panic!("{ids:?}"),
        }
    }
}

#[tokio::test]
async fn a_script_writes_and_calls_tools_in_one_conversation() {
    let (_folder, model) = model();
    let connection = connect(&model, "TEXT").await;
    for (message, expected) in [("hello", vec!["You said: ", "hello"]), ("count", vec!["counted 5"])] {
        connection.send(text(message)).await.unwrap();
        assert_eq!(turn(&*connection).await, expected);
    }
    connection.close().await;
    assert!(connection.receive().await.is_none());
    assert_eq!(connection.send(text("late")).await, Ok(()));
}

#[tokio::test]
async fn a_message_that_nobody_has_answered_is_answered_first() {
    let (_folder, model) = model();
    let config = LiveConnectConfig { response_modalities: vec!["TEXT".into()], ..LiveConnectConfig::default() };
    let request = LlmRequest { live_connect_config: Some(config), ..user_request("hello") };
    let connection = model.connect(request).await.unwrap();
    assert_eq!(turn(&*connection).await, ["You said: ", "hello"]);
}

#[tokio::test]
async fn a_script_speaks_in_tones_with_transcriptions_and_hears_how_long_speech_is() {
    let (_folder, model) = model();
    let connection = connect(&model, "AUDIO").await;
    for request in [LiveRequest::ActivityStart, sound(32_000), sound(16_000), LiveRequest::ActivityEnd] {
        connection.send(request).await.unwrap();
    }
    let tone = "audio/pcm;rate=24000: 4800 bytes";
    let expected = ["heard “1.5 s of sound”", "“You said: ”", tone, "“1.5 s of sound”", tone];
    assert_eq!(turn(&*connection).await, expected);
    // Nothing was heard since.
    connection.send(LiveRequest::AudioStreamEnd).await.unwrap();
    assert!(connection.receive().now_or_never().is_none());
}

#[tokio::test]
async fn a_user_who_begins_to_speak_interrupts_a_reply() {
    let (_folder, model) = model();
    let connection = connect(&model, "TEXT").await;
    connection.send(text("long")).await.unwrap();
    assert_eq!(connection.receive().await.unwrap().unwrap(), LiveResponse::Content(Content::model("one ")));
    connection.send(LiveRequest::ActivityStart).await.unwrap();
    connection.send(text("sorry")).await.unwrap();
    assert_eq!(turn(&*connection).await, ["interrupted", "You said: ", "sorry"]);
}

#[tokio::test]
async fn an_error_of_a_script_is_an_error_of_the_connection() {
    let (_folder, model) = model();
    let connection = connect(&model, "TEXT").await;
    connection.send(text("break")).await.unwrap();
    let error = connection.receive().await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::Server, "out of order"));
}

#[tokio::test]
async fn a_live_script_answers_single_requests_too_and_another_is_not_live() {
    let (folder, model) = model();
    assert!(model.capabilities().live);
    let answer = model.generate(user_request("hi"), StreamingMode::Off).await.unwrap();
    let answer: Vec<_> = futures::StreamExt::collect(answer).await;
    assert_eq!(answer[0].as_ref().unwrap().content.as_ref().unwrap().text(), "You said: hi");
    let silent = ScriptedProvider::new(folder.path()).create("scripted:answers.yaml").unwrap();
    assert!(!silent.capabilities().live);
}

#[tokio::test]
async fn a_message_that_waits_is_answered_after_the_tools_have_responded() {
    let (_folder, model) = model();
    let connection = connect(&model, "TEXT").await;
    for message in ["count", "hello"] {
        connection.send(text(message)).await.unwrap();
    }
    assert_eq!(turn(&*connection).await, ["counted 5"]);
    assert_eq!(turn(&*connection).await, ["You said: ", "hello"]);
}

#[tokio::test]
async fn a_message_that_waits_is_answered_when_the_reply_before_it_is_interrupted() {
    let (_folder, model) = model();
    let connection = connect(&model, "TEXT").await;
    for request in [text("long"), text("hello"), LiveRequest::ActivityStart] {
        connection.send(request).await.unwrap();
    }
    assert_eq!(turn(&*connection).await, ["interrupted", "You said: ", "hello"]);
}
