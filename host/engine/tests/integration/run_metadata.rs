//! The custom metadata of runs, which their events get.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Callback, Content, CustomAgent, CustomAgentSpec, Event, EventData,
    JsonMap, MAX_JSON_DEPTH, Plugin, RunConfig, RunError,
};
use hatchery_engine::{Plugins, Runner};
use serde_json::{Value, json};

use crate::support::*;

/// An agent whose event has its own metadata.
struct MarkingAgent;

#[async_trait]
impl CustomAgent for MarkingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let metadata = json!({"source": "agent", "page": 3});
        cx.emit(EventData { custom_metadata: Some(Box::new(metadata)), ..EventData::default() }).await.map(drop)
    }
}

/// A plugin that replaces every event by one without metadata.
struct ReplacingPlugin;

#[async_trait]
impl Callback for ReplacingPlugin {
    fn name(&self) -> &str {
        "replacing"
    }
}

#[async_trait]
impl Plugin for ReplacingPlugin {
    async fn on_event(&self, _: &CallContext, event: &Event) -> Result<Option<EventData>, RunError> {
        let content = Some(Arc::new(Content::model("replaced")));
        Ok(Some(EventData { author: event.author.clone(), content, ..EventData::default() }))
    }
}

fn marking() -> Agent {
    Agent::new(
        "root",
        "",
        AgentKind::Custom(CustomAgentSpec { code: Arc::new(MarkingAgent), model: None, tools: vec![] }),
    )
}

fn config(metadata: Value) -> RunConfig {
    RunConfig { custom_metadata: Some(Arc::new(map(metadata))), ..RunConfig::default() }
}

fn metadata(event: &Event) -> JsonMap {
    event.custom_metadata.as_deref().and_then(Value::as_object).cloned().unwrap_or_default()
}

#[tokio::test]
async fn the_own_metadata_of_an_event_takes_precedence() {
    let mut app = Harness::new(marking()).await;
    app.config = config(json!({"source": "request", "ticket": 7}));
    let events = app.run("hi").await;
    assert_eq!(metadata(&events[0]), map(json!({"source": "agent", "page": 3, "ticket": 7})));
}

#[tokio::test]
async fn an_event_that_replaces_another_has_the_metadata_of_the_run() {
    let mut app = Harness::new(marking()).await;
    let plugins = Plugins::new(vec![Arc::new(ReplacingPlugin) as Arc<dyn Plugin>]).unwrap();
    app.runner = Runner::with_plugins(app.runner.services().clone(), plugins);
    app.config = config(json!({"ticket": 7}));
    let events = app.run("hi").await;
    assert_eq!(brief(&events[0]), "root: replaced");
    assert_eq!(metadata(&events[0]), map(json!({"ticket": 7})));
}

#[tokio::test]
async fn metadata_that_is_nested_too_deeply_is_refused() {
    let mut app = Harness::new(marking()).await;
    let deep = (0..MAX_JSON_DEPTH).fold(json!(1), |inner, _| json!([inner]));
    app.config = config(json!({ "a": deep }));
    let error = app.runner.run(app.app.clone(), app.request(Content::user("hi"))).await.unwrap_err();
    assert_eq!(error.code(), "BAD_INPUT");
    assert_eq!(error.to_string(), "the custom metadata of the run is nested more than 100 levels deep");
}
