//! A replay that differs from the recorded run fails, and says where.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Callback, LlmRequest, LlmResponse, ModelError, Plugin, RunError};
use hatchery_models::scripted::Scripted;
use hatchery_recordings::{FILE_NAME, RecordedCall, Replayer, ToolOutcome};
use serde_json::json;

use crate::support::*;

async fn expect_mismatch(app: &Harness, text: &str) -> String {
    let (_, error) = app.expect_error(text).await;
    assert_eq!(error.code(), "REPLAY_MISMATCH", "{error}");
    error.to_string()
}

#[tokio::test]
async fn another_instruction_ends_the_run_with_a_diff() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    let other = llm_with("root", no_replies(), |llm| {
        llm.tools = vec![never_called("count")];
        llm.instruction = hatchery_core::Instruction::Template("Be long.".into());
    });
    let message = expect_mismatch(&replaying(&folder, other).await, "count").await;
    assert!(
        message.starts_with("agent `root`: message 0, call 0: the model request differs from the recorded one\n"),
        "{message}"
    );
    assert!(message.contains("--- recorded\n+++ now\n@@ -"), "{message}");
    assert!(message.contains("\n-    \"system_instruction\": \"Be brief.\\n\n"), "{message}");
    assert!(message.contains("\n+    \"system_instruction\": \"Be long.\\n\n"), "{message}");
    assert!(!message.contains("\"contents\""), "only the differences: {message}");
}

#[tokio::test]
async fn a_mismatch_ends_the_run_even_if_a_callback_recovers_from_errors() {
    struct RecoverFromErrors;
    #[async_trait]
    impl Callback for RecoverFromErrors {
        fn name(&self) -> &str {
            "recover"
        }
        async fn on_model_error(
            &self,
            _: &CallContext,
            _: &LlmRequest,
            _: &ModelError,
        ) -> Result<Option<LlmResponse>, RunError> {
            Ok(Some(LlmResponse::text("recovered")))
        }
    }
    impl Plugin for RecoverFromErrors {}
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, llm("root", Scripted::sequence(["hello"]))).await.run("hi").await;
    let replay = || Arc::new(Replayer::from_folder(folder.path())) as Arc<dyn Plugin>;
    for plugins in
        [vec![Arc::new(RecoverFromErrors) as Arc<dyn Plugin>, replay()], vec![replay(), Arc::new(RecoverFromErrors)]]
    {
        let app = with_plugins(Harness::new(llm("root", no_replies())).await, plugins);
        assert!(expect_mismatch(&app, "something else").await.contains("+          \"text\": \"something else\""));
    }
}

#[tokio::test]
async fn a_tool_call_with_other_arguments_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    edit(&folder, |file| {
        let RecordedCall::Tool(tool) = &mut file.recordings[1].call else { panic!("{file:?}") };
        tool.call.args = map(json!({"by": 3}));
    });
    let message =
        expect_mismatch(&replaying(&folder, counter(no_replies(), never_called("count"))).await, "count").await;
    assert!(
        message.contains("message 0, call 1: the call of tool `count` differs from the recorded one\n"),
        "{message}"
    );
    assert!(message.contains("-    \"by\": 3\n+    \"by\": 2\n"), "{message}");
}

#[tokio::test]
async fn unrecorded_calls_are_named() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    let complete = read_recording(folder.path());
    for (removed, message) in [
        (2, "message 0, call 2: the model was called, but the recording has no more calls of this agent"),
        (1, "message 0, call 1: tool `count` was called, but the recording has a call of the model here"),
        (0, "message 0, call 0: the model was called, but the recording has a call of tool `count` here"),
    ] {
        let mut file = complete.clone();
        file.recordings.remove(removed);
        std::fs::write(folder.path().join(FILE_NAME), file.to_yaml().unwrap()).unwrap();
        let app = replaying(&folder, counter(no_replies(), never_called("count"))).await;
        assert_eq!(expect_mismatch(&app, "count").await, format!("agent `root`: {message}"));
    }
}

#[tokio::test]
async fn a_missing_call_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    edit(&folder, |file| file.recordings.extend(file.recordings[1..].to_vec()));
    let app = replaying(&folder, counter(no_replies(), never_called("count"))).await;
    assert_eq!(
        expect_mismatch(&app, "count").await,
        "agent `root`: message 0, call 3: the run ended without a call of tool `count` and 1 more recorded call"
    );
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_call_does_not_wait_forever() {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, counter(script(), count_tool())).await.run("count").await;
    edit(&folder, |file| {
        let RecordedCall::Tool(tool) = &mut file.recordings[1].call else { panic!("{file:?}") };
        tool.outcome = ToolOutcome::Interrupted;
    });
    let app = replaying(&folder, counter(no_replies(), never_called("count"))).await;
    let message = expect_mismatch(&app, "count").await;
    assert!(message.contains("call 1: the recorded call was interrupted, but this run did not end"), "{message}");
}
