//! Running code: failures and retries, output files, long outputs, and cancellation.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, Blob, CallContext, Capabilities, Capability, CodeExecution, CodeExecutor, CodeFile, CodeInput,
    CodeOutput, CodeRunner, Content, PartData, RunError, SessionKey, ToolError,
};
use hatchery_engine::AgentTool;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;
use tokio::sync::Semaphore;

use super::*;

const FAIL: &str = "```python\nfail\n```";

#[tokio::test]
async fn code_that_fails_is_retried_and_ends_the_run_if_it_keeps_failing() {
    let model = sequence([FAIL, FAIL, FAIL, "never"]);
    let app = Harness::new(coder(&model, &Executor::simple())).await;
    let events = app.run("hi").await;
    let lines: Vec<_> = events.iter().map(|event| format_event(event)).collect();
    let failed = "[OUTCOME_FAILED: it failed]";
    assert_eq!(lines, ["<fail>", failed, "<fail>", failed, "<fail>", failed]);
    assert_eq!(prompt(&model, 1).last().unwrap(), "user: ```tool_output\nit failed\n```");
    assert_eq!(events[3].error_code, None);
    assert_eq!(events[5].error_code.as_deref(), Some("CODE_FAILED"));
    assert_eq!(
        events[5].error_message.as_deref(),
        Some(
            "the code of agent `root` has failed 3 times in a row; raise `error_retries` to let its model try more often"
        )
    );
}

#[tokio::test]
async fn without_retries_the_first_failure_ends_the_run() {
    let agent = coder_with(&sequence([FAIL, "never"]), &Executor::simple(), |runner| runner.error_retries = 0);
    let events = Harness::new(agent).await.run("hi").await;
    let message = events.last().unwrap().error_message.as_deref().unwrap_or_default();
    assert!(message.starts_with("the code of agent `root` has failed once; raise `error_retries`"), "{message}");
}

#[tokio::test]
async fn consecutive_failures_of_one_run_are_counted() {
    let ok = "```python\nok\n```";
    let model = sequence([FAIL, ok, FAIL, "one", FAIL, "two"]);
    let agent = coder_with(&model, &Executor::simple(), |runner| runner.error_retries = 1);
    let app = Harness::new(agent).await;
    assert_eq!(run_lines(&app, "hi").await.last().unwrap(), "one");
    let first = app.session().await.events.last().unwrap().invocation_id.clone();
    assert_eq!(app.state().await["_code_executor_error_counts"], json!({ first: 1 }));
    assert_eq!(run_lines(&app, "again").await.last().unwrap(), "two");
    let second = app.session().await.events.last().unwrap().invocation_id.clone();
    assert_eq!(app.state().await["_code_executor_error_counts"], json!({ second: 1 }), "earlier runs are forgotten");
}

#[tokio::test]
async fn the_next_agent_of_a_run_has_its_own_retries() {
    let one = |runner: &mut CodeRunner| runner.error_retries = 1;
    let first = coder_with(&sequence([FAIL, FAIL]), &Executor::simple(), one);
    let second = coder_with(&sequence([FAIL, "mended"]), &Executor::simple(), one);
    let second = Agent { name: "second".into(), ..second };
    let app = Harness::new(workflow("both", AgentKind::Sequential, vec![first, second])).await;
    assert_eq!(run_lines(&app, "hi").await.last().unwrap(), "mended");
}

#[tokio::test]
async fn an_error_of_the_executor_counts_as_failed_code_or_ends_the_run() {
    let executor = Executor::new(|input, _| match input.code.as_str() {
        "a" => Err(ToolError::Recoverable("no network".into())),
        _ => Err(ToolError::Fatal { tool: "executor".into(), code: "GONE".into(), message: "out of order".into() }),
    });
    let app = Harness::new(coder(&sequence([CODE, "```python\nb\n```"]), &executor)).await;
    let (events, error) = app.expect_error("hi").await;
    assert_eq!(error.code(), "GONE");
    assert_eq!(events.last().unwrap(), "root: error GONE: tool `executor`: out of order");
    let stored = app.session().await.events;
    assert_eq!(format_event(&stored[2]), "[OUTCOME_FAILED: no network]");
}

#[tokio::test]
async fn an_agent_tool_fails_if_its_code_keeps_failing() {
    let inner = coder_with(&sequence([FAIL]), &Executor::simple(), |runner| runner.error_retries = 0);
    let inner = Agent { name: "inner".into(), ..inner };
    let model = Arc::new(Scripted::sequence([Reply::call("inner", json!({"request": "go"})), Reply::text("sorry")]));
    let outer = llm_on("root", &model, |llm| llm.tools = vec![Arc::new(AgentTool::new(inner).unwrap())]);
    let events = Harness::new(outer).await.transcript("hi").await;
    let failure = "agent `inner` failed: the code of agent `inner` has failed once";
    assert!(events[1].contains(failure), "{events:?}");
}

fn file(name: &str, content: &'static str) -> CodeFile {
    CodeFile { name: name.into(), content: content.into(), mime_type: String::new() }
}

/// Denies every capability.
struct NoCapabilities;

impl Capabilities for NoCapabilities {
    fn check(&self, cx: &CallContext, capability: Capability<'_>) -> Result<(), RunError> {
        let (agent, message) = (cx.agent.to_string(), format!("may not {capability:?}"));
        Err(RunError::Agent { agent, code: "DENIED".into(), message })
    }
}

#[tokio::test]
async fn output_files_are_not_saved_without_the_capability_to_write_artifacts() {
    let executor =
        Executor::new(|_, _| Ok(CodeOutput { output_files: vec![file("user:a.txt", "hi")], ..printed("ok\n") }));
    let mut agent = coder(&sequence([CODE, "done"]), &executor);
    let AgentKind::Llm(llm) = &mut agent.kind else { panic!("{}", agent.kind.label()) };
    llm.capabilities = Some(Arc::new(NoCapabilities));
    let app = Harness::new(agent).await;
    let events = app.run("hi").await;
    assert_eq!(format_event(&events[1]), "[OUTCOME_OK: ok\nFiles not saved: agent `root`: may not WriteArtifacts]");
    assert!(app.runner.services().artifacts.list(&app.session().await.key).await.unwrap().is_empty());
}

#[tokio::test]
async fn output_files_become_artifacts() {
    let executor = Executor::new(|_, cx| {
        cx.set_state("runs", json!(1));
        let picture = CodeFile { mime_type: "image/png".into(), ..file("pic.png", "png") };
        Ok(CodeOutput { output_files: vec![picture, file("../x", ""), file("a.txt", "hi")], ..printed("ok\n") })
    });
    let app = Harness::new(coder(&sequence([CODE, "done"]), &executor)).await;
    let events = app.run("hi").await;
    assert_eq!(
        format_event(&events[1]),
        "[OUTCOME_OK: ok\nSaved artifact: `pic.png`\nFile not saved: invalid name `../x`: the name of an artifact cannot have `..` \
         between its slashes\nSaved artifact: `a.txt`]"
    );
    assert_eq!(serde_json::to_value(&events[1].actions.artifact_delta).unwrap(), json!({"a.txt": 0, "pic.png": 0}));
    assert_eq!(events[1].actions.state_delta["runs"], json!(1));
    let artifacts = &app.runner.services().artifacts;
    let key = app.session().await.key;
    let text = artifacts.load(&key, "a.txt", None).await.unwrap().unwrap();
    let blob = Blob { mime_type: "text/plain".into(), data: "hi".into(), display_name: None };
    assert_eq!(text.data, PartData::InlineData(blob));
}

#[tokio::test]
async fn only_the_first_hundred_files_of_code_become_artifacts() {
    let executor = Executor::new(|_, _| {
        let output_files = (0..103).map(|number| file(&format!("{number}.txt"), "hi")).collect();
        Ok(CodeOutput { output_files, ..printed("ok\n") })
    });
    let app = Harness::new(coder(&sequence([CODE, "done"]), &executor)).await;
    let events = app.run("hi").await;
    let result = format_event(&events[1]);
    let end = "Saved artifact: `99.txt`\nFiles not saved: 3 more than the 100 that code may write at a time; put them into an archive]";
    assert!(result.ends_with(end), "{result}");
    assert_eq!(app.runner.services().artifacts.list(&app.session().await.key).await.unwrap().len(), 100);
}

#[tokio::test]
async fn a_long_output_is_truncated_with_a_note() {
    let executor = Executor::new(|_, _| Ok(printed(&"é".repeat(40_000))));
    let app = Harness::new(coder(&sequence([CODE, "done"]), &executor)).await;
    let result = run_lines(&app, "hi").await.remove(1);
    let head = "é".repeat(32 * 1024);
    assert_eq!(result, format!("[OUTCOME_OK: {head}\n(cut: these are the first 65536 bytes of 80000)]"));
}

/// Signals that it runs, and never returns.
struct EndlessExecutor(Arc<Semaphore>);

#[async_trait]
impl CodeExecutor for EndlessExecutor {
    fn name(&self) -> &str {
        "endless"
    }

    async fn execute(&self, _: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
        self.0.add_permits(1);
        std::future::pending().await
    }
}

#[tokio::test]
async fn cancellation_stops_code() {
    let entered = Arc::new(Semaphore::new(0));
    let runner = CodeRunner::new(Arc::new(EndlessExecutor(entered.clone())));
    let agent =
        llm_on("root", &sequence([CODE]), |llm| llm.code_execution = Some(CodeExecution::Host(Box::new(runner))));
    let app = Harness::new(agent).await;
    let request = app.request(Content::user("hi"));
    let cancel = request.cancel.clone();
    let run = app.runner.run(app.app.clone(), request).await.unwrap();
    entered.acquire().await.unwrap().forget();
    cancel.cancel();
    assert!(matches!(run.collect().await, Err(RunError::Cancelled)));
    app.runner.drain().await;
    let key = SessionKey::new("app", USER, SESSION);
    let session = app.runner.services().sessions.get(&key, Default::default()).await.unwrap().unwrap();
    let lines: Vec<_> = session.events.iter().map(|event| format_event(event)).collect();
    assert_eq!(lines, ["hi", "Let me see.\n|<a>", ""], "the code is stored, and no result");
}
