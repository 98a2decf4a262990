//! Lists of apps and components, health, version and security headers.

use reqwest::Method;
use serde_json::json;

use crate::support::{Host, problem, run_body, wait_for};

#[tokio::test]
async fn apps_are_listed_by_name() {
    let host = Host::start().await;
    assert_eq!(host.get_json("/list-apps").await, json!(["fails", "floods", "says", "streams", "waits"]));
    assert_eq!(
        host.get_json("/list-apps?relative_path=./").await,
        json!(["fails", "floods", "says", "streams", "waits"])
    );
}

#[tokio::test]
async fn a_detailed_list_contains_the_agents_of_apps() {
    let host = Host::start().await;
    let list = host.get_json("/list-apps?detailed=true").await;
    assert_eq!(list["apps"].as_array().unwrap().len(), 5);
    assert_eq!(
        list["apps"][2],
        json!({
            "name": "says", "rootAgentName": "says", "description": "It says.", "language": "wasm",
            "isComputerUse": false,
            "agents": {"says": {
                "name": "says", "description": "It says.", "instruction": "", "kind": "custom", "tools": [],
                "sub_agents": [],
            }},
        })
    );
    assert_eq!(list["apps"][3]["language"], "yaml");
    assert_eq!(list["apps"][4]["language"], "native");
    assert_eq!(host.get_json("/apps/waits/app-info").await["language"], "native");
    assert_eq!(host.get_json("/apps/says/app-info").await, list["apps"][2]);
    problem(host.get("/apps/nobody/app-info").await, 404, "APP_NOT_FOUND").await;
}

#[tokio::test]
async fn a_boolean_of_a_query_may_be_spelled_as_clients_in_python_do() {
    let host = Host::start().await;
    for (value, is_detailed) in [("True", true), ("1", true), ("False", false), ("0", false)] {
        let list = host.get_json(&format!("/list-apps?detailed={value}")).await;
        assert_eq!(list["apps"].is_array(), is_detailed, "{value}: {list}");
    }
    let refused = problem(host.get("/list-apps?detailed=maybe").await, 422, "INVALID_REQUEST").await;
    assert_eq!(refused["detail"], "invalid query: detailed: write `true` or `false`");
}

#[tokio::test]
async fn stats_have_the_runs_in_progress() {
    let host = Host::start().await;
    host.session("waits").await;
    let mut body = run_body("waits", "hi");
    body["runId"] = json!("r");
    let response = host.post("/run_sse", &body).await;
    wait_for(&host.signals.started).await;
    let stats = host.get_json("/stats").await;
    assert_eq!((&stats["runs"]["active"], &stats["runs"]["max"], &stats["apps"]), (&json!(1), &json!(512), &json!(5)));
    let [run] = stats["runs"]["inProgress"].as_array().unwrap().as_slice() else { panic!("{stats}") };
    let known = json!({"id": "r", "appName": "waits", "userId": "u", "sessionId": "s", "seconds": run["seconds"]});
    assert_eq!(run, &known);
    assert!(stats["memory"]["bodyBytes"].as_u64().unwrap() > 0, "{stats}");
    assert_eq!(stats["components"], json!([{"name": "kitchen", "calls": 0, "waitingInstances": 0}]));
    assert_eq!(stats["failed"], json!([{"path": "<b>broken</b>.wasm", "reason": "not a component"}]));
    host.signals.resume.add_permits(1);
    response.text().await.unwrap();
    let stats = host.get_json("/stats").await;
    assert_eq!((&stats["runs"]["active"], &stats["runs"]["inProgress"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn health_and_version_are_reported() {
    let host = Host::start().await;
    assert_eq!(host.get_json("/health").await, json!({"status": "ok"}));
    assert_eq!(
        host.get_json("/version").await,
        json!({"version": env!("CARGO_PKG_VERSION"), "language": "rust", "language_version": "1.95"})
    );
}

#[tokio::test]
async fn components_lists_active_and_rejected_files() {
    let host = Host::start().await;
    let components = host.get_json("/components").await;
    assert_eq!(components["generation"], 3);
    assert_eq!(components["apps"][0], json!({"name": "fails", "agents": ["fails"]}));
    assert_eq!(
        components["components"],
        json!([{
            "name": "kitchen", "file": "kitchen.wasm", "sha256": "c0ffee", "calls": 0, "waitingInstances": 0,
            "agents": ["says"], "tools": ["boil"], "callbacks": [], "plugins": ["guard"], "codeExecutors": [],
            "summarizers": [], "examples": [], "models": ["echo"],
        }])
    );
    assert_eq!(
        components["files"],
        json!([{
            "path": "<b>broken</b>.wasm", "name": "broken", "state": "rejected", "reason": "not a component",
            "previousServes": true, "since": 1.5,
        }])
    );
}

#[tokio::test]
async fn every_response_has_security_headers() {
    let host = Host::start().await;
    host.session("says").await;
    let run = host.post("/run_sse", &run_body("says", "hello")).await;
    let refused = host.request(Method::GET, "/health").header("origin", "https://evil.example").send().await.unwrap();
    let panicked = host.get("/apps/panics/users/u/sessions").await;
    let answers = [host.get("/health").await, host.get("/dev-ui/").await, host.get("/nowhere").await];
    for response in answers.into_iter().chain([run, refused, panicked]) {
        let (url, headers) = (response.url().clone(), response.headers());
        let get = |name: &str| headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
        assert_eq!(get("x-content-type-options"), "nosniff", "{url}");
        assert_eq!(get("cross-origin-resource-policy"), "same-origin", "{url}");
        assert_eq!(get("referrer-policy"), "no-referrer", "{url}");
        assert!(get("content-security-policy").contains("frame-ancestors 'none'"), "{url}");
        let cached = if ["/run_sse", "/dev-ui/"].contains(&url.path()) { "no-cache" } else { "no-store" };
        assert_eq!(get("cache-control"), cached, "{url}");
    }
}
