//! Routes of artifacts.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Host, problem};

const ARTIFACTS: &str = "/apps/says/users/u/sessions/s/artifacts";

async fn save(host: &Host, name: &str, artifact: Value) -> Value {
    host.post_json(ARTIFACTS, &json!({"filename": name, "artifact": artifact})).await
}

#[tokio::test]
async fn versions_start_at_zero_and_the_newest_is_returned_by_default() {
    let host = Host::start().await;
    host.session("says").await;
    assert_eq!(host.get_json(ARTIFACTS).await, json!([]));
    assert_eq!(save(&host, "a.txt", json!({"text": "one"})).await, json!({"filename": "a.txt", "version": 0}));
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "AAEC"}});
    assert_eq!(
        save(&host, "a.txt", picture.clone()).await,
        json!({"filename": "a.txt", "version": 1, "mimeType": "image/png"})
    );
    assert_eq!(host.get_json(ARTIFACTS).await, json!(["a.txt"]));
    assert_eq!(host.get_json(&format!("{ARTIFACTS}/a.txt/versions")).await, json!([0, 1]));
    for newest in ["a.txt", "a.txt?version=1", "a.txt?version=latest", "a.txt/versions/1", "a.txt/versions/latest"] {
        assert_eq!(host.get_json(&format!("{ARTIFACTS}/{newest}")).await, picture, "{newest}");
    }
    for oldest in ["a.txt?version=0", "a.txt/versions/0"] {
        assert_eq!(host.get_json(&format!("{ARTIFACTS}/{oldest}")).await, json!({"text": "one"}), "{oldest}");
    }
}

#[tokio::test]
async fn a_name_may_contain_slashes() {
    let host = Host::start().await;
    host.session("says").await;
    save(&host, "dir/sub/a.txt", json!({"text": "deep"})).await;
    for path in ["dir/sub/a.txt", "dir%2Fsub%2Fa.txt", "dir/sub/a.txt/versions/0"] {
        assert_eq!(host.get_json(&format!("{ARTIFACTS}/{path}")).await, json!({"text": "deep"}), "{path}");
    }
    assert_eq!(host.get_json(&format!("{ARTIFACTS}/dir/sub/a.txt/versions")).await, json!([0]));
}

#[tokio::test]
async fn a_deleted_artifact_no_longer_exists() {
    let host = Host::start().await;
    host.session("says").await;
    save(&host, "dir/a.txt", json!({"text": "one"})).await;
    let response = host.request(Method::DELETE, &format!("{ARTIFACTS}/dir/a.txt")).send().await.unwrap();
    assert_eq!(response.status(), 204);
    let body = problem(host.get(&format!("{ARTIFACTS}/dir/a.txt")).await, 404, "ARTIFACT_NOT_FOUND").await;
    assert_eq!(body["detail"], "Artifact not found: dir/a.txt");
    problem(host.get(&format!("{ARTIFACTS}/dir/a.txt/versions")).await, 404, "ARTIFACT_NOT_FOUND").await;
}

#[tokio::test]
async fn a_missing_version_is_404_and_an_invalid_one_422() {
    let host = Host::start().await;
    host.session("says").await;
    save(&host, "a.txt", json!({"text": "one"})).await;
    let body = problem(host.get(&format!("{ARTIFACTS}/a.txt/versions/7")).await, 404, "ARTIFACT_NOT_FOUND").await;
    assert_eq!(body["detail"], "Artifact not found: a.txt, version 7");
    for path in ["a.txt/versions/first", "a.txt?version=-1"] {
        let body = problem(host.get(&format!("{ARTIFACTS}/{path}")).await, 422, "INVALID_REQUEST").await;
        assert!(body["detail"].as_str().unwrap().ends_with("write a number from 0 or `latest`"), "{body}");
    }
}

#[tokio::test]
async fn artifacts_need_a_session_a_name_and_content() {
    let host = Host::start().await;
    let artifact = json!({"filename": "a.txt", "artifact": {"text": "one"}});
    problem(host.post(ARTIFACTS, &artifact).await, 404, "SESSION_NOT_FOUND").await;
    host.session("says").await;
    let body = problem(host.post(ARTIFACTS, &json!({"filename": "a", "artifact": {}})).await, 400, "BAD_INPUT").await;
    assert_eq!(body["detail"], "the artifact is empty; set `text`, `inlineData` or `fileData`");
    let outside = json!({"filename": "../a.txt", "artifact": {"text": "one"}});
    problem(host.post(ARTIFACTS, &outside).await, 400, "INVALID_NAME").await;
    problem(host.post(ARTIFACTS, &json!({"artifact": {"text": "one"}})).await, 422, "INVALID_REQUEST").await;
}

#[tokio::test]
async fn deleting_a_session_deletes_its_artifacts_but_not_those_of_the_user() {
    let host = Host::start().await;
    host.session("says").await;
    for name in ["a.txt", "user:b.txt"] {
        save(&host, name, json!({"text": "one"})).await;
    }
    host.request(Method::DELETE, "/apps/says/users/u/sessions/s").send().await.unwrap();
    host.session("says").await;
    assert_eq!(host.get_json(ARTIFACTS).await, json!(["user:b.txt"]));
}
