//! Names in the catalog, and agents built from descriptions.

use hatchery_core::{AgentKind, Lookup};

use crate::support::{Lab, component};

#[tokio::test]
async fn items_are_found_by_full_and_by_short_name() {
    let catalog = Lab::new().with("misbehaver").with("dice").catalog().await;
    assert_eq!(catalog.tool("misbehaver/echo").unwrap().declaration().name, "echo");
    assert_eq!(catalog.tool("echo").unwrap().declaration().name, "echo");
    assert_eq!(catalog.callback("trapping_callback").unwrap().name(), "trapping_callback");
    assert_eq!(catalog.agent("misbehaver/failing_agent").unwrap().name, "failing_agent");
}

#[tokio::test]
async fn a_short_name_that_several_offer_must_be_written_in_full() {
    let lab = Lab::new();
    lab.write("one.wasm", std::fs::read(component("misbehaver")).unwrap());
    lab.write("two.wasm", std::fs::read(component("misbehaver")).unwrap());
    let catalog = lab.open().await.current();
    let error = catalog.tool("echo").map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "tool `echo` is offered by several components; write one of `one/echo`, `two/echo`");
    assert!(catalog.tool("two/echo").is_ok());
}

#[tokio::test]
async fn an_unknown_name_says_what_there_is() {
    let catalog = Lab::new().with("relay").catalog().await;
    let error = catalog.agent("relay/nobody").map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "agent `relay/nobody` not found; there is `relay/relay`, `relay/talker`, `relay/counter`, `relay/asker`"
    );
    let error = catalog.tool("nothing").map(|_| ()).unwrap_err();
    let builtin: Vec<_> = hatchery_engine::builtin::NAMES.iter().map(|name| format!("`{name}`")).collect();
    assert_eq!(error.to_string(), format!("tool `nothing` not found; there is {}", builtin.join(", ")));
}

#[tokio::test]
async fn built_in_tools_win() {
    let catalog = Lab::new().catalog().await;
    assert_eq!(catalog.tool("exit_loop").unwrap().declaration().name, "exit_loop");
}

#[tokio::test]
async fn agents_that_are_below_no_other_become_apps_with_their_tree() {
    let catalog = Lab::new().with("relay").catalog().await;
    assert_eq!(catalog.apps.keys().collect::<Vec<_>>(), ["asker", "relay"]);
    let relay = catalog.app("relay").unwrap();
    assert_eq!(relay.agent_names(), ["relay", "talker", "counter"]);
    assert!(matches!(relay.root().kind, AgentKind::Custom(_)));
    let talker = relay.tree.agent(relay.tree.find_agent("talker").unwrap());
    let AgentKind::Llm(llm) = &talker.kind else { panic!("{}", talker.kind.label()) };
    assert_eq!(llm.model.as_ref().unwrap().name(), "scripted:relay.yaml");
}
