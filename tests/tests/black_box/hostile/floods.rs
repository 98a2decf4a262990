//! Attacks by amounts: events, state, artifacts and log lines.

use anyhow::Result;
use futures::future::try_join_all;
use hatchery_tests::Stage;
use hatchery_tests::event::text_at;
use hatchery_tests::host::{USER, session_path};
use hatchery_tests::stage::RunAnswer;
use serde_json::{Value, json};

/// Checks that the run ended by a limit and that the session can be read.
async fn check_limit(stage: &Stage, app: &str, answer: &RunAnswer) -> Result<()> {
    let detail = text_at(&answer.body, "/detail");
    assert!(answer.status >= 400, "{app}: {} {detail}", answer.status);
    assert!(
        detail.contains("limit") || detail.contains("it exceeded its limit of ") || detail.contains("may hold at most"),
        "{app}: {detail}"
    );
    stage.host.get(&format!("/apps/{app}/users/{USER}/sessions")).await?.json(200)?;
    stage.host.get(&session_path(app, &answer.session)).await?.json(200)?;
    Ok(())
}

#[tokio::test]
async fn an_agent_that_emits_two_gigabytes_is_stopped() -> Result<()> {
    let stage = Stage::new("").await?;
    let answer = stage.withstand(stage.send("torrent", &json!({ "count": 300, "bytes": 7_000_000 }))).await?;
    check_limit(&stage, "torrent", &answer).await?;
    stage.wait_for_audit(&["limit", "torrent"]).await
}

#[tokio::test]
async fn an_agent_that_emits_endless_events_is_stopped() -> Result<()> {
    let stage = Stage::new("").await?;
    let answer = stage.withstand(stage.send("torrent", &json!({ "count": 200_000, "bytes": 10 }))).await?;
    check_limit(&stage, "torrent", &answer).await
}

#[tokio::test]
async fn an_agent_that_emits_endless_partial_events_is_stopped() -> Result<()> {
    let stage = Stage::new("limits: {cpu: 2s}\n").await?;
    let command = json!({ "kind": "partial", "count": 1_000_000, "bytes": 100_000 });
    let answer = stage.withstand(stage.send("torrent", &command)).await?;
    check_limit(&stage, "torrent", &answer).await
}

#[tokio::test]
async fn an_agent_cannot_fill_the_state() -> Result<()> {
    let stage = Stage::new("").await?;
    for command in [
        json!({ "kind": "state", "count": 300, "bytes": 1_000_000 }),
        json!({ "kind": "keys", "count": 1, "bytes": 200_000 }),
        json!({ "kind": "keys", "count": 500, "bytes": 900 }),
    ] {
        let answer = stage.withstand(stage.send("torrent", &command)).await?;
        check_limit(&stage, "torrent", &answer).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_tool_cannot_fill_the_state() -> Result<()> {
    let stage = Stage::new("").await?;
    let attack = async |tool: &str, args: Value| {
        let session = hatchery_tests::stage::new_session_id();
        stage.host.create_session("attacker", &session).await?;
        let message =
            hatchery_tests::host::message("attacker", &session, &hatchery_tests::stage::call_message(tool, args));
        let answer = stage.host.post("/run", &message).await?;
        let stored = stage.host.session("attacker", &session).await?;
        anyhow::Ok((answer.text, stored["state"].to_string().len()))
    };
    let floods = async {
        Ok([
            attack("state_flood", json!({ "count": 100_000, "bytes": 1 })).await?,
            attack("state_flood", json!({ "count": 100, "bytes": 1_000_000 })).await?,
        ])
    };
    for (answer, stored) in stage.withstand(floods).await? {
        assert!(
            answer.contains("it exceeded its limit of ") || answer.contains("may hold at most"),
            "{}",
            answer.chars().take(500).collect::<String>()
        );
        assert!(stored < 9 << 20, "{stored} bytes of state");
    }
    Ok(())
}

#[tokio::test]
async fn artifacts_end_at_a_quota() -> Result<()> {
    let stage =
        Stage::new("components: {hostile: {grants: {artifacts: write}}}\nquotas: {session_artifact_bytes: 32 MiB}\n")
            .await?;
    for args in [json!({ "count": 400, "bytes": 6 << 20 }), json!({ "count": 3_000, "bytes": 1 })] {
        let answer = stage.withstand(stage.attack("artifact_flood", args.clone())).await?;
        let refused = format!("{}{}", answer["refused"], answer["error"]);
        assert!(
            refused.contains("limit") || refused.contains("quota") || refused.contains("may hold at most"),
            "{args}: {answer}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn logs_and_output_are_limited_and_cannot_imitate_the_host() -> Result<()> {
    let stage = Stage::new("").await?;
    let attacks = [
        stage.attack("log_flood", json!({ "count": 20_000 })),
        stage.attack("output_flood", json!({ "count": 200_000 })),
    ];
    stage.withstand(try_join_all(attacks)).await?;
    let log = stage.host.log();
    assert!(log.len() < 2 << 20, "a log of {} bytes", log.len());
    assert!(!log.contains('\u{1b}'), "an escape reached the log");
    let mut lines = log.lines().filter(|line| line.contains("granted component="));
    assert!(lines.all(|line| line.contains("hostile")), "a line of the component looks like the host's");
    Ok(())
}
