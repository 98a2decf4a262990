//! Limits of the host, and what survives its end.

use anyhow::{Context, Result};
use hatchery_tests::Host;
use serde_json::{Value, json};

use super::{VERSIONS, Version, artifact_texts, body, error, folder, result, server};

#[tokio::test]
async fn a_host_with_the_maximum_of_runs_says_when_to_try_again() -> Result<()> {
    let folder = folder()?;
    folder.write_operator_config(&json!({"server": {"max_concurrent_runs": 1}}).to_string())?;
    let host = Host::serve(&folder).await?;
    let version = Version::New;
    let params = version.without_waiting(version.message(version.text("go"), json!({})));
    let ticking = version.task(&result(&host, "ticker", "SendMessage", &params).await?)?;
    for version in VERSIONS {
        let params = version.message(version.text("hi"), json!({}));
        let refused = host.post("/a2a/echo", &body(version.method("send"), &params)).await?;
        assert_eq!((refused.status, refused.headers.get("retry-after")), (503, Some(&"1".parse()?)), "{version:?}");
        let error: Value = serde_json::from_str(&refused.text)?;
        assert_eq!(error.pointer("/error/code"), Some(&json!(-32000)));
        let message = json!("the maximum of 1 run is active; try again later");
        assert_eq!(error.pointer("/error/message"), Some(&message));
    }
    let params = version.message(version.text("hi"), json!({}));
    let refused = host.post("/a2a/echo/message:send", &params).await?;
    assert_eq!((refused.status, refused.headers.get("retry-after")), (503, Some(&"1".parse()?)));
    let error: Value = serde_json::from_str(&refused.text)?;
    assert_eq!(error.pointer("/error/status"), Some(&json!("UNAVAILABLE")));
    result(&host, "ticker", "CancelTask", &json!({"id": ticking["id"]})).await?;
    let done = version.task(&result(&host, "echo", "SendMessage", &params).await?)?;
    assert_eq!(artifact_texts(&done), ["You said hi."]);
    Ok(())
}

#[tokio::test]
async fn the_limit_of_bodies_is_the_same_as_for_runs() -> Result<()> {
    let folder = folder()?;
    folder.write_operator_config(&json!({"server": {"body_limit": "2 KiB"}}).to_string())?;
    let host = Host::serve(&folder).await?;
    let params = Version::New.message(Version::New.text(&"x".repeat(3000)), json!({}));
    for (path, body) in [("/a2a/echo", body("SendMessage", &params)), ("/a2a/echo/message:send", params.clone())] {
        let detail = host.post(path, &body).await?.error(413, "BODY_TOO_LARGE")?;
        assert_eq!(detail, "the body is larger than 2 KiB (2048 bytes)", "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn types_of_answers_with_many_wildcards_neither_block_nor_end_the_host() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    let mut params = Version::New.message(Version::New.text("hi"), json!({}));
    for stars in [40, 100_000] {
        params["configuration"] = json!({"acceptedOutputModes": [format!("{}x", "*".repeat(stars))]});
        let (code, message) = error(&host, "echo", "SendMessage", &params).await?;
        assert_eq!(code, -32005, "{message}");
    }
    params["configuration"] = json!({"acceptedOutputModes": ["*/*"]});
    let done = Version::New.task(&result(&host, "echo", "SendMessage", &params).await?)?;
    assert_eq!(artifact_texts(&done), ["You said hi."]);
    Ok(())
}

#[tokio::test]
async fn notifications_that_a_dead_host_has_not_delivered_are_sent_by_the_next_one() -> Result<()> {
    let folder = folder()?;
    // Connections wait until they are accepted.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let allowed =
        json!({"network": [format!("http://127.0.0.1:{port}")], "private_network": [format!("127.0.0.1:{port}")]});
    folder.write_operator_config(&json!({"a2a": {"push": allowed}}).to_string())?;
    let host = Host::serve(&folder).await?;
    let mut params = Version::New.message(Version::New.text("hi"), json!({}));
    params["configuration"] =
        json!({"taskPushNotificationConfig": {"url": format!("http://127.0.0.1:{port}/hook"), "token": "t"}});
    let task = Version::New.task(&result(&host, "echo", "SendMessage", &params).await?)?;
    host.kill().await?;
    let mut received = server::receive(listener);
    let host = Host::serve(&folder).await?;
    loop {
        let (token, _, body) = received.recv().await.context("a notification")?;
        let (_, update) = Version::New.update(&body)?;
        assert_eq!((token.as_str(), &update["taskId"]), ("t", &task["id"]));
        if Version::New.state(&update) == "completed" {
            break;
        }
    }
    host.get("/apps/echo/users/A2A_PUSH/sessions").await?.error(404, "USER_RESERVED")?;
    // The configuration with its token is deleted.
    let ids = json!({"taskId": task["id"]});
    loop {
        let listed = result(&host, "echo", "ListTaskPushNotificationConfigs", &ids).await?;
        if listed.pointer("/configs/0").is_none() {
            return Ok(());
        }
    }
}
