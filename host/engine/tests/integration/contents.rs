//! Prompt contents of complete runs. The unit tests of the view have the tables of cases.

use std::sync::Arc;

use hatchery_core::{
    Content, Event, EventData, FunctionCall, LlmRequest, ModelCapabilities, PartData, REQUEST_CONFIRMATION,
    ResponseGrouping, SessionKey,
};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

/// Formats the contents of a request: role `u`ser or `m`odel, the text, `+` per call, `-` per response.
fn contents_of(request: &LlmRequest) -> Vec<String> {
    let brief = |content: &Arc<Content>| {
        let calls = "+".repeat(content.function_calls().count());
        let responses = "-".repeat(content.function_responses().count());
        let role = content.role.as_deref().unwrap_or_default().get(..1).unwrap_or_default();
        format!("{role}:{}{calls}{responses}", content.text())
    };
    request.contents.iter().map(brief).collect()
}

fn calls_twice(capabilities: ModelCapabilities) -> Arc<Scripted> {
    let call = || Reply::call("roll", json!({}));
    Arc::new(Scripted::sequence([call(), call(), Reply::text("done")]).with_capabilities(capabilities))
}

async fn rolls(model: &Arc<Scripted>, group: Option<bool>) -> Vec<String> {
    let agent = llm_on("root", model, |llm| llm.tools = vec![tool("roll", |_, _| Ok(json!(4)))]);
    let mut app = Harness::new(agent).await;
    app.config.group_function_responses = group;
    app.run("hi").await;
    contents_of(&model.requests()[2])
}

#[tokio::test]
async fn a_run_can_batch_the_responses_of_consecutive_calls() {
    assert_eq!(rolls(&calls_twice(ModelCapabilities::default()), None).await, ["u:hi", "m:+", "u:-", "m:+", "u:-"]);
    assert_eq!(rolls(&calls_twice(ModelCapabilities::default()), Some(true)).await, ["u:hi", "m:+", "m:+", "u:--"]);
}

#[tokio::test]
async fn responses_are_batched_for_models_that_expect_it_unless_the_run_sets_it() {
    for (response_grouping, group, expected) in [
        (ResponseGrouping::Batched, None, 4),
        (ResponseGrouping::PerCall, None, 5),
        (ResponseGrouping::Batched, Some(false), 5),
        (ResponseGrouping::PerCall, Some(true), 4),
    ] {
        let capabilities = ModelCapabilities { response_grouping, ..ModelCapabilities::default() };
        let contents = rolls(&calls_twice(capabilities), group).await;
        assert_eq!(contents.len(), expected, "{response_grouping:?} {group:?}");
    }
}

#[tokio::test]
async fn a_change_of_grouping_between_runs_changes_the_whole_prompt() {
    let call = || Reply::call("roll", json!({}));
    let model = Arc::new(Scripted::sequence([
        call(),
        call(),
        Reply::text("done"),
        Reply::text("again"),
        Reply::text("and again"),
    ]));
    let agent = llm_on("root", &model, |llm| llm.tools = vec![tool("roll", |_, _| Ok(json!(4)))]);
    let mut app = Harness::new(agent).await;
    app.run("hi").await;
    app.config.group_function_responses = Some(true);
    app.run("hi").await;
    assert_eq!(contents_of(&model.requests()[3]), ["u:hi", "m:+", "m:+", "u:--", "m:done", "u:hi"]);
    app.config.group_function_responses = None;
    app.run("hi").await;
    assert_eq!(contents_of(&model.requests()[4])[..5], ["u:hi", "m:+", "u:-", "m:+", "u:-"]);
}

#[tokio::test]
async fn confirmation_requests_are_not_sent_to_models() {
    let model = Arc::new(Scripted::sequence(["one"]));
    let app = Harness::new(llm_on("root", &model, |_| {})).await;
    let question = FunctionCall { name: REQUEST_CONFIRMATION.into(), ..FunctionCall::default() };
    let content = Some(Arc::new(Content::new("model", vec![PartData::FunctionCall(question).into()])));
    let event = Event::new(EventData { author: "root".into(), content, ..EventData::default() });
    let key = SessionKey::new("app", USER, SESSION);
    app.runner.services().sessions.append(&key, &event).await.unwrap();
    app.run("hi").await;
    assert_eq!(contents_of(&model.requests()[0]), ["u:hi"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_can_be_appended_while_a_prompt_is_built() {
    let model = Arc::new(Scripted::new().default_reply("ok").record_requests());
    let app = Harness::new(llm_on("root", &model, |_| {})).await;
    let sessions = app.runner.services().sessions.clone();
    let appending = tokio::spawn(async move {
        let key = SessionKey::new("app", USER, SESSION);
        for number in 0..100 {
            let content = Some(Arc::new(Content::user(format!("other {number}"))));
            let event = Event::new(EventData { author: "user".into(), content, ..EventData::default() });
            sessions.append(&key, &event).await.unwrap();
        }
    });
    for _ in 0..20 {
        app.run("hi").await;
    }
    appending.await.unwrap();
    app.run("the last").await;
    let requests = model.requests();
    let last = contents_of(requests.last().unwrap());
    assert_eq!(last.iter().filter(|text| text.starts_with("u:other")).count(), 100);
    assert_eq!(last.iter().filter(|text| *text == "m:ok").count(), 20);
}
