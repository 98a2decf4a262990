//! Agents whose runs can be interrupted, paused and resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hatchery_core::{Agent, AgentContext, AgentKind, CustomAgent, CustomAgentSpec, Event, RunError, Tool};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_test_support::{llm_with, long_running, tool};
use serde_json::{Value, json};

/// Returns a model that answers by the content of the request, so that it answers the same however often it is called.
pub fn calls_then_answers(calls: &[&str], text: &str) -> Scripted {
    let mut model = Scripted::new();
    let mut names = calls.iter();
    let Some(first) = names.next() else { return model.default_reply(text) };
    let mut before = *first;
    for name in names {
        model = model.on_tool(before, Reply::call(*name, json!({})));
        before = name;
    }
    model.on_tool(before, text).default_reply(Reply::call(*first, json!({})))
}

/// Creates a tool that counts its calls in `runs` and in the state of the session.
pub fn counting_tool(name: &str, runs: &Arc<AtomicUsize>) -> Arc<dyn Tool> {
    let runs = runs.clone();
    tool(name, move |_, cx| {
        runs.fetch_add(1, Ordering::Relaxed);
        let so_far = cx.state("count").and_then(|count| count.as_u64()).unwrap_or_default();
        cx.set_state("count", json!(so_far + 1));
        Ok(json!(so_far + 1))
    })
}

/// Creates an agent that calls `calls` in sequence and then answers.
pub fn counting_agent(name: &str, calls: &'static [&'static str], text: &str) -> Agent {
    let runs = Arc::default();
    llm_with(name, calls_then_answers(calls, text), |llm| {
        llm.tools = calls.iter().map(|call| counting_tool(call, &runs)).collect();
        llm.output_key = Some(format!("answer_of_{name}"));
    })
}

/// Creates an agent in code.
pub fn workflow_code(name: &str, code: Arc<dyn CustomAgent>) -> Agent {
    let kind = AgentKind::Custom(CustomAgentSpec { code, model: None, tools: Vec::new() });
    Agent::new(name, "", kind)
}

/// Emits an event before and after its sub-agent.
pub struct WrappingAgent;

#[async_trait]
impl CustomAgent for WrappingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("before").await?;
        cx.call.set_state("around", json!(true));
        cx.run_sub_agent("inner").await?;
        cx.say("after").await.map(|_| ())
    }
}

/// Returns a long-running tool, which counts its calls in `runs`.
pub fn order_tool(runs: &Arc<AtomicUsize>, first: Value) -> Arc<dyn Tool> {
    let runs = runs.clone();
    long_running("order", move |_, _| {
        runs.fetch_add(1, Ordering::Relaxed);
        Ok(first.clone())
    })
}

/// Creates an agent that calls the tool of [`order_tool`] and then answers.
pub fn ordering_agent(runs: &Arc<AtomicUsize>, first: Value, texts: &[&str]) -> Agent {
    let texts = texts.iter().map(|text| Reply::text(*text));
    let model = Scripted::sequence(std::iter::once(Reply::call("order", json!({}))).chain(texts));
    llm_with("orders", model, |llm| llm.tools = vec![order_tool(runs, first)])
}

/// Returns the id of the long-running call of the first event.
pub fn call_id(events: &[Arc<Event>]) -> String {
    events[0].long_running_tool_ids[0].clone()
}
