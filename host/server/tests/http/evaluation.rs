//! Evaluation over HTTP: statuses and access. `hatchery-eval` tests what it does.

use hatchery::{DevUi, ServerConfig};
use hatchery_test_support::AuditCapture;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Host, problem, run_body, success, wait_for};

async fn full() -> Host {
    Host::with(ServerConfig { dev_ui: Some(DevUi::Full), ..ServerConfig::default() }).await
}

fn case(message: &str, response: &str) -> Value {
    json!({
        "userContent": {"parts": [{"text": message}]},
        "finalResponse": {"role": "model", "parts": [{"text": response}]},
    })
}

/// Creates the set `set` with the case `c`.
async fn create(host: &Host, app: &str, conversation: Value) {
    let set = json!({"evalSet": {"evalSetId": "set", "evalCases": [{"evalId": "c", "conversation": conversation}]}});
    host.post_json(&format!("/apps/{app}/eval-sets"), &set).await;
}

#[tokio::test]
async fn only_the_full_developer_ui_changes_sets_and_runs_them() {
    let host = Host::start().await;
    assert_eq!(host.get_json("/apps/says/eval_sets").await, json!([]));
    let requests = [
        (Method::POST, "/dev/apps/says/eval-sets"),
        (Method::POST, "/apps/says/eval_sets/x"),
        (Method::DELETE, "/apps/says/eval_sets/x"),
        (Method::POST, "/apps/says/eval_sets/x/add-session"),
        (Method::PUT, "/apps/says/eval_sets/x/evals/c"),
        (Method::DELETE, "/apps/says/eval_sets/x/evals/c"),
        (Method::POST, "/apps/says/eval_sets/x/run-eval"),
        (Method::POST, "/dev/apps/says/eval-sets/x/run"),
    ];
    let body = json!({"evalId": "c", "sessionId": "s", "userId": "u"});
    for (method, path) in requests {
        let refused = host.request(method, path).json(&body).send().await.unwrap();
        let detail = problem(refused, 403, "EVALUATION_NOT_ALLOWED").await["detail"].clone();
        assert_eq!(
            detail,
            "eval sets can only be changed and run with `server: { dev_ui: full }` in hatchery.yaml; or use `hatchery eval`"
        );
    }
}

#[tokio::test]
async fn a_set_is_evaluated_and_its_result_is_listed() {
    let host = full().await;
    create(&host, "says", json!([case("Hi", "You said: Hi")])).await;
    let run = json!({"evalCaseIds": ["c"], "evalMetrics": [], "numRuns": 2});
    let results = host.post_json("/apps/says/eval_sets/set/run-eval", &run).await;
    assert_eq!(results.as_array().unwrap().len(), 2);
    assert_eq!((&results[0]["finalEvalStatus"], &results[0]["evalSetFile"]), (&json!(1), &json!("set.evalset.json")));
    // Its runs are traced like others.
    let session = results[0]["sessionId"].as_str().unwrap();
    let spans = host.get_json(&format!("/dev/apps/says/debug/trace/session/{session}")).await;
    assert_eq!((&spans[0]["name"], &spans[1]["name"]), (&json!("invocation"), &json!("invoke_agent says")), "{spans}");
    let ids = host.get_json("/dev/apps/says/eval-results").await;
    let id = ids["evalResultIds"][0].as_str().unwrap();
    for path in ["/apps/says/eval_results", "/dev/apps/says/eval-results"] {
        assert_eq!(host.get_json(&format!("{path}/{id}")).await["evalSetResultId"], id);
    }
    let info = host.get_json("/dev/apps/says/metrics-info").await;
    assert_eq!(info["metricsInfo"], host.get_json("/apps/says/eval_metrics").await);
    assert_eq!(info["metricsInfo"][0]["metricValueInfo"]["interval"]["maxValue"], 1.0);
}

#[tokio::test]
async fn cases_are_selected_by_the_keys_of_older_and_newer_clients() {
    let host = full().await;
    let cases = ["c", "d"].map(|id| json!({"evalId": id, "conversation": [case("Hi", "You said: Hi")]}));
    host.post_json("/apps/says/eval-sets", &json!({"evalSet": {"evalSetId": "set", "evalCases": cases}})).await;
    for (body, count) in [
        (json!({}), 2),
        (json!({"evalIds": ["d"]}), 1),
        (json!({"eval_case_ids": ["d"]}), 1),
        // Clients of ADK write both.
        (json!({"evalIds": [], "evalCaseIds": ["d"]}), 1),
        (json!({"eval_ids": [], "eval_case_ids": []}), 2),
        (json!({"evalIds": ["d"], "evalCaseIds": null}), 1),
        (json!({"evalIds": null, "evalMetrics": null}), 2),
    ] {
        let results = host.post_json("/apps/says/eval_sets/set/run-eval", &body).await;
        assert_eq!(results.as_array().unwrap().len(), count, "{body}");
    }
}

#[tokio::test]
async fn errors_have_their_status() {
    let host = full().await;
    create(&host, "says", json!([])).await;
    problem(host.get("/apps/says/eval_sets/none").await, 404, "EVAL_SET_NOT_FOUND").await;
    problem(host.get("/apps/says/eval_sets/set/evals/none").await, 404, "EVAL_CASE_NOT_FOUND").await;
    problem(host.get("/apps/says/eval_results/none").await, 404, "EVAL_RESULT_NOT_FOUND").await;
    problem(host.get("/apps/nobody/eval_sets").await, 404, "APP_NOT_FOUND").await;
    problem(host.get("/apps/says/eval_sets/..%2Fx").await, 400, "INVALID_NAME").await;
    problem(host.post("/apps/says/eval_sets/set", &json!({})).await, 409, "EVAL_SET_EXISTS").await;
    problem(host.post("/apps/says/eval-sets", &json!({})).await, 422, "INVALID_REQUEST").await;
    problem(host.post("/apps/says/eval-sets", &json!({"evalSet": {"evalCases": [{}]}})).await, 422, "INVALID_EVAL_SET")
        .await;
    let metric = json!({"evalMetrics": [{"metricName": "speed"}]});
    problem(host.post("/apps/says/eval-sets/set/run", &metric).await, 400, "INVALID_CRITERIA").await;
    let session = json!({"evalId": "c2", "sessionId": "none", "userId": "u"});
    problem(host.post("/apps/says/eval_sets/set/add_session", &session).await, 404, "SESSION_NOT_FOUND").await;
    let renamed = host.request(Method::PUT, "/apps/says/eval_sets/set/evals/c").json(&json!({"evalId": "d"}));
    let refused = problem(renamed.send().await.unwrap(), 400, "BAD_INPUT").await;
    assert_eq!(refused["detail"], "`evalId` differs from the id in the path; the id of a case cannot be changed");
    let new = host.request(Method::PUT, "/apps/says/eval_sets/set/evals/new").json(&json!({"evalId": "new"}));
    problem(new.send().await.unwrap(), 404, "EVAL_CASE_NOT_FOUND").await;
    let patch = host.request(Method::PATCH, "/apps/says/eval_sets").send().await.unwrap();
    let refused = problem(patch, 405, "METHOD_NOT_ALLOWED").await;
    assert_eq!(
        refused["detail"],
        "/apps/says/eval_sets does not support PATCH; the Allow header lists the supported methods"
    );
}

#[tokio::test]
async fn a_case_made_of_a_session_is_evaluated_and_deleted() {
    let audit = AuditCapture::capture();
    let host = full().await;
    host.session("says").await;
    success(host.post("/run", &run_body("says", "Good morning")).await).await;
    host.post_json("/apps/says/eval_sets/mine", &json!({})).await;
    let add = json!({"eval_id": "c", "session_id": "s", "user_id": "u"});
    host.post_json("/dev/apps/says/eval-sets/mine/add-session", &add).await;
    let stored = host.get_json("/apps/says/eval-sets/mine/eval-cases/c").await;
    assert_eq!(stored["conversation"][0]["finalResponse"]["parts"][0]["text"], "You said: Good morning");
    let run = "/dev/apps/says/eval-sets/mine/run";
    let without_body = success(host.request(Method::POST, run).send().await.unwrap()).await;
    for results in [host.post_json(run, &json!({})).await, without_body] {
        assert_eq!(results["runEvalResults"][0]["finalEvalStatus"], 1, "{results}");
    }
    for (path, action) in [
        ("/apps/says/eval_sets/mine/evals/c", "action=\"delete the case `c` of the eval set `mine`\""),
        ("/dev/apps/says/eval-sets/mine", "action=\"delete the eval set `mine`\""),
    ] {
        success(host.request(Method::DELETE, path).send().await.unwrap()).await;
        assert_eq!(host.request(Method::DELETE, path).send().await.unwrap().status(), 404);
        let lines = audit.lines();
        let recorded: Vec<_> = lines.iter().filter(|line| line.contains("deletion") && line.contains(action)).collect();
        let [line] = recorded.as_slice() else { panic!("{lines:?}") };
        assert!(line.contains("app=says") && line.contains("decision=\"deleted\""), "{line}");
    }
    assert_eq!(host.get_json("/apps/says/eval_sets").await, json!([]));
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_evaluation() {
    let host = full().await;
    create(&host, "waits", json!([case("Hi", "Done.")])).await;
    let request = crate::support::post_bytes("/apps/waits/eval-sets/set/run", &json!({}));
    let connection = host.connect(&request).await;
    wait_for(&host.signals.started).await;
    drop(connection);
    wait_for(&host.signals.cancelled).await;
}

#[tokio::test]
async fn no_case_is_made_of_a_session_of_the_host() {
    let host = full().await;
    create(&host, "says", json!([case("Hi", "You said: Hi")])).await;
    host.services.sessions.create("says", "A2A_PUSH", Some("s"), hatchery_core::JsonMap::new()).await.unwrap();
    let body = json!({"evalId": "d", "sessionId": "s", "userId": "A2A_PUSH"});
    problem(host.post("/apps/says/eval_sets/set/add-session", &body).await, 404, "SESSION_NOT_FOUND").await;
}
