//! Tools and toolsets.

use hatchery_core::{AgentKind, CallContext, JsonMap, Toolset};
use hatchery_engine::App;
use hatchery_engine::build::{IntoTool, function_tool};
use hatchery_engine::toolsets::StaticToolset;
use hatchery_models::scripted::Reply;

use super::*;

#[test]
fn tools_are_created_from_their_arguments() {
    let text = "
name: root
instruction: x
tools:
  - name: AgentTool
    args: { agent: { config_path: helper.yaml }, skip_summarization: true, include_plugins: true }
  - name: ExampleTool
    args: { examples: [{ input: { parts: [{ text: hi }] }, output: [{ role: model, parts: [{ text: hello }] }] }] }
  - name: LongRunningFunctionTool
    args: { func: add }
  - name: vertex_ai_search
    args: { searchEngineId: s, maxResults: 3, dataStoreSpecs: [{ dataStore: a }] }
  - name: vertex_ai_rag_retrieval
    args: { rag_corpora: [c], similarity_top_k: 3, vector_distance_threshold: 0.5 }
  - name: google_search
";
    let helper = "name: helper\ndescription: Helps.\ninstruction: x\n";
    let loaded = load(folder(&[("root_agent.yaml", text), ("helper.yaml", helper)]).path()).unwrap();
    let tools = &as_llm(&loaded.agent.kind).tools;
    let names: Vec<_> = tools.iter().map(|tool| tool.declaration().name.as_str()).collect();
    assert_eq!(
        names,
        ["helper", "example_tool", "add", "vertex_ai_search", "vertex_ai_rag_retrieval", "google_search"]
    );
    assert!(tools[2].is_long_running());
    assert_eq!(loaded.files.len(), 2);
}

#[test]
fn classes_and_tools_may_be_named_with_their_package() {
    let text = "
agent_class: google.adk.agents.LoopAgent
name: root
sub_agents:
  - config_path: worker.yaml
";
    let worker = "
agent_class: google.adk.agents.llm_agent.LlmAgent
name: worker
instruction: x
tools:
  - name: google.adk.tools.exit_loop
  - name: google.adk.tools.google_search
  - name: google.adk.tools.vertex_ai_search_tool.VertexAiSearchTool
    args: { data_store_id: s }
";
    let loaded = load(folder(&[("root_agent.yaml", text), ("worker.yaml", worker)]).path()).unwrap();
    assert!(matches!(loaded.agent.kind, AgentKind::Loop { .. }));
    let tools = &as_llm(&loaded.agent.sub_agents[0].kind).tools;
    let names: Vec<_> = tools.iter().map(|tool| tool.declaration().name.as_str()).collect();
    assert_eq!(names, ["exit_loop", "google_search", "vertex_ai_search"]);
}

#[test]
fn errors_of_tool_arguments_name_the_argument() {
    let with = |tool: &str| error_of(&format!("name: root\ninstruction: x\ntools:\n  - {tool}\n"));
    assert_eq!(with("name: AgentTool"), "root_agent.yaml:4:5: AgentTool: missing field `agent`");
    assert_eq!(
        with("name: AgentTool\n    args: { agent: {} }"),
        "root_agent.yaml: a sub-agent needs either `config_path` (a YAML file) or `code` (an agent of a component)"
    );
    for tool in ["google_search", "preload_memory"] {
        assert_eq!(
            with(&format!("name: {tool}\n    require_confirmation: true")),
            format!(
                "root_agent.yaml:4:5: tool `{tool}` runs without a call that a person could confirm; remove \
                 `require_confirmation`"
            )
        );
    }
    let misspelt = with("name: AgentTool\n    args: { agnet: {} }");
    assert!(misspelt.starts_with("root_agent.yaml:4:5: AgentTool: unknown field `agnet`, "), "{misspelt}");
    assert!(misspelt.ends_with("; did you mean `agent`?"), "{misspelt}");
    assert_eq!(
        with("name: AgentTool\n    args: { agent: { code: helper }, includePlugins: false }"),
        "root_agent.yaml:4:5: AgentTool: `include_plugins` cannot be false: the host's plugins apply to every agent"
    );
    assert_eq!(
        with("name: ExampleTool\n    args: { examples: [] }"),
        "root_agent.yaml:4:5: ExampleTool: `examples` is empty"
    );
    assert_eq!(
        with("name: LongRunningFunctionTool\n    args: { func: 3 }"),
        "root_agent.yaml:4:5: LongRunningFunctionTool: `func`: invalid type: integer `3`, expected a string"
    );
    assert_eq!(
        with("name: vertex_ai_rag_retrieval"),
        "root_agent.yaml:4:5: vertex_ai_rag_retrieval: `vertex_ai_rag_retrieval` needs at least one of `rag_corpora`"
    );
    assert_eq!(
        with("name: vertex_ai_search"),
        "root_agent.yaml:4:5: vertex_ai_search: `vertex_ai_search` needs either `data_store_id` or `search_engine_id`"
    );
    for name in ["VertexAiSearchTool", "google.adk.tools.VertexAiSearchTool", "google.adk.tools.vertex_ai_search"] {
        assert_eq!(
            with(&format!("name: {name}")),
            "root_agent.yaml:4:5: vertex_ai_search: `vertex_ai_search` needs either `data_store_id` or `search_engine_id`"
        );
    }
    let unknown = with("name: google.adk.tools.fly");
    assert!(unknown.starts_with("root_agent.yaml:4:5: tools: tool `fly` not found"), "{unknown}");
    assert_eq!(
        with("name: vertex_ai_search\n    args: { data_store_id: s, data_store_specs: [{ data_store: a }] }"),
        "root_agent.yaml:4:5: vertex_ai_search: `data_store_specs` selects data stores of a `search_engine_id`, which is missing"
    );
}

#[test]
fn names_that_no_model_can_call_are_refused() {
    let root = caller("root", "helper.yaml");
    let helper = "name: my helper\ninstruction: x\n";
    let error = load(folder(&[("root_agent.yaml", root.as_str()), ("helper.yaml", helper)]).path()).err().unwrap();
    assert_eq!(
        error,
        "root_agent.yaml:4:5: models cannot call the tool `my helper`, because its name may hold only letters, digits, `_`, `-` \
         and dots; rename it"
    );
    let text = "name: root\ninstruction: x\ntools:\n  - name: Toolset\n    args: { name: shop, prefix: 'my ' }\n";
    let error =
        AgentLoader::new(&with_toolsets()).load(&folder(&[("root_agent.yaml", text)]).path().join("root_agent.yaml"));
    let error = error.err().unwrap();
    assert_eq!(error.location(), Some((5, 25)));
    assert_eq!(
        error.message(),
        "Toolset: models cannot call tools with the prefix `my `, because it may hold only letters, digits, `_`, `-` and dots"
    );
}

/// Returns an LLM agent that calls the agent of `file` as a tool.
fn caller(name: &str, file: &str) -> String {
    format!(
        "name: {name}\ninstruction: x\ntools:\n  - name: AgentTool\n    args: {{ agent: {{ config_path: {file} }} }}\n"
    )
}

fn load_all(files: &[(String, String)]) -> Result<LoadedAgent, String> {
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    load(folder(&files).path())
}

fn sequence(name: &str, files: &[&str]) -> String {
    let sub_agents = files.iter().map(|file| format!("  - config_path: {file}\n"));
    format!("agent_class: SequentialAgent\nname: {name}\nsub_agents:\n{}", sub_agents.collect::<String>())
}

#[test]
fn several_agents_may_call_one_agent_which_may_be_a_sub_agent_too() {
    let files = [
        ("root_agent.yaml", sequence("root", &["a.yaml", "b.yaml", "helper.yaml"])),
        ("a.yaml", caller("a", "helper.yaml")),
        ("b.yaml", caller("b", "helper.yaml")),
        ("helper.yaml", "name: helper\ninstruction: x\n".to_owned()),
    ];
    let loaded = load_all(&files.map(|(name, text)| (name.to_owned(), text))).unwrap();
    let [a, b, helper] = loaded.agent.sub_agents.as_slice() else { panic!("{}", loaded.agent.sub_agents.len()) };
    for agent in [a, b] {
        let tools: Vec<_> = as_llm(&agent.kind).tools.iter().map(|tool| tool.declaration().name.as_str()).collect();
        assert_eq!(tools, ["helper"], "{}", agent.name);
    }
    assert_eq!(helper.name, "helper");
    assert_eq!(loaded.files.len(), 4);
    assert!(App::new("root", loaded.agent).is_ok());
}

#[test]
fn an_agent_that_calls_itself_as_a_tool_is_refused() {
    assert_eq!(
        error_of(&caller("root", "root_agent.yaml")),
        "root_agent.yaml:5:22: `root_agent.yaml` is this agent, or calls it; an agent cannot call itself as a tool"
    );
    let files = [("root_agent.yaml", caller("root", "a.yaml")), ("a.yaml", sequence("a", &["root_agent.yaml"]))];
    assert_eq!(
        load_all(&files.map(|(name, text)| (name.to_owned(), text))).err().unwrap(),
        "a.yaml:4:5: `root_agent.yaml` is used already; an agent has one parent, and cannot be below itself"
    );
}

#[test]
fn the_levels_of_an_agent_that_is_loaded_already_count_for_each_caller() {
    let chain = |letter: char, last: &str| -> Vec<(String, String)> {
        let next = |level: u32| if level == 20 { last.to_owned() } else { format!("{letter}{}.yaml", level + 1) };
        let agent = |level: u32| (format!("{letter}{level}.yaml"), caller(&format!("{letter}{level}"), &next(level)));
        (1..=20).map(agent).collect()
    };
    let mut files = vec![
        ("root_agent.yaml".to_owned(), sequence("root", &["first.yaml", "second.yaml"])),
        ("first.yaml".to_owned(), caller("first", "c1.yaml")),
        ("second.yaml".to_owned(), caller("second", "d1.yaml")),
        ("leaf.yaml".to_owned(), "name: leaf\ninstruction: x\n".to_owned()),
    ];
    files.extend(chain('c', "leaf.yaml"));
    files.extend(chain('d', "c1.yaml"));
    let error = load_all(&files).err().unwrap();
    assert_eq!(error, "d20.yaml:5:22: `c1.yaml` is nested more than 32 files deep");
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

fn with_toolsets() -> StaticCatalog {
    let set = |name: &str, tools: [&'static str; 3]| {
        let tools = tools.map(|name| tool(name, move |_, _| Ok(json!(name))));
        Arc::new(StaticToolset::new(name).tools(tools)) as Arc<dyn Toolset>
    };
    registry().with_toolset(set("shop", ["buy", "sell", "steal"])).with_toolset(set("bank", ["pay", "save", "owe"]))
}

#[tokio::test]
async fn toolsets_are_filtered_prefixed_and_confirmed() {
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
    assert_eq!(app.transcript("hi").await[1], "root: answer s_sell{\"result\":\"sell\"}");
    let shown: Vec<_> = model.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(shown, ["add", "exit_loop", "s_buy", "s_sell", "pay", "save", "owe"]);
}

#[test]
fn errors_of_toolsets_have_their_location() {
    let with = |entry: &str| {
        let text = format!("name: root\ninstruction: x\ntools:\n  - {entry}\n");
        let folder = folder(&[("root_agent.yaml", &text)]);
        let error = load_agent(&folder.path().join("root_agent.yaml"), &with_toolsets()).err().unwrap();
        error.to_string().replace(&format!("{}/", folder.path().display()), "")
    };
    assert_eq!(with("name: Toolset"), "root_agent.yaml:4:5: Toolset: missing field `name`");
    assert_eq!(
        with("name: Toolset\n    args:\n      name: shpo"),
        "root_agent.yaml:6:7: tools: toolset `shpo` not found; available: `bank`, `shop`; did you mean `shop`?"
    );
    assert_eq!(
        with("name: Toolset\n    args: { name: shop, only: [buy, sel] }"),
        "root_agent.yaml:5:25: Toolset: `shop` has no tool `sel`; available: buy, sell, steal; did you mean `sell`?"
    );
    assert_eq!(
        with("name: Toolset\n    args: { name: shop, without: [buy] }"),
        "root_agent.yaml:4:5: Toolset: unknown field `without`, expected one of `name`, `only`, `prefix`"
    );
}

#[tokio::test]
async fn arguments_of_a_definition_reach_the_code_of_a_native_tool() {
    let limited = function_tool("limited", "Says its limit.", |_: JsonMap, cx: CallContext| async move {
        Ok(cx.arguments().and_then(|args| args.get("limit")).cloned())
    });
    let catalog = registry().with_tool(limited.into_tool());
    for (args, limit) in [("", json!({})), ("    args: { limit: 3 }\n", json!({"result": 3}))] {
        let text = format!("name: root\ninstruction: x\ntools:\n  - name: limited\n{args}");
        let folder = folder(&[("root_agent.yaml", &text)]);
        let mut loaded = load_agent(&folder.path().join("root_agent.yaml"), &catalog).unwrap();
        let AgentKind::Llm(llm) = &mut loaded.agent.kind else { panic!("{}", loaded.agent.kind.label()) };
        let model = Arc::new(Scripted::sequence([Reply::call("limited", json!({})), Reply::text("done")]));
        llm.model = Some(hatchery_core::ModelRef::Object("scripted".into(), model));
        let app = Harness::new(loaded.agent).await;
        assert_eq!(app.transcript("hi").await[1], format!("root: answer limited{limit}"));
    }
}
