//! Plugins of components, in runs of the engine and on their own.

use std::sync::Arc;

use hatchery_core::{
    CallContext, Content, Event, EventData, ItemKind, ItemResolver, JsonMap, Plugin, RunConfig, RunError, StreamingMode,
};
use hatchery_engine::Plugins;
use hatchery_models::scripted::{Reply, Scripted, Turn};
use hatchery_wasm::Limits;
use serde_json::{Value, json};

use crate::imports::CapturedLog;
use crate::support::{Chat, OneModel, TestCatalog, invocation, transcript};

/// Grants of the censor: it counts the runs of the app.
fn runs() -> Value {
    json!({"state": {"write": ["app:censor_runs"]}})
}

async fn censor(limits: Limits) -> Arc<dyn Plugin> {
    let test_catalog = TestCatalog::new().with("gallery").with_limits(limits).with_grants("gallery", runs());
    let catalog = test_catalog.catalog().await;
    catalog.plugin("gallery/censor", JsonMap::new()).unwrap()
}

/// Starts a chat with the clerk, with the censor as a plugin.
async fn clerk(model: Scripted) -> Chat {
    let catalog = TestCatalog::new().with("gallery").with_grants("gallery", runs()).catalog().await;
    let plugins = Plugins::new(vec![catalog.plugin("censor", JsonMap::new()).unwrap()]).unwrap();
    Chat::new(&catalog, "clerk", Arc::new(OneModel(Arc::new(model))), plugins)
}

fn cx() -> CallContext {
    CallContext::new(invocation("hello"), "agent", None)
}

fn texts(events: &[Arc<Event>]) -> Vec<String> {
    transcript(events).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty()).collect()
}

#[tokio::test]
async fn a_plugin_changes_the_user_message_and_the_model_request() {
    let polite = Turn::new("Really.").user("it is a **** shame").system("Be polite.");
    let (_, error) = clerk(Scripted::from_turns([polite])).await.say("it is a damn shame", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
}

#[tokio::test]
async fn an_event_that_a_plugin_replaces_is_yielded_and_stored() {
    let chat = clerk(Scripted::new().default_reply("a damn fine day")).await;
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(texts(&events), ["a **** fine day"]);
    assert_eq!(events[0].custom_metadata.as_deref(), Some(&json!({"censored": true})));
    let stored = &chat.session().await.events[1];
    assert_eq!(texts(std::slice::from_ref(stored)), ["a **** fine day"]);
    assert_eq!(stored.id, events[0].id);
}

#[tokio::test]
async fn a_plugin_sees_partial_events() {
    let chat = clerk(Scripted::new().default_reply(Reply::chunks(["a damn ", "fine day"]))).await;
    let streamed = RunConfig { streaming_mode: StreamingMode::On, ..RunConfig::default() };
    let (events, _) = chat.say("hello", streamed).await;
    assert_eq!(texts(&events), ["a **** ", "fine day", "a **** fine day"]);
    assert!(events[..3].iter().all(|event| event.id == events[0].id));
}

#[tokio::test]
async fn hooks_that_a_plugin_does_not_list_are_not_called() {
    let censor = censor(Limits::default()).await;
    // In a cancelled run, every call fails.
    let cx = cx();
    cx.invocation.cancel.cancel();
    assert!(censor.before_run(&cx).await.unwrap().is_none());
    assert!(censor.after_agent(&cx).await.unwrap().is_none());
    assert!(censor.before_tool(&cx, "tool", &mut JsonMap::new()).await.unwrap().is_none());
    assert!(matches!(censor.after_run(&cx).await, Err(RunError::Cancelled)));
}

#[tokio::test]
async fn changes_of_state_after_a_run_are_stored() {
    let chat = clerk(Scripted::new().default_reply("hello")).await;
    for runs in 1..=2 {
        chat.say("hello", RunConfig::default()).await;
        assert_eq!(chat.session().await.state.get("app:censor_runs"), Some(&json!(runs)));
    }
}

#[tokio::test]
async fn a_failure_of_a_plugin_names_it_and_ends_the_run() {
    let censor = censor(Limits::default()).await;
    let cx = cx();
    // Its run counter is a number.
    cx.set_state("app:censor_runs", json!("many"));
    match censor.after_run(&cx).await {
        Err(error @ RunError::Extension { kind: ItemKind::Plugin, .. }) => {
            assert!(error.to_string().starts_with("plugin `gallery/censor`: "), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_plugin_that_runs_out_of_memory_fails_its_call_alone() {
    let censor = censor(Limits { memory: 4 << 20, ..Limits::default() }).await;
    let cx = cx();
    let long = Content::user("damn ".repeat(2 << 20));
    let error = censor.on_user_message(&cx, &long).await.unwrap_err();
    assert_eq!(error.code(), "COMPONENT_MEMORY");
    assert_eq!(
        error.to_string(),
        "component `gallery`: plugin `censor` failed: it exceeded its limit of 4 MiB of memory"
    );
    let short = censor.on_user_message(&cx, &Content::user("damn")).await.unwrap();
    assert_eq!(short.unwrap().text(), "****");
}

#[tokio::test]
async fn an_event_that_a_plugin_makes_too_large_is_refused() {
    let censor = censor(Limits { result: 100_000, ..Limits::default() }).await;
    let content = Some(Arc::new(Content::model("damn ".repeat(20_000))));
    let event = Event::new(EventData { content, ..EventData::default() });
    let error = censor.on_event(&cx(), &event).await.unwrap_err();
    assert_eq!(error.code(), "COMPONENT_LIMIT");
    assert!(error.to_string().ends_with("it exceeded its limit of 100000 B in one result"), "{error}");
}

#[tokio::test]
async fn a_failed_run_is_reported_to_the_plugin_and_keeps_its_own_error() {
    let chat = clerk(Scripted::new().default_reply(Reply::status(429, "slow down"))).await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let (_, error) = chat.say("hello", RunConfig::default()).await;
    drop(guard);
    assert_eq!(error.expect("a failure").code(), "MODEL_RATE_LIMITED");
    assert_eq!(log.lines("hatchery::component"), ["a run has failed code=MODEL_RATE_LIMITED"]);
}

#[tokio::test]
async fn a_plugin_that_fails_after_a_failed_run_leaves_a_line_in_the_log() {
    let censor = censor(Limits::default()).await;
    let cx = cx();
    cx.invocation.cancel.cancel();
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    censor.on_run_error(&cx, &RunError::Stopped).await;
    drop(guard);
    assert_eq!(
        log.lines("hatchery_wasm::contract::component::plugin"),
        ["after a run that failed, plugin `gallery/censor` failed too: the run was cancelled"]
    );
}

#[tokio::test]
async fn the_error_of_a_plugin_is_one_line_of_the_log() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let liar = catalog.plugin("misbehaver/liar", JsonMap::new()).unwrap();
    let (agent, message) = ("agent".into(), "broken\nINFO all is well".into());
    let failure = RunError::Agent { agent, code: "BROKEN".into(), message };
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    liar.on_run_error(&cx(), &failure).await;
    liar.close().await;
    drop(guard);
    let lines = log.lines("hatchery_wasm::contract::component::plugin");
    let [after_run, close] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(after_run.ends_with(r"broken\nINFO all is well"), "{after_run}");
    assert_eq!(close, r"`close` of plugin `misbehaver/liar` failed: broken\nINFO all is well");
}
