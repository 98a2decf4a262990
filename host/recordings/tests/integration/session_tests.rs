//! Tests made of sessions pass without a model, and report what differs.

use std::sync::Arc;

use hatchery_core::{
    Agent, AgentKind, Content, Event, FunctionResponse, ModelErrorKind, ModelRef, PartData, REQUEST_CONFIRMATION, Tool,
    ToolError,
};
use hatchery_engine::AgentTool;
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_recordings::{SessionTest, TestedTurn};
use serde_json::json;

use crate::support::*;

/// Returns a test of the events in a session.
async fn test_of(app: &Harness) -> SessionTest {
    let events: Vec<_> = app.session().await.events.into_iter().collect();
    parse(&events)
}

fn parse(events: &[Arc<Event>]) -> SessionTest {
    SessionTest::from_json(json!({"events": events, "state": {}}).to_string().as_bytes()).unwrap()
}

/// Runs a test with another version of the app.
async fn run(test: &SessionTest, root: Agent) -> Vec<TestedTurn> {
    let app = Harness::new(root).await;
    let turns = test.run(&app.runner, services(), &app.app).await.unwrap();
    assert_eq!(app.session().await.events.len(), 0, "the sessions of the runner are unchanged");
    turns
}

fn problems(turns: &[TestedTurn]) -> Vec<&str> {
    turns.iter().filter_map(|turn| turn.problem.as_deref()).collect()
}

#[tokio::test]
async fn tools_are_called_and_models_are_not() {
    let replies = [Reply::call("count", json!({"by": 2})), Reply::text("two"), Reply::text("bye")];
    let app = Harness::new(counter(Scripted::sequence(replies), count_tool())).await;
    let transcript = [app.transcript("count").await, app.transcript("thanks").await];
    let test = test_of(&app).await;
    let turns = run(&test, counter(no_replies(), count_tool())).await;
    assert_eq!(problems(&turns), Vec::<&str>::new());
    assert_eq!(turns.iter().map(|turn| turn.message.as_str()).collect::<Vec<_>>(), ["count", "thanks"]);
    assert_eq!(turns.iter().map(|turn| briefs(&turn.events)).collect::<Vec<_>>(), transcript);

    let turns = run(&test, counter(no_replies(), tool("count", |_, _| Ok(json!(7))))).await;
    let [TestedTurn { problem: Some(problem), .. }] = turns.as_slice() else { panic!("{turns:?}") };
    for line in ["the events differ from the recorded ones", "--- recorded", "-            \"result\": 2"] {
        assert!(problem.lines().any(|it| it == line), "{line:?} is not in\n{problem}");
    }
    assert!(problem.contains("+            \"result\": 7"), "{problem}");
}

#[tokio::test]
async fn a_test_needs_no_key_of_the_model() {
    let app = Harness::new(llm("root", Scripted::sequence(["hello"]))).await;
    app.run("hi").await;
    let unknown = llm_with("root", no_replies(), |llm| llm.model = Some(ModelRef::Named("gemini-3-pro".into())));
    assert_eq!(problems(&run(&test_of(&app).await, unknown).await), Vec::<&str>::new());
}

#[tokio::test]
async fn agents_that_run_in_parallel_may_end_in_any_order() {
    let root = |models: [Scripted; 2]| {
        let two = || tool("count", |_, _| Ok(json!(2)));
        let agents = ["a", "b"].into_iter().zip(models);
        let agents = agents.map(|(name, model)| llm_with(name, model, |llm| llm.tools = vec![two()]));
        workflow("root", AgentKind::Parallel, agents.collect())
    };
    let app = Harness::new(root([script(), script()])).await;
    app.run("go").await;
    let mut events: Vec<_> = app.session().await.events.into_iter().collect();
    // The message stays first.
    events[1..].sort_by(|one, other| other.author.cmp(&one.author));
    let reversed = parse(&events);
    assert_eq!(problems(&run(&reversed, root([no_replies(), no_replies()])).await), Vec::<&str>::new());
}

#[tokio::test]
async fn an_agent_that_is_called_as_a_tool_answers_as_recorded() {
    let root = |outer: Scripted, inner: Scripted| {
        let helper: Arc<dyn Tool> = Arc::new(AgentTool::new(llm("helper", inner)).unwrap());
        llm_with("root", outer, |llm| llm.tools = vec![helper])
    };
    let outer = || Scripted::sequence([Reply::call("helper", json!({"request": "?"})), Reply::text("done")]);
    let app = Harness::new(root(outer(), Scripted::sequence(["42"]))).await;
    let transcript = app.transcript("ask").await;
    let turns = run(&test_of(&app).await, root(no_replies(), no_replies())).await;
    assert_eq!(problems(&turns), Vec::<&str>::new());
    assert_eq!(briefs(&turns[0].events), transcript);
}

#[tokio::test]
async fn a_confirmation_answers_the_request_of_the_new_run() {
    let root = |model: Scripted| {
        llm_with("root", model, |llm| llm.tools = vec![tool_with_confirmation("book", |_, _| Ok(json!("booked")))])
    };
    let replies = [Reply::call("book", json!({})), Reply::text("please decide"), Reply::text("it is booked")];
    let app = Harness::new(root(Scripted::sequence(replies))).await;
    let events = app.run("book it").await;
    let mut requests = events.iter().flat_map(|event| event.function_calls());
    let id = requests.find(|call| call.name == REQUEST_CONFIRMATION).unwrap().id.clone();
    let response = FunctionResponse {
        id,
        name: REQUEST_CONFIRMATION.into(),
        response: map(json!({"confirmed": true})),
        ..FunctionResponse::default()
    };
    app.send(Content::new("user", vec![PartData::FunctionResponse(response).into()])).await;
    let turns = run(&test_of(&app).await, root(no_replies())).await;
    assert_eq!(problems(&turns), Vec::<&str>::new());
    assert_eq!(turns.len(), 2);
    assert_eq!(briefs(&turns[1].events).last().map(String::as_str), Some("root: it is booked"));
}

#[tokio::test]
async fn a_model_that_is_called_once_more_has_no_answer() {
    let app = Harness::new(counter(script(), count_tool())).await;
    app.run("count").await;
    let events: Vec<_> = app.session().await.events.into_iter().collect();
    let (_, shorter) = events.split_last().unwrap();
    let turns = run(&parse(shorter), counter(no_replies(), count_tool())).await;
    let [problem] = problems(&turns)[..] else { panic!("{turns:?}") };
    assert!(problem.starts_with("agent `root` called its model, but has no more recorded answers\n--- recorded\n"));
}

#[tokio::test]
async fn a_run_that_fails_as_recorded_passes() {
    let failing = |code: &'static str| {
        tool("count", move |_, _| {
            Err(ToolError::Fatal { tool: "count".into(), code: code.into(), message: "no".into() })
        })
    };
    let app = Harness::new(counter(script(), failing("BROKEN"))).await;
    app.expect_error("count").await;
    let test = test_of(&app).await;
    assert_eq!(problems(&run(&test, counter(no_replies(), failing("BROKEN"))).await), Vec::<&str>::new());
    let turns = run(&test, counter(no_replies(), failing("WORSE"))).await;
    let [problem] = problems(&turns)[..] else { panic!("{turns:?}") };
    assert!(problem.starts_with("the run failed: WORSE: "), "{problem}");
    assert!(problem.contains("-    \"errorCode\": \"BROKEN\","), "{problem}");
}

#[tokio::test]
async fn a_recording_of_a_new_run_has_all_events_of_its_session() {
    let app = Harness::new(llm("root", Scripted::sequence(["one", "two"]))).await;
    app.run("a").await;
    app.run("b").await;
    let test = test_of(&app).await;
    let other = Harness::new(llm("root", Scripted::sequence(["three", "four"]))).await;
    let events = test.record(&other.runner, services(), &other.app).await.unwrap();
    assert_eq!(briefs(&events), ["user: a", "root: three", "user: b", "root: four"]);
    let failing = Scripted::sequence([Reply::text("five"), Reply::error(ModelErrorKind::BadRequest, "no")]);
    let other = Harness::new(llm("root", failing)).await;
    let error = test.record(&other.runner, services(), &other.app).await.unwrap_err();
    assert_eq!(error.code(), ModelErrorKind::BadRequest.code());
}

#[test]
fn only_sessions_with_a_message_are_tests() {
    for (json, problem) in [
        ("{", "EOF while parsing an object at line 1 column 1"),
        ("{}", "missing field `events` at line 1 column 2"),
        (r#"{"events": [{"author": "root"}]}"#, "none of its events is a message of the user"),
    ] {
        assert_eq!(SessionTest::from_json(json.as_bytes()).unwrap_err().to_string(), problem);
    }
    let state = json!({"author": "user", "actions": {"stateDelta": {"a": 1}}});
    let message = json!({"author": "user", "content": {"parts": [{"text": "hi"}]}});
    assert!(SessionTest::from_json(json!({"events": [state]}).to_string().as_bytes()).is_err());
    assert!(SessionTest::from_json(json!({"events": [state, message]}).to_string().as_bytes()).is_ok());
}
