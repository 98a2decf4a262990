//! Agents from YAML files, and the errors that say where they are wrong.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::agent::IncludeContents;
use hatchery_core::{
    AgentKind, CallContext, CodeExecution, CodeExecutor, CodeInput, CodeOutput, Example, ExampleProvider, Examples,
    Instruction, LlmAgent, Planner, RunError, ToolError, Toolset,
};
use hatchery_engine::Registry;
use hatchery_engine::toolsets::FixedTools;
use hatchery_engine::yaml::{Loaded, load_agent};
use hatchery_models::scripted::{Reply, Scripted};
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

fn registry() -> Registry {
    Registry::default()
        .with_tool(tool("add", |_, _| Ok(json!(1))))
        .with_callback(Answers { name: "guard", ..Answers::default() }.arc())
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

fn load(folder: &Path) -> Result<Loaded, String> {
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
fn every_key_of_an_llm_agent_is_read_in_either_spelling() {
    let snake = "
name: root
description: Does it.
model: scripted:x.yaml
instruction: Be brief.
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
        let callbacks = [
            &llm.before_model,
            &llm.after_model,
            &llm.on_model_error,
            &llm.before_tool,
            &llm.after_tool,
            &llm.on_tool_error,
        ];
        assert!(callbacks.iter().all(|list| list.len() == 1));
        assert_eq!((agent.before_agent.len(), agent.after_agent.len()), (1, 1));
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
    let models = Arc::new(hatchery_models::Registry::with_defaults(settings));
    let services = hatchery_core::Services { models, ..app.runner.services().clone() };
    app.runner = hatchery_engine::Runner::new(services);
    assert_eq!(app.talk("hi").await, ["root: hello"]);
}

#[test]
fn an_unknown_key_is_named_with_its_place() {
    let error = error_of("name: root\ninstruction: x\ninstrution: y\n");
    assert!(error.starts_with("root_agent.yaml:3:1: unknown field `instrution`, expected one of"), "{error}");
}

#[test]
fn a_wrong_type_is_named_with_its_place() {
    let error = error_of("agent_class: LoopAgent\nname: root\nmax_iterations: lots\n");
    assert_eq!(error, "root_agent.yaml:3:17: max_iterations: invalid type: string \"lots\", expected u32");
}

#[test]
fn a_key_of_another_kind_of_agent_is_named_with_its_kind() {
    assert_eq!(
        error_of("agent_class: SequentialAgent\nname: root\nmodel: x\n"),
        "root_agent.yaml:3:1: `model` is a key of LlmAgent, but this is a SequentialAgent"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\nmax_iterations: 3\n"),
        "root_agent.yaml:3:1: `max_iterations` is a key of LoopAgent, but this is a LlmAgent"
    );
}

#[test]
fn what_is_required_is_asked_for() {
    assert_eq!(error_of("instruction: x\n"), "root_agent.yaml: Agent name is required: add `name: …`");
    assert_eq!(error_of("name: root\n"), "root_agent.yaml: Agent instruction is required: add `instruction: …`");
    assert_eq!(
        error_of("name: root\ninstruction: x\ntools:\n  - name: ''\n"),
        "root_agent.yaml:1:1: Tool name cannot be empty"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\nsub_agents:\n  - {}\n"),
        "root_agent.yaml:3:1: a sub agent needs either `config_path` (a YAML file) or `code` (an agent of a component)"
    );
}

#[test]
fn unknown_names_are_named_with_their_place_and_what_there_is() {
    let builtin: String = hatchery_engine::builtin::NAMES.iter().map(|name| format!("`{name}`, ")).collect();
    assert_eq!(
        error_of("name: root\ninstruction: x\ntools:\n  - name: exit_loop\n  - name: ad\n"),
        format!("root_agent.yaml:5:5: tools: tool `ad` not found; there is {builtin}`add`")
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\nbefore_tool_callbacks:\n  - name: gard\n"),
        "root_agent.yaml:4:5: before_tool_callbacks: callback `gard` not found; there is `guard`"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\nsub_agents:\n  - code: helpr\n"),
        "root_agent.yaml:4:5: sub_agents: agent `helpr` not found; there is `helper`"
    );
}

#[test]
fn wrong_values_are_named() {
    assert_eq!(
        error_of("name: root\ninstruction: x\ninclude_contents: some\n"),
        "root_agent.yaml:3:1: `include_contents` can be `default` or `none`, not `some`"
    );
    assert_eq!(
        error_of("name: root\ninstruction: x\ntools:\n  - name: add\n    args: { a: 1 }\n"),
        "root_agent.yaml:4:5: tool `add` takes no `args`"
    );
    let error = error_of("name: root\ninstruction: x\ngenerate_content_config: { temperature: hot }\n");
    assert!(error.starts_with("root_agent.yaml:3:1: invalid type: string \"hot\""), "{error}");
    let error = error_of("agent_class: Robot\nname: root\n");
    assert!(
        error.starts_with("root_agent.yaml:1:14: agent_class: unknown variant `Robot`, expected one of"),
        "{error}"
    );
}

#[test]
fn files_are_found_inside_the_folder_only() {
    let with = |path: &str| error_of(&format!("name: root\ninstruction: x\nsub_agents:\n  - config_path: {path}\n"));
    assert_eq!(with("../x.yaml"), "root_agent.yaml:4:5: `../x.yaml` leaves the agent's folder; move the file there");
    assert_eq!(with("/x.yaml"), "root_agent.yaml:4:5: `/x.yaml` leaves the agent's folder; move the file there");
    assert_eq!(with("x.yaml"), "root_agent.yaml:4:5: Config file not found: x.yaml");
    assert_eq!(
        with("root_agent.yaml"),
        "root_agent.yaml:4:5: `root_agent.yaml` is used already; an agent has one place, and cannot be below itself"
    );
}

#[test]
fn a_missing_file_and_a_huge_file_are_refused() {
    let missing = load(TempDir::new().unwrap().path()).err().unwrap();
    assert_eq!(missing, "root_agent.yaml: Config file not found: root_agent.yaml");
    let huge = error_of(&format!("# {}\n", "x".repeat(1 << 20)));
    assert_eq!(huge, "root_agent.yaml: is 1048579 bytes long; an agent config may be 1048576 bytes long at most");
}

#[test]
fn hostile_yaml_is_refused_quickly() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n";
    assert!(error_of(bomb).contains("unknown field `a`"));
    let deep = format!("generate_content_config: {}", "{a: ".repeat(100_000));
    assert_eq!(error_of(&deep), "root_agent.yaml: more than 256 brackets are open at once");
}

#[test]
fn references_that_would_double_at_each_level_are_refused_at_once() {
    let both = |next: usize| {
        format!(
            "name: a{next}\nagent_class: SequentialAgent\nsub_agents: [{{config_path: {next}.yaml}}, {{config_path: {next}.yaml}}]\n"
        )
    };
    let files: Vec<_> = (1..30).map(|level| (format!("{level}.yaml"), both(level + 1))).collect();
    let mut files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (root, last) = (both(1), "name: last\nagent_class: SequentialAgent\n");
    files.extend([("root_agent.yaml", root.as_str()), ("30.yaml", last)]);
    let error = load(folder(&files).path()).err().unwrap();
    assert!(
        error.ends_with("`30.yaml` is used already; an agent has one place, and cannot be below itself"),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_refused_unread() {
    let outside = folder(&[("secret.yaml", "hunter2")]);
    let folder = folder(&[("root_agent.yaml", "name: root\ninstruction: x\nsub_agents:\n  - config_path: s.yaml\n")]);
    std::os::unix::fs::symlink(outside.path().join("secret.yaml"), folder.path().join("s.yaml")).unwrap();
    let error = load(folder.path()).err().unwrap();
    assert_eq!(error, "root_agent.yaml:4:5: `s.yaml` leads out of the agent's folder; move the file there");
}

#[test]
fn names_that_clash_or_cannot_be_used_are_named_with_their_place() {
    assert_eq!(
        error_of("name: a.b\ninstruction: x\n"),
        "root_agent.yaml:1:1: agent name `a.b` may not hold a dot, which joins the names of parallel branches"
    );
    let twins = folder(&[
        ("root_agent.yaml", "name: twin\ninstruction: x\nsub_agents:\n  - config_path: b.yaml\n"),
        ("b.yaml", "name: twin\ninstruction: x\n"),
    ]);
    let error = load(twins.path()).err().unwrap();
    assert_eq!(error, "b.yaml:1:1: two agents are named `twin`; the other is in root_agent.yaml");
    assert_eq!(
        error_of("name: root\ninstruction: x\ntools: [{ name: add }, { name: add }]\n"),
        "root_agent.yaml: two tools are named `add` to the model; leave one of them out"
    );
}

#[test]
fn tools_are_made_from_their_arguments() {
    let text = "
name: root
instruction: x
tools:
  - name: AgentTool
    args: { agent: { config_path: helper.yaml }, skip_summarization: true }
  - name: ExampleTool
    args: { examples: [{ input: { parts: [{ text: hi }] }, output: [{ role: model, parts: [{ text: hello }] }] }] }
  - name: LongRunningFunctionTool
    args: { func: add }
  - name: vertex_ai_search
    args: { data_store_id: s }
  - name: google_search
";
    let helper = "name: helper\ndescription: Helps.\ninstruction: x\n";
    let loaded = load(folder(&[("root_agent.yaml", text), ("helper.yaml", helper)]).path()).unwrap();
    let tools = &as_llm(&loaded.agent.kind).tools;
    let names: Vec<_> = tools.iter().map(|tool| tool.declaration().name.as_str()).collect();
    assert_eq!(names, ["helper", "example_tool", "add", "vertex_ai_search", "google_search"]);
    assert!(tools[2].is_long_running());
    assert_eq!(loaded.files.len(), 2);
}

#[test]
fn wrong_arguments_of_tools_are_named() {
    let with = |tool: &str| error_of(&format!("name: root\ninstruction: x\ntools:\n  - {tool}\n"));
    assert_eq!(with("name: AgentTool"), "root_agent.yaml:4:5: AgentTool: missing field `agent`");
    assert_eq!(
        with("name: AgentTool\n    args: { agent: {} }"),
        "root_agent.yaml: a sub agent needs either `config_path` (a YAML file) or `code` (an agent of a component)"
    );
    assert_eq!(
        with("name: ExampleTool\n    args: { examples: [] }"),
        "root_agent.yaml:4:5: ExampleTool: `examples` is empty"
    );
    assert_eq!(
        with("name: LongRunningFunctionTool\n    args: { func: 3 }"),
        "root_agent.yaml:4:5: LongRunningFunctionTool: invalid type: integer `3`, expected a string"
    );
    assert_eq!(
        with("name: vertex_ai_search"),
        "root_agent.yaml:4:5: vertex_ai_search: `vertex_ai_search` needs either `data_store_id` or `search_engine_id`"
    );
}

/// An executor that there is.
struct Python;

#[async_trait::async_trait]
impl CodeExecutor for Python {
    fn name(&self) -> &str {
        "python"
    }

    async fn execute(&self, _: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
        Ok(CodeOutput::default())
    }
}

fn code_execution(text: &str) -> Result<CodeExecution, String> {
    let folder = folder(&[("root_agent.yaml", &format!("name: root\ninstruction: x\n{text}\n"))]);
    let registry = Registry::default().with_code_executor(Arc::new(Python));
    let loaded = load_agent(&folder.path().join("root_agent.yaml"), &registry)
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))?;
    Ok(as_llm(&loaded.agent.kind).code_execution.clone().unwrap())
}

fn code_error(text: &str) -> String {
    code_execution(text).err().unwrap()
}

#[test]
fn a_code_executor_is_a_name_or_a_map() {
    let runner = |text: &str| match code_execution(text) {
        Ok(CodeExecution::Host(runner)) => *runner,
        Ok(CodeExecution::BuiltIn) => panic!("built in"),
        Err(error) => panic!("{error}"),
    };
    let usual = runner("code_executor: python");
    assert_eq!(usual.executor.name(), "python");
    assert_eq!((usual.stateful, usual.optimize_data_file, usual.error_retries), (false, false, 2));
    assert_eq!(usual.code_delimiters[0], ("```tool_code\n".into(), "\n```".into()));
    for text in [
        "code_executor: { name: python, stateful: true, optimize_data_file: true, error_retries: 0, code_delimiters: [['<a>', '</a>']], \
         result_delimiters: ['<b>', '</b>'] }",
        "codeExecutor: { name: python, stateful: true, optimizeDataFile: true, errorRetries: 0, codeDelimiters: [['<a>', '</a>']], \
         resultDelimiters: ['<b>', '</b>'] }",
    ] {
        let chosen = runner(text);
        assert_eq!((chosen.stateful, chosen.optimize_data_file, chosen.error_retries), (true, true, 0));
        assert_eq!(chosen.code_delimiters, [("<a>".into(), "</a>".into())]);
        assert_eq!(chosen.result_delimiters, ("<b>".into(), "</b>".into()));
    }
    assert!(matches!(code_execution("code_executor: built_in"), Ok(CodeExecution::BuiltIn)));
    assert!(matches!(code_execution("code_executor: { name: built_in }"), Ok(CodeExecution::BuiltIn)));
}

#[test]
fn a_wrong_code_executor_is_named_with_its_place() {
    assert_eq!(
        code_error("code_executor: pyton"),
        "root_agent.yaml:3:1: code_executor: code executor `pyton` not found; there is `python`"
    );
    assert_eq!(
        code_error("code_executor:\n  name: pyton"),
        "root_agent.yaml:4:3: code_executor: code executor `pyton` not found; there is `python`"
    );
    assert_eq!(
        code_error("code_executor: [python]"),
        "root_agent.yaml:3:1: `code_executor` is a name, or a map with a `name`"
    );
    assert_eq!(code_error("code_executor: {}"), "root_agent.yaml:3:1: code_executor: missing field `name`");
    let unknown = code_error("code_executor: { name: python, retries: 1 }");
    assert!(
        unknown.starts_with("root_agent.yaml:3:1: code_executor: unknown field `retries`, expected one of"),
        "{unknown}"
    );
    assert_eq!(
        code_error("code_executor: { name: built_in, stateful: true }"),
        "root_agent.yaml:3:1: code_executor: `built_in` has no settings: the model runs its code itself"
    );
    for delimiters in ["[]", "[['', x]]"] {
        assert_eq!(
            code_error(&format!("code_executor: {{ name: python, code_delimiters: {delimiters} }}")),
            "root_agent.yaml:3:1: code_executor: `code_delimiters` needs pairs of texts that are not empty"
        );
    }
    assert_eq!(
        error_of("agent_class: LoopAgent\nname: root\ncode_executor: python\n"),
        "root_agent.yaml:3:1: `code_executor` is a key of LlmAgent, but this is a LoopAgent"
    );
}

const TOOLSETS: &str = "
name: root
instruction: x
tools:
  - name: add
    require_confirmation: true
  - name: Toolset
    args: { name: shop, only: [buy, sell], prefix: s_ }
  - name: Toolset
    args: { name: bank }
    requireConfirmation: true
  - name: exit_loop
";

fn with_toolsets() -> Registry {
    let set = |name: &str, tools: [&'static str; 3]| {
        let tools = tools.map(|name| tool(name, move |_, _| Ok(json!(name))));
        Arc::new(FixedTools::new(name).tools(tools)) as Arc<dyn Toolset>
    };
    registry().with_toolset(set("shop", ["buy", "sell", "steal"])).with_toolset(set("bank", ["pay", "save", "owe"]))
}

#[tokio::test]
async fn toolsets_are_filtered_prefixed_and_confirmed_as_written() {
    let folder = folder(&[("root_agent.yaml", TOOLSETS)]);
    let mut loaded = load_agent(&folder.path().join("root_agent.yaml"), &with_toolsets()).unwrap();
    let AgentKind::Llm(llm) = &mut loaded.agent.kind else { panic!("{}", loaded.agent.kind.label()) };
    assert_eq!(llm.toolsets.iter().map(|toolset| toolset.name()).collect::<Vec<_>>(), ["shop", "bank"]);
    let waits: Vec<_> =
        llm.tools.iter().map(|tool| (tool.declaration().name.as_str(), tool.requires_confirmation())).collect();
    assert_eq!(waits, [("add", true), ("exit_loop", false)]);
    let model = Arc::new(Scripted::sequence([Reply::call("s_sell", json!({})), Reply::text("done")]));
    llm.model = Some(hatchery_core::ModelRef::Object("scripted".into(), model.clone()));
    let app = Harness::new(loaded.agent).await;
    assert_eq!(app.talk("hi").await[1], "root: answer s_sell{\"result\":\"sell\"}");
    let shown: Vec<_> = model.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(shown, ["add", "exit_loop", "s_buy", "s_sell", "pay", "save", "owe"]);
}

#[test]
fn wrong_toolsets_are_named_with_their_place() {
    let with = |entry: &str| {
        let text = format!("name: root\ninstruction: x\ntools:\n  - {entry}\n");
        let folder = folder(&[("root_agent.yaml", &text)]);
        let error = load_agent(&folder.path().join("root_agent.yaml"), &with_toolsets()).err().unwrap();
        error.to_string().replace(&format!("{}/", folder.path().display()), "")
    };
    assert_eq!(with("name: Toolset"), "root_agent.yaml:4:5: Toolset: missing field `name`");
    assert_eq!(
        with("name: Toolset\n    args:\n      name: shpo"),
        "root_agent.yaml:6:7: tools: toolset `shpo` not found; there is `bank`, `shop`"
    );
    assert_eq!(
        with("name: Toolset\n    args: { name: shop, without: [buy] }"),
        "root_agent.yaml:4:5: Toolset: unknown field `without`, expected one of `name`, `only`, `prefix`"
    );
}

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
        ("products", "example provider `products` not found; there is `sums`"),
        ("[]", "`examples` is empty"),
        ("[{ input: 1 }]", "examples: invalid type: integer `1`, expected struct Content"),
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
