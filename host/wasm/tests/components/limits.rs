//! Every limit ends a call with a message that names the component, the value and the key that raises it.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{AgentContext, AgentKind, Content, ItemResolver, RunConfig, RunError, Tool, ToolError};
use hatchery_engine::build::llm;
use hatchery_engine::{AgentTool, App, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_wasm::{ComponentSettings, Engine, EngineOptions, InstancePoolConfig, LimitOverrides, Limits};
use serde_json::{Value, json};

use crate::imports::CapturedLog;
use crate::support::{Listener, TestCatalog, call, call_in, context, run_custom, services, settings_with_grants};

async fn failure(limits: Limits, tool: &str, args: Value) -> String {
    let catalog = TestCatalog::new().with("misbehaver").with_limits(limits).catalog().await;
    let error = match call(&catalog, tool, args).await {
        Err(ToolError::Recoverable(message)) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(call(&catalog, "echo", json!({"value": 1})).await.unwrap(), json!({"value": 1}), "the next call works");
    error
}

fn limits() -> Limits {
    Limits::default()
}

#[tokio::test]
async fn a_tool_that_uses_too_much_memory_is_interrupted() {
    assert_eq!(
        failure(Limits { memory: 16 << 20, ..limits() }, "allocate", json!({})).await,
        "tool `allocate` of component `misbehaver` failed: it exceeded its limit of 16 MiB of memory"
    );
}

#[tokio::test]
async fn a_tool_that_spins_is_interrupted_by_its_cpu_time() {
    assert_eq!(
        failure(Limits { cpu: Duration::from_millis(50), ..limits() }, "spin", json!({})).await,
        "tool `spin` of component `misbehaver` failed: it exceeded its limit of 50ms of CPU time"
    );
}

#[tokio::test]
async fn waiting_costs_no_cpu_time() {
    let limits = Limits { cpu: Duration::from_millis(100), ..limits() };
    let catalog = TestCatalog::new().with("misbehaver").with_limits(limits).catalog().await;
    assert_eq!(call(&catalog, "slow", json!({"millis": 300})).await.unwrap(), json!(300));
}

#[tokio::test]
async fn a_tool_that_waits_too_long_is_interrupted_by_the_wall_clock() {
    assert_eq!(
        failure(Limits { wall: Duration::from_millis(300), ..limits() }, "slow", json!({"millis": 60_000})).await,
        "tool `slow` of component `misbehaver` failed: it exceeded its limit of 300ms of wall time"
    );
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused() {
    for bytes in [(1 << 20) + 1, 10 << 20] {
        assert_eq!(
            failure(Limits { result: 1 << 20, ..limits() }, "huge_result", json!({"bytes": bytes})).await,
            "tool `huge_result` of component `misbehaver` failed: it exceeded its limit of 1 MiB in one result"
        );
    }
}

/// Returns the arguments of `relay_tool` with which this many calls of it follow each other, and then one of `echo`.
fn nested(relays: usize) -> Value {
    let echo = json!({"tool": "echo", "args": {"value": 1}});
    (1..relays).fold(echo, |args, _| json!({"tool": "relay_tool", "args": args}))
}

#[tokio::test]
async fn the_depth_of_tools_that_call_tools_is_limited() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    assert_eq!(call(&catalog, "relay_tool", nested(8)).await.unwrap(), json!({"value": 1}));
    match call(&catalog, "relay_tool", nested(9)).await {
        Err(ToolError::Recoverable(message)) => {
            assert_eq!(message, "tool `echo` is not called: it exceeded its limit of 8 tools in a chain of calls")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_depth_of_calls_counts_across_agents_and_calls_at_the_same_time() {
    let grants = json!({"tools": ["agent:helper"]});
    let catalog = TestCatalog::new().with("misbehaver").with_grants("misbehaver", grants).catalog().await;
    let tools = || ["relay_tool", "echo"].map(|name| catalog.tool(name).unwrap());
    // A tool calls the agent, so one call less is left to the tools of the agent.
    for (relays, refusals) in [(7, 0), (8, 2)] {
        let both = Reply::call("relay_tool", nested(relays)).and_call("relay_tool", nested(relays));
        let model = Arc::new(Scripted::sequence([both, Reply::text("done")]));
        let helper = llm("helper").model_instance("scripted", model.clone()).tools(tools()).build().unwrap();
        let helper: Arc<dyn Tool> = Arc::new(AgentTool::new(helper).unwrap());
        let call = Reply::call("relay_tool", json!({"tool": "helper", "args": {"request": "go"}}));
        let caller = Arc::new(Scripted::sequence([call, Reply::text("done")]));
        let root = llm("root").model_instance("scripted", caller).tools(tools()).tools([helper]).build().unwrap();
        let app = Arc::new(App::new("app", root).unwrap());
        let config = RunConfig { auto_create_session: true, ..RunConfig::default() };
        let request = RunRequest { config, ..RunRequest::new("user", "session", Content::user("hi")) };
        Runner::new(services(Scripted::new())).run(app, request).await.unwrap().collect().await.unwrap();
        let last = model.requests().pop().expect("the agent was called");
        let responses = last.contents.iter().flat_map(|content| content.function_responses());
        let responses: Vec<_> = responses.map(|response| json!(response.response).to_string()).collect();
        let is_refused = |response: &&String| response.contains("limit of 8 tools in a chain of calls");
        assert_eq!((responses.len(), responses.iter().filter(is_refused).count()), (2, refusals), "{responses:?}");
    }
}

#[tokio::test]
async fn the_state_that_a_call_sets_is_limited() {
    let limits = Limits { result: 10_000, ..limits() };
    let catalog = TestCatalog::new().with("misbehaver").with_limits(limits).catalog().await;
    let set = |bytes: usize| call(&catalog, "state_rw", json!({"key": "big", "value": "x".repeat(bytes)}));
    assert!(set(4_000).await.is_ok());
    let error = match set(9_990).await {
        Err(error) => error.to_string(),
        Ok(value) => panic!("{value}"),
    };
    assert!(
        error.contains(
            "state key `big` is not set, because this call has set too much: it exceeded its limit of 10000 B"
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_component_with_too_many_instances_is_rejected() {
    let test_catalog = TestCatalog::new().with("misbehaver").with_limits(Limits { instances: 1, ..limits() });
    assert_eq!(
        test_catalog.reason(&test_catalog.open().await.current(), "misbehaver.wasm"),
        "`describe` of component `misbehaver` failed: it exceeded its limit of 1 core instances; raise `limits.instances` in \
         hatchery.yaml to allow more"
    );
}

#[tokio::test]
async fn a_component_with_too_large_tables_is_rejected() {
    let test_catalog = TestCatalog::new().with("misbehaver").with_limits(Limits { tables: 1, ..limits() });
    assert_eq!(
        test_catalog.reason(&test_catalog.open().await.current(), "misbehaver.wasm"),
        "`describe` of component `misbehaver` failed: it exceeded its limit of 1 table elements; raise `limits.tables` in \
         hatchery.yaml to allow more"
    );
}

#[tokio::test]
async fn one_component_can_have_limits_of_its_own() {
    let own = Limits::default().with(&LimitOverrides { memory: Some(8 << 20), ..LimitOverrides::default() });
    let settings = ComponentSettings { limits: own, ..Default::default() };
    let catalog =
        TestCatalog::new().with("misbehaver").with("dice").with_settings("misbehaver", settings).catalog().await;
    assert_eq!(catalog.components["misbehaver"].limits().memory, 8 << 20);
    assert_eq!(catalog.components["dice"].limits().memory, 64 << 20);
}

#[tokio::test]
async fn an_agent_that_spins_ends_its_run_and_its_events_are_kept() {
    let limits = Limits { cpu: Duration::from_millis(50), ..limits() };
    let catalog = TestCatalog::new().with("misbehaver").with_limits(limits).catalog().await;
    let listener = Listener::new(10);
    let error = run_custom(&catalog, "spinning_agent", &listener).await.unwrap_err();
    assert_eq!(error.code(), "COMPONENT_CPU");
    assert_eq!(error.to_string(), "component `misbehaver`: it exceeded its limit of 50ms of CPU time");
    assert_eq!(listener.texts(), ["about to spin"]);
}

#[tokio::test]
async fn an_agent_that_takes_too_long_ends_its_run() {
    let limits = Limits { agent_wall: Duration::from_millis(200), ..limits() };
    let catalog = TestCatalog::new().with("misbehaver").with_limits(limits).catalog().await;
    let error = run_custom(&catalog, "spinning_agent", &Listener::new(10)).await.unwrap_err();
    assert_eq!(error.code(), "COMPONENT_TIMEOUT");
    assert_eq!(error.to_string(), "component `misbehaver`: it exceeded its limit of 200ms of wall time");
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_even_if_it_spins() {
    let limits = Limits { cpu: Duration::from_secs(60), wall: Duration::from_secs(60), ..limits() };
    let catalog = TestCatalog::new().with("misbehaver").with_limits(limits).catalog().await;
    for (tool, args) in [("spin", json!({})), ("slow", json!({"millis": 60_000}))] {
        let cx = context(&catalog);
        let cancel = cx.invocation.cancel.clone();
        let (result, ()) = tokio::join!(call_in(&cx, &catalog, tool, args), async move { cancel.cancel() });
        assert!(matches!(&result, Err(ToolError::Fatal { code, .. }) if code == "CANCELLED"), "{result:?}");
    }
}

#[tokio::test]
async fn a_cancelled_agent_ends_with_that_error() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let call = context(&catalog);
    let cancel = call.invocation.cancel.clone();
    let listener = Listener::new(10);
    let AgentKind::Custom(custom) = &catalog.app("spinning_agent").unwrap().root().kind else { panic!() };
    let run = custom.code.run(AgentContext { call, sink: listener.clone() });
    let (ended, ()) = tokio::join!(run, async {
        listener.arrived.notified().await;
        cancel.cancel();
    });
    assert!(matches!(ended, Err(RunError::Cancelled)), "{ended:?}");
}

#[tokio::test]
async fn a_call_that_finds_all_instances_in_use_waits_and_then_fails() {
    let options = EngineOptions { instances: 1, queue_timeout: Duration::from_millis(50), ..EngineOptions::default() };
    let mut test_catalog = TestCatalog::new().with("misbehaver");
    test_catalog.options.engine = Engine::new(&options).unwrap();
    let catalog = test_catalog.catalog().await;
    let slow = call(&catalog, "slow", json!({"millis": 1000}));
    let (slow, echo) = tokio::join!(slow, call(&catalog, "echo", json!({"value": 1})));
    assert_eq!(slow.unwrap(), json!(1000));
    match echo {
        Err(ToolError::Recoverable(message)) => assert_eq!(
            message,
            "tool `echo` of component `misbehaver` failed: no free instance after 50ms: all 1 are in use; try again later"
        ),
        other => panic!("{other:?}"),
    }
    assert!(call(&catalog, "echo", json!({"value": 1})).await.is_ok());
}

#[tokio::test]
async fn a_call_that_finds_the_queue_full_fails_at_once() {
    let options = EngineOptions { instances: 1, max_queued: 1, ..EngineOptions::default() };
    let mut test_catalog = TestCatalog::new().with("misbehaver");
    test_catalog.options.engine = Engine::new(&options).unwrap();
    let catalog = test_catalog.catalog().await;
    let echo = || call(&catalog, "echo", json!({"value": 1}));
    let (slow, second, third) = tokio::join!(call(&catalog, "slow", json!({"millis": 300})), echo(), echo());
    assert_eq!((slow.unwrap(), second.unwrap()), (json!(300), json!({"value": 1})));
    assert_eq!(
        third.unwrap_err().to_string(),
        "tool `echo` of component `misbehaver` failed: no free instance, and 1 call waits for one already: all 1 are in use; \
         try again later"
    );
}

#[tokio::test]
async fn calls_work_without_the_pooling_allocator() {
    // More address space than a process can have.
    let engine = Engine::new(&EngineOptions { instances: 10_000_000, ..EngineOptions::default() }).unwrap();
    assert!(!engine.is_pooled());
    assert!(crate::support::ENGINE.is_pooled());
    let mut test_catalog = TestCatalog::new().with("misbehaver");
    test_catalog.options.engine = engine;
    let catalog = test_catalog.catalog().await;
    assert_eq!(call(&catalog, "echo", json!({"value": 1})).await.unwrap(), json!({"value": 1}));
}

#[tokio::test]
async fn model_calls_tokens_and_tool_calls_of_guests_are_counted() {
    let seeker = async |limits: Limits, tool: &str, name: &str| {
        let settings = ComponentSettings { limits, ..settings_with_grants(json!({"models": ["*"], "tools": ["*"]})) };
        let catalog =
            TestCatalog::new().with("seeker").with("misbehaver").with_settings("seeker", settings).catalog().await;
        call(&catalog, tool, json!({ "name": name })).await.unwrap_err().to_string()
    };
    assert_eq!(
        seeker(Limits { model_calls: 0, ..limits() }, "ask", "seek-1").await,
        "it exceeded its limit of 0 model calls"
    );
    assert_eq!(
        seeker(Limits { tokens: 0, ..limits() }, "ask", "seek-1").await,
        "it exceeded its limit of 0 model tokens"
    );
    assert_eq!(
        seeker(Limits { tool_calls: 0, ..limits() }, "call", "misbehaver/count").await,
        "tool `misbehaver/count` is not called: it exceeded its limit of 0 tool calls"
    );
}

/// A folder with components, and an engine with `all` bytes of memory for all of them and `of_run` bytes for one run.
fn lab_with_memory(all: u64, of_run: u64) -> TestCatalog {
    let mut test_catalog = TestCatalog::new().with("misbehaver").with("seeker");
    let queue_timeout = Duration::from_millis(50);
    let options =
        EngineOptions { memory: all, run_memory: of_run, queue_timeout, instances: 10, ..EngineOptions::default() };
    test_catalog.options.engine = Engine::new(&options).unwrap();
    test_catalog
}

#[tokio::test]
async fn all_components_share_the_memory_of_the_engine() {
    let test_catalog = lab_with_memory(8 << 20, 64 << 20);
    let catalog = test_catalog.catalog().await;
    let error = call(&catalog, "hoard", json!({"bytes": 10 << 20})).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "tool `hoard` of component `misbehaver` failed: no free memory: components use all of it; try again later"
    );
    assert_eq!(test_catalog.options.engine.memory_in_use(), 0);
    assert_eq!(call(&catalog, "hoard", json!({"bytes": 4 << 20})).await.unwrap(), json!(4 << 20));
}

#[tokio::test]
async fn calls_of_one_run_share_its_memory() {
    let catalog = lab_with_memory(64 << 20, 6 << 20).catalog().await;
    let hoard = json!({"bytes": 4 << 20});
    assert_eq!(call(&catalog, "hoard", hoard.clone()).await.unwrap(), json!(4 << 20));
    // The calling tool has an instance, too.
    let error = call(&catalog, "relay_tool", json!({"tool": "hoard", "args": hoard})).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "tool `hoard` of component `misbehaver` failed: all calls of this run together need more than 6 MiB of memory"
    );
}

#[tokio::test]
async fn an_idle_instance_is_evicted_for_its_memory() {
    let warm = Some(InstancePoolConfig::default());
    let mut test_catalog = lab_with_memory(4 << 20, 64 << 20);
    test_catalog = test_catalog.with_settings("misbehaver", ComponentSettings { warm, ..ComponentSettings::default() });
    let catalog = test_catalog.catalog().await;
    call(&catalog, "hoard", json!({"bytes": 2 << 20})).await.unwrap();
    assert_eq!(catalog.components["misbehaver"].pooled_instances(), 1);
    assert!(test_catalog.options.engine.memory_in_use() > 3 << 20);
    assert_eq!(call(&catalog, "own", json!({})).await.unwrap(), json!("own"));
    assert_eq!(catalog.components["misbehaver"].pooled_instances(), 0);
    assert_eq!(test_catalog.options.engine.memory_in_use(), 0);
}

#[tokio::test]
async fn arguments_of_calls_that_have_not_returned_count_to_the_memory_of_the_call() {
    // A parsed item takes many times its text. There may be enough memory for the guest but not for the host.
    let args = json!({"tool": "echo", "args": {"value": vec![0; 100_000]}});
    let mut errors = Vec::new();
    for mebibytes in (4..48).step_by(4) {
        let limits = Limits { memory: mebibytes << 20, ..limits() };
        let catalog = TestCatalog::new().with("misbehaver").with_limits(limits).catalog().await;
        match call(&catalog, "relay_tool", args.clone()).await {
            Ok(_) => break,
            Err(error) => errors.push(error.to_string()),
        }
    }
    let refused = "tool `echo` is not called: it exceeded its limit of ";
    let remedy = " MiB of memory";
    assert!(errors.iter().any(|error| error.starts_with(refused) && error.ends_with(remedy)), "{errors:?}");
    assert!(errors.len() < 11, "with more memory it works: {errors:?}");
}

#[tokio::test]
async fn each_exceeded_limit_is_in_the_audit_log() {
    let limits = Limits { memory: 16 << 20, ..limits() };
    let catalog = TestCatalog::new().with("misbehaver").with_limits(limits).catalog().await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    call(&catalog, "allocate", json!({})).await.unwrap_err();
    drop(guard);
    assert_eq!(log.lines("hatchery::audit"), ["limit"]);
    let reason = "it exceeded its limit of 16 MiB of memory; raise `limits.memory` in hatchery.yaml to allow more";
    assert_eq!(
        log.fields("hatchery::audit"),
        [format!(
            r#"component="misbehaver" session="session" invocation="e-test" limit="limits.memory" detail={reason}"#
        )]
    );
}
