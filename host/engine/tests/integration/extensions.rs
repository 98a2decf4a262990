//! Extensions that a program registers: agent classes and plugins.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    AgentContext, AgentKind, CallContext, Callback, Content, CustomAgent, CustomAgentSpec, EventData, ItemResolver,
    JsonMap, Plugin, RunError, Toolset,
};
use hatchery_engine::plugins::{ConfiguredPlugins, PluginConfig};
use hatchery_engine::toolsets::StaticToolset;
use hatchery_engine::yaml::AgentLoader;
use hatchery_engine::{CatalogSnapshot, Extensions, LayeredResolver, Runner, StaticCatalog};
use hatchery_models::scripted::Scripted;
use serde_json::json;

use crate::support::*;

/// Emits a text.
struct SpeakingAgent(String);

#[async_trait]
impl CustomAgent for SpeakingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let content = Some(Arc::new(Content::model(&*self.0)));
        cx.emit(EventData { content, ..EventData::default() }).await?;
        Ok(())
    }
}

fn says_agent(args: JsonMap) -> Result<AgentKind, String> {
    let text = args.get("text").and_then(|text| text.as_str()).ok_or("`text` is missing")?;
    Ok(AgentKind::Custom(CustomAgentSpec {
        code: Arc::new(SpeakingAgent(text.into())),
        model: None,
        tools: Vec::new(),
    }))
}

/// FixedCallback every run.
struct ClosingPlugin {
    notice: String,
}

impl Callback for ClosingPlugin {
    fn name(&self) -> &str {
        "closed"
    }
}

#[async_trait]
impl Plugin for ClosingPlugin {
    async fn before_run(&self, _cx: &CallContext) -> Result<Option<Content>, RunError> {
        Ok(Some(Content::model(&*self.notice)))
    }
}

fn extensions() -> Extensions {
    let mut extensions = Extensions::builtin();
    extensions.agent_classes.register("SaysAgent", says_agent);
    extensions.plugins.register("closed", |args| match args.get("notice").and_then(|notice| notice.as_str()) {
        Some(notice) => Ok(Arc::new(ClosingPlugin { notice: notice.into() }) as Arc<dyn Plugin>),
        None => Err("`notice` is missing".into()),
    });
    extensions
}

fn load(yaml: &str) -> Result<hatchery_core::Agent, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("root_agent.yaml");
    std::fs::write(&file, yaml).unwrap();
    let (catalog, extensions) = (StaticCatalog::default(), extensions());
    let loaded = AgentLoader::new(&catalog).agent_classes(&extensions.agent_classes).load(&file);
    loaded.map(|loaded| loaded.agent).map_err(|error| error.message().to_owned())
}

#[tokio::test]
async fn a_registered_agent_class_runs_with_its_args() {
    let agent = load("agent_class: SaysAgent\nname: root\nargs: { text: hello }\n").unwrap();
    assert_eq!(Harness::new(agent).await.transcript("hi").await, ["root: hello"]);
}

#[test]
fn errors_of_agent_classes_name_the_class_and_what_is_registered() {
    let error = |yaml: &str| load(yaml).err().unwrap();
    assert_eq!(error("agent_class: SaysAgent\nname: root\n"), "agent class `SaysAgent`: `text` is missing");
    assert_eq!(
        error("agent_class: Robot\nname: root\n"),
        "agent class `Robot` not found; available: `LlmAgent`, `SequentialAgent`, `ParallelAgent`, `LoopAgent`, `SaysAgent`"
    );
    assert_eq!(
        error("agent_class: SaysAgent\nname: root\nmodel: m\n"),
        "`model` is a key of LlmAgent, but this is a SaysAgent"
    );
}

/// Returns the extensions with a toolset `Numbers`, which has one tool for each of its `names`.
fn with_toolset() -> Extensions {
    let mut extensions = extensions();
    extensions.toolsets.register("Numbers", |args| {
        let names = args.get("names").and_then(|names| names.as_array()).ok_or("`names` is missing")?;
        let tools = names.iter().filter_map(|name| name.as_str()).map(|name| tool(name, |_, _| Ok(json!(1))));
        Ok(Arc::new(StaticToolset::new("numbers").tools(tools)) as Arc<dyn Toolset>)
    });
    extensions
}

fn load_with_toolset(tools: &str) -> Result<hatchery_core::Agent, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("root_agent.yaml");
    std::fs::write(&file, format!("name: root\nmodel: m\ninstruction: Count.\ntools:\n{tools}")).unwrap();
    let (extensions, catalog) = (with_toolset(), StaticCatalog::default().with_tool(tool("two", |_, _| Ok(json!(2)))));
    let layers: [&dyn ItemResolver; 2] = [&extensions, &catalog];
    let loaded = AgentLoader::new(&LayeredResolver::new(layers)).load(&file);
    loaded.map(|loaded| loaded.agent).map_err(|error| error.message().to_owned())
}

#[test]
fn an_entry_of_tools_can_be_a_registered_toolset_with_its_args() {
    let agent =
        load_with_toolset("  - { name: Numbers, args: { names: [one] }, require_confirmation: true }\n  - name: two\n");
    let AgentKind::Llm(llm) = agent.unwrap().kind else { panic!("an LLM agent") };
    assert_eq!((llm.toolsets.len(), llm.toolsets[0].name()), (1, "numbers"));
    assert_eq!(llm.tools.iter().map(|tool| &*tool.declaration().name).collect::<Vec<_>>(), ["two"]);
    let error = load_with_toolset("  - name: Numbers\n").err().unwrap();
    assert_eq!(error, "name: toolset `Numbers` cannot be used: `names` is missing");
}

fn plugins(list: serde_json::Value) -> Result<ConfiguredPlugins, String> {
    let list: Vec<PluginConfig> = serde_json::from_value(list).unwrap();
    let catalog = Arc::new(CatalogSnapshot::fixed(StaticCatalog::default()));
    ConfiguredPlugins::new(&list, &extensions().plugins, catalog).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_registered_plugin_runs_with_its_args() {
    let plugins = plugins(json!(["logging", { "name": "closed", "args": { "notice": "back at noon" } }])).unwrap();
    let mut app = Harness::new(llm("root", Scripted::new().default_reply("model"))).await;
    app.runner = Runner::with_plugins(app.runner.services().clone(), plugins);
    assert_eq!(app.transcript("hi").await, ["model: back at noon"]);
}

#[test]
fn errors_of_plugins_name_the_plugin_and_what_is_registered() {
    let error = |list| plugins(list).err().unwrap();
    assert_eq!(error(json!(["closed"])), "plugins[0]: plugin `closed`: `notice` is missing");
    assert_eq!(
        error(json!(["open"])),
        "plugins[0]: plugin `open` not found; available: `logging`, `global_instruction`, `context_filter`, \
         `reflect_and_retry`, `closed`"
    );
}
