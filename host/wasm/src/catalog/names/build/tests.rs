//! Agent trees of components: their depth, their shape, and the tools of their agents.

use super::*;
use crate::catalog::names::{Components, NameOwners, root_agents};
use crate::contract::component::tests::{agent, with_agents, with_toolset};

pub(crate) async fn built(agents: Vec<AgentSpec>) -> Result<Agent, String> {
    let components = Components::from([("made".to_owned(), with_agents(agents).await)]);
    NameResolver::new(&components, &NameOwners::default(), None).agent("made/a0").map_err(|error| error.to_string())
}

/// Returns agents that each have the next one as sub-agent.
fn chain(length: usize) -> Vec<AgentSpec> {
    let next = |number: usize| (number + 1 < length).then(|| format!("a{}", number + 1));
    (0..length).map(|number| agent(format!("a{number}"), next(number).into_iter().collect())).collect()
}

#[tokio::test]
async fn a_chain_of_sub_agents_has_an_end() {
    assert!(built(chain(32)).await.is_ok());
    let error = built(chain(256)).await.map(|_| ()).unwrap_err();
    assert!(
        error.contains("`made/a32`") && error.contains("nested more than 32 deep; make the tree of agents flatter"),
        "{error}"
    );
}

#[tokio::test]
async fn an_agent_that_is_used_twice_is_refused_before_the_tree_grows() {
    // The full tree would have 2^30 agents.
    let two_sub_agents = |number: usize| vec![format!("a{}", number + 1); if number < 29 { 2 } else { 0 }];
    let error = built((0..30).map(|number| agent(format!("a{number}"), two_sub_agents(number))).collect()).await;
    let error = error.map(|_| ()).unwrap_err();
    assert!(
        error.contains("`made/a29`")
            && error.contains("used twice in one tree of agents; use a separate agent for each place"),
        "{error}"
    );
}

#[tokio::test]
async fn an_agent_below_itself_is_refused() {
    let error = built(vec![agent("a0", vec!["a1".into()]), agent("a1", vec!["made/a0".into()])]).await;
    let error = error.map(|_| ()).unwrap_err();
    assert!(error.contains("it is below itself: made/a0 → made/a1 → made/a0"), "{error}");
}

/// Returns an LLM agent `a0` with these tools: pairs of name and arguments.
pub(crate) fn with_tools(tools: &[(&str, Option<&str>)]) -> AgentSpec {
    let mut spec = agent("a0", Vec::new());
    let tools = tools.iter().map(|(name, args)| guest_agents::ToolUse {
        name: (*name).into(),
        args: args.map(Into::into),
        requires_confirmation: None,
    });
    spec.kind = guest_agents::AgentKind::Llm(guest_agents::LlmAgent {
        model: None,
        instruction: guest_agents::Instruction::None,
        global_instruction: guest_agents::Instruction::None,
        tools: tools.collect(),
        toolsets: Vec::new(),
        examples: guest_agents::Examples::None,
        planner: guest_agents::Planner::None,
        code_execution: guest_agents::CodeExecution::None,
        include_contents: guest_agents::IncludeContents::Default,
        input_schema: None,
        output_schema: None,
        output_key: None,
        max_steps: None,
        disallow_transfer_to_parent: false,
        disallow_transfer_to_peers: false,
        config: None,
        before_model: Vec::new(),
        after_model: Vec::new(),
        before_tool: Vec::new(),
        after_tool: Vec::new(),
        on_model_error: Vec::new(),
        on_tool_error: Vec::new(),
    });
    spec
}

#[tokio::test]
async fn tools_of_an_agent_are_checked_like_tools_in_yaml() {
    for (tools, expected) in [
        (vec![("exit_loop", None), ("exit_loop", None)], "two tools are named `exit_loop` to the model: number 1"),
        (vec![("nothing", None)], "tool `nothing` not found"),
        (vec![("AgentTool", None)], "AgentTool: missing field `agent`"),
        (vec![("AgentTool", Some(r#"{"agent": "a0"}"#))], "it is below itself: made/a0 → made/a0"),
        (vec![("ExampleTool", Some(r#"{"examples": []}"#))], "ExampleTool: `examples` is empty"),
        (vec![("ExampleTool", Some(r#"{"examples": "none"}"#))], "example provider `none` not found"),
        (vec![("exit_loop", Some("[]"))], "tool `exit_loop`: `args` of a tool"),
        (vec![("exit_loop", Some(r#"{"a": 1}"#))], "tool `exit_loop` takes no `args`"),
        (vec![("LongRunningFunctionTool", Some(r#"{"func": "nothing"}"#))], "tool `nothing` not found"),
        (
            vec![("vertex_ai_search", Some(r#"{"dataStoreId": "s", "maxResult": 3}"#))],
            "vertex_ai_search: unknown field `maxResult`",
        ),
    ] {
        let error = built(vec![with_tools(&tools)]).await.map(|_| ()).unwrap_err();
        assert!(error.contains("`made/a0`") && error.contains(expected), "{tools:?}: {error}");
    }
    let valid = [
        ("code_execution", None),
        ("LongRunningFunctionTool", Some(r#"{"func": "exit_loop"}"#)),
        ("ExampleTool", Some(r#"{"examples": [{"input": {"parts": [{"text": "a"}]}, "output": []}]}"#)),
    ];
    built(vec![with_tools(&valid)]).await.unwrap();
}

#[tokio::test]
async fn a_toolset_with_the_name_of_the_component_that_uses_it_belongs_to_its_owner() {
    let mut spec = with_tools(&[]);
    if let guest_agents::AgentKind::Llm(llm) = &mut spec.kind {
        llm.toolsets = vec![guest_agents::Toolset { name: "made".into(), only: Vec::new(), prefix: None }];
    }
    let made = with_agents(vec![spec.clone()]).await;
    let others = [("made".to_owned(), made.clone()), ("vault".to_owned(), with_toolset("vault", "made").await)];
    let (components, owners) = (Components::from(others), NameOwners::default());
    assert!(!NameResolver::new(&components, &owners, None).is_within_grants(&made, &spec));
}

#[tokio::test]
async fn an_agent_as_a_tool_has_a_name_that_no_other_tool_has() {
    let mut chief = with_tools(&[("AgentTool", Some(r#"{"agent": "a1"}"#)), ("AgentTool", Some(r#"{"agent": "a1"}"#))]);
    let error = built(vec![chief.clone(), agent("a1", Vec::new())]).await.map(|_| ()).unwrap_err();
    assert!(error.contains("two tools are named `a1` to the model"), "{error}");
    chief = with_tools(&[("AgentTool", Some(r#"{"agent": "transfer_to_agent"}"#))]);
    let error = built(vec![chief, agent("transfer_to_agent", Vec::new())]).await.map(|_| ()).unwrap_err();
    assert!(error.contains("tool name `transfer_to_agent` is reserved for a built-in tool"), "{error}");
}

#[tokio::test]
async fn only_agents_below_no_other_are_roots_however_they_are_named() {
    let specs = vec![agent("a0", vec!["a1".into(), "made/a2".into(), "other/a3".into()])];
    let specs = specs.into_iter().chain((1..4).map(|number| agent(format!("a{number}"), Vec::new())));
    let component = with_agents(specs.collect()).await;
    assert_eq!(root_agents(&component), ["a0", "a3"]);
}
