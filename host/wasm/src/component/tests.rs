//! Components made by hand, for what no honest component says of itself.

use std::time::{Duration, Instant};

use super::*;
use crate::bindings::exports::hatchery::agent::guest_tools::ToolSpec;
use crate::convert::wit;
use crate::engine::EngineOptions;

/// Describes a component from its text; it is not checked against the contract.
async fn described(wat: &str, limits: Limits) -> Result<Component, LoadError> {
    let options = EngineOptions { instances: 10, pooling: false, ..EngineOptions::default() };
    let engine = Engine::new(&options).unwrap();
    let code = wasmtime::component::Component::new(engine.wasm(), wat::parse_str(wat).unwrap()).unwrap();
    let contract = Contract { version: "0.1.0".into(), imports: Vec::new(), exports: Vec::new() };
    let settings = ComponentSettings { limits, ..ComponentSettings::default() };
    Component::describe(engine, "made", "hash".into(), contract, &code, settings).await
}

/// A component named `made` with these agents.
pub(crate) async fn with_agents(agents: Vec<AgentSpec>) -> Arc<Component> {
    let mut component = described("(component)", Limits::default()).await.unwrap();
    component.agents = agents;
    Arc::new(component)
}

/// A sequential agent.
pub(crate) fn agent(name: impl Into<String>, sub_agents: Vec<String>) -> AgentSpec {
    AgentSpec {
        name: name.into(),
        description: String::new(),
        kind: guest_agents::AgentKind::Sequential,
        sub_agents,
        before_agent: Vec::new(),
        after_agent: Vec::new(),
    }
}

fn tool(name: String) -> ToolSpec {
    let declaration = wit::FunctionDeclaration { name, description: String::new(), parameters: None, response: None };
    ToolSpec { declaration, long_running: false }
}

fn callback(name: String) -> guest_callbacks::CallbackSpec {
    guest_callbacks::CallbackSpec { name, points: Vec::new() }
}

#[tokio::test]
async fn a_component_with_too_many_items_is_refused() {
    let mut component = described("(component)", Limits::default()).await.unwrap();
    let agents = |count| (0..count).map(|number| agent(format!("a{number}"), Vec::new())).collect::<Vec<_>>();
    let tools = |count| (0..count).map(|number| tool(format!("t{number}"))).collect::<Vec<_>>();
    let callbacks = |count| (0..count).map(|number| callback(format!("c{number}"))).collect::<Vec<_>>();
    component.accept(agents(256), tools(1000), callbacks(1000)).unwrap();
    let refused = |mut component: Component, agents, tools, callbacks| component.accept(agents, tools, callbacks);
    for (items, most, result) in [
        ("agents", 256, refused(fresh().await, agents(257), Vec::new(), Vec::new())),
        ("tools", 1000, refused(fresh().await, Vec::new(), tools(1001), Vec::new())),
        ("callbacks", 1000, refused(fresh().await, Vec::new(), Vec::new(), callbacks(1001))),
    ] {
        let count = most + 1;
        assert_eq!(
            result.unwrap_err(),
            format!("it has {count} {items}, and a component may have {most}; make several components of it")
        );
    }
}

async fn fresh() -> Component {
    described("(component)", Limits::default()).await.unwrap()
}

#[tokio::test]
async fn a_component_that_does_not_come_to_an_end_of_its_description_is_refused_after_five_seconds() {
    let spins = "(component (core module $m (func $spin (loop br 0)) (start $spin)) (core instance (instantiate $m)))";
    let minute = Duration::from_secs(60);
    let began = Instant::now();
    let error = described(spins, Limits { cpu: minute, wall: minute, ..Limits::default() }).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "component `made` cannot describe itself: it needs more than 5s for that; let `describe` only say what there is"
    );
    assert!(began.elapsed() < Duration::from_secs(20));
    let quick = Limits { cpu: minute, wall: Duration::from_millis(50), ..Limits::default() };
    let error = described(spins, quick).await.err().unwrap();
    assert!(error.to_string().contains("raise `limits.wall`"), "{error}");
}

#[tokio::test]
async fn limits_of_time_without_an_end_are_none() {
    let endless = Limits { cpu: Duration::MAX, wall: Duration::MAX, agent_wall: Duration::MAX, ..Limits::default() };
    assert!(described("(component)", endless).await.is_ok());
}
