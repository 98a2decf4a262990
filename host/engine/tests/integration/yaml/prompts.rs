//! Static instructions, planners and examples.

use hatchery_core::{Blob, FileData, PartData};

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

fn static_instruction(value: &str) -> Result<Vec<Part>, String> {
    let text = format!("name: root\nstatic_instruction: {value}\n");
    load(folder(&[("root_agent.yaml", &text)]).path())
        .map(|loaded| as_llm(&loaded.agent.kind).static_instruction.clone())
}

#[test]
fn a_static_instruction_is_a_text_a_part_a_list_or_a_content() {
    let menu = PartData::FileData(FileData { file_uri: "gs://hotel/menu.pdf".into(), ..FileData::default() });
    let pixel = PartData::InlineData(Blob { mime_type: "image/png".into(), data: "milk".into(), display_name: None });
    for (value, parts) in [
        ("Serve {nobody}.", vec![Part::text("Serve {nobody}.")]),
        ("{ text: Serve. }", vec![Part::text("Serve.")]),
        ("[Serve., { file_data: { file_uri: gs://hotel/menu.pdf } }]", vec![Part::text("Serve."), menu.into()]),
        ("{ parts: [{ inlineData: { mimeType: image/png, data: bWlsaw== } }] }", vec![pixel.into()]),
    ] {
        assert_eq!(static_instruction(value).unwrap(), parts, "{value}");
    }
}

#[test]
fn errors_of_a_static_instruction_name_what_it_can_be() {
    let kinds =
        "`static_instruction` can be a text, `{ text: … }`, `{ inlineData: … }`, `{ fileData: … }`, or a list of these";
    for (value, error) in [
        ("5", kinds),
        ("{ name: lib.instruction }", kinds),
        ("[{ functionCall: { name: x } }]", kinds),
        ("[]", "`static_instruction` is empty; write its text, or leave it out"),
        ("[x, '']", "`static_instruction` has an empty text; write it, or leave it out"),
    ] {
        assert_eq!(static_instruction(value).unwrap_err(), format!("root_agent.yaml:2:1: {error}"));
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
fn only_llm_agents_have_static_instructions_planners_and_examples() {
    for key in ["static_instruction", "planner", "examples"] {
        let error = error_of(&format!("agent_class: LoopAgent\nname: root\n{key}: x\n"));
        assert_eq!(error, format!("root_agent.yaml:3:1: `{key}` is a key of LlmAgent, but this is a LoopAgent"));
    }
}
