//! Agents as tools of other agents.

use std::sync::Arc;

use hatchery_core::{Agent, RunError, Tool};
use hatchery_engine::AgentTool;
use hatchery_engine::build::custom;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::builtin::with_tool;
use crate::support::*;

/// Returns the agent as a tool.
pub fn agent_tool(agent: Agent) -> Arc<dyn Tool> {
    Arc::new(AgentTool::new(agent).unwrap())
}

/// Returns a call of an agent tool.
pub fn ask(name: &str) -> Reply {
    Reply::call(name, json!({"request": "the capital?"}))
}

#[tokio::test]
async fn the_result_of_an_agent_tool_is_the_last_text_of_the_agent() {
    let helper = Arc::new(Scripted::sequence(["Rome"]));
    let model = Arc::new(Scripted::sequence([ask("helper"), Reply::text("It is Rome.")]));
    let app = Harness::new(with_tool(&model, agent_tool(llm_on("helper", &helper, |_| {})))).await;
    assert_eq!(
        app.transcript("hi").await,
        [
            "root: call helper{\"request\":\"the capital?\"}",
            "root: answer helper{\"result\":\"Rome\"}",
            "root: It is Rome."
        ]
    );
    let asked: Vec<_> = helper.requests()[0].contents.iter().map(|content| content.text()).collect();
    assert_eq!(asked, ["the capital?"], "it sees only what it is asked");
    assert_eq!(app.session().await.events.len(), 4, "its own events stay its own");
}

#[tokio::test]
async fn an_agent_tool_reads_and_writes_the_state_of_its_caller() {
    let helper = llm_with("helper", Scripted::sequence(["Rome"]), |llm| {
        llm.instruction = hatchery_core::Instruction::Template("Answer in {tongue}.".into());
        llm.output_key = Some("found".into());
    });
    let model = Arc::new(Scripted::sequence([ask("helper"), Reply::text("ok")]));
    let app = Harness::with_state(with_tool(&model, agent_tool(helper)), json!({"tongue": "Latin"})).await;
    let events = app.run("hi").await;
    assert_eq!(events[1].actions.state_delta, map(json!({"found": "Rome"})));
    assert_eq!(app.state().await, json!({"found": "Rome", "tongue": "Latin"}));
}

#[tokio::test]
async fn a_structured_answer_is_json_and_an_invalid_one_is_an_error_for_the_model() {
    let schema = |llm: &mut hatchery_core::LlmAgent| llm.output_schema = Some(json!({"type": "object"}));
    let helper = llm_with("helper", Scripted::sequence(["{\"n\": 1}", "no json"]), schema);
    let model = Arc::new(Scripted::sequence([ask("helper"), ask("helper"), Reply::text("ok")]));
    let events = Harness::new(with_tool(&model, agent_tool(helper))).await.transcript("hi").await;
    assert_eq!(events[1], "root: answer helper{\"n\":1}");
    assert!(events[3].contains("agent `helper` did not answer with the JSON that it should"), "{}", events[3]);
}

#[tokio::test]
async fn the_input_schema_of_an_agent_is_what_its_tool_takes() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let helper_model = Arc::new(Scripted::sequence(["Rome it is"]));
    let helper = llm_on("helper", &helper_model, |llm| llm.input_schema = Some(schema.clone()));
    let replies = [Reply::call("helper", json!({"town": 1})), Reply::call("helper", json!({"city": "Rome"}))];
    let model = Arc::new(Scripted::sequence(replies.into_iter().chain([Reply::text("ok")])));
    let events = Harness::new(with_tool(&model, agent_tool(helper))).await.transcript("hi").await;
    assert_eq!(model.requests()[0].tools[0].parameters, Some(schema));
    assert!(events[1].starts_with("root: answer helper{\"error\":"), "{}", events[1]);
    assert_eq!(events[3], r#"root: answer helper{"result":"Rome it is"}"#);
    assert_eq!(helper_model.requests()[0].contents[0].text(), r#"{"city":"Rome"}"#);
}

#[tokio::test]
async fn an_agent_tool_whose_last_word_is_a_tools_answer_returns_that_answer() {
    let lookup = tool("lookup", |_, cx| {
        cx.actions().skip_summarization = Some(true);
        Ok(json!({"city": "Rome"}))
    });
    let helper =
        llm_with("helper", Scripted::sequence([Reply::text("Let me see.").and_call("lookup", json!({}))]), |llm| {
            llm.tools = vec![lookup];
        });
    let model = Arc::new(Scripted::sequence([ask("helper"), Reply::text("ok")]));
    let events = Harness::new(with_tool(&model, agent_tool(helper))).await.transcript("hi").await;
    assert_eq!(events[1], r#"root: answer helper{"city":"Rome"}"#);
}

#[tokio::test]
async fn an_agent_tool_that_ends_in_several_calls_returns_all_answers() {
    let last_word = |name: &str| {
        tool(name, |args, cx| {
            cx.actions().skip_summarization = Some(true);
            Ok(json!({"sum": args.get("number")}))
        })
    };
    let calls = Reply::call("add", json!({"number": 1}))
        .and_call("add", json!({"number": 2}))
        .and_call("count", json!({"number": 3}))
        .and_call("add", json!({"number": 4}));
    let helper = llm_with("helper", Scripted::sequence([calls]), |llm| {
        llm.tools = vec![last_word("add"), last_word("count")];
    });
    let model = Arc::new(Scripted::sequence([ask("helper"), Reply::text("ok")]));
    let events = Harness::new(with_tool(&model, agent_tool(helper))).await.transcript("hi").await;
    assert_eq!(events[1], r#"root: answer helper{"add":[{"sum":1},{"sum":2},{"sum":4}],"count":{"sum":3}}"#);
}

#[tokio::test]
async fn with_skip_summarization_the_agents_answer_is_the_answer() {
    let model = Arc::new(Scripted::sequence([ask("helper")]));
    let helper = llm("helper", Scripted::sequence(["Rome"]));
    let tool = Arc::new(AgentTool::new(helper).unwrap().skip_summarization());
    assert_eq!(Harness::new(with_tool(&model, tool)).await.transcript("hi").await.len(), 2);
}

#[tokio::test]
async fn the_error_of_an_agent_tool_is_sent_to_the_model() {
    let model = Arc::new(Scripted::sequence([ask("helper"), Reply::text("sorry")]));
    let tool = agent_tool(llm("helper", Scripted::sequence([Reply::status(500, "down")])));
    let events = Harness::new(with_tool(&model, tool)).await.transcript("hi").await;
    assert!(events[1].contains("agent `helper` failed: model `scripted`: "), "{}", events[1]);
}

#[tokio::test]
async fn the_error_of_an_agent_tool_names_the_agent_once() {
    let helper = custom("helper", |cx| async move {
        let agent = cx.call.agent.to_string();
        Err(RunError::Agent { agent, code: "LOST".into(), message: "no map".into() })
    });
    let model = Arc::new(Scripted::sequence([ask("helper"), Reply::text("sorry")]));
    let tool = agent_tool(helper.build().unwrap());
    let events = Harness::new(with_tool(&model, tool)).await.transcript("hi").await;
    assert_eq!(events[1], r#"root: answer helper{"error":"agent `helper` failed: no map"}"#);
}

#[tokio::test]
async fn model_calls_of_agent_tools_are_counted() {
    let model = Arc::new(Scripted::sequence([ask("helper"), Reply::text("ok")]));
    let mut app = Harness::new(with_tool(&model, agent_tool(llm("helper", Scripted::sequence(["x"]))))).await;
    app.config.max_llm_calls = 1;
    let (_, error) = app.expect_error("hi").await;
    assert_eq!(error.code(), "LIMIT_REACHED");
}

#[tokio::test]
async fn the_nesting_of_agent_tools_is_limited() {
    let mut agent = llm("leaf", Scripted::new().default_reply("deep"));
    for level in 0..20 {
        let name = agent.name.clone();
        let model = Scripted::new().on_tool(&name, "up").default_reply(ask(&name));
        let tool = agent_tool(agent);
        agent = llm_with(&format!("level{level}"), model, |llm| llm.tools = vec![tool]);
    }
    let (_, error) = Harness::new(agent).await.expect_error("hi").await;
    assert!(
        error
            .to_string()
            .contains("is called 16 agents deep, and may not call another; let fewer agents call each other"),
        "{error}"
    );
}
