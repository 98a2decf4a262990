//! Running code: failures and retries, files that it writes, long outputs, cancellation.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, Blob, CallContext, CodeExecution, CodeExecutor, CodeFile, CodeInput, CodeOutput, CodeRunner,
    Content, PartData, RunError, SessionKey, ToolError,
};
use hatchery_engine::builtin::AgentTool;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;
use tokio::sync::Semaphore;

use super::*;

#[tokio::test]
async fn only_the_answer_goes_to_the_output_key() {
    let mut agent = coder(&sequence([CODE, "7"]), &Executor::simple());
    if let AgentKind::Llm(llm) = &mut agent.kind {
        llm.output_key = Some("answer".into());
    }
    let app = Harness::new(agent).await;
    let events = app.say("hi").await;
    assert_eq!(events[0].actions.state_delta, map(json!({})));
    assert_eq!(app.state().await["answer"], json!("7"));
}

const FAIL: &str = "```python\nfail\n```";

#[tokio::test]
async fn code_that_fails_may_be_mended_and_ends_the_run_when_it_keeps_failing() {
    let model = sequence([FAIL, FAIL, FAIL, "never"]);
    let app = Harness::new(coder(&model, &Executor::simple())).await;
    let events = app.say("hi").await;
    let said: Vec<_> = events.iter().map(|event| shown(event)).collect();
    let failed = "[OUTCOME_FAILED: it failed]";
    assert_eq!(said, ["<fail>", failed, "<fail>", failed, "<fail>", failed]);
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
    let events = Harness::new(agent).await.say("hi").await;
    let message = events.last().unwrap().error_message.as_deref().unwrap_or_default();
    assert!(message.starts_with("the code of agent `root` has failed once; raise `error_retries`"), "{message}");
}

#[tokio::test]
async fn the_next_agent_of_a_run_has_its_own_retries() {
    let one = |runner: &mut CodeRunner| runner.error_retries = 1;
    let first = coder_with(&sequence([FAIL, FAIL]), &Executor::simple(), one);
    let second = coder_with(&sequence([FAIL, "mended"]), &Executor::simple(), one);
    let second = Agent { name: "second".into(), ..second };
    let app = Harness::new(workflow("both", AgentKind::Sequential, vec![first, second])).await;
    assert_eq!(talk(&app, "hi").await.last().unwrap(), "mended");
}

#[tokio::test]
async fn failures_are_counted_in_a_row_and_in_one_run() {
    let ok = "```python\nok\n```";
    let model = sequence([FAIL, ok, FAIL, "one", FAIL, "two"]);
    let agent = coder_with(&model, &Executor::simple(), |runner| runner.error_retries = 1);
    let app = Harness::new(agent).await;
    assert_eq!(talk(&app, "hi").await.last().unwrap(), "one");
    let first = app.session().await.events.last().unwrap().invocation_id.clone();
    assert_eq!(app.state().await["_code_executor_error_counts"], json!({ first: 1 }));
    assert_eq!(talk(&app, "again").await.last().unwrap(), "two");
    let second = app.session().await.events.last().unwrap().invocation_id.clone();
    assert_eq!(app.state().await["_code_executor_error_counts"], json!({ second: 1 }), "earlier runs are forgotten");
}

#[tokio::test]
async fn an_executor_that_cannot_run_code_counts_as_failed_code_or_ends_the_run() {
    let executor = Executor::new(|input, _| match input.code.as_str() {
        "a" => Err(ToolError::Model("no network".into())),
        _ => Err(ToolError::Fatal { tool: "executor".into(), code: "GONE".into(), message: "out of order".into() }),
    });
    let app = Harness::new(coder(&sequence([CODE, "```python\nb\n```"]), &executor)).await;
    let (events, error) = app.fail("hi").await;
    assert_eq!(error.code(), "GONE");
    assert_eq!(events.last().unwrap(), "root: error GONE: tool `executor`: out of order");
    let stored = app.session().await.events;
    assert_eq!(shown(&stored[2]), "[OUTCOME_FAILED: no network]");
}

#[tokio::test]
async fn an_agent_that_gave_up_on_its_code_fails_as_a_tool() {
    let inner = coder_with(&sequence([FAIL]), &Executor::simple(), |runner| runner.error_retries = 0);
    let inner = Agent { name: "inner".into(), ..inner };
    let model = Arc::new(Scripted::sequence([Reply::call("inner", json!({"request": "go"})), Reply::text("sorry")]));
    let outer = llm_on("root", &model, |llm| llm.tools = vec![Arc::new(AgentTool::new(inner, false).unwrap())]);
    let events = Harness::new(outer).await.talk("hi").await;
    let failure = "agent `inner` failed: the code of agent `inner` has failed once";
    assert!(events[1].contains(failure), "{events:?}");
}

fn file(name: &str, content: &'static str) -> CodeFile {
    CodeFile { name: name.into(), content: content.into(), mime_type: String::new() }
}

#[tokio::test]
async fn state_that_a_client_has_spoilt_does_no_harm() {
    let executor = Executor::simple();
    let spoilt = json!({
        "_code_execution_context": 1, "_code_executor_input_files": {}, "_code_executor_error_counts": [], "_code_execution_results": "x"
    });
    let agent = coder_with(&sequence([CODE, "done"]), &executor, |runner| runner.stateful = true);
    assert_eq!(talk(&Harness::with_state(agent, spoilt).await, "hi").await.last().unwrap(), "done");
    assert!(executor.ids()[0].is_some());
}

#[tokio::test]
async fn contents_without_code_are_shared_from_call_to_call() {
    let model = sequence([CODE, "one", "two"]);
    let app = Harness::new(coder(&model, &Executor::simple())).await;
    talk(&app, "hi").await;
    talk(&app, "again").await;
    let requests = model.requests();
    for (earlier, later) in requests[1].contents.iter().zip(&requests[2].contents) {
        assert!(Arc::ptr_eq(earlier, later), "reworded once and then shared");
    }
}

/// Says that it runs, and never ends.
struct Endless(Arc<Semaphore>);

#[async_trait]
impl CodeExecutor for Endless {
    fn name(&self) -> &str {
        "endless"
    }

    async fn execute(&self, _: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
        self.0.add_permits(1);
        std::future::pending().await
    }
}
