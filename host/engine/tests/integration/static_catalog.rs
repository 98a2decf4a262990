//! The static catalog of a program that embeds the engine.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    AgentKind, CallContext, Content, Event, Example, ExampleProvider, ItemResolver, JsonMap, ResolveError, RunError,
    Summarizer,
};
use hatchery_engine::StaticCatalog;
use hatchery_engine::build::{CallbackPlugin, llm};
use hatchery_engine::toolsets::StaticToolset;
use serde_json::json;

use crate::support::{FixedCallback, map, tool};

/// A summarizer and an example provider that return nothing.
struct Empty;

#[async_trait]
impl Summarizer for Empty {
    async fn summarize(&self, _: &[Arc<Event>], _: &CallContext) -> Result<Option<Content>, RunError> {
        Ok(None)
    }
}

#[async_trait]
impl ExampleProvider for Empty {
    async fn examples(&self, _: &str, _: &CallContext) -> Result<Vec<Example>, RunError> {
        Ok(Vec::new())
    }
}

fn catalog() -> StaticCatalog {
    StaticCatalog::default()
        .with_tool(tool("add", |_, _| Ok(json!(1))))
        .with_toolset(Arc::new(StaticToolset::new("maths")))
        .with_callback(FixedCallback { name: "guard", ..FixedCallback::default() }.arc())
        .with_plugin(Arc::new(CallbackPlugin::new("audit")))
        .with_agent(llm("helper").build().unwrap())
        .with_summarizer("short", Arc::new(Empty))
        .with_examples("polite", Arc::new(Empty))
}

#[test]
fn items_are_resolved_by_name() {
    let registry = catalog();
    assert_eq!(registry.tool("add").unwrap().declaration().name, "add");
    assert_eq!(registry.tool("exit_loop").unwrap().declaration().name, "exit_loop");
    assert_eq!(registry.toolset("maths").unwrap().name(), "maths");
    assert_eq!(registry.callback("guard").unwrap().name(), "guard");
    assert_eq!(registry.plugin("audit", JsonMap::new()).unwrap().name(), "audit");
    assert!(matches!(registry.agent("helper").unwrap().kind, AgentKind::Llm(_)));
    assert!(registry.summarizer("short").is_ok() && registry.examples("polite").is_ok());
}

#[test]
fn the_error_for_an_unknown_item_lists_the_known_ones() {
    let registry = catalog();
    let message = |error: Option<ResolveError>| error.unwrap().to_string();
    assert_eq!(message(registry.toolset("x").err()), "toolset `x` not found; available: `maths`");
    assert_eq!(message(registry.callback("x").err()), "callback `x` not found; available: `guard`");
    assert_eq!(message(registry.plugin("x", JsonMap::new()).err()), "plugin `x` not found; available: `audit`");
    assert_eq!(message(registry.agent("x").err()), "agent `x` not found; available: `helper`");
    assert_eq!(message(registry.summarizer("x").err()), "summarizer `x` not found; available: `short`");
    assert_eq!(message(registry.examples("x").err()), "example provider `x` not found; available: `polite`");
    assert_eq!(message(StaticCatalog::default().toolset("x").err()), "toolset `x` not found; available: none");
}

#[test]
fn a_registered_plugin_takes_no_arguments() {
    let error = catalog().plugin("audit", map(json!({"level": 3}))).err().unwrap();
    assert_eq!(error.to_string(), "plugin `audit` cannot be used: it takes no arguments");
}

#[test]
fn a_later_registration_replaces_an_earlier_one() {
    let registry = catalog().with_agent(llm("helper").description("New.").build().unwrap());
    assert_eq!(registry.agent("helper").unwrap().description, "New.");
}
