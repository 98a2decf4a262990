//! The content of recordings.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Callback, Content, HookPoint, LlmRequest, LlmResponse, RunError};
use hatchery_engine::RunRequest;
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_recordings::{FILE_NAME, RecordedCall, Recorder};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn the_file_has_the_initial_state_and_the_user_messages() {
    let folder = tempfile::tempdir().unwrap();
    let app = Harness::with_state(counter(script(), count_tool()), json!({"count": 1, "user:name": "Ada"})).await;
    let app = with_plugins(app, vec![Arc::new(Recorder::single_session(folder.path()))]);
    let state_delta = map(json!({"count": 40, "temp:x": 1}));
    let request = RunRequest { state_delta, ..app.request(Content::user("count")) };
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    let file = read_recording(folder.path());
    assert_eq!(file.app.as_deref(), Some("app"));
    assert_eq!(file.initial_state, map(json!({"user:name": "Ada"})));
    assert_eq!(file.user_messages[0].content.text(), "count");
    assert_eq!(file.user_messages[0].state_delta, map(json!({"count": 40, "temp:x": 1})));
}

#[tokio::test]
async fn recording_the_first_message_again_replaces_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        recording(&folder, counter(script(), count_tool())).await.run("count").await;
    }
    assert_eq!(
        (read_recording(folder.path()).recordings.len(), read_recording(folder.path()).user_messages.len()),
        (3, 1)
    );
}

#[tokio::test]
async fn a_file_that_another_recorder_has_begun_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    // A process of this id in another container writes it.
    let begun = folder.path().join(format!(".{FILE_NAME}.{}-0.tmp", std::process::id()));
    std::fs::write(&begun, "half").unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    assert_eq!(read_recording(folder.path()).recordings.len(), 3);
    assert_eq!(std::fs::read_to_string(&begun).unwrap(), "half");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn requests_are_recorded_after_callbacks_and_responses_before() {
    let root = |model| {
        llm_with("root", model, |llm| {
            llm.callbacks.push(HookPoint::BeforeModel, Arc::new(AddInstruction));
            llm.callbacks.push(HookPoint::AfterModel, Arc::new(ReplaceResponse));
        })
    };
    let folder = tempfile::tempdir().unwrap();
    let transcript = recording(&folder, root(Scripted::sequence(["raw"]))).await.transcript("hi").await;
    let file = read_recording(folder.path());
    let RecordedCall::Model(call) = &file.recordings[0].call else { panic!("{file:?}") };
    assert!(call.request.system_instructions[0].ends_with("\n\nRhyme."), "{call:?}");
    assert_eq!(call.responses[0].content.as_ref().unwrap().text(), "raw");
    assert_eq!(replaying(&folder, root(no_replies())).await.transcript("hi").await, transcript);
    assert_eq!(transcript, ["root: changed"]);
}

/// Adds a system instruction.
struct AddInstruction;

#[async_trait]
impl Callback for AddInstruction {
    fn name(&self) -> &str {
        "add_instruction"
    }

    async fn before_model(&self, _: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        request.system_instructions.push("Rhyme.".into());
        Ok(None)
    }
}

/// Replaces the response of the model.
struct ReplaceResponse;

#[async_trait]
impl Callback for ReplaceResponse {
    fn name(&self) -> &str {
        "replace_response"
    }

    async fn after_model(&self, _: &CallContext, _: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        Ok(Some(LlmResponse::text("changed")))
    }
}

#[tokio::test]
async fn a_cancelled_run_does_not_wait_for_its_recording_to_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let stop = tool("t", |_, cx| {
        cx.invocation.cancel.cancel();
        Ok(json!(1))
    });
    let model = Scripted::sequence([Reply::text("hello"), Reply::call("t", json!({}))]);
    let app = recording(&folder, llm_with("root", model, |llm| llm.tools = vec![stop])).await;
    app.run("hi").await;
    let file = folder.path().join(FILE_NAME);
    let content = std::fs::read(&file).unwrap();
    // A pipe replaces the file: reading blocks until the test writes.
    std::fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    assert_eq!(app.expect_error("stop").await.1.code(), "CANCELLED");
    let pipe = file.clone();
    tokio::task::spawn_blocking(move || std::fs::write(pipe, content)).await.unwrap().unwrap();
    app.runner.close().await;
    assert!(std::fs::metadata(&file).unwrap().is_file(), "the recording has not been written");
    let codes = read_recording(folder.path()).user_messages.into_iter().map(|message| message.error_code);
    assert_eq!(codes.collect::<Vec<_>>(), [None, Some("CANCELLED".into())]);
}

#[tokio::test]
async fn headers_of_requests_are_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let root = llm_with("root", Scripted::sequence(["hello"]), |llm| {
        for key in ["httpOptions", "http_options"] {
            llm.generate_content_config.extra.insert(key.into(), json!({"headers": {"Authorization": "secret"}}));
        }
        llm.generate_content_config.extra.insert("labels".into(), json!({"team": "a"}));
    });
    recording(&folder, root).await.run("hi").await;
    let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
    assert!(text.contains("team: a") && !text.contains("secret"), "{text}");
}
