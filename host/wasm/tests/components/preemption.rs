//! CPU-bound guests: they are preempted, stopped, and do not block other work.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{CallContext, RunConfig, ToolError};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_wasm::{Catalog, Engine, EngineOptions, Limits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::{TestCatalog, call, call_in, context, run_app, transcript};

const HOURS: Duration = Duration::from_secs(36_000);

/// Returns a catalog of guests that may spin for hours, with this many instances.
async fn unlimited(instances: u32) -> Arc<Catalog> {
    let limits = Limits { cpu: HOURS, wall: HOURS, agent_wall: HOURS, ..Limits::default() };
    let mut test_catalog = TestCatalog::new().with("misbehaver").with_limits(limits);
    test_catalog.options.engine = Engine::new(&EngineOptions { instances, ..EngineOptions::default() }).unwrap();
    test_catalog.catalog().await
}

/// Starts spinning guests and waits until all of them run.
async fn spin(
    catalog: &Arc<Catalog>,
    guests: usize,
    cx: &CallContext,
) -> JoinSet<Result<serde_json::Value, ToolError>> {
    let mut spinning = JoinSet::new();
    for _ in 0..guests {
        let (catalog, cx) = (catalog.clone(), cx.clone());
        spinning.spawn(async move { call_in(&cx, &catalog, "spin", json!({})).await });
    }
    while catalog.components["misbehaver"].running_calls() < guests {
        tokio::task::yield_now().await;
    }
    spinning
}

/// Sends a byte over a network connection and back.
async fn round_trip() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    client.write_all(b"?").await.unwrap();
    let mut byte = [0];
    server.read_exact(&mut byte).await.unwrap();
    assert_eq!(byte, *b"?");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_spinning_guests_do_not_block_the_network_and_end_when_cancelled() {
    const GUESTS: usize = 200;
    let catalog = unlimited(300).await;
    let cx = context(&catalog);
    let mut spinning = spin(&catalog, GUESTS, &cx).await;
    for _ in 0..5 {
        tokio::time::timeout(Duration::from_secs(30), tokio::spawn(round_trip())).await.expect("no answer").unwrap();
    }
    assert_eq!(catalog.components["misbehaver"].running_calls(), GUESTS, "they still spin");
    assert_eq!(call(&catalog, "echo", json!({"value": 1})).await.unwrap(), json!({"value": 1}), "others are served");
    cx.invocation.cancel.cancel();
    while let Some(ended) = spinning.join_next().await {
        let ended = ended.unwrap();
        assert!(matches!(&ended, Err(ToolError::Fatal { code, .. }) if code == "CANCELLED"), "{ended:?}");
    }
    assert_eq!(catalog.components["misbehaver"].running_calls(), 0);
}

#[tokio::test]
async fn one_thread_is_enough_for_a_spinning_guest_and_for_others() {
    let catalog = unlimited(10).await;
    let cx = context(&catalog);
    let mut spinning = spin(&catalog, 3, &cx).await;
    round_trip().await;
    assert_eq!(call(&catalog, "burn", json!({"millis": 20})).await.unwrap(), json!(20), "it has its turns too");
    assert_eq!(catalog.components["misbehaver"].running_calls(), 3);
    cx.invocation.cancel.cancel();
    while spinning.join_next().await.is_some() {}
}

#[tokio::test]
async fn a_spinning_guest_ends_at_its_deadline_even_with_cpu_time_left() {
    let limits = Limits { cpu: HOURS, wall: Duration::from_millis(100), ..Limits::default() };
    let catalog = TestCatalog::new().with("misbehaver").with_limits(limits).catalog().await;
    let error = call(&catalog, "spin", json!({})).await.unwrap_err().to_string();
    assert_eq!(error, "tool `spin` of component `misbehaver` failed: it exceeded its limit of 100ms of wall time");
}

#[tokio::test]
async fn an_agent_that_waits_for_a_model_uses_no_cpu_time() {
    let limits = Limits { cpu: Duration::from_millis(100), ..Limits::default() };
    let catalog = TestCatalog::new()
        .with("relay")
        .with_limits(limits)
        .with_grants("relay", json!({"models": ["*"]}))
        .catalog()
        .await;
    let model = Scripted::new().default_reply(Reply::text("at last").delay(Duration::from_millis(400)));
    let (events, error) = run_app(&catalog, "asker", "hello", model, RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(transcript(&events).last().unwrap().1, "again: at last");
}
