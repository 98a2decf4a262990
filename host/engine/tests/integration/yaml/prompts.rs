//! Planners and examples.

use super::*;

#[test]
fn a_planner_is_a_name_or_the_settings_of_thinking() {
    let planner = |text: &str| {
        let text = format!("name: root\ninstruction: x\nplanner: {text}\n");
        load(folder(&[("root_agent.yaml", &text)]).path()).map(|loaded| as_llm(&loaded.agent.kind).planner.clone())
    };
    assert_eq!(planner("plan_re_act").unwrap(), Some(Planner::PlanReAct));
    let config = Planner::Thinking(json!({"thinkingBudget": 1}));
    assert_eq!(planner("{ thinking_config: { thinking_budget: 1 } }").unwrap(), Some(config));
    for wrong in ["react", "{ thinking_config: 1 }", "{ thinking: {} }", "[]"] {
        let error = planner(wrong).unwrap_err();
        let text = "root_agent.yaml:3:1: `planner` can be `plan_re_act` or `{ thinking_config: { … } }`, not `";
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn examples_are_a_list_or_a_providers_name() {
    let examples = |text: &str| {
        let text = format!("name: root\ninstruction: x\nexamples: {text}\n");
        load(folder(&[("root_agent.yaml", &text)]).path()).map(|loaded| as_llm(&loaded.agent.kind).examples.clone())
    };
    assert!(matches!(examples("sums").unwrap(), Some(Examples::Chosen(_))));
    for (wrong, error) in [
        ("products", "example provider `products` not found; available: `sums`"),
        ("[]", "`examples` is empty"),
        ("[{ input: 1 }]", "examples: `[0].input`: invalid type: integer `1`, expected a mapping"),
        ("{}", "`examples` can be a list of `input` and `output`, or a provider's name"),
    ] {
        assert_eq!(examples(wrong).err().unwrap(), format!("root_agent.yaml:3:1: {error}"));
    }
}

#[test]
fn only_llm_agents_plan_and_have_examples() {
    for key in ["planner", "examples"] {
        let error = error_of(&format!("agent_class: LoopAgent\nname: root\n{key}: x\n"));
        assert_eq!(error, format!("root_agent.yaml:3:1: `{key}` is a key of LlmAgent, but this is a LoopAgent"));
    }
}
