//! Plugins that come with the host.

use std::sync::Arc;

use hatchery_core::{Content, HookPoint, Instruction, ToolError};
use hatchery_engine::RunRequest;
use hatchery_engine::plugins::{ContextFilter, GlobalInstruction, Logging, ReflectAndRetry};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::agent_errors::fails;
use crate::logs::{capture_log, text_of};
use crate::plugins::{answering, calling, with_plugin};
use crate::support::*;

#[tokio::test]
async fn the_global_instruction_is_first_and_is_rendered() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let instruction = Instruction::Template("Speak to {user:name}.".into());
    let app = with_plugin(llm_on("root", &model, |_| {}), GlobalInstruction::new(instruction)).await;
    let request = RunRequest { state_delta: map(json!({"user:name": "Ada"})), ..app.request(Content::user("hi")) };
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    assert_eq!(model.requests()[0].system_instructions[..2], ["Speak to Ada.", "Be brief."]);
}

#[tokio::test]
async fn the_context_filter_sends_the_newest_turns_only() {
    let model = Arc::new(Scripted::sequence(["one", "two", "three"]));
    let two = std::num::NonZeroUsize::new(2).unwrap();
    let app = with_plugin(llm_on("root", &model, |_| {}), ContextFilter::new(two)).await;
    for text in ["a", "b", "c"] {
        app.run(text).await;
    }
    let texts: Vec<_> = model.requests()[2].contents.iter().map(|content| content.text()).collect();
    assert_eq!(texts, ["b", "two", "c"]);
}

#[tokio::test]
async fn a_failed_tool_is_retried_as_often_as_allowed() {
    let calls = (0..3).map(|_| Reply::call("t", json!({"x": 1})));
    let model = Scripted::sequence(calls.chain([Reply::text("I give up")]));
    let broken = tool("t", |_, _| Err(ToolError::Recoverable("no".into())));
    let root = llm_with("root", model, |llm| llm.tools = vec![broken]);
    let events = with_plugin(root, ReflectAndRetry::new(2)).await.run("hi").await;
    let answers: Vec<_> = events.iter().flat_map(|event| event.function_responses()).map(|it| &it.response).collect();
    assert_eq!((&answers[0]["retry_count"], &answers[1]["retry_count"]), (&json!(1), &json!(2)));
    assert_eq!((&answers[0]["error_details"], &answers[0]["args"]), (&json!("no"), &json!({"x": 1})));
    assert_eq!(*answers[2], map(json!({"error": "no"})));
}

#[tokio::test]
async fn a_failure_without_a_further_retry_does_not_reset_the_count() {
    let calls = (0..4).map(|_| Reply::call("t", json!({})));
    let model = Scripted::sequence(calls.chain([Reply::text("I give up")]));
    let broken = tool("t", |_, _| Err(ToolError::Recoverable("no".into())));
    let root = llm_with("root", model, |llm| llm.tools = vec![broken]);
    let events = with_plugin(root, ReflectAndRetry::new(1)).await.run("hi").await;
    let answers: Vec<_> = events.iter().flat_map(|event| event.function_responses()).map(|it| &it.response).collect();
    assert_eq!(answers[0]["retry_count"], json!(1));
    for answer in &answers[1..] {
        assert_eq!(**answer, map(json!({"error": "no"})));
    }
}

#[tokio::test]
async fn a_success_resets_the_count_of_failures() {
    let calls = (0..3).map(|_| Reply::call("t", json!({})));
    let model = Scripted::sequence(calls.chain([Reply::text("ok")]));
    let count = std::sync::atomic::AtomicU32::new(0);
    let moody = tool("t", move |_, _| match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        1 => Ok(json!("fine")),
        _ => Err(ToolError::Recoverable("no".into())),
    });
    let root = llm_with("root", model, |llm| llm.tools = vec![moody]);
    let events = with_plugin(root, ReflectAndRetry::new(1)).await.run("hi").await;
    let answers: Vec<_> = events.iter().flat_map(|event| event.function_responses()).map(|it| &it.response).collect();
    assert_eq!((&answers[0]["retry_count"], &answers[2]["retry_count"]), (&json!(1), &json!(1)));
    assert_eq!(*answers[1], map(json!({"result": "fine"})));
}

#[tokio::test]
async fn the_logging_plugin_changes_nothing() {
    let app = with_plugin(calling(|| Ok(json!(1))), Logging).await;
    assert_eq!(app.transcript("hi").await, ["root: call t{}", "root: answer t{\"result\":1}", "root: done"]);
}

#[tokio::test]
async fn the_logging_plugin_logs_each_hook_of_a_run() {
    let (log, _guard) = capture_log();
    with_plugin(calling(|| Ok(json!(1))), Logging).await.run("hi").await;
    with_plugin(calling(|| Err(ToolError::Recoverable("no".into()))), Logging).await.run("hi").await;
    with_plugin(fails("root"), Logging).await.expect_error("hi").await;
    let text = text_of(&log);
    let of_agents = HookPoint::ALL.iter().map(|point| point.name());
    for hook in of_agents.chain(["on_user_message", "before_run", "on_event", "after_run", "on_run_error"]) {
        assert!(text.contains(&format!("hook=\"{hook}\"")), "{hook}: {text}");
    }
}

#[tokio::test]
async fn what_the_logging_plugin_logs_is_one_line_each() {
    let (log, _guard) = capture_log();
    with_plugin(answering(), Logging).await.run("hi\nINFO all is well").await;
    let text = text_of(&log);
    assert!(text.contains(r"hi\nINFO all is well"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("INFO")), "{text}");
}

#[tokio::test]
async fn a_line_of_the_logging_plugin_is_cut() {
    let (log, _guard) = capture_log();
    with_plugin(calling(|| Err(ToolError::Recoverable("x".repeat(1 << 20)))), Logging).await.run("hi").await;
    let text = text_of(&log);
    let line = text.lines().find(|line| line.contains("on_tool_error")).unwrap();
    assert!(line.len() < 5000 && line.contains("xxx"), "{}", line.len());
}
