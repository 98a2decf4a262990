//! Quotas and invalid names over HTTP.

use hatchery_stores::{Quota, Quotas};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Host, problem, run_body, wait_for};

const SESSIONS: &str = "/apps/says/users/u/sessions";

fn keys(count: usize) -> Value {
    (0..count).map(|number| (format!("k{number}"), json!(1))).collect::<serde_json::Map<_, _>>().into()
}

#[tokio::test]
async fn a_state_with_too_many_keys_is_rejected_by_every_route_and_not_stored() {
    let host = Host::start().await;
    host.session("says").await;
    let session = format!("{SESSIONS}/s");
    let detail = "one change of state may hold at most 1000 keys: set fewer at a time";
    let patch = host.request(Method::PATCH, &session).json(&json!({"stateDelta": keys(1001)}));
    let mut run = run_body("says", "hi");
    run["stateDelta"] = keys(1001);
    for response in [
        patch.send().await.unwrap(),
        host.post(SESSIONS, &json!({"sessionId": "t", "state": keys(1001)})).await,
        host.post(&format!("{SESSIONS}/t"), &json!({"state": keys(1001)})).await,
        host.post("/run", &run).await,
    ] {
        assert_eq!(problem(response, 413, "QUOTA_EXCEEDED").await["detail"], detail);
    }
    assert_eq!(host.get_json(&session).await["state"], json!({}));
    problem(host.get(&format!("{SESSIONS}/t")).await, 404, "SESSION_NOT_FOUND").await;
}

#[tokio::test]
async fn a_user_with_too_many_sessions_or_artifacts_gets_an_error() {
    let quotas = Quotas::default().with(Quota::UserSessions, 1).with(Quota::SessionArtifacts, 1);
    let host = Host::with_quotas(quotas).await;
    host.session("says").await;
    let refused = problem(host.post(SESSIONS, &json!({})).await, 429, "QUOTA_EXCEEDED").await;
    assert_eq!(refused["detail"], "a user of an app may hold at most 1 session: delete some");
    let artifacts = format!("{SESSIONS}/s/artifacts");
    let body = json!({"filename": "a", "artifact": {"text": "x"}});
    host.post_json(&artifacts, &body).await;
    let refused = problem(host.post(&artifacts, &body).await, 429, "QUOTA_EXCEEDED").await;
    assert_eq!(refused["detail"], "a session may hold at most 1 version of artifacts: delete some");
    // Artifacts are deleted with their session, which frees their quota.
    let deleted = host.request(Method::DELETE, &format!("{SESSIONS}/s")).send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    host.session("says").await;
    assert_eq!(host.get_json(&artifacts).await, json!([]));
    host.post_json(&artifacts, &body).await;
}

#[tokio::test]
async fn a_user_with_too_many_active_runs_waits_while_others_run() {
    let host = Host::with_quotas(Quotas::default().with(Quota::UserRuns, 1)).await;
    host.session("waits").await;
    host.post_json("/apps/waits/users/u/sessions/t", &json!({})).await;
    host.post_json("/apps/waits/users/v/sessions/s", &json!({})).await;
    let message = run_body("waits", "hi");
    let (first, rest) = tokio::join!(host.post("/run", &message), async {
        wait_for(&host.signals.started).await;
        let mut second = run_body("waits", "hi");
        second["sessionId"] = json!("t");
        for route in ["/run", "/run_sse"] {
            let refused = host.post(route, &second).await;
            assert_eq!(refused.headers()["retry-after"], "1");
            let detail = problem(refused, 429, "QUOTA_EXCEEDED").await["detail"].clone();
            assert_eq!(detail, "a user of an app may have at most 1 active run: wait until one has ended");
        }
        let mut other = run_body("waits", "hi");
        other["userId"] = json!("v");
        let (other, ()) = tokio::join!(host.post("/run", &other), async {
            wait_for(&host.signals.started).await;
            host.signals.resume.add_permits(2);
        });
        (other.status(), second)
    });
    let (other, second) = rest;
    assert_eq!((first.status().as_u16(), other.as_u16()), (200, 200));
    host.signals.resume.add_permits(1);
    assert_eq!(host.post("/run", &second).await.status(), 200, "the run before has ended");
}

#[tokio::test]
async fn names_that_are_too_long_or_have_control_characters_are_rejected() {
    let host = Host::start().await;
    host.session("says").await;
    for (name, what) in [("x".repeat(257), "has at most 256 bytes"), ("a%1B".into(), "has no control characters")] {
        let user = format!("/apps/says/users/{name}/sessions");
        let session = format!("{SESSIONS}/{name}");
        let patch = host.request(Method::PATCH, &session).json(&json!({"stateDelta": {}}));
        for (response, kind) in [
            (host.post(&user, &json!({})).await, "user"),
            (host.get(&user).await, "user"),
            (host.post(&session, &json!({})).await, "session"),
            (host.get(&session).await, "session"),
            (patch.send().await.unwrap(), "session"),
            (host.get(&format!("{session}/artifacts")).await, "session"),
        ] {
            let detail = problem(response, 400, "INVALID_NAME").await["detail"].to_string();
            assert!(detail.contains(&format!("the id of a {kind} {what}")), "{detail}");
        }
        let artifact = host.get(&format!("{SESSIONS}/s/artifacts/{name}")).await;
        let detail = problem(artifact, 400, "INVALID_NAME").await["detail"].to_string();
        assert!(detail.contains(&format!("the name of an artifact {what}")), "{detail}");
        let decoded = name.replace("%1B", "\u{1b}");
        for key in ["userId", "sessionId"] {
            let mut body = run_body("says", "hi");
            body[key] = decoded.as_str().into();
            for route in ["/run", "/run_sse"] {
                problem(host.post(route, &body).await, 400, "INVALID_NAME").await;
            }
        }
    }
}
