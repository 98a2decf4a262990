//! Attacks on CPU time: by the component's code, and by work of the host for it.

use anyhow::{Context, Result};
use futures::future::try_join_all;
use hatchery_tests::paths::puppet;
use hatchery_tests::stage::{ATTACKER, attacker_yaml, call_message, new_session_id};
use hatchery_tests::{Stage, event};
use serde_json::{Value, json};

const LIMITS: &str = "limits: {cpu: 500ms, wall: 20s}\n";

#[tokio::test]
async fn spinning_calls_end_at_the_cpu_limit() -> Result<()> {
    let stage = Stage::new(LIMITS).await?;
    let attacks = (0..6).map(|_| stage.attack("spin", json!({})));
    for answer in stage.withstand(try_join_all(attacks)).await? {
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains("component `hostile`") && error.contains("it exceeded its limit of "), "{answer}");
    }
    let reply = stage.withstand(stage.send("spinner", &json!({}))).await?;
    assert_eq!((reply.status, &reply.body["code"]), (500, &json!("COMPONENT_CPU")), "{reply:?}");
    Ok(())
}

#[tokio::test]
async fn a_component_that_spins_or_grows_while_it_describes_itself_is_not_loaded() -> Result<()> {
    let stage = Stage::new("limits: {memory: 32MiB}\n").await?;
    for attack in ["spin", "grow", "long"] {
        let refused = async {
            stage.folder.put("puppet.wasm", puppet(attack)?)?;
            stage.host.wait_for_refusal("puppet.wasm").await
        };
        let reason = stage.withstand(refused).await?;
        let expected = match attack {
            "spin" => "it exceeded its limit of 5s for `describe`",
            "grow" => "raise `limits.memory`",
            _ => "its descriptions have more than 4 MiB",
        };
        assert!(reason.contains("puppet") && reason.contains(expected), "{attack}: {reason}");
        stage.folder.remove("puppet.wasm")?;
        stage
            .host
            .wait_until("it is gone", |components| hatchery_tests::host::entry(components, "puppet.wasm").is_none())
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn recursive_tools_end_at_the_limits_of_calls_and_depth() -> Result<()> {
    let stage = Stage::new("").await?;
    for (tool, args) in [("twice", json!({})), ("chain", json!({})), ("many_calls", json!({ "count": 100_000 }))] {
        let answer = stage.withstand(stage.attack(tool, args)).await?.to_string();
        assert!(answer.contains("tools in a chain of calls") || answer.contains(" tool calls"), "{tool}: {answer}");
    }
    Ok(())
}

#[tokio::test]
async fn invalid_or_too_deep_json_is_an_error_of_the_tool() -> Result<()> {
    let stage = Stage::new("").await?;
    for tool in ["deep_json", "invalid_json"] {
        let answer = stage.withstand(stage.attack(tool, json!({}))).await?;
        let error = answer["error"].as_str().with_context(|| format!("{tool}: {answer}"))?;
        assert!(error.contains("JSON") || error.contains("json"), "{tool}: {error}");
        assert!(error.len() < 2000, "{tool}: an error of {} bytes", error.len());
    }
    Ok(())
}

/// Serves a `puppet` whose tool `bomb` has this description, and an agent that calls it.
async fn with_bomb(attack: &str) -> Result<Stage> {
    let folder = Stage::folder(LIMITS)?;
    folder.put("puppet.wasm", puppet(attack)?)?;
    folder
        .write(&format!("{ATTACKER}/root_agent.yaml"), attacker_yaml(ATTACKER, &["puppet/bomb", "puppet/explode"]))?;
    Stage::serve(folder).await
}

/// Checks that the tool did not run.
fn assert_not_run(answer: &Value) {
    assert!(!answer.to_string().contains("it ran"), "it ran with arguments that nothing had checked");
    assert!(answer.get("error").is_some(), "{answer}");
}

#[tokio::test]
async fn slow_validation_of_arguments_blocks_no_other_run() -> Result<()> {
    let stage = with_bomb("schema").await?;
    let by_code = (0..2).map(|_| stage.attack("explode", json!({ "numbers": 100_000 })));
    let by_model = (0..2).map(|_| stage.attack("bomb", json!({ "numbers": vec![0.25; 100_000] })));
    let (by_code, by_model) =
        stage.withstand(async { futures::try_join!(try_join_all(by_code), try_join_all(by_model)) }).await?;
    by_code.iter().chain(&by_model).for_each(assert_not_run);
    // Small ones are checked as ever.
    let answer = stage.attack("bomb", json!({ "numbers": [1.5, 2] })).await?.to_string();
    assert!(answer.contains('2') && !answer.contains("it ran"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_schema_with_slow_patterns_or_loops_blocks_no_other_run() -> Result<()> {
    let long = json!(["a".repeat(5000)]);
    let stage = with_bomb("schema_pattern").await?;
    let attacks = (0..2).map(|_| stage.attack("bomb", json!({ "numbers": long })));
    stage.withstand(try_join_all(attacks)).await?.iter().for_each(assert_not_run);
    // It is undefined what a schema accepts that refers to itself; the check has to end.
    let stage = with_bomb("schema_loop").await?;
    let attacks = (0..2).map(|_| stage.attack("bomb", json!({ "numbers": [[[[[[[[[[[1]]]]]]]]]]] })));
    stage.withstand(try_join_all(attacks)).await?;
    Ok(())
}

#[tokio::test]
async fn an_unusable_schema_accepts_no_arguments() -> Result<()> {
    let folder = Stage::folder(LIMITS)?;
    folder.put("puppet.wasm", puppet("schema_unusable")?)?;
    folder.write(&format!("{ATTACKER}/root_agent.yaml"), attacker_yaml(ATTACKER, &["puppet/bomb"]))?;
    let stage = Stage::serve(folder).await?;
    let reason = hatchery_tests::host::reason(&stage.host.components().await?, "puppet.wasm");
    if let Some(reason) = reason {
        assert!(reason.contains("bomb"), "{reason}");
        return Ok(());
    }
    let session = new_session_id();
    let events = stage.host.ask(ATTACKER, &session, &call_message("bomb", json!({ "numbers": "anything" }))).await?;
    assert_not_run(event::tool_response(&events, "bomb")?);
    Ok(())
}
