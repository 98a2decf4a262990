//! Code in prompts, of the agent itself and of others, and models with built-in code execution.

use std::sync::Arc;

use hatchery_core::{
    Agent, AgentKind, CodeExecution, CodeExecutionResult, Delimiters, ExecutableCode, ModelCapabilities, ModelRef,
    PartData, Planner,
};
use hatchery_engine::plugins::ContextFilter;
use hatchery_engine::{App, Plugins, Runner, builtin};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use super::*;

/// Returns the reply of a model that has run code itself: code and result together.
fn own_code() -> Reply {
    let code = ExecutableCode { code: "b".into(), ..ExecutableCode::default() };
    let result = CodeExecutionResult {
        outcome: Some("OUTCOME_OK".into()),
        output: Some("2".into()),
        ..CodeExecutionResult::default()
    };
    Reply::text("See")
        .and_part(PartData::ExecutableCode(code).into())
        .and_part(PartData::CodeExecutionResult(result).into())
        .and_text("so 2")
}

#[tokio::test]
async fn code_that_a_model_has_run_itself_is_unchanged() {
    let (model, executor) = (Arc::new(Scripted::sequence([own_code(), Reply::text("bye")])), Executor::simple());
    let app = Harness::new(coder(&model, &executor)).await;
    assert_eq!(run_lines(&app, "hi").await, ["See|<b>|[OUTCOME_OK: 2]|so 2"]);
    run_lines(&app, "and?").await;
    assert_eq!(prompt(&model, 1)[1], "model: See|<b>|[OUTCOME_OK: 2]|so 2");
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn a_code_part_that_a_model_has_not_run_becomes_text() {
    let code = ExecutableCode { code: "b".into(), ..ExecutableCode::default() };
    let reply = Reply::new().and_part(PartData::ExecutableCode(code).into());
    let executor = Executor::simple();
    let app = Harness::new(coder(&Arc::new(Scripted::sequence([reply])), &executor)).await;
    assert_eq!(run_lines(&app, "hi").await, ["```tool_code\nb\n```"]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn other_agents_get_code_and_results_unchanged() {
    let model = sequence(["fine"]);
    let other = llm_on("other", &model, |_| {});
    let root = coder(&sequence([CODE, "done"]), &Executor::simple());
    let root = workflow("both", AgentKind::Sequential, vec![root, other]);
    run_lines(&Harness::new(root).await, "hi").await;
    assert_eq!(
        prompt(&model, 0),
        [
            "user: hi",
            "user: For context:|[root] said: Let me see.\n|<a>",
            "user: For context:|[OUTCOME_OK: ran: a]",
            "user: For context:|[root] said: done"
        ]
    );
}

#[tokio::test]
async fn another_agent_that_runs_code_gets_them_as_text() {
    let (model, executor) = (sequence(["fine"]), Executor::simple());
    let other = Agent { name: "other".into(), ..coder(&model, &executor) };
    let root = workflow("both", AgentKind::Sequential, vec![coder(&sequence([CODE, "done"]), &executor), other]);
    run_lines(&Harness::new(root).await, "hi").await;
    let prompt = prompt(&model, 0);
    assert_eq!(prompt[1], "user: For context:|[root] said: Let me see.\n|```tool_code\na\n```");
    assert_eq!(prompt[2], "user: For context:|```tool_output\nran: a\n```");
}

#[tokio::test]
async fn the_plan_is_still_in_the_prompt_after_code_has_run() {
    let model = sequence(["/*PLANNING*/ 1. count\n/*ACTION*/\n```python\na\n```", "/*FINAL_ANSWER*/ 7"]);
    let agent = llm_on("root", &model, |llm| {
        llm.code_execution = Some(CodeExecution::Host(Box::new(CodeRunner::new(Executor::simple()))));
        llm.planner = Some(Planner::PlanReAct);
    });
    assert_eq!(run_lines(&Harness::new(agent).await, "hi").await.last().unwrap(), "7");
    let parts: Vec<_> = model.requests()[1].contents.iter().flat_map(|content| content.parts.clone()).collect();
    assert!(parts.iter().any(|part| part.as_text().is_some_and(|text| text.starts_with("/*PLANNING*/"))));
    assert!(parts.iter().all(|part| !part.thought), "{parts:?}");
}

#[tokio::test]
async fn changed_delimiters_apply_to_the_whole_history() {
    let (model, executor) = (sequence([CODE, "one", "two", "three"]), Executor::simple());
    let mut app = Harness::new(coder(&model, &executor)).await;
    run_lines(&app, "hi").await;
    let loud = coder_with(&model, &executor, |runner| runner.result_delimiters = Delimiters::new("<<", ">>"));
    for (agent, result) in [(loud, "user: <<ran: a>>"), (llm_on("root", &model, |_| {}), "model: [OUTCOME_OK: ran: a]")]
    {
        app.app = Arc::new(App::new("app", agent).unwrap());
        run_lines(&app, "go on").await;
        assert_eq!(prompt(&model, model.requests().len() - 1)[2], result);
    }
}

#[tokio::test]
async fn contents_without_code_are_shared_between_calls() {
    let model = sequence([CODE, "one", "two"]);
    let app = Harness::new(coder(&model, &Executor::simple())).await;
    run_lines(&app, "hi").await;
    run_lines(&app, "again").await;
    let requests = model.requests();
    for (earlier, later) in requests[1].contents.iter().zip(&requests[2].contents) {
        assert!(Arc::ptr_eq(earlier, later), "reworded once and then shared");
    }
}

#[tokio::test]
async fn built_in_code_execution_is_requested() {
    let model = sequence(["fine"]);
    let agent = llm_on("root", &model, |llm| {
        llm.code_execution = Some(CodeExecution::BuiltIn);
        llm.tools = vec![builtin::tool("code_execution").unwrap()];
    });
    run_lines(&Harness::new(agent).await, "hi").await;
    assert_eq!(model.requests()[0].model_tools, [json!({"codeExecution": {}})], "once, also when it is a tool as well");
}

#[tokio::test]
async fn a_model_without_built_in_code_execution_is_rejected() {
    let agent = llm_with("root", Scripted::new(), |llm| {
        let model = Scripted::new().with_capabilities(ModelCapabilities::default());
        llm.model = Some(ModelRef::Object("gpt-5".into(), Arc::new(model)));
        llm.code_execution = Some(CodeExecution::BuiltIn);
    });
    let (_, error) = Harness::new(agent).await.expect_error("hi").await;
    let text = "model `gpt-5`: has no built-in tool `code_execution`; it runs inside Gemini models from version 2 on";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.code(), "MODEL_BAD_REQUEST");
}

#[tokio::test]
async fn with_built_in_code_execution_blocks_are_text() {
    let agent = llm_on("root", &sequence([CODE]), |llm| llm.code_execution = Some(CodeExecution::BuiltIn));
    let app = Harness::new(agent).await;
    assert_eq!(run_lines(&app, "hi").await, [CODE]);
    assert_eq!(app.state().await, Value::Object(Default::default()));
}

#[tokio::test]
async fn with_a_context_of_one_turn_the_question_is_still_in_the_prompt_with_the_result() {
    let model = sequence(["hello", CODE, "done"]);
    let mut app = Harness::new(coder(&model, &Executor::simple())).await;
    let filter = ContextFilter::new(std::num::NonZeroUsize::MIN);
    let plugins = Plugins::new(vec![Arc::new(filter)]).unwrap();
    app.runner = Runner::with_plugins(app.runner.services().clone(), plugins);
    app.run("hi").await;
    app.run("compute").await;
    let prompt = prompt(&model, 2);
    assert_eq!((prompt.len(), &*prompt[0]), (3, "user: compute"), "{prompt:?}");
    assert!(prompt[2].contains("ran: a"), "{prompt:?}");
}
