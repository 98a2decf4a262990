//! Structured output: by the response schema of a request, or by a tool.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, CodeExecution, CodeExecutionResult, CodeExecutor, CodeInput, CodeOutput, CodeRunner, Example,
    LlmAgent, LlmRequest, ModelCapabilities, PartData, Planner, Tool, ToolError,
};
use hatchery_engine::builtin::ExampleTool;
use hatchery_engine::llm::agent_loop::{AgentLoop, AgentLoopSettings, LoopAction};
use hatchery_engine::toolsets::{IntoToolset, StaticToolset};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use crate::logs::Warnings;
use crate::support::*;

fn number() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
}

fn add() -> Arc<dyn Tool> {
    tool("add", |_, _| Ok(json!(42)))
}

/// An executor that is never called.
struct NoCode;

#[async_trait]
impl CodeExecutor for NoCode {
    fn name(&self) -> &str {
        "none"
    }

    async fn execute(&self, _: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
        Ok(CodeOutput::default())
    }
}

fn answers(args: Value) -> Reply {
    Reply::call("set_model_response", args)
}

/// Creates an app whose agent has an output schema, an output key and a tool.
async fn app(schema: Value, replies: Vec<Reply>) -> Harness {
    Harness::new(llm_with("root", Scripted::sequence(replies), |llm| {
        llm.output_schema = Some(schema);
        llm.output_key = Some("answer".into());
        llm.tools = vec![add()];
    }))
    .await
}

/// Capabilities with built-in tools, and with or without support for a schema with tools.
fn capabilities(schema_with_tools: bool) -> ModelCapabilities {
    ModelCapabilities { schema_with_tools, built_in_tools: true, ..ModelCapabilities::default() }
}

/// Returns the request of an agent with an output schema and these tools to a model with these capabilities.
async fn request(capabilities: ModelCapabilities, tools: Vec<Arc<dyn Tool>>) -> LlmRequest {
    request_of(capabilities, |llm| llm.tools = tools).await
}

/// Returns the request of a modified agent.
async fn request_of(capabilities: ModelCapabilities, change: impl FnOnce(&mut LlmAgent)) -> LlmRequest {
    let model = Arc::new(Scripted::sequence(["{\"n\":1}"]).with_capabilities(capabilities));
    let agent = llm_on("root", &model, |llm| {
        llm.output_schema = Some(number());
        change(llm);
    });
    Harness::new(agent).await.run("hi").await;
    model.requests().swap_remove(0)
}

fn tools_of(request: &LlmRequest) -> Vec<&str> {
    request.tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[tokio::test]
async fn with_tools_the_answer_is_requested_as_a_call() {
    let request = request(capabilities(false), vec![add()]).await;
    assert_eq!(tools_of(&request), ["add", "set_model_response"]);
    assert_eq!(request.tools[1].parameters, Some(number()));
    assert_eq!(request.config.response_schema, None);
    let instruction = request.system_instructions.last().unwrap();
    assert!(
        instruction.starts_with("When you have all you need, give your final answer by calling `set_model_response`")
    );
}

#[tokio::test]
async fn a_model_without_response_schemas_is_asked_for_a_call_even_without_tools() {
    let lacking = ModelCapabilities { lacks_response_schema: true, ..capabilities(false) };
    let asked = request(lacking, Vec::new()).await;
    assert_eq!((tools_of(&asked), asked.config.response_schema.clone()), (vec!["set_model_response"], None));
    let other = request(capabilities(false), Vec::new()).await;
    assert_eq!((tools_of(&other), other.config.response_schema.clone()), (Vec::new(), Some(number())));
}

#[tokio::test]
async fn a_model_that_supports_both_gets_the_schema_with_its_tools() {
    let request = request(capabilities(true), vec![add()]).await;
    assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec!["add"], Some(number())));
    assert_eq!(request.config.response_mime_type.as_deref(), Some("application/json"));
}

#[tokio::test]
async fn with_a_planner_or_code_the_answer_is_requested_as_a_call() {
    let runner = CodeRunner::new(Arc::new(NoCode));
    let plans = |llm: &mut LlmAgent| llm.planner = Some(Planner::PlanReAct);
    let codes = |llm: &mut LlmAgent| llm.code_execution = Some(CodeExecution::Host(Box::new(runner)));
    for request in [request_of(capabilities(true), plans).await, request_of(capabilities(true), codes).await] {
        assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec!["set_model_response"], None));
    }
}

#[tokio::test]
async fn built_in_code_execution_counts_as_a_tool() {
    let request = request_of(capabilities(false), |llm| llm.code_execution = Some(CodeExecution::BuiltIn)).await;
    assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec!["set_model_response"], None));
}

#[tokio::test]
async fn text_before_the_result_of_code_is_not_the_answer() {
    let result = PartData::CodeExecutionResult(CodeExecutionResult::default());
    let warnings = Warnings::capture();
    let app = app(number(), vec![Reply::text("Let me see.").and_part(result.into()), Reply::text("{\"n\":1}")]).await;
    assert_eq!(app.transcript("hi").await, ["root: Let me see.", "root: {\"n\":1}"]);
    assert_eq!(app.state().await, json!({"answer": {"n": 1}}));
    assert!(warnings.lines().is_empty());
}

#[tokio::test]
async fn the_tool_for_the_answer_takes_precedence_over_one_of_a_toolset() {
    let model = Arc::new(Scripted::sequence([answers(json!({"n": 1}))]));
    let agent = llm_on("root", &model, |llm| {
        llm.output_schema = Some(number());
        let same_name = tool("set_model_response", |_, _| Ok(json!("mine")));
        llm.toolsets = vec![StaticToolset::new("set").tools([add(), same_name]).into_toolset()];
    });
    assert_eq!(Harness::new(agent).await.transcript("hi").await.last().unwrap(), "root: {\"n\":1}");
    assert_eq!(tools_of(&model.requests()[0]), ["add", "set_model_response"]);
}

#[tokio::test]
async fn tools_that_cannot_be_called_do_not_prevent_the_response_schema() {
    let example = Example { input: hatchery_core::Content::user("1"), output: vec![] };
    let request = request(capabilities(false), vec![Arc::new(ExampleTool::new(&[example]))]).await;
    assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec![], Some(number())));
}

#[tokio::test]
async fn transfer_targets_count_as_tools() {
    let model = Arc::new(Scripted::sequence([answers(json!({"n": 1}))]));
    let agent = llm_on("root", &model, |llm| llm.output_schema = Some(number()));
    let app = Harness::new(agent.with_sub_agents(vec![llm("child", Scripted::new())])).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "root: {\"n\":1}");
    assert_eq!(tools_of(&model.requests()[0]), ["transfer_to_agent", "set_model_response"]);
}

#[tokio::test]
async fn a_valid_call_is_the_answer_and_ends_the_run() {
    let app = app(number(), vec![Reply::call("add", json!({})), answers(json!({"n": 42}))]).await;
    assert_eq!(
        app.transcript("hi").await[2..],
        [
            "root: call set_model_response{\"n\":42}",
            "root: answer set_model_response{\"result\":{\"n\":42}}",
            "root: {\"n\":42}"
        ]
    );
    assert_eq!(app.state().await, json!({"answer": {"n": 42}}));
    let stored = app.session().await.events;
    assert_eq!(brief(stored.last().unwrap()), "root: {\"n\":42}");
    assert_eq!(stored.last().unwrap().content.as_ref().unwrap().role.as_deref(), Some("model"));
}

#[tokio::test]
async fn an_invalid_call_is_an_error_and_can_be_corrected() {
    let app = app(number(), vec![answers(json!({"n": "x"})), answers(json!({"n": 1}))]).await;
    let events = app.transcript("hi").await;
    assert!(events[1].contains(r#"at `/n`: \"x\" is not of type \"integer\""#), "{}", events[1]);
    assert_eq!(events.last().unwrap(), "root: {\"n\":1}");
    assert_eq!(events.len(), 5);
}

#[tokio::test]
async fn the_first_valid_one_of_several_answers_is_used() {
    let three = answers(json!({"n": "x"})).and_call("set_model_response", json!({"n": 2}));
    let app = app(number(), vec![three.and_call("set_model_response", json!({"n": 3}))]).await;
    assert_eq!(app.transcript("hi").await[2..], ["root: {\"n\":2}"]);
    assert_eq!(app.state().await, json!({"answer": {"n": 2}}));
}

#[tokio::test]
async fn an_answer_after_a_plan_and_tool_calls_is_streamed_and_stored_once() {
    let plan = Reply::chunks(["/*PLAN", "NING*/ 1. add"]).and_call("m_add", json!({}));
    let answer = Reply::chunks(["/*FINAL_", "ANSWER*/ Done."]).and_call("set_model_response", json!({"n": 42}));
    let model = Arc::new(Scripted::sequence([plan, answer]));
    let agent = llm_on("root", &model, |llm| {
        llm.output_schema = Some(number());
        llm.output_key = Some("answer".into());
        llm.planner = Some(Planner::PlanReAct);
        llm.toolsets = vec![StaticToolset::new("maths").tools([add()]).prefix("m_").into_toolset()];
    });
    let app = Harness::new(agent.with_sub_agents(vec![llm("child", Scripted::new())])).await.streaming();
    let events = app.transcript("hi").await;
    let complete: Vec<_> = events.iter().filter(|event| !event.starts_with("root~")).map(String::as_str).collect();
    assert_eq!(
        complete,
        [
            "root: call m_add{}",
            "root: answer m_add{\"result\":42}",
            "root: Done.; call set_model_response{\"n\":42}",
            "root: answer set_model_response{\"result\":{\"n\":42}}",
            "root: {\"n\":42}"
        ]
    );
    assert_eq!(app.state().await, json!({"answer": {"n": 42}}));
    assert_eq!(tools_of(&model.requests()[0]), ["transfer_to_agent", "m_add", "set_model_response"]);
}

#[tokio::test]
async fn an_answer_that_is_not_an_object_is_wrapped_for_the_call() {
    let towns = json!({"type": "array", "items": {"type": "string"}});
    let app = app(towns, vec![answers(json!({"result": [1]})), answers(json!({"result": ["Rome"]}))]).await;
    let events = app.transcript("hi").await;
    assert!(events[1].contains("at `/result/0`: 1 is not of type"), "{}", events[1]);
    assert_eq!(events.last().unwrap(), "root: [\"Rome\"]");
    assert_eq!(app.state().await, json!({"answer": ["Rome"]}));
}

#[tokio::test]
async fn an_answer_with_a_property_named_error_is_not_an_error() {
    let app = app(json!({"type": "object"}), vec![answers(json!({"error": "none"}))]).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "root: {\"error\":\"none\"}");
}

#[tokio::test]
async fn the_answer_can_be_replayed_from_stored_events() {
    let app = app(number(), vec![Reply::call("add", json!({})), answers(json!({"n": 42}))]).await;
    app.run("hi").await;
    let stored = app.session().await.events;
    let mut agent_loop = AgentLoop::new(AgentLoopSettings { can_answer_by_tool: true, ..AgentLoopSettings::default() });
    for event in stored.iter().skip(1).take(4) {
        match event.function_responses().next() {
            Some(_) => agent_loop.record_tool_event(Some(event.clone()), Vec::new()),
            None => agent_loop.record_model_event(event.clone()),
        }
    }
    assert!(matches!(agent_loop.next_action(), LoopAction::EmitAnswer(answer) if answer == "{\"n\":42}"));
    agent_loop.record_model_event(stored[5].clone());
    assert!(matches!(agent_loop.next_action(), LoopAction::Done));
}

#[tokio::test]
async fn an_invalid_answer_is_kept_as_text_with_a_warning() {
    for (text, reason) in [
        ("forty-two", "it is not JSON: expected ident at line 1 column 2"),
        ("{\"n\":\"x\"}", "at `/n`: \"x\" is not of type \"integer\""),
    ] {
        let warnings = Warnings::capture();
        let app = app(number(), vec![Reply::text(text)]).await;
        app.run("hi").await;
        assert_eq!(app.state().await, json!({ "answer": text }));
        let warning = "the answer of agent `root` does not match its output schema and is returned as text: ";
        assert_eq!(warnings.lines(), [format!("{warning}{reason}")]);
    }
}
