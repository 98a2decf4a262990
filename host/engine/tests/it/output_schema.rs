//! Answers of a schema: as a setting of the model, or by a tool.

use std::sync::Arc;

use hatchery_core::{Example, LlmRequest, ModelRef, Tool};
use hatchery_engine::builtin::ExampleTool;
use hatchery_engine::llm::machine::{Machine, Next, Settings};
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

/// What a model of this name is asked by an agent with a schema and these tools.
async fn request(model_name: &str, tools: Vec<Arc<dyn Tool>>) -> LlmRequest {
    let model = Arc::new(Scripted::sequence(["{\"n\":1}"]));
    let agent = llm_on("root", &model, |llm| {
        llm.model = Some(ModelRef::Object(model_name.into(), model.clone()));
        llm.output_schema = Some(number());
        llm.tools = tools;
    });
    Harness::new(agent).await.say("hi").await;
    model.requests().swap_remove(0)
}

fn tools_of(request: &LlmRequest) -> Vec<&str> {
    request.tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[tokio::test]
async fn beside_tools_the_answer_is_asked_for_as_a_call() {
    let request = request("gemini-2.5-flash", vec![add()]).await;
    assert_eq!(tools_of(&request), ["add", "set_model_response"]);
    assert_eq!(request.tools[1].parameters, Some(number()));
    assert_eq!(request.config.response_schema, None);
    let told = request.system_instructions.last().unwrap();
    assert!(told.starts_with("When you have all you need, give your final answer by calling `set_model_response`"));
}

#[tokio::test]
async fn models_that_can_do_both_get_the_schema_beside_their_tools() {
    for model in ["gemini-3-pro", "gpt-5"] {
        let request = request(model, vec![add()]).await;
        assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec!["add"], Some(number())));
        assert_eq!(request.config.response_mime_type.as_deref(), Some("application/json"));
    }
}

#[tokio::test]
async fn tools_that_a_model_cannot_call_do_not_keep_it_from_the_schema() {
    let example = Example { input: hatchery_core::Content::user("1"), output: vec![] };
    let request = request("gemini-2.5-flash", vec![Arc::new(ExampleTool::new(&[example]))]).await;
    assert_eq!((tools_of(&request), request.config.response_schema.clone()), (vec![], Some(number())));
}

#[tokio::test]
async fn agents_to_hand_over_to_count_as_tools() {
    let model = Arc::new(Scripted::sequence([answers(json!({"n": 1}))]));
    let agent = llm_on("root", &model, |llm| llm.output_schema = Some(number()));
    let app = Harness::new(agent.with_sub_agents(vec![llm("child", Scripted::new())])).await;
    assert_eq!(app.talk("hi").await.last().unwrap(), "root: {\"n\":1}");
    assert_eq!(tools_of(&model.requests()[0]), ["transfer_to_agent", "set_model_response"]);
}

#[tokio::test]
async fn a_call_that_fits_is_the_answer_and_ends_the_run() {
    let app = app(number(), vec![Reply::call("add", json!({})), answers(json!({"n": 42}))]).await;
    assert_eq!(
        app.talk("hi").await[2..],
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
    let events = app.talk("hi").await;
    assert!(events[1].contains(r#"at `/n`: \"x\" is not of type \"integer\""#), "{}", events[1]);
    assert_eq!(events.last().unwrap(), "root: {\"n\":1}");
    assert_eq!(events.len(), 5);
}

#[tokio::test]
async fn an_answer_that_is_no_object_is_wrapped_for_the_call() {
    let towns = json!({"type": "array", "items": {"type": "string"}});
    let app = app(towns, vec![answers(json!({"result": [1]})), answers(json!({"result": ["Rome"]}))]).await;
    let events = app.talk("hi").await;
    assert!(events[1].contains("at `/result/0`: 1 is not of type"), "{}", events[1]);
    assert_eq!(events.last().unwrap(), "root: [\"Rome\"]");
    assert_eq!(app.state().await, json!({"answer": ["Rome"]}));
}

#[tokio::test]
async fn an_answer_whose_schema_has_an_error_is_no_error() {
    let app = app(json!({"type": "object"}), vec![answers(json!({"error": "none"}))]).await;
    assert_eq!(app.talk("hi").await.last().unwrap(), "root: {\"error\":\"none\"}");
}

#[tokio::test]
async fn the_answer_follows_from_what_was_stored_before_it() {
    let app = app(number(), vec![Reply::call("add", json!({})), answers(json!({"n": 42}))]).await;
    app.say("hi").await;
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
        app.say("hi").await;
        assert_eq!(app.state().await, json!({ "answer": text }));
        let warning = "the answer of agent `root` does not fit its output schema and stays a text: ";
        assert_eq!(warnings.lines(), [format!("{warning}{reason}")]);
    }
}
