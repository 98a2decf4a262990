//! Toolsets: resolution for each model call, adapters, name conflicts and closing.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{Agent, AgentContext, CallContext, JsonMap, LlmRequest, RunError, Tool, ToolError, Toolset};
use hatchery_engine::build::{custom, function_tool, llm, sequential};
use hatchery_engine::builtin::{self, RequireConfirmation};
use hatchery_engine::toolsets::{IntoToolset, StaticToolset};
use hatchery_engine::{AgentTool, App};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::{Harness, tool};

/// Creates a toolset whose tools return its name.
fn set(name: &'static str, tools: &[&str]) -> StaticToolset {
    StaticToolset::new(name).tools(tools.iter().map(|tool| says(tool, name)))
}

fn says(name: &str, text: &'static str) -> Arc<dyn Tool> {
    tool(name, move |_, _| Ok(json!(text)))
}

/// Returns the names of the tools in the n-th request.
fn request_tools(model: &Scripted, call: usize) -> Vec<String> {
    model.requests()[call].tools.iter().map(|tool| tool.name.clone()).collect()
}

/// Runs an agent with this toolset. Its model calls these tools in sequence.
async fn run(toolset: impl IntoToolset, calls: &[&str]) -> (Arc<Scripted>, Vec<String>) {
    let replies = calls.iter().map(|name| Reply::call(*name, json!({}))).chain([Reply::text("done")]);
    let model = Arc::new(Scripted::sequence(replies));
    let root = llm("root").model_instance("scripted", model.clone()).toolset(toolset).build().unwrap();
    let events = Harness::new(root).await.transcript("hi").await;
    (model, events)
}

#[tokio::test]
async fn tools_of_a_toolset_are_in_the_request_and_can_be_called() {
    let (model, events) = run(set("maths", &["add", "sub"]), &["sub"]).await;
    assert_eq!(request_tools(&model, 0), ["add", "sub"]);
    assert_eq!(events[1..], ["root: answer sub{\"result\":\"maths\"}", "root: done"]);
}

#[tokio::test]
async fn the_error_for_an_unknown_tool_lists_the_tools_of_toolsets() {
    let (_, events) = run(set("maths", &["add"]), &["mul"]).await;
    assert_eq!(events[1], "root: answer mul{\"error\":\"there is no tool `mul`; the tools are `add`\"}");
}

#[tokio::test]
async fn a_filter_keeps_only_the_named_tools() {
    let (model, events) = run(set("maths", &["add", "sub", "mul"]).only(["sub", "div"]), &["add"]).await;
    assert_eq!(request_tools(&model, 0), ["sub"]);
    assert_eq!(events[1], "root: answer add{\"error\":\"there is no tool `add`; the tools are `sub`\"}");
}

#[tokio::test]
async fn a_filter_can_depend_on_the_declaration() {
    let wordy = function_tool("wordy", "Says much.", |_: JsonMap, _| async { Ok(1) });
    let (model, _) = run(set("all", &["silent"]).tool(wordy).filter(|tool| !tool.description.is_empty()), &[]).await;
    assert_eq!(request_tools(&model, 0), ["wordy"]);
}

#[tokio::test]
async fn the_model_sees_and_calls_the_prefixed_names() {
    let (model, events) = run(set("maths", &["add"]).prefix("m_"), &["m_add", "add"]).await;
    assert_eq!(request_tools(&model, 0), ["m_add"]);
    assert_eq!(events[1], "root: answer m_add{\"result\":\"maths\"}");
    assert_eq!(events[3], "root: answer add{\"error\":\"there is no tool `add`; the tools are `m_add`\"}");
}

#[tokio::test]
async fn filters_and_prefixes_can_be_combined_in_either_order() {
    let (model, _) = run(set("maths", &["add", "sub"]).only(["add"]).prefix("m_"), &[]).await;
    assert_eq!(request_tools(&model, 0), ["m_add"]);
    let (model, _) = run(set("maths", &["add", "sub"]).prefix("m_").only(["m_sub"]).prefix("n_"), &["n_m_sub"]).await;
    assert_eq!(request_tools(&model, 0), ["n_m_sub"]);
}

#[test]
fn the_fixed_names_of_a_toolset_are_the_names_that_the_model_sees() {
    let maths = || set("maths", &["add", "sub", "mul"]);
    let names_of = |toolset: Arc<dyn Toolset>| toolset.tool_names();
    assert_eq!(names_of(maths().into_toolset()), Some(names(["add", "sub", "mul"])));
    assert_eq!(names_of(maths().only(["mul", "add"]).into_toolset()), Some(names(["add", "mul"])));
    let adapted = maths().only(["add"]).prefix("m_").require_confirmation().at_most_once();
    assert_eq!(names_of(adapted.into_toolset()), Some(names(["m_add"])));
    assert_eq!(names_of(maths().prefix("m_").only(["add"]).into_toolset()), None, "a server may know it by this name");
    assert_eq!(names_of(maths().filter(|tool| tool.name == "add").into_toolset()), None);
}

#[tokio::test]
async fn a_prefix_keeps_the_other_properties_of_a_tool() {
    let order = function_tool("order", "", |_: JsonMap, _| async { Ok(None::<u8>) }).long_running();
    let search = builtin::tool("google_search").unwrap();
    let shared: Arc<dyn Toolset> =
        Arc::new(StaticToolset::new("shop").tool(order.requires_confirmation()).tool(search));
    let prefixed = shared.clone().prefix("s_").into_toolset();
    let model = Arc::new(Scripted::sequence(["done"]));
    let root = llm("root").model_instance("scripted", model.clone()).toolset(prefixed.clone()).build().unwrap();
    let tools = tools_of(root, prefixed).await;
    assert!(tools[0].is_long_running() && tools[0].requires_confirmation() && tools[0].is_callable());
    assert!(!tools[1].is_callable());
    assert_eq!(model.requests()[0].model_tools, [json!({"googleSearch": {}})]);
}

#[tokio::test]
async fn a_declaration_is_renamed_once_and_not_before_each_model_call() {
    let prefixed = set("maths", &["add", "sub"]).prefix("m_").into_toolset();
    let mut resolved = Vec::new();
    for _ in 0..2 {
        let root = llm("root").model_instance("scripted", Arc::new(Scripted::sequence(["done"]))).build().unwrap();
        resolved.push(tools_of(root, prefixed.clone()).await);
    }
    for (first, second) in resolved[0].iter().zip(&resolved[1]) {
        assert!(Arc::ptr_eq(first.declaration(), second.declaration()), "{}", first.declaration().name);
    }
    assert_eq!(resolved[1][1].declaration().name, "m_sub");
}

#[tokio::test]
async fn a_toolset_can_require_confirmation_of_all_its_tools() {
    let careful = set("maths", &["add"]).require_confirmation().into_toolset();
    let root = llm("root").model_instance("scripted", Arc::new(Scripted::sequence(["done"]))).build().unwrap();
    assert!(tools_of(root, careful).await[0].requires_confirmation());
}

/// Returns the tools of a toolset in a run of this agent.
async fn tools_of(root: Agent, toolset: Arc<dyn Toolset>) -> Vec<Arc<dyn Tool>> {
    let seen: Arc<Mutex<Vec<Arc<dyn Tool>>>> = Arc::default();
    let output = seen.clone();
    let look = custom("look", move |cx: AgentContext| {
        let (toolset, output) = (toolset.clone(), output.clone());
        async move {
            let tools = toolset.tools(&cx.call).await?;
            *output.lock().unwrap() = tools;
            Ok(())
        }
    });
    let root = sequential("flow").sub_agent(root).sub_agent(look).build().unwrap();
    Harness::new(root).await.run("hi").await;
    std::mem::take(&mut *seen.lock().unwrap())
}

/// Records its calls, and has another tool each time.
#[derive(Default)]
struct ChangingToolset {
    seen: Arc<Mutex<Vec<String>>>,
}

impl ChangingToolset {
    fn note(&self, what: &str) {
        self.seen.lock().unwrap().push(what.into());
    }
}

#[async_trait]
impl Toolset for ChangingToolset {
    fn name(&self) -> &str {
        "moody"
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        self.note("tools");
        let times = self.seen.lock().unwrap().iter().filter(|what| *what == "tools").count();
        Ok(vec![says(&format!("t{times}"), "moody")])
    }

    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        self.note(&format!("prepare beside {}", request.tools.len()));
        request.system_instructions.push("You are moody.".into());
        Ok(())
    }

    async fn close(&self) {
        self.note("close");
    }
}

#[tokio::test]
async fn a_toolset_is_resolved_before_each_model_call_for_that_step() {
    let (model, events) = run(Arc::new(ChangingToolset::default()), &["t1", "t1"]).await;
    assert_eq!(
        (request_tools(&model, 0), request_tools(&model, 1), request_tools(&model, 2)),
        (names(["t1"]), names(["t2"]), names(["t3"]))
    );
    assert_eq!(events[1], "root: answer t1{\"result\":\"moody\"}");
    assert_eq!(events[3], "root: answer t1{\"error\":\"there is no tool `t1`; the tools are `t2`\"}");
}

#[tokio::test]
async fn prefixed_names_follow_the_tools_of_the_toolset() {
    let (model, _) = run(Arc::new(ChangingToolset::default()).prefix("m_"), &["m_t1"]).await;
    assert_eq!((request_tools(&model, 0), request_tools(&model, 1)), (names(["m_t1"]), names(["m_t2"])));
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(Into::into).to_vec()
}

#[tokio::test]
async fn a_toolset_prepares_a_request_before_its_tools_and_through_adapters() {
    let moody = ChangingToolset::default();
    let seen = moody.seen.clone();
    let made = Arc::new(moody).only(["t1"]).prefix("x_").require_confirmation();
    let model = Arc::new(Scripted::sequence(["done"]));
    let root = llm("root").model_instance("scripted", model.clone()).tools([says("own", "own")]).toolset(made);
    Harness::new(root.build().unwrap()).await.run("hi").await;
    assert_eq!(request_tools(&model, 0), ["own", "x_t1"]);
    assert_eq!(*seen.lock().unwrap(), ["tools", "prepare beside 1"]);
    assert_eq!(model.requests()[0].system_instructions.last().unwrap(), "You are moody.");
}

#[tokio::test]
async fn an_own_tool_takes_precedence_over_one_of_a_toolset() {
    let model = Arc::new(Scripted::sequence([Reply::call("add", json!({})), Reply::text("done")]));
    let root = llm("root")
        .model_instance("scripted", model.clone())
        .tools([says("add", "own")])
        .toolset(set("maths", &["add", "sub", "transfer_to_agent"]))
        .sub_agent(llm("child"))
        .build()
        .unwrap();
    let events = Harness::new(root).await.transcript("hi").await;
    assert_eq!(request_tools(&model, 0), ["add", "transfer_to_agent", "sub"]);
    assert_eq!(model.requests()[0].tools[1].description, "Hands the conversation over to another agent.");
    assert_eq!(events[1], "root: answer add{\"result\":\"own\"}");
}

#[tokio::test]
async fn two_toolsets_with_tools_of_the_same_name_are_an_error_that_names_both() {
    let root = llm("root")
        .model_instance("scripted", Arc::new(Scripted::new()))
        .toolset(set("maths", &["add"]))
        .toolset(set("shop", &["buy", "add"]))
        .build()
        .unwrap();
    let (events, error) = Harness::new(root).await.expect_error("hi").await;
    assert_eq!(error.code(), "TOOL_NAME_CLASH");
    let message = "agent `root`: its toolsets `maths` and `shop` both have a tool `add`; give one of them a prefix, or leave the tool out of one";
    assert_eq!(events, [format!("root: error TOOL_NAME_CLASH: {message}")]);
}

#[tokio::test]
async fn a_toolset_with_two_tools_of_the_same_name_is_an_error_that_names_it() {
    let root = llm("root").model_instance("scripted", Arc::new(Scripted::new())).toolset(set("maths", &["add", "add"]));
    let (_, error) = Harness::new(root.build().unwrap()).await.expect_error("hi").await;
    let message = "agent `root`: its toolset `maths` has two tools named `add`; rename one of them there";
    assert_eq!((error.code(), error.to_string().as_str()), ("TOOL_NAME_CLASH", message));
}

/// Fails to list its tools.
struct FailingToolset;

#[async_trait]
impl Toolset for FailingToolset {
    fn name(&self) -> &str {
        "down"
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        Err(RunError::BadInput("toolset `down` cannot be reached".into()))
    }
}

#[tokio::test]
async fn a_toolset_that_fails_ends_the_run() {
    let root = llm("root").model_instance("scripted", Arc::new(Scripted::new())).toolset(Arc::new(FailingToolset));
    let (_, error) = Harness::new(root.build().unwrap()).await.expect_error("hi").await;
    assert_eq!(error.to_string(), "toolset `down` cannot be reached");
}

#[tokio::test]
async fn code_of_an_agent_can_call_the_tools_of_its_toolsets() {
    let ask = |name: &'static str| {
        function_tool(name, "", move |_: JsonMap, cx: CallContext| async move {
            let host = cx.host().map_err(|error| ToolError::Recoverable(error.to_string()))?;
            let called = if name == "ask" { "add" } else { "mul" };
            host.call_tool(&cx, called, JsonMap::new()).await
        })
    };
    let calls = Reply::call("ask", json!({})).and_call("ask_wrong", json!({}));
    let root = llm("root")
        .model_instance("scripted", Arc::new(Scripted::sequence([calls, Reply::text("done")])))
        .tool(ask("ask"))
        .tool(ask("ask_wrong"))
        .toolset(set("maths", &["add"]))
        .build()
        .unwrap();
    assert_eq!(
        Harness::new(root).await.transcript("hi").await[1],
        "root: answer ask{\"result\":\"maths\"}; answer ask_wrong{\"error\":\"there is no tool `mul`; the tools are `ask`, `ask_wrong`, `add`\"}"
    );
}

#[tokio::test]
async fn closing_an_app_closes_the_toolsets_of_all_its_agents() {
    let (above, below) = (ChangingToolset::default(), ChangingToolset::default());
    let seen = [above.seen.clone(), below.seen.clone()];
    let child = llm("child").toolset(Arc::new(below).only(["x"]).prefix("x_").require_confirmation());
    let app = App::new("app", llm("root").toolset(Arc::new(above)).sub_agent(child).build().unwrap()).unwrap();
    app.close().await;
    for seen in seen {
        assert_eq!(*seen.lock().unwrap(), ["close"]);
    }
}

#[tokio::test]
async fn closing_an_app_closes_a_toolset_of_an_agent_that_several_agents_call_as_a_tool() {
    let toolset = ChangingToolset::default();
    let seen = toolset.seen.clone();
    let helper = llm("helper").toolset(Arc::new(toolset)).build().unwrap();
    let tool = |helper: &Agent| AgentTool::new(helper.clone()).unwrap();
    let child = llm("child").tool(RequireConfirmation::new(Arc::new(tool(&helper))));
    let root = llm("root").tool(tool(&helper)).sub_agent(child).build().unwrap();
    App::new("app", root).unwrap().close().await;
    assert_eq!(*seen.lock().unwrap(), ["close"]);
}
