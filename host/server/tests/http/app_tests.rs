//! The tests of apps over HTTP, as ADK's web client uses them. `hatchery` tests what a run does.

use std::fs;
use std::path::Path;

use hatchery::{DevUi, ServerConfig};
use hatchery_test_support::AuditCapture;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::support::{FolderServer, Host, problem, success};

const AGENT: &str = "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Greet.\n";

/// The routes of the tests of the app `hello`.
const REQUESTS: [(Method, &str); 6] = [
    (Method::GET, "/tests"),
    (Method::GET, "/tests/a.json"),
    (Method::PUT, "/tests/a.json"),
    (Method::DELETE, "/tests/a.json"),
    (Method::POST, "/tests/rebuild"),
    (Method::POST, "/tests/run"),
];

/// Serves the app `hello`, whose model answers `Hi`.
async fn serve(folder: &Path, dev_ui: DevUi) -> FolderServer {
    fs::create_dir_all(folder.join("hello")).unwrap();
    fs::write(folder.join("hello/root_agent.yaml"), AGENT).unwrap();
    fs::write(folder.join("hello/answers.yaml"), "turns:\n  - reply: Hi\n").unwrap();
    FolderServer::start(folder, ServerConfig { dev_ui: Some(dev_ui), ..ServerConfig::default() }).await
}

/// Returns the body with a session in which the app `hello` gives these answers.
fn session(answers: &[&str]) -> Value {
    let event = |author: &str, text: &str| json!({"author": author, "content": {"parts": [{"text": text}]}});
    let mut events = vec![event("user", "Good morning")];
    events.extend(answers.iter().map(|answer| event("hello", answer)));
    json!({"session_data": {"events": events}})
}

async fn put(server: &FolderServer, test: &str, body: &Value) -> Response {
    server.request(Method::PUT, &format!("/dev/apps/hello/tests/{test}")).json(body).send().await.unwrap()
}

/// Runs tests, and returns the text.
async fn run(server: &FolderServer, query: &str) -> String {
    let response = server.request(Method::POST, &format!("/dev/apps/hello/tests/run{query}")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
    response.text().await.unwrap()
}

#[tokio::test]
async fn a_session_becomes_a_test_that_is_run_rebuilt_and_deleted() {
    let audit = AuditCapture::capture();
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), DevUi::Full).await;
    assert_eq!(success(server.get("/dev/apps/hello/tests").await).await, json!([]));
    assert_eq!(
        run(&server, "").await,
        "`hello` has no tests; promote a session to a test, or write hello/tests/NAME.json\n"
    );
    let written = success(put(&server, "a", &session(&["Good day"])).await).await;
    assert_eq!(written, json!({"status": "success", "file": "a.json"}));
    assert!(folder.path().join("hello/tests/a.json").is_file());
    assert_eq!(success(server.get("/dev/apps/hello/tests").await).await, json!(["a.json"]));
    assert_eq!(success(server.get("/dev/apps/hello/tests/a.json").await).await, session(&["Good day"])["session_data"]);
    // The model says something else, and is not called.
    assert_eq!(run(&server, "").await, "a.json: passed\n1 passed, 0 failed\n");

    let rebuild = server.request(Method::POST, "/dev/apps/hello/tests/rebuild?test_name=a.json").send().await.unwrap();
    assert_eq!(success(rebuild).await, json!({"status": "success"}));
    let rebuilt = success(server.get("/dev/apps/hello/tests/a").await).await;
    assert_eq!(rebuilt["events"][1]["content"]["parts"][0]["text"], "Hi");
    assert_eq!(run(&server, "?test_name=a.json").await, "a.json: passed\n1 passed, 0 failed\n");

    let delete = async || server.request(Method::DELETE, "/dev/apps/hello/tests/a.json").send().await.unwrap();
    assert_eq!(success(delete().await).await, json!({"status": "success", "file": "a.json"}));
    problem(delete().await, 404, "TEST_NOT_FOUND").await;
    let lines = audit.lines();
    let count = |kind: &str, detail: &str| {
        lines.iter().filter(|line| line.contains(kind) && line.contains(detail) && line.contains("hello")).count()
    };
    assert_eq!((count("edit", "tests/a"), count("deletion", "delete the test `a.json`")), (2, 1), "{lines:?}");
}

#[tokio::test]
async fn tests_that_fail_show_the_first_difference() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), DevUi::Full).await;
    success(put(&server, "a.json", &session(&["One"])).await).await;
    success(put(&server, "b.json", &session(&["One", "Two"])).await).await;
    fs::write(folder.path().join("hello/tests/c.json"), "{").unwrap();
    let text = run(&server, "").await;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..2], ["a.json: passed", "b.json: failed"], "{text}");
    assert_eq!(lines[2], "  turn 1 (\"Good morning\"): the events differ from the recorded ones");
    assert!(lines.contains(&"  -        \"text\": \"Two\""), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("  c.json is not a test: ")), "{text}");
    assert_eq!(lines.last(), Some(&"1 passed, 2 failed"));
}

#[tokio::test]
async fn routes_without_dev_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), DevUi::Full).await;
    let body = json!({"sessionData": session(&["Hi"])["session_data"]});
    let request = |method: Method, path: &str| server.request(method, &format!("/apps/hello{path}")).json(&body).send();
    for (method, path) in [2, 0, 1, 5, 4, 3].map(|index| REQUESTS[index].clone()) {
        assert_eq!(request(method, path).await.unwrap().status(), 200, "{path}");
    }
    assert_eq!(success(server.get("/apps/hello/tests").await).await, json!([]));
}

#[tokio::test]
async fn only_the_full_developer_ui_has_tests() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), DevUi::Read).await;
    for (method, path) in REQUESTS {
        for base in ["/dev/apps/hello", "/apps/hello"] {
            let request = server.request(method.clone(), &format!("{base}{path}")).json(&session(&["Hi"]));
            problem(request.send().await.unwrap(), 403, "BUILDER_NOT_ALLOWED").await;
        }
    }
    assert!(!folder.path().join("hello/tests").exists());
}

#[tokio::test]
async fn errors_have_their_status() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), DevUi::Full).await;
    for (method, path) in REQUESTS {
        let request = server.request(method, &format!("/dev/apps/nobody{path}")).json(&session(&["Hi"]));
        problem(request.send().await.unwrap(), 404, "APP_NOT_FOUND").await;
    }
    for path in ["run", "rebuild"] {
        let path = format!("/dev/apps/hello/tests/{path}?test_name=none");
        let refused = problem(server.request(Method::POST, &path).send().await.unwrap(), 404, "TEST_NOT_FOUND").await;
        assert_eq!(refused["detail"], "test not found: none.json; the tests of `hello`: none");
    }
    problem(server.get("/dev/apps/hello/tests/..%2F..%2Fx").await, 400, "INVALID_NAME").await;
    problem(put(&server, ".hidden", &session(&["Hi"])).await, 400, "INVALID_NAME").await;
    problem(put(&server, "a", &json!({"session_data": {"events": []}})).await, 422, "INVALID_TEST").await;
    problem(put(&server, "a", &json!({"events": []})).await, 422, "INVALID_REQUEST").await;
    fs::create_dir_all(folder.path().join("hello/tests/b.json")).unwrap();
    problem(put(&server, "b", &session(&["Hi"])).await, 409, "TEST_NOT_WRITABLE").await;

    success(put(&server, "a", &session(&["Hi"])).await).await;
    fs::remove_file(folder.path().join("hello/answers.yaml")).unwrap();
    let rebuild = server.request(Method::POST, "/dev/apps/hello/tests/rebuild").send().await.unwrap();
    problem(rebuild, 422, "TEST_NOT_REBUILT").await;
    assert_eq!(run(&server, "").await, "a.json: passed\n1 passed, 0 failed\n");
}

#[tokio::test]
async fn a_host_without_a_folder_has_no_tests() {
    let host = Host::with(ServerConfig { dev_ui: Some(DevUi::Full), ..ServerConfig::default() }).await;
    for (method, path) in REQUESTS {
        let request = host.request(method, &format!("/dev/apps/says{path}")).json(&session(&["Hi"]));
        problem(request.send().await.unwrap(), 404, "NO_FOLDER").await;
    }
}
