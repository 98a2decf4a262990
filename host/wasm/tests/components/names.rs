//! Name resolution in the catalog, and agents built from descriptions.

use hatchery_core::{
    AgentKind, CodeExecution, Examples, HookPoint, ItemKind, ItemResolver, JsonMap, LlmAgent, Planner, ResolveError,
    RunError,
};
use hatchery_wasm::Catalog;
use serde_json::json;

use crate::support::{TestCatalog, call_in, component, context};

#[tokio::test]
async fn items_are_found_by_qualified_and_unqualified_name() {
    let catalog = TestCatalog::new().with("misbehaver").with("dice").catalog().await;
    assert_eq!(catalog.tool("misbehaver/echo").unwrap().declaration().name, "echo");
    assert_eq!(catalog.tool("echo").unwrap().declaration().name, "echo");
    assert_eq!(catalog.callback("trapping_callback").unwrap().name(), "trapping_callback");
    assert_eq!(catalog.agent("misbehaver/failing_agent").unwrap().name, "failing_agent");
}

#[tokio::test]
async fn an_ambiguous_name_must_be_qualified() {
    let test_catalog = TestCatalog::new();
    test_catalog.write("one.wasm", std::fs::read(component("misbehaver")).unwrap());
    test_catalog.write("two.wasm", std::fs::read(component("misbehaver")).unwrap());
    let catalog = test_catalog.open().await.current();
    let error = catalog.tool("echo").map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "tool `echo` is offered by several components; write one of `one/echo`, `two/echo`");
    assert!(catalog.tool("two/echo").is_ok());
}

#[tokio::test]
async fn an_unknown_name_lists_the_known_ones() {
    let catalog = TestCatalog::new().with("relay").catalog().await;
    let error = catalog.agent("relay/nobody").map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "agent `relay/nobody` not found; available: `relay/relay`, `relay/talker`, `relay/counter`, `relay/asker`"
    );
    let error = catalog.tool("nothing").map(|_| ()).unwrap_err();
    let builtin: Vec<_> = hatchery_engine::builtin::tools().names().map(|name| format!("`{name}`")).collect();
    assert_eq!(error.to_string(), format!("tool `nothing` not found; available: {}", builtin.join(", ")));
}

#[tokio::test]
async fn built_in_tools_take_precedence() {
    let catalog = TestCatalog::new().catalog().await;
    assert_eq!(catalog.tool("exit_loop").unwrap().declaration().name, "exit_loop");
}

#[tokio::test]
async fn root_agents_become_apps_with_their_tree() {
    let catalog = TestCatalog::new().with("relay").catalog().await;
    assert_eq!(catalog.apps.keys().collect::<Vec<_>>(), ["asker", "relay"]);
    let relay = catalog.app("relay").unwrap();
    assert_eq!(relay.agent_names(), ["relay", "talker", "counter"]);
    assert!(matches!(relay.root().kind, AgentKind::Custom(_)));
    let talker = relay.tree.agent(relay.tree.find_agent("talker").unwrap());
    let AgentKind::Llm(llm) = &talker.kind else { panic!("{}", talker.kind.label()) };
    assert_eq!(llm.model.as_ref().unwrap().name(), "scripted:relay.yaml");
}

#[tokio::test]
async fn a_component_is_a_toolset_of_its_tools() {
    let catalog = TestCatalog::new().with("gallery").with("relay").catalog().await;
    let set = catalog.toolset("gallery").unwrap();
    assert_eq!(set.name(), "gallery");
    let tools = set.tools(&context(&catalog)).await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.declaration().name.as_str()).collect();
    assert_eq!(names, catalog.components["gallery"].names(ItemKind::Tool).collect::<Vec<_>>());
    // A component without tools is not a toolset.
    let error = catalog.toolset("relay").map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "toolset `relay` not found; available: `gallery`");
}

#[tokio::test]
async fn every_kind_of_item_is_found_by_both_names_or_the_known_ones_are_listed() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    type Find = fn(&Catalog, &str) -> Result<(), ResolveError>;
    let kinds: [(&str, &str, Find); 4] = [
        ("plugin", "censor", |catalog, name| catalog.plugin(name, JsonMap::new()).map(drop)),
        ("code executor", "shout", |catalog, name| catalog.code_executor(name).map(drop)),
        ("summarizer", "counter", |catalog, name| catalog.summarizer(name).map(drop)),
        ("example provider", "sums", |catalog, name| catalog.examples(name).map(drop)),
    ];
    for (kind, name, find) in kinds {
        find(&catalog, name).unwrap();
        find(&catalog, &format!("gallery/{name}")).unwrap();
        let error = find(&catalog, "gallery/nothing").unwrap_err().to_string();
        assert_eq!(error, format!("{kind} `gallery/nothing` not found; available: `gallery/{name}`"));
    }
}

/// Returns the agent that uses every kind of item.
async fn fully_equipped_agent() -> (std::sync::Arc<Catalog>, LlmAgent) {
    // A second component exports the same names: an agent's own component takes precedence.
    let test_catalog = TestCatalog::new().with("gallery");
    test_catalog.write("other.wasm", std::fs::read(component("gallery")).unwrap());
    let catalog = test_catalog.open().await.current();
    match catalog.agent("gallery/equipped").unwrap().kind {
        AgentKind::Llm(llm) => (catalog, *llm),
        kind => panic!("{}", kind.label()),
    }
}

#[tokio::test]
async fn an_agent_gets_its_planner_examples_and_code_executor() {
    let (catalog, llm) = fully_equipped_agent().await;
    assert_eq!(llm.planner, Some(Planner::PlanReAct));
    let Some(Examples::Chosen(sums)) = &llm.examples else { panic!("no examples") };
    assert_eq!(sums.examples("2 + 2?", &context(&catalog)).await.unwrap().len(), 1);
    let Some(CodeExecution::Host(runner)) = &llm.code_execution else { panic!("nobody runs code") };
    assert_eq!(runner.executor.name(), "shout");
    assert_eq!((runner.error_retries, runner.stateful, runner.optimize_data_file), (1, true, true));
    assert!(!runner.code_delimiters.is_empty());
    let name = |point| llm.callbacks.at(point).next().unwrap().name();
    assert_eq!(name(HookPoint::OnModelError), "mend_model");
    assert_eq!(name(HookPoint::OnToolError), "mend_tool");
}

#[tokio::test]
async fn a_callback_answers_for_a_failed_agent() {
    let (catalog, _) = fully_equipped_agent().await;
    let agent = catalog.agent("gallery/equipped").unwrap();
    let callbacks: Vec<_> = agent.callbacks.at(HookPoint::OnAgentError).collect();
    let [callback] = callbacks.as_slice() else { panic!("{} callbacks", callbacks.len()) };
    let answer = callback.on_agent_error(&context(&catalog), &RunError::Cancelled).await.unwrap();
    assert_eq!(answer.map(|content| content.text()).as_deref(), Some("The agent failed with CANCELLED."));
}

#[tokio::test]
async fn an_agent_selects_and_renames_tools_of_a_toolset() {
    let (catalog, llm) = fully_equipped_agent().await;
    let cx = context(&catalog);
    let tools = llm.toolsets[0].tools(&cx).await.unwrap();
    let [tool] = tools.as_slice() else { panic!("{} tools", tools.len()) };
    assert_eq!(tool.declaration().name, "own_configured");
    let args = json!({"key": "street"});
    assert_eq!(
        tool.call(args.as_object().unwrap().clone(), &cx).await.unwrap(),
        call_in(&cx, &catalog, "gallery/configured", args).await.unwrap()
    );
}
