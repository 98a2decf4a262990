//! Tool calls: results, errors, order, and long-running tools.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Content, CustomAgent, CustomAgentSpec, FunctionDeclaration,
    FunctionResponse, JsonMap, PartData, RunError, StoreError, Tool, ToolError, ToolExecution,
};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn the_result_of_a_tool_is_sent_to_the_model() {
    let model = Scripted::sequence([Reply::call("add", json!({"a": 1, "b": 2})), Reply::text("three")]);
    let add = tool("add", |args, _| Ok(json!(args["a"].as_i64().unwrap() + args["b"].as_i64().unwrap())));
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![add])).await;
    assert_eq!(
        app.transcript("hi").await,
        ["root: call add{\"a\":1,\"b\":2}", "root: answer add{\"result\":3}", "root: three"]
    );
}

#[tokio::test]
async fn a_call_of_an_unknown_tool_returns_an_error_that_lists_the_tools() {
    let model = Scripted::sequence([Reply::call("sub", json!({})), Reply::text("sorry")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![tool("add", |_, _| Ok(json!(1)))])).await;
    assert_eq!(
        app.transcript("hi").await[1],
        "root: answer sub{\"error\":\"there is no tool `sub`; the tools are `add`\"}"
    );
}

#[tokio::test]
async fn a_recoverable_error_is_sent_to_the_model() {
    let model = Scripted::sequence([Reply::call("find", json!({})), Reply::text("not there")]);
    let find = tool("find", |_, _| Err(ToolError::Recoverable("no such town".into())));
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![find])).await;
    assert_eq!(app.transcript("hi").await[1..], ["root: answer find{\"error\":\"no such town\"}", "root: not there"]);
}

#[tokio::test]
async fn a_fatal_error_ends_the_run() {
    let model = Scripted::sequence([Reply::call("find", json!({}))]);
    let find = tool("find", |_, _| {
        Err(ToolError::Fatal { tool: "find".into(), code: "DISK_FULL".into(), message: "no room".into() })
    });
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![find])).await;
    let (events, error) = app.expect_error("hi").await;
    assert_eq!(events[1], "root: error DISK_FULL: tool `find`: no room");
    assert_eq!(error.code(), "DISK_FULL");
}

/// Creates a tool that fails with an error of a store.
fn failing_store_tool(name: &str, error: fn() -> StoreError) -> Arc<dyn Tool> {
    tool(name, move |_, _| {
        let asked: Result<u64, StoreError> = Err(error());
        Ok(json!(asked?))
    })
}

#[tokio::test]
async fn a_request_that_a_store_rejects_is_a_recoverable_error() {
    let model = Scripted::sequence([Reply::call("save", json!({})), Reply::text("sorry")]);
    let save =
        failing_store_tool("save", || StoreError::InvalidName { name: "..".into(), reason: "it leaves the folder" });
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![save])).await;
    let answer = "root: answer save{\"error\":\"invalid name `..`: it leaves the folder\"}";
    assert_eq!(app.transcript("hi").await[1..], [answer, "root: sorry"]);
}

#[tokio::test]
async fn a_store_failure_in_a_tool_ends_the_run_and_its_message_is_not_sent_to_the_client() {
    let model = Scripted::sequence([Reply::call("save", json!({}))]);
    let save = failing_store_tool("save", || StoreError::backend("/var/secret/path.db", "disk full"));
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![save])).await;
    let (events, error) = app.expect_error("hi").await;
    assert_eq!(events[1], "root: error STORE_FAILED: the storage failed; the server's log holds the cause");
    assert_eq!(error.to_string(), "tool `save`: /var/secret/path.db: disk full");
}

#[tokio::test]
async fn parallel_calls_run_concurrently_and_their_results_are_in_the_order_of_the_calls() {
    let both = Reply::call("slow", json!({})).and_call("fast", json!({}));
    for execution in [ToolExecution::Parallel, ToolExecution::Sequential] {
        let model = Scripted::sequence([both.clone(), Reply::text("ok")]);
        let tools = vec![tool("slow", |_, _| Ok(json!("s"))), tool("fast", |_, _| Ok(json!("f")))];
        let mut app = Harness::new(llm_with("root", model, |llm| llm.tools = tools)).await;
        app.config.tool_execution = execution;
        assert_eq!(app.transcript("hi").await[1], "root: answer slow{\"result\":\"s\"}; answer fast{\"result\":\"f\"}");
    }
}

/// Sets members of the state key `profile`, and returns all of its members from before.
fn sets_member(name: &'static str, member: &'static str, value: serde_json::Value) -> Arc<dyn Tool> {
    tool(name, move |_, cx| {
        let mut profile = map(cx.state("profile").unwrap());
        let before = json!(profile.keys().collect::<Vec<_>>());
        match &value {
            serde_json::Value::Null => profile.shift_remove(member),
            value => profile.insert(member.into(), value.clone()),
        };
        cx.set_state("profile", json!(profile));
        cx.actions().deleted_artifact_ids.insert(format!("{member}.txt"));
        Ok(before)
    })
}

fn two_that_set(both: &[&'static str; 2]) -> (Scripted, Vec<Arc<dyn Tool>>) {
    let model = Scripted::sequence([Reply::call(both[0], json!({})).and_call(both[1], json!({})), Reply::text("ok")]);
    (model, vec![sets_member(both[0], "name", json!("Ada")), sets_member(both[1], "old", json!(null))])
}

#[tokio::test]
async fn nested_maps_and_deleted_ids_of_parallel_tools_merge() {
    let (model, tools) = two_that_set(&["one", "two"]);
    let root = llm_with("root", model, |llm| llm.tools = tools);
    let app = Harness::with_state(root, json!({"profile": {"old": 1, "kept": 2}})).await;
    let events = app.run("hi").await;
    assert_eq!(app.state().await, json!({"profile": {"kept": 2, "name": "Ada"}}));
    let deleted: Vec<_> = events[1].actions.deleted_artifact_ids.iter().collect();
    assert_eq!(deleted, ["name.txt", "old.txt"]);
}

#[tokio::test]
async fn in_sequential_mode_the_second_call_sees_the_state_of_the_first() {
    let (model, tools) = two_that_set(&["one", "two"]);
    let root = llm_with("root", model, |llm| llm.tools = tools);
    let mut app = Harness::with_state(root, json!({"profile": {"old": 1}})).await;
    app.config.tool_execution = ToolExecution::Sequential;
    let events = app.transcript("hi").await;
    assert_eq!(events[1], r#"root: answer one{"result":["old"]}; answer two{"result":["old","name"]}"#);
    assert_eq!(app.state().await, json!({"profile": {"name": "Ada"}}));
}

/// Calls its tools `one` and `two` at the same time.
struct ConcurrentAgent;

#[async_trait]
impl CustomAgent for ConcurrentAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let host = cx.call.host()?;
        cx.call.set_state("profile", json!({"old": 1, "kept": 2}));
        cx.call.set_state("own", json!(1));
        let call = |name| host.call_tool(&cx.call, name, JsonMap::new());
        let (one, two) = tokio::join!(call("one"), call("two"));
        one?;
        two?;
        Ok(())
    }
}

#[tokio::test]
async fn concurrent_calls_by_code_merge_only_what_each_has_changed() {
    // Both have read the state before either returns.
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    struct BarrierTool(Arc<dyn Tool>, Arc<tokio::sync::Barrier>);
    #[async_trait]
    impl Tool for BarrierTool {
        fn declaration(&self) -> &Arc<FunctionDeclaration> {
            self.0.declaration()
        }
        async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<serde_json::Value, ToolError> {
            let result = self.0.call(args, cx).await;
            self.1.wait().await;
            result
        }
    }
    let (_, tools) = two_that_set(&["one", "two"]);
    let meets = |tool| Arc::new(BarrierTool(tool, barrier.clone())) as Arc<dyn Tool>;
    let tools = tools.into_iter().map(meets).collect();
    let code = Arc::new(ConcurrentAgent);
    let root = Agent::new("root", "", AgentKind::Custom(CustomAgentSpec { code, model: None, tools }));
    let app = Harness::new(root).await;
    let events = app.run("hi").await;
    assert_eq!(app.state().await, json!({"profile": {"kept": 2, "name": "Ada"}, "own": 1}));
    let deleted: Vec<_> = events[0].actions.deleted_artifact_ids.iter().collect();
    assert_eq!(deleted, ["name.txt", "old.txt"]);
}

#[tokio::test]
async fn parallel_tools_run_at_the_same_time() {
    struct BarrierTool(Arc<FunctionDeclaration>, Arc<tokio::sync::Barrier>);
    #[async_trait]
    impl Tool for BarrierTool {
        fn declaration(&self) -> &Arc<FunctionDeclaration> {
            &self.0
        }
        async fn call(&self, _: JsonMap, _: &CallContext) -> Result<serde_json::Value, ToolError> {
            self.1.wait().await;
            Ok(json!("met"))
        }
    }
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let tools: Vec<Arc<dyn Tool>> =
        ["a", "b"].map(|name| Arc::new(BarrierTool(declaration(name), barrier.clone())) as Arc<dyn Tool>).to_vec();
    let model = Scripted::sequence([Reply::call("a", json!({})).and_call("b", json!({})), Reply::text("ok")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = tools)).await;
    assert_eq!(app.transcript("hi").await.last().unwrap(), "root: ok");
}

#[tokio::test]
async fn state_that_a_tool_sets_is_stored_with_its_result() {
    let model = Scripted::sequence([Reply::call("note", json!({})), Reply::text("ok")]);
    let note = tool("note", |_, cx| {
        cx.set_state("seen", json!(1));
        cx.set_state("app:all", json!(2));
        cx.set_state("temp:now", json!(3));
        assert_eq!(cx.state("seen"), Some(json!(1)), "own changes are seen at once");
        Ok(json!({}))
    });
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![note])).await;
    let events = app.run("hi").await;
    assert_eq!(events[1].actions.state_delta, map(json!({"seen": 1, "app:all": 2})));
    assert_eq!(app.state().await, json!({"app:all": 2, "seen": 1}));
}

#[tokio::test]
async fn concurrent_calls_do_not_see_each_others_state_and_the_last_one_wins() {
    let twice = Reply::call("count", json!({})).and_call("count", json!({}));
    let model = Scripted::sequence([twice, Reply::text("ok")]);
    let count = tool("count", |_, cx| {
        let before = cx.state("n").and_then(|n| n.as_i64()).unwrap_or(0);
        cx.set_state("n", json!(before + 1));
        Ok(json!(before))
    });
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![count])).await;
    assert_eq!(app.transcript("hi").await[1], "root: answer count{\"result\":0}; answer count{\"result\":0}");
    assert_eq!(app.state().await, json!({"n": 1}));
}

/// Sets state, waits for the other call, and returns.
struct StateTool(Arc<FunctionDeclaration>, Arc<tokio::sync::Barrier>);

#[async_trait]
impl Tool for StateTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<serde_json::Value, ToolError> {
        for (key, value) in args {
            cx.set_state(key, value);
        }
        self.1.wait().await;
        Ok(json!({"x": cx.state("x"), "y": cx.state("y")}))
    }
}

#[tokio::test]
async fn concurrent_calls_by_code_do_not_overwrite_each_others_state() {
    struct CallingAgent;
    #[async_trait]
    impl CustomAgent for CallingAgent {
        async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
            let host = cx.call.host()?;
            cx.call.set_state("x", json!(0));
            cx.call.set_state("y", json!(0));
            let set_x = host.call_tool(&cx.call, "set", map(json!({"x": 1})));
            let set_y = host.call_tool(&cx.call, "set", map(json!({"y": 2})));
            let (first, second) = tokio::join!(set_x, set_y);
            assert_eq!((first.unwrap(), second.unwrap()), (json!({"x": 1, "y": 0}), json!({"x": 0, "y": 2})));
            cx.say("done").await.map(|_| ())
        }
    }
    let set: Arc<dyn Tool> = Arc::new(StateTool(declaration("set"), Arc::new(tokio::sync::Barrier::new(2))));
    let spec = CustomAgentSpec { code: Arc::new(CallingAgent), model: None, tools: vec![set] };
    let app = Harness::new(Agent::new("root", "", AgentKind::Custom(spec))).await;
    assert_eq!(app.transcript("hi").await, ["root: done"]);
    assert_eq!(app.state().await, json!({"x": 1, "y": 2}));
}

#[tokio::test]
async fn temporary_state_lasts_for_the_run_and_is_never_stored() {
    let model = Scripted::sequence([
        Reply::call("set", json!({})),
        Reply::call("get", json!({})),
        Reply::text("ok"),
        Reply::call("get", json!({})),
        Reply::text("ok"),
    ]);
    let set = tool("set", |_, cx| {
        cx.set_state("temp:x", json!(7));
        Ok(json!({}))
    });
    let get = tool("get", |_, cx| Ok(json!({"x": cx.state("temp:x")})));
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![set, get])).await;
    let first = app.transcript("hi").await;
    assert!(first.contains(&"root: answer get{\"x\":7}".to_owned()), "{first:?}");
    assert!(app.transcript("again").await.contains(&"root: answer get{\"x\":null}".to_owned()));
    assert_eq!(app.state().await, json!({}));
}

#[tokio::test]
async fn with_skip_summarization_the_result_is_the_answer() {
    let model = Scripted::sequence([Reply::call("show", json!({}))]);
    let show = tool("show", |_, cx| {
        cx.actions().skip_summarization = Some(true);
        Ok(json!("it"))
    });
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![show])).await;
    assert_eq!(app.transcript("hi").await, ["root: call show{}", "root: answer show{\"result\":\"it\"}"]);
}

#[tokio::test]
async fn a_long_running_call_is_reported_and_its_later_result_continues_the_agent() {
    let model = Scripted::sequence([Reply::call("order", json!({})).with_id("c1"), Reply::text("it has arrived")]);
    let order = long_running("order", |_, _| Ok(json!(null)));
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![order])).await;
    let events = app.run("order it").await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].long_running_tool_ids, ["c1"]);
    let arrived = PartData::FunctionResponse(FunctionResponse {
        id: Some("c1".into()),
        name: "order".into(),
        response: map(json!({"status": "done"})),
        ..FunctionResponse::default()
    });
    let message = Content::new("user", vec![arrived.into()]);
    let later = app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap();
    assert_eq!(brief(&later[0]), "root: it has arrived");
}

#[tokio::test]
async fn a_pending_result_is_summarized() {
    let model = Scripted::sequence([Reply::call("order", json!({})), Reply::text("ordered")]);
    let order = long_running("order", |_, _| Ok(json!({"status": "pending"})));
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![order])).await;
    assert_eq!(app.transcript("order it").await.last().unwrap(), "root: ordered");
}

#[tokio::test]
async fn state_that_a_long_running_tool_sets_is_stored_before_its_result() {
    let model = Scripted::sequence([Reply::call("order", json!({}))]);
    let order = long_running("order", |_, cx| {
        cx.set_state("ticket", json!(7));
        Ok(json!(null))
    });
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![order])).await;
    app.run("order it").await;
    assert_eq!(app.state().await, json!({"ticket": 7}));
}

#[tokio::test]
async fn a_response_without_calls_has_no_tool_results() {
    let app = Harness::new(llm_with("root", Scripted::sequence(["hello"]), |llm| {
        llm.tools = vec![tool("add", |_, _| Ok(json!(1)))];
    }));
    assert_eq!(app.await.transcript("hi").await, ["root: hello"]);
}

#[tokio::test]
async fn text_beside_a_call_is_kept_and_the_result_has_the_id_and_name_of_the_call() {
    let call = Reply::text("Let me see.").and_call("find", json!({})).with_id("c1");
    let model = Scripted::sequence([call, Reply::text("ok")]);
    let find = tool("find", |_, _| Ok(json!({"town": "Rome", "size": 3})));
    let events = Harness::new(llm_with("root", model, |llm| llm.tools = vec![find])).await.run("hi").await;
    assert_eq!(brief(&events[0]), "root: Let me see.; call find{}");
    let answer = events[1].function_responses().next().unwrap();
    assert_eq!((answer.id.as_deref(), answer.name.as_str()), (Some("c1"), "find"));
    assert_eq!(answer.response, map(json!({"town": "Rome", "size": 3})));
    assert_eq!(events[1].content.as_ref().unwrap().role.as_deref(), Some("user"));
}

#[tokio::test]
async fn a_call_without_an_id_gets_one_and_others_keep_theirs() {
    for (id, kept) in [(None, false), (Some(""), false), (Some("c1"), true)] {
        let call = Reply::call("t", json!({}));
        let call = id.map_or(call.clone(), |id| call.with_id(id));
        let model = Scripted::sequence([call, Reply::text("ok")]);
        let root = llm_with("root", model, |llm| llm.tools = vec![tool("t", |_, _| Ok(json!(1)))]);
        let events = Harness::new(root).await.run("hi").await;
        let called = events[0].function_calls().next().unwrap().id.clone().unwrap();
        assert_eq!(events[1].function_responses().next().unwrap().id.as_ref(), Some(&called));
        assert!(if kept { called == "c1" } else { called.starts_with("adk-") }, "{called}");
    }
}

#[tokio::test]
async fn the_results_of_the_calls_of_one_response_are_one_event_with_all_changes() {
    for execution in [ToolExecution::Parallel, ToolExecution::Sequential] {
        let both = Reply::call("a", json!({})).and_call("b", json!({}));
        let model = Scripted::sequence([both, Reply::text("ok")]);
        let sets = |name: &'static str| {
            tool(name, move |_, cx| {
                cx.set_state(name, json!(1));
                cx.set_state("last", json!(name));
                Ok(json!(name))
            })
        };
        let mut app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![sets("a"), sets("b")])).await;
        app.config.tool_execution = execution;
        let events = app.run("hi").await;
        assert_eq!(events.len(), 3);
        assert_eq!(events[1].function_responses().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(events[1].actions.state_delta, map(json!({"a": 1, "b": 1, "last": "b"})));
    }
}
