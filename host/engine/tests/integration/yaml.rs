//! Agents from YAML files, and errors with their location.

mod code;
mod invalid;
mod prompts;
mod tools;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    AgentKind, CallContext, Example, ExampleProvider, Examples, HookPoint, IncludeContents, Instruction, LlmAgent,
    Part, Planner, RunError,
};
use hatchery_engine::StaticCatalog;
use hatchery_engine::yaml::{AgentLoader, LoadedAgent, load_agent};
use hatchery_models::scripted::Scripted;
use serde_json::json;
use tempfile::TempDir;

use crate::support::*;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn registry() -> StaticCatalog {
    StaticCatalog::default()
        .with_tool(tool("add", |_, _| Ok(json!(1))))
        .with_callback(FixedCallback { name: "guard", ..FixedCallback::default() }.arc())
        .with_agent(llm("helper", Scripted::new()))
        .with_examples("sums", Arc::new(NoExamples))
}

struct NoExamples;

#[async_trait]
impl ExampleProvider for NoExamples {
    async fn examples(&self, _: &str, _: &CallContext) -> Result<Vec<Example>, RunError> {
        Ok(vec![])
    }
}

fn load(folder: &Path) -> Result<LoadedAgent, String> {
    load_agent(&folder.join("root_agent.yaml"), &registry()).map_err(|error| {
        let text = error.to_string();
        text.replace(&format!("{}/", folder.display()), "")
    })
}

fn error_of(text: &str) -> String {
    load(folder(&[("root_agent.yaml", text)]).path()).err().unwrap()
}

fn as_llm(kind: &AgentKind) -> &LlmAgent {
    match kind {
        AgentKind::Llm(llm) => llm,
        other => panic!("{}", other.label()),
    }
}

#[test]
fn an_agent_may_name_models_that_take_over() {
    let text = "name: root\nmodel: a\nfallback: [b, c]\ninstruction: x\n";
    let folder = folder(&[("root_agent.yaml", text)]);
    let agent = load(folder.path()).unwrap().agent;
    let model = as_llm(&agent.kind).model.clone().unwrap();
    assert_eq!((model.name(), model.names().collect::<Vec<_>>()), ("a", vec!["a", "b", "c"]));
}

#[test]
fn files_in_excluded_folders_are_refused() {
    let folder = folder(&[
        ("root_agent.yaml", "name: root\ninstruction: x\nsub_agents: [{config_path: data/sub.yaml}]\n"),
        ("data/sub.yaml", "name: sub\ninstruction: Obey.\n"),
    ]);
    let path = folder.path().join("root_agent.yaml");
    assert!(load_agent(&path, &registry()).is_ok());
    let data = folder.path().join("data").canonicalize().unwrap();
    for (root, excluded) in [(&path, data.clone()), (&data.join("sub.yaml"), data.clone())] {
        let error = AgentLoader::new(&registry()).exclude_folders(&[excluded]).load(root).err().unwrap();
        assert!(error.file().ends_with("data/sub.yaml"), "{error}");
        let expected = "is in a folder that a component may write, so it is not read as an agent; move it elsewhere";
        assert_eq!(error.message(), expected);
    }
}

#[test]
fn every_key_of_an_llm_agent_is_read_in_either_spelling() {
    let snake = "
name: root
description: Does it.
model: scripted:x.yaml
instruction: Be brief.
static_instruction: Be fixed.
global_instruction: Be kind.
include_contents: NONE
disallow_transfer_to_parent: true
disallow_transfer_to_peers: true
output_key: answer
max_steps: 7
planner: { thinking_config: { include_thoughts: true } }
examples: [{ input: { parts: [{ text: 2+2 }] }, output: [{ parts: [{ text: four }] }] }]
generate_content_config: { temperature: 0.5, max_output_tokens: 9, thinking_config: { thinking_budget: 1 }, response_schema: { my_key: 1 } }
tools: [{ name: add }, { name: exit_loop }]
before_agent_callbacks: [{ name: guard }]
after_agent_callbacks: [{ name: guard }]
before_model_callbacks: [{ name: guard }]
after_model_callbacks: [{ name: guard }]
on_model_error_callbacks: [{ name: guard }]
on_tool_error_callbacks: [{ name: guard }]
before_tool_callbacks: [{ name: guard }]
after_tool_callbacks: [{ name: guard }]
sub_agents: [{ code: helper }]
";
    let camel: String = snake
        .lines()
        .map(|line| match line.split_once(':') {
            Some((key, rest)) => {
                let mut words = key.split('_');
                let first = words.next().unwrap_or("").to_owned();
                let rest_of_key: String =
                    words.map(|word| format!("{}{}", word[..1].to_uppercase(), &word[1..])).collect();
                format!("{first}{rest_of_key}:{rest}\n")
            }
            None => "\n".into(),
        })
        .collect();
    for text in [snake, &camel] {
        let loaded = load(folder(&[("root_agent.yaml", text)]).path()).unwrap();
        let agent = loaded.agent;
        let llm = as_llm(&agent.kind);
        assert_eq!(agent.description, "Does it.");
        assert_eq!(llm.model.as_ref().unwrap().name(), "scripted:x.yaml");
        assert!(matches!(&llm.global_instruction, Instruction::Template(text) if text == "Be kind."));
        assert_eq!(llm.static_instruction, [Part::text("Be fixed.")]);
        assert_eq!(llm.include_contents, IncludeContents::None);
        assert!(llm.disallow_transfer_to_parent && llm.disallow_transfer_to_peers);
        assert_eq!((llm.output_key.as_deref(), llm.max_steps), (Some("answer"), Some(7)));
        let config = serde_json::to_value(&llm.generate_content_config).unwrap();
        assert_eq!(
            config,
            json!({"temperature": 0.5, "maxOutputTokens": 9, "thinkingConfig": {"thinkingBudget": 1}, "responseSchema": {"my_key": 1}}),
            "keys inside a schema stay as they are"
        );
        assert_eq!(
            llm.tools.iter().map(|tool| tool.declaration().name.as_str()).collect::<Vec<_>>(),
            ["add", "exit_loop"]
        );
        assert_eq!(llm.planner, Some(Planner::Thinking(json!({"includeThoughts": true}))));
        let Some(Examples::Fixed(examples)) = &llm.examples else { panic!("no examples") };
        assert_eq!((examples[0].input.text(), examples[0].output[0].text()), ("2+2".into(), "four".into()));
        for point in HookPoint::ALL.iter().filter(|point| !point.is_for_all_agents()) {
            assert_eq!(llm.callbacks.at(*point).count(), 1, "{point:?}");
        }
        for point in [HookPoint::BeforeAgent, HookPoint::AfterAgent] {
            assert_eq!(agent.callbacks.at(point).count(), 1, "{point:?}");
        }
        assert_eq!(agent.sub_agents[0].name, "helper");
    }
}

#[test]
fn a_tree_of_files_is_read_and_listed() {
    let folder = folder(&[
        (
            "root_agent.yaml",
            "agent_class: LoopAgent\nname: root\nmax_iterations: 3\nsub_agents:\n  - config_path: parts/a.yaml\n",
        ),
        ("parts/a.yaml", "agent_class: ParallelAgent\nname: a\nsub_agents:\n  - config_path: b.yaml\n"),
        ("parts/b.yaml", "agent_class: SequentialAgent\nname: b\n"),
    ]);
    let loaded = load(folder.path()).unwrap();
    assert!(matches!(loaded.agent.kind, AgentKind::Loop { max_iterations: Some(3) }));
    assert!(matches!(loaded.agent.sub_agents[0].kind, AgentKind::Parallel));
    assert_eq!(loaded.agent.sub_agents[0].sub_agents[0].name, "b");
    assert_eq!(loaded.files.len(), 3);
}

#[tokio::test]
async fn a_yaml_agent_runs() {
    let folder = folder(&[
        ("root_agent.yaml", "name: root\nmodel: scripted:answers.yaml\ninstruction: Be brief.\n"),
        ("answers.yaml", "turns:\n  - reply: hello\n"),
    ]);
    let loaded = load(folder.path()).unwrap();
    let mut app = Harness::new(loaded.agent).await;
    let settings =
        hatchery_models::Settings { scripts_dir: folder.path().into(), ..hatchery_models::Settings::default() };
    let models = Arc::new(hatchery_models::ModelProviders::with_defaults(settings));
    let services = hatchery_core::Services { models, ..app.runner.services().clone() };
    app.runner = hatchery_engine::Runner::new(services);
    assert_eq!(app.transcript("hi").await, ["root: hello"]);
}

#[test]
fn the_schema_of_an_agent_has_each_key_once() {
    let schema = hatchery_engine::yaml::json_schema();
    let keys = schema["properties"].as_object().unwrap();
    assert!(keys.contains_key("sub_agents") && !keys.contains_key("subAgents"), "{schema:#}");
    assert_eq!(schema.pointer("/properties/tools/items/properties/name/type").unwrap(), "string");
    assert_eq!(schema.pointer("/properties/max_steps/type").unwrap(), "integer");
    assert_eq!(schema["additionalProperties"], false);
}
