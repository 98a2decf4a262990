//! The agent tree: names, positions, and invalid trees.

use hatchery_core::{Agent, AgentKind, AgentTree, TreeError};
use hatchery_engine::App;

use crate::support::workflow;

fn leaf(name: &str) -> Agent {
    workflow(name, AgentKind::Sequential, vec![])
}

fn family() -> AgentTree {
    let left = workflow("left", AgentKind::Parallel, vec![leaf("l1"), leaf("l2")]);
    AgentTree::new(workflow("root", AgentKind::Sequential, vec![left, leaf("right")])).unwrap()
}

fn tree_error(root: Agent) -> String {
    App::new("app", root).unwrap_err().to_string()
}

#[test]
fn every_agent_is_found_by_its_name() {
    let tree = family();
    for name in ["root", "left", "right", "l1", "l2"] {
        assert_eq!(tree.agent(tree.find_agent(name).unwrap()).name, name);
    }
    assert_eq!(tree.find_agent("l3"), None);
}

#[test]
fn an_agent_is_found_below_any_agent() {
    let left = workflow("left", AgentKind::Parallel, vec![leaf("l1"), leaf("l2")]);
    let name = |found: Option<&Agent>| found.map(|agent| agent.name.clone());
    assert_eq!(name(left.find_agent("left")).as_deref(), Some("left"));
    assert_eq!(name(left.find_agent("l2")).as_deref(), Some("l2"));
    assert_eq!(name(left.find_sub_agent("l1")).as_deref(), Some("l1"));
    assert!(left.find_sub_agent("left").is_none() && left.find_agent("right").is_none());
}

#[test]
fn an_agent_has_the_parent_that_it_was_added_to() {
    let tree = family();
    let parent = |name: &str| tree.parent(tree.find_agent(name).unwrap()).map(|id| tree.agent(id).name.clone());
    assert_eq!(parent("l2").as_deref(), Some("left"));
    assert_eq!(parent("left").as_deref(), Some("root"));
    assert_eq!(parent("root"), None);
}

#[test]
fn the_root_is_above_all_others() {
    let tree = family();
    assert_eq!(tree.agent(tree.root()).name, "root");
    for (id, _) in tree.iter().skip(1) {
        assert_eq!(tree.ancestors(id).last(), Some(tree.root()));
    }
    assert_eq!(tree.path(tree.find_agent("l1").unwrap()), "root/left/l1");
}

#[test]
fn a_sub_agent_is_found_only_below_its_own_parent() {
    let tree = family();
    let id = |name: &str| tree.find_agent(name).unwrap();
    assert_eq!(tree.find_sub_agent(id("root"), "l1"), Some(id("l1")), "however deep");
    assert_eq!(tree.find_sub_agent(id("left"), "l1"), Some(id("l1")));
    assert_eq!(tree.find_sub_agent(id("right"), "l1"), None);
    assert_eq!(tree.find_sub_agent(id("left"), "left"), None, "an agent is not below itself");
    assert_eq!(tree.find_sub_agent(id("left"), "root"), None);
}

#[test]
fn each_agent_is_listed_before_the_agents_below_it() {
    let app = App::new("app", workflow("root", AgentKind::Sequential, vec![leaf("a"), leaf("b")])).unwrap();
    assert_eq!(app.agent_names(), ["root", "a", "b"]);
    let names: Vec<_> = family().iter().map(|(_, agent)| agent.name.clone()).collect();
    assert_eq!(names, ["root", "left", "l1", "l2", "right"]);
}

#[test]
fn two_agents_of_one_name_are_rejected_and_both_are_named() {
    let other = workflow("other", AgentKind::Parallel, vec![leaf("twin")]);
    assert_eq!(
        tree_error(workflow("root", AgentKind::Sequential, vec![leaf("twin"), other])),
        "two agents are named `twin`: one is `root/twin`, the other is `root/other/twin`; names must be unique in the whole tree"
    );
}

#[test]
fn an_agent_below_one_of_its_own_name_is_rejected_and_both_are_named() {
    assert_eq!(
        tree_error(workflow("root", AgentKind::Sequential, vec![leaf("root")])),
        "two agents are named `root`: one is `root`, the other is `root/root`; names must be unique in the whole tree"
    );
}

#[test]
fn the_same_agent_in_two_places_is_rejected() {
    let shared = leaf("shared");
    let root = workflow("root", AgentKind::Sequential, vec![shared.clone(), shared]);
    assert!(matches!(AgentTree::new(root), Err(TreeError::Duplicate { name, .. }) if name == "shared"));
}

#[test]
fn unusable_names_are_rejected() {
    for (name, reason) in [
        ("", "is empty"),
        ("user", "is reserved for messages of users"),
        ("a.b", "may not hold a dot, which joins the names of parallel branches"),
        ("a/b", "may hold only letters, digits, `_`, `-` and spaces"),
        ("é", "must start with a letter, a digit or `_`"),
        ("-a", "must start with a letter, a digit or `_`"),
        (" a", "must start with a letter, a digit or `_`"),
    ] {
        assert_eq!(tree_error(leaf(name)), format!("agent name `{name}` {reason}"));
    }
}

#[test]
fn usable_names_are_accepted() {
    for name in ["a", "A1", "_a", "1a", "my agent", "my-agent_2", "users"] {
        assert!(AgentTree::new(leaf(name)).is_ok(), "{name}");
    }
}
