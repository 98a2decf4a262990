//! Instance pools, and the isolation of calls of one instance.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{CallContext, ToolError};
use hatchery_wasm::{Catalog, ComponentSettings, Engine, EngineOptions, InstancePoolConfig, Limits};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::support::{TestCatalog, call, call_in, component, context, invocation};

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn pool_of_one() -> InstancePoolConfig {
    InstancePoolConfig { size: number(1), ..InstancePoolConfig::default() }
}

fn test_catalog(warm: InstancePoolConfig, limits: Limits) -> TestCatalog {
    let settings = ComponentSettings { warm: Some(warm), limits, ..ComponentSettings::default() };
    TestCatalog::new().with("misbehaver").with_settings("misbehaver", settings)
}

async fn catalog_with_pool(warm: InstancePoolConfig) -> Arc<Catalog> {
    test_catalog(warm, Limits::default()).catalog().await
}

async fn catalog_with_limits(limits: Limits) -> Arc<Catalog> {
    test_catalog(pool_of_one(), limits).catalog().await
}

/// Returns how many calls the next instance has served, with this one.
async fn count(catalog: &Arc<Catalog>) -> Value {
    call(catalog, "count", json!({})).await.unwrap()
}

fn idle_instances(catalog: &Catalog) -> usize {
    catalog.components["misbehaver"].pooled_instances()
}

fn message(result: Result<Value, ToolError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn each_call_has_a_fresh_instance_by_default() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    assert_eq!((count(&catalog).await, count(&catalog).await), (json!(1), json!(1)));
    assert_eq!(idle_instances(&catalog), 0);
}

#[tokio::test]
async fn a_pooled_instance_serves_one_call_after_the_other_and_keeps_its_memory() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    for call in 1..=5 {
        assert_eq!(count(&catalog).await, json!(call));
        assert_eq!(idle_instances(&catalog), 1);
    }
}

#[tokio::test]
async fn an_instance_retires_after_its_number_of_calls() {
    let catalog = catalog_with_pool(InstancePoolConfig { max_calls: number(3), ..pool_of_one() }).await;
    for expected in [1, 2, 3, 1, 2, 3] {
        assert_eq!(count(&catalog).await, json!(expected));
    }
}

#[tokio::test]
async fn instances_do_not_all_retire_after_the_same_number_of_calls() {
    let catalog = catalog_with_pool(InstancePoolConfig { max_calls: number(16), ..pool_of_one() }).await;
    let mut shares = Vec::new();
    let mut last = 0;
    while shares.len() < 4 {
        let served = count(&catalog).await.as_u64().unwrap();
        if served < last {
            shares.push(last);
        }
        last = served;
    }
    assert_eq!(shares, [16, 15, 14, 16]);
}

#[tokio::test]
async fn an_instance_that_is_idle_for_too_long_is_dropped() {
    let catalog = catalog_with_pool(InstancePoolConfig { idle: Duration::from_millis(20), ..pool_of_one() }).await;
    assert_eq!(count(&catalog).await, json!(1));
    wait_until_none_is_idle(&catalog).await;
    assert_eq!(count(&catalog).await, json!(1));
}

async fn wait_until_none_is_idle(catalog: &Catalog) {
    let dropped = async {
        while idle_instances(catalog) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), dropped).await.expect("it is still there");
}

#[test]
fn idle_instances_are_dropped_also_after_the_end_of_the_runtime_that_waited_for_them() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let warm = InstancePoolConfig { idle: Duration::from_millis(20), ..pool_of_one() };
    let catalog = runtime().block_on(async {
        let catalog = catalog_with_pool(warm).await;
        assert_eq!(count(&catalog).await, json!(1));
        catalog
    });
    runtime().block_on(async {
        assert_eq!(count(&catalog).await, json!(2));
        wait_until_none_is_idle(&catalog).await;
    });
}

#[tokio::test]
async fn an_instance_that_traps_is_not_used_again() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    assert_eq!(count(&catalog).await, json!(1));
    assert!(message(call(&catalog, "trap", json!({})).await).contains("it crashed"));
    assert_eq!(idle_instances(&catalog), 0);
    assert_eq!(count(&catalog).await, json!(1));
}

#[tokio::test]
async fn an_instance_that_exceeds_a_limit_is_not_used_again() {
    let limits = Limits { cpu: Duration::from_millis(50), wall: Duration::from_millis(300), ..Limits::default() };
    let catalog = catalog_with_limits(limits).await;
    for (tool, args, limit) in [("spin", json!({}), "of CPU time"), ("slow", json!({"millis": 60_000}), "of wall time")]
    {
        assert_eq!(count(&catalog).await, json!(1));
        let message = message(call(&catalog, tool, args).await);
        assert!(message.ends_with(limit), "{message}");
    }
    assert_eq!(count(&catalog).await, json!(1));
}

#[tokio::test]
async fn an_instance_whose_call_is_cancelled_is_not_used_again() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    for (tool, args) in [("spin", json!({})), ("slow", json!({"millis": 60_000}))] {
        assert_eq!(count(&catalog).await, json!(1));
        let cx = context(&catalog);
        let cancel = cx.invocation.cancel.clone();
        let (result, ()) = tokio::join!(call_in(&cx, &catalog, tool, args), async move { cancel.cancel() });
        assert!(matches!(&result, Err(ToolError::Fatal { code, .. }) if code == "CANCELLED"), "{result:?}");
        assert_eq!(idle_instances(&catalog), 0);
    }
}

#[tokio::test]
async fn an_instance_with_running_tasks_is_not_used_again() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    assert_eq!(count(&catalog).await, json!(1));
    call(&catalog, "linger", json!({})).await.unwrap();
    assert_eq!(idle_instances(&catalog), 0, "it would go on in the next call");
    assert_eq!(count(&catalog).await, json!(1));
}

#[tokio::test]
async fn an_instance_that_holds_a_host_call_of_its_caller_is_not_used_again() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    assert_eq!(count(&catalog).await, json!(1));
    // The result of the guest does not matter.
    let _ = call(&catalog, "abandon", json!({})).await;
    assert_eq!(idle_instances(&catalog), 0, "a call to the host would go on as its caller");
    assert_eq!(count(&catalog).await, json!(1));
}

#[tokio::test]
async fn a_call_that_finds_all_instances_busy_gets_a_new_one_and_the_pool_keeps_its_size() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    assert_eq!(count(&catalog).await, json!(1));
    let slow = call(&catalog, "slow", json!({"millis": 100}));
    let (slow, other) = tokio::join!(slow, call(&catalog, "echo", json!({"value": 1})));
    assert_eq!((slow.unwrap(), other.unwrap()), (json!(100), json!({"value": 1})));
    assert_eq!(idle_instances(&catalog), 1);
}

#[tokio::test]
async fn a_tool_in_a_pooled_instance_calls_itself_in_another() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    let outer = json!({"tool": "misbehaver/relay_tool", "args": {"tool": "count", "args": {}}});
    assert_eq!(call(&catalog, "relay_tool", outer).await.unwrap(), json!(1));
}

#[tokio::test]
async fn a_pooled_instance_sees_nothing_of_the_last_session() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    let (first, second) = (context(&catalog), context(&catalog));
    let write = json!({"key": "secret", "value": "blue"});
    call_in(&first, &catalog, "state_rw", write).await.unwrap();
    let read = call_in(&second, &catalog, "state_rw", json!({"key": "secret"})).await.unwrap();
    assert_eq!(read, json!({"before": null, "after": null}));
    assert_eq!(first.take_actions().state_delta["secret"], "blue");
    assert!(second.take_actions().state_delta.is_empty());
    assert_eq!(idle_instances(&catalog), 1, "it was the same instance");
}

#[tokio::test]
async fn a_pooled_instance_runs_on_behalf_of_its_current_caller() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    for agent in ["ada", "grace"] {
        let cx = CallContext::new(invocation("hello"), agent, None);
        assert_eq!(call_in(&cx, &catalog, "calling_agent", json!({})).await.unwrap(), json!(agent));
    }
    assert_eq!(idle_instances(&catalog), 1, "it was the same instance");
}

#[tokio::test]
async fn an_idle_instance_keeps_no_session_alive() {
    let catalog = catalog_with_pool(pool_of_one()).await;
    let run = invocation("hello");
    let cx = CallContext::new(run.clone(), "agent", None);
    call_in(&cx, &catalog, "echo", json!({"value": 1})).await.unwrap();
    drop(cx);
    assert_eq!((idle_instances(&catalog), Arc::strong_count(&run)), (1, 1));
}

#[tokio::test]
async fn each_call_of_a_pooled_instance_has_its_own_cpu_time() {
    let catalog = catalog_with_limits(Limits { cpu: Duration::from_millis(400), ..Limits::default() }).await;
    for _ in 0..5 {
        call(&catalog, "burn", json!({"millis": 150})).await.unwrap();
    }
    assert_eq!(idle_instances(&catalog), 1);
}

#[tokio::test]
async fn state_changes_of_a_pooled_instance_are_limited_per_call() {
    let catalog = catalog_with_limits(Limits { result: 10_000, ..Limits::default() }).await;
    for key in ["a", "b", "c"] {
        let args = json!({"key": key, "value": "x".repeat(4000)});
        call(&catalog, "state_rw", args).await.unwrap();
    }
    assert_eq!(idle_instances(&catalog), 1);
}

#[tokio::test]
async fn memory_of_a_pooled_instance_counts_in_the_next_call() {
    let catalog = catalog_with_limits(Limits { memory: 16 << 20, ..Limits::default() }).await;
    call(&catalog, "hoard", json!({"bytes": 8 << 20})).await.unwrap();
    let message = message(call(&catalog, "hoard", json!({"bytes": 8 << 20})).await);
    assert!(message.ends_with("it exceeded its limit of 16 MiB of memory"), "{message}");
    call(&catalog, "hoard", json!({"bytes": 8 << 20})).await.expect("a new instance has all of its memory");
}

#[tokio::test]
async fn a_replaced_component_pools_no_instance() {
    let test_catalog = test_catalog(pool_of_one(), Limits::default());
    let handle = test_catalog.open().await;
    let old = handle.current();
    assert_eq!(count(&old).await, json!(1));
    assert_eq!(idle_instances(&old), 1);
    // A custom section at the end changes the file but not the code.
    let mut bytes = std::fs::read(component("misbehaver")).unwrap();
    bytes.extend([0, 2, 1, b'x']);
    test_catalog.write("misbehaver.wasm", bytes);
    let new = handle.reload_now().await;
    assert_ne!(new.components["misbehaver"].sha256(), old.components["misbehaver"].sha256());
    assert_eq!(idle_instances(&old), 0);
    assert_eq!((count(&old).await, idle_instances(&old)), (json!(1), 0), "runs of the old version still call it");
    assert_eq!((count(&new).await, idle_instances(&new)), (json!(1), 1));
}

#[tokio::test]
async fn an_idle_instance_is_evicted_for_a_call_of_another_component() {
    let mut test_catalog = test_catalog(pool_of_one(), Limits::default()).with("gallery");
    test_catalog.options.engine = Engine::new(&EngineOptions {
        instances: 1,
        queue_timeout: Duration::from_secs(20),
        ..EngineOptions::default()
    })
    .unwrap();
    let catalog = test_catalog.catalog().await;
    assert_eq!((count(&catalog).await, idle_instances(&catalog)), (json!(1), 1));
    call(&catalog, "gallery/configured", json!({"key": "x"})).await.unwrap();
    assert_eq!(idle_instances(&catalog), 0);
}
