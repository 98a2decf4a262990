//! Attacks on memory: of the component, and of the host on its behalf.

use anyhow::Result;
use futures::future::try_join_all;
use hatchery_tests::Stage;
use hatchery_tests::stage::with_greeter;
use serde_json::{Value, json};

/// Returns true if the tool's response is an error that names the component or the denied operation.
fn is_stopped(answer: &Value) -> bool {
    answer.get("error").is_some()
}

#[tokio::test]
async fn unsent_request_bodies_do_not_fill_the_memory_of_the_host() -> Result<()> {
    let stage = Stage::new("").await?;
    let answer = stage.withstand(stage.attack("bodies", json!({ "count": 4000, "bytes": 1 << 20 }))).await?;
    let held_bytes = answer["taken"].as_u64().unwrap_or(0);
    assert!(is_stopped(&answer) || held_bytes < 64 << 20, "the host took {held_bytes} bytes: {answer}");
    stage.wait_for_audit(&["component=\"hostile\""]).await
}

#[tokio::test]
async fn unsent_request_bodies_do_not_fill_the_memory_despite_a_grant() -> Result<()> {
    let folder = Stage::folder("")?;
    folder.write_operator_config(&with_greeter("components: {hostile: {grants: {network: [example.com]}}}")?)?;
    let stage = Stage::serve(folder).await?;
    let attacks = (0..4).map(|_| stage.attack("bodies", json!({ "count": 4000, "bytes": 1 << 20 })));
    for answer in stage.withstand(try_join_all(attacks)).await? {
        let held_bytes = answer["taken"].as_u64().unwrap_or(0);
        assert!(is_stopped(&answer) || held_bytes <= 64 << 20, "the host took {held_bytes} bytes: {answer}");
    }
    Ok(())
}

#[tokio::test]
async fn unsent_header_fields_do_not_fill_the_memory_of_the_host() -> Result<()> {
    let stage = Stage::new("").await?;
    let answer = stage.withstand(stage.attack("fields", json!({ "count": 6000, "bytes": 120 << 10 }))).await?;
    let held_bytes = answer["taken"].as_u64().unwrap_or(0);
    assert!(is_stopped(&answer) || held_bytes < 64 << 20, "the host took {held_bytes} bytes: {answer}");
    Ok(())
}

#[tokio::test]
async fn random_bytes_are_limited_per_call() -> Result<()> {
    let stage = Stage::new("").await?;
    for bytes in [48_u64 << 20, 1 << 40] {
        let answer = stage.withstand(stage.attack("random", json!({ "bytes": bytes }))).await?;
        assert!(is_stopped(&answer), "{bytes}: {answer}");
    }
    Ok(())
}

#[tokio::test]
async fn handles_that_are_never_closed_end_with_the_call() -> Result<()> {
    let stage = Stage::new("").await?;
    let answer = stage.withstand(stage.attack("handles", json!({ "count": 2_000_000 }))).await?;
    assert!(is_stopped(&answer), "{answer}");
    Ok(())
}

#[tokio::test]
async fn endless_allocation_ends_at_the_memory_limit() -> Result<()> {
    let stage = Stage::new("").await?;
    let attacks = (0..4).map(|_| stage.attack("grow", json!({})));
    for answer in stage.withstand(try_join_all(attacks)).await? {
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(
            error.contains("component `hostile`") && error.contains("it exceeded its limit of 64 MiB of memory"),
            "{answer}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn concurrent_calls_of_own_tools_share_the_memory_of_the_run() -> Result<()> {
    let stage = Stage::new("instances: {memory: 1GiB, run_memory: 256MiB}\n").await?;
    let answer = stage.withstand(stage.attack("own_calls", json!({ "count": 30, "bytes": 55 << 20 }))).await?;
    // Some of them wait for others, or are refused; that they were tried, and that the host bore it, is what counts.
    let went_well = answer["went_well"].as_u64();
    assert!(went_well.is_some() || is_stopped(&answer), "{answer}");
    Ok(())
}
