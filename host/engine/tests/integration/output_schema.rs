//! Answers of a schema: as a setting of the model, or by a tool.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, CodeExecution, CodeExecutionResult, CodeExecutor, CodeInput, CodeOutput, CodeRunner, Example,
    LlmAgent, LlmRequest, ModelCapabilities, PartData, Planner, Tool, ToolError,
};
use hatchery_engine::builtin::ExampleTool;
use hatchery_engine::llm::machine::{Machine, Next, Settings};
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

/// Never has to run any.
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

/// An agent with a schema, an output key and a tool.
async fn app(schema: Value, replies: Vec<Reply>) -> Harness {
    Harness::new(llm_with("root", Scripted::sequence(replies), |llm| {
        llm.output_schema = Some(schema);
        llm.output_key = Some("answer".into());
        llm.tools = vec![add()];
    }))
    .await
}

/// The built-in tools, and a schema beside tools or not.
fn capabilities(schema_with_tools: bool) -> ModelCapabilities {
    ModelCapabilities { schema_with_tools, built_in_tools: true, ..ModelCapabilities::default() }
}

/// The request that a model with these capabilities gets from an agent with a schema and these tools.
async fn request(capabilities: ModelCapabilities, tools: Vec<Arc<dyn Tool>>) -> LlmRequest {
    request_of(capabilities, |llm| llm.tools = tools).await
}

/// The same for an agent that is changed like this.
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
async fn beside_tools_the_answer_is_asked_for_as_a_call() {
    let request = request(capabilities(false), vec![add()]).await;
    assert_eq!(tools_of(&request), ["add", "set_model_response"]);
    assert_eq!(request.tools[1].parameters, Some(number()));
    assert_eq!(request.config.response_schema, None);
    let told = request.system_instructions.last().unwrap();
    assert!(told.starts_with("When you have all you need, give your final answer by calling `set_model_response`"));
}

#[tokio::test]
async fn a_model_that_supports_both_gets_the_schema_beside_its_tools() {
    let request = request(capabilities(true), vec![add()]).await;
    assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec!["add"], Some(number())));
    assert_eq!(request.config.response_mime_type.as_deref(), Some("application/json"));
}

#[tokio::test]
async fn text_that_holds_a_plan_or_code_leaves_the_answer_to_a_call() {
    let runner = CodeRunner::new(Arc::new(NoCode));
    let plans = |llm: &mut LlmAgent| llm.planner = Some(Planner::PlanReAct);
    let codes = |llm: &mut LlmAgent| llm.code_execution = Some(CodeExecution::Host(Box::new(runner)));
    for request in [request_of(capabilities(true), plans).await, request_of(capabilities(true), codes).await] {
        assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec!["set_model_response"], None));
    }
}

#[tokio::test]
async fn code_that_a_model_runs_itself_counts_as_a_tool() {
    let request = request_of(capabilities(false), |llm| llm.code_execution = Some(CodeExecution::BuiltIn)).await;
    assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec!["set_model_response"], None));
}

#[tokio::test]
async fn what_a_model_says_before_it_has_seen_its_codes_result_is_no_answer() {
    let result = PartData::CodeExecutionResult(CodeExecutionResult::default());
    let warnings = Warnings::heard();
    let app = app(number(), vec![Reply::text("Let me see.").and_part(result.into()), Reply::text("{\"n\":1}")]).await;
    assert_eq!(app.transcript("hi").await, ["root: Let me see.", "root: {\"n\":1}"]);
    assert_eq!(app.state().await, json!({"answer": {"n": 1}}));
    assert!(warnings.lines().is_empty());
}

#[tokio::test]
async fn the_tool_that_takes_the_answer_wins_over_one_of_a_toolset() {
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
async fn tools_that_a_model_cannot_call_do_not_keep_it_from_the_schema() {
    let example = Example { input: hatchery_core::Content::user("1"), output: vec![] };
    let request = request(capabilities(false), vec![Arc::new(ExampleTool::new(&[example]))]).await;
    assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec![], Some(number())));
}

#[tokio::test]
async fn agents_to_hand_over_to_count_as_tools() {
    let model = Arc::new(Scripted::sequence([answers(json!({"n": 1}))]));
    let agent = llm_on("root", &model, |llm| llm.output_schema = Some(number()));
    let app = Harness::new(agent.with_sub_agents(vec![llm("child", Scripted::new())])).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "root: {\"n\":1}");
    assert_eq!(tools_of(&model.requests()[0]), ["transfer_to_agent", "set_model_response"]);
}

#[tokio::test]
async fn a_call_that_fits_is_the_answer_and_ends_the_run() {
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
async fn a_call_that_does_not_fit_says_why_and_can_be_mended() {
    let app = app(number(), vec![answers(json!({"n": "x"})), answers(json!({"n": 1}))]).await;
    let events = app.transcript("hi").await;
    assert!(events[1].contains(r#"at `/n`: \"x\" is not of type \"integer\""#), "{}", events[1]);
    assert_eq!(events.last().unwrap(), "root: {\"n\":1}");
    assert_eq!(events.len(), 5);
}

#[tokio::test]
async fn of_several_answers_at_once_the_first_that_fits_counts() {
    let three = answers(json!({"n": "x"})).and_call("set_model_response", json!({"n": 2}));
    let app = app(number(), vec![three.and_call("set_model_response", json!({"n": 3}))]).await;
    assert_eq!(app.transcript("hi").await[2..], ["root: {\"n\":2}"]);
    assert_eq!(app.state().await, json!({"answer": {"n": 2}}));
}

#[tokio::test]
async fn an_answer_after_a_plan_and_tools_of_a_set_is_streamed_and_kept_once() {
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
    let whole: Vec<_> = events.iter().filter(|event| !event.starts_with("root~")).map(String::as_str).collect();
    assert_eq!(
        whole,
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
async fn an_answer_that_is_no_object_is_wrapped_for_the_call() {
    let towns = json!({"type": "array", "items": {"type": "string"}});
    let app = app(towns, vec![answers(json!({"result": [1]})), answers(json!({"result": ["Rome"]}))]).await;
    let events = app.transcript("hi").await;
    assert!(events[1].contains("at `/result/0`: 1 is not of type"), "{}", events[1]);
    assert_eq!(events.last().unwrap(), "root: [\"Rome\"]");
    assert_eq!(app.state().await, json!({"answer": ["Rome"]}));
}

#[tokio::test]
async fn an_answer_whose_schema_has_an_error_is_no_error() {
    let app = app(json!({"type": "object"}), vec![answers(json!({"error": "none"}))]).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "root: {\"error\":\"none\"}");
}

#[tokio::test]
async fn the_answer_follows_from_what_was_stored_before_it() {
    let app = app(number(), vec![Reply::call("add", json!({})), answers(json!({"n": 42}))]).await;
    app.run("hi").await;
    let stored = app.session().await.events;
    let mut machine = Machine::new(Settings { answers_by_tool: true, ..Settings::default() });
    for event in stored.iter().skip(1).take(4) {
        match event.function_responses().next() {
            Some(_) => machine.tools_answered(Some(event.clone()), Vec::new()),
            None => machine.model_answered(event.clone()),
        }
    }
    assert!(matches!(machine.next(), Next::Answer(answer) if answer == "{\"n\":42}"));
    machine.model_answered(stored[5].clone());
    assert!(matches!(machine.next(), Next::Done));
}

#[tokio::test]
async fn an_answer_that_does_not_fit_stays_a_text_with_a_warning() {
    for (text, reason) in [
        ("forty-two", "it is not JSON: expected ident at line 1 column 2"),
        ("{\"n\":\"x\"}", "at `/n`: \"x\" is not of type \"integer\""),
    ] {
        let warnings = Warnings::heard();
        let app = app(number(), vec![Reply::text(text)]).await;
        app.run("hi").await;
        assert_eq!(app.state().await, json!({ "answer": text }));
        let warning = "the answer of agent `root` does not fit its output schema and stays a text: ";
        assert_eq!(warnings.lines(), [format!("{warning}{reason}")]);
    }
}
