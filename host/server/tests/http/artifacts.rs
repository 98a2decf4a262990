//! Routes of artifacts.

use futures::StreamExt;
use hatchery::{ByteSize, ServerConfig};
use hatchery_core::Timestamp;
use hatchery_stores::{Quota, Quotas};
use hatchery_test_support::AuditCapture;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::support::{Host, problem, success};

const ARTIFACTS: &str = "/apps/says/users/u/sessions/s/artifacts";

async fn save(host: &Host, name: &str, artifact: Value) -> Value {
    host.post_json(ARTIFACTS, &json!({"filename": name, "artifact": artifact})).await
}

/// Removes the time when a version was saved, which differs between runs.
fn without_time(mut metadata: Value) -> Value {
    let time = metadata.as_object_mut().unwrap().remove("createTime");
    assert!(time.as_ref().is_some_and(Value::is_f64), "{time:?}");
    metadata
}

#[tokio::test]
async fn versions_start_at_zero_and_the_newest_is_returned_by_default() {
    let host = Host::start().await;
    host.session("says").await;
    assert_eq!(host.get_json(ARTIFACTS).await, json!([]));
    let uri = |version: u32| format!("{ARTIFACTS}/a.txt/versions/{version}");
    assert_eq!(
        without_time(save(&host, "a.txt", json!({"text": "one"})).await),
        json!({"filename": "a.txt", "version": 0, "canonicalUri": uri(0), "customMetadata": {}, "size": 3})
    );
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "AAEC"}});
    let metadata =
        json!({"version": 1, "canonicalUri": uri(1), "customMetadata": {}, "mimeType": "image/png", "size": 3});
    let mut expected = metadata.clone();
    expected["filename"] = json!("a.txt");
    assert_eq!(without_time(save(&host, "a.txt", picture.clone()).await), expected);
    assert_eq!(without_time(host.get_json(&format!("{ARTIFACTS}/a.txt/versions/1/metadata")).await), metadata);
    assert_eq!(host.get_json(ARTIFACTS).await, json!(["a.txt"]));
    assert_eq!(host.get_json(&format!("{ARTIFACTS}/a.txt/versions")).await, json!([0, 1]));
    for newest in ["a.txt", "a.txt?version=1", "a.txt?version=latest", "a.txt/versions/1", "a.txt/versions/latest"] {
        assert_eq!(host.get_json(&format!("{ARTIFACTS}/{newest}")).await, picture, "{newest}");
    }
    for oldest in ["a.txt?version=0", "a.txt/versions/0"] {
        assert_eq!(host.get_json(&format!("{ARTIFACTS}/{oldest}")).await, json!({"text": "one"}), "{oldest}");
    }
}

async fn put(host: &Host, path: &str, media_type: &str, body: impl Into<reqwest::Body>) -> Response {
    let request = host.request(Method::PUT, &format!("{ARTIFACTS}/{path}"));
    request.header("content-type", media_type).body(body).send().await.unwrap()
}

#[tokio::test]
async fn the_bytes_of_an_artifact_are_sent_and_read_as_they_are() {
    let host = Host::start().await;
    host.session("says").await;
    let saved = success(put(&host, "dir/caf%C3%A9.csv", "text/csv; charset=utf-8", "a,b\n1,2\n").await).await;
    assert_eq!((&saved["filename"], &saved["version"]), (&json!("dir/café.csv"), &json!(0)));
    assert_eq!((&saved["mimeType"], &saved["size"]), (&json!("text/csv; charset=utf-8"), &json!(8)));
    let read = host.get(&format!("{ARTIFACTS}/dir/caf%C3%A9.csv?alt=media")).await;
    let header = |name: &str| read.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(read.status(), 200);
    assert_eq!(header("content-length"), "8");
    assert_eq!(header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(header("content-disposition"), "attachment; filename*=UTF-8''caf%C3%A9%2Ecsv");
    assert_eq!(read.text().await.unwrap(), "a,b\n1,2\n");
    let part = json!({"inlineData": {"mimeType": "text/csv; charset=utf-8", "data": "YSxiCjEsMgo="}});
    assert_eq!(host.get_json(&format!("{ARTIFACTS}/dir/caf%C3%A9.csv")).await, part);

    save(&host, "note", json!({"text": "<script>"})).await;
    let note = host.get(&format!("{ARTIFACTS}/note/versions/0?alt=media")).await;
    assert_eq!(note.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(note.text().await.unwrap(), "<script>");
    save(&host, "link", json!({"fileData": {"fileUri": "gs://a/b", "mimeType": "text/plain"}})).await;
    let body = problem(host.get(&format!("{ARTIFACTS}/link?alt=media")).await, 409, "NO_MEDIA").await;
    assert_eq!(body["detail"], "`link` has neither bytes nor text; leave out `alt=media` to read it as JSON");
    problem(host.get(&format!("{ARTIFACTS}/missing?alt=media")).await, 404, "ARTIFACT_NOT_FOUND").await;
    problem(host.get(&format!("{ARTIFACTS}/note?alt=xml")).await, 422, "INVALID_REQUEST").await;
}

#[tokio::test]
async fn an_artifact_that_is_sent_as_a_body_has_a_limit_of_its_own() {
    let config = ServerConfig {
        body_limit: ByteSize(1 << 10),
        small_body_limit: ByteSize(1 << 10),
        upload_limit: ByteSize(1 << 20),
        ..ServerConfig::default()
    };
    let host = Host::with(config).await;
    host.session("says").await;
    success(put(&host, "fits", "text/plain", "x".repeat(1 << 20)).await).await;
    let unannounced = || reqwest::Body::wrap_stream(futures::stream::iter([Ok::<_, String>("x".repeat(2 << 20))]));
    for body in [reqwest::Body::from("x".repeat((1 << 20) + 1)), unannounced()] {
        let refused = problem(put(&host, "large", "text/plain", body).await, 413, "BODY_TOO_LARGE").await;
        assert_eq!(refused["detail"], "the body is larger than 1 MiB (1048576 bytes)");
    }
    assert_eq!(host.get_json(ARTIFACTS).await, json!(["fits"]));
    let refused = problem(put(&host, "a/versions/3", "text/plain", "x").await, 400, "BAD_INPUT").await;
    assert_eq!(refused["detail"], "`a/versions/3` is the path of versions; write the name of the artifact alone");
    let missing = host.request(Method::PUT, "/apps/says/users/u/sessions/other/artifacts/a").body("x").send().await;
    problem(missing.unwrap(), 404, "SESSION_NOT_FOUND").await;
}

#[tokio::test]
async fn an_artifact_is_not_saved_under_a_path_of_versions() {
    let host = Host::start().await;
    host.session("says").await;
    for name in ["a/versions/3", "a/versions", "a/versions/metadata", "a/versions/3/metadata"] {
        let body = json!({"filename": name, "artifact": {"text": "x"}});
        let refused = problem(host.post(ARTIFACTS, &body).await, 400, "BAD_INPUT").await;
        let detail = format!("`{name}` is the path of versions; write the name of the artifact alone");
        assert_eq!(refused["detail"], detail);
    }
    assert_eq!(host.get_json(ARTIFACTS).await, json!([]));
}

#[tokio::test]
async fn an_artifact_that_is_too_large_for_json_is_read_as_media() {
    let config =
        ServerConfig { body_limit: ByteSize(1 << 10), upload_limit: ByteSize(1 << 20), ..ServerConfig::default() };
    let host = Host::with(config).await;
    host.session("says").await;
    success(put(&host, "large", "text/plain", "x".repeat((1 << 10) + 1)).await).await;
    for path in ["large", "large/versions/0"] {
        let url = format!("{ARTIFACTS}/{path}");
        let refused = problem(host.get(&url).await, 413, "ARTIFACT_TOO_LARGE").await;
        assert_eq!(
            refused["detail"],
            "`large` has 1025 bytes, and as JSON at most 1 KiB (1024 bytes) are returned; read it with `alt=media`"
        );
        assert_eq!(host.get(&format!("{url}?alt=media")).await.text().await.unwrap().len(), 1025);
    }
}

#[tokio::test]
async fn what_uploads_hold_in_memory_counts_with_all_bodies() {
    const SIZE: usize = 800 << 10;
    let config = ServerConfig { body_memory: ByteSize(1 << 20), ..ServerConfig::default() };
    let host = Host::with(config).await;
    host.session("says").await;
    let whole = host.state.available_body_memory();
    let unfinished = futures::stream::iter([Ok::<_, String>(vec![b'x'; SIZE])]).chain(futures::stream::pending());
    let request = host.request(Method::PUT, &format!("{ARTIFACTS}/open"));
    let upload = tokio::spawn(request.body(reqwest::Body::wrap_stream(unfinished)).send());
    while host.state.available_body_memory() > whole - SIZE {
        tokio::task::yield_now().await;
    }
    problem(put(&host, "b", "text/plain", "x".repeat(SIZE)).await, 503, "BODY_MEMORY").await;
    upload.abort();
    while host.state.available_body_memory() < whole {
        tokio::task::yield_now().await;
    }
    success(put(&host, "b", "text/plain", "x".repeat(SIZE)).await).await;
    assert_eq!(host.get_json(ARTIFACTS).await, json!(["b"]));
}

#[tokio::test]
async fn a_service_that_passes_uploads_on_needs_little_memory_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = hatchery_stores::DirectoryArtifacts::open(folder.path()).await.unwrap();
    let config = ServerConfig { body_memory: ByteSize(1 << 20), ..ServerConfig::default() };
    let host = Host::with_artifacts(config, Quotas::default(), std::sync::Arc::new(artifacts)).await;
    host.session("says").await;
    success(put(&host, "large", "text/plain", "x".repeat(4 << 20)).await).await;
    let read = host.get(&format!("{ARTIFACTS}/large?alt=media")).await;
    assert_eq!(read.bytes().await.unwrap().len(), 4 << 20);
    let refused = problem(host.get(&format!("{ARTIFACTS}/large")).await, 413, "BODY_TOO_LARGE").await;
    assert_eq!(refused["detail"], "the body needs more memory than all request bodies may use, 1 MiB (1048576 bytes)");
}

#[tokio::test]
async fn an_artifact_that_exceeds_a_quota_while_it_is_received_is_not_stored() {
    let host = Host::with_quotas(Quotas::default().with(Quota::SessionArtifactBytes, 1 << 20)).await;
    host.session("says").await;
    let refused = problem(put(&host, "large", "text/plain", "x".repeat(2 << 20)).await, 429, "QUOTA_EXCEEDED").await;
    assert_eq!(refused["detail"], "a session may hold at most 1 MiB of artifacts: delete some");
    assert_eq!(host.get_json(ARTIFACTS).await, json!([]));
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
    let audit = AuditCapture::capture();
    let host = Host::start().await;
    host.session("says").await;
    save(&host, "dir/a.txt", json!({"text": "one"})).await;
    let response = host.request(Method::DELETE, &format!("{ARTIFACTS}/dir/a.txt")).send().await.unwrap();
    assert_eq!(response.status(), 204);
    let body = problem(host.get(&format!("{ARTIFACTS}/dir/a.txt")).await, 404, "ARTIFACT_NOT_FOUND").await;
    assert_eq!(body["detail"], "Artifact not found: dir/a.txt");
    problem(host.get(&format!("{ARTIFACTS}/dir/a.txt/versions")).await, 404, "ARTIFACT_NOT_FOUND").await;
    let again = host.request(Method::DELETE, &format!("{ARTIFACTS}/dir/a.txt")).send().await.unwrap();
    assert_eq!(again.status(), 204);
    let lines: Vec<_> = audit.lines().into_iter().filter(|line| line.contains("deletion")).collect();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    for part in
        ["app=says", "user=u", "session=s", "action=\"delete the artifact `dir/a.txt`\"", "decision=\"deleted\""]
    {
        assert!(line.contains(part), "{line} lacks {part}");
    }
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
async fn versions_have_metadata() {
    let host = Host::start().await;
    host.session("says").await;
    save(&host, "dir/a.txt", json!({"text": "one"})).await;
    save(&host, "dir/a.txt", json!({"inlineData": {"mimeType": "image/png", "data": "AQIDBA=="}})).await;
    save(&host, "dir/a.txt", json!({"fileData": {"fileUri": "gs://b/o", "mimeType": "text/csv"}})).await;
    let uri = |version: u32| format!("{ARTIFACTS}/dir%2Fa.txt/versions/{version}");
    let expected = [
        json!({"version": 0, "canonicalUri": uri(0), "customMetadata": {}, "size": 3}),
        json!({"version": 1, "canonicalUri": uri(1), "customMetadata": {}, "mimeType": "image/png", "size": 4}),
        json!({"version": 2, "canonicalUri": "gs://b/o", "customMetadata": {}, "mimeType": "text/csv", "size": 0}),
    ];
    let all = host.get_json(&format!("{ARTIFACTS}/dir/a.txt/versions/metadata")).await;
    let all: Vec<Value> = all.as_array().unwrap().iter().cloned().map(without_time).collect();
    assert_eq!(all, expected);
    let one = async |path: &str| {
        without_time(host.get_json(&format!("{ARTIFACTS}/dir/a.txt/versions/{path}/metadata")).await)
    };
    assert_eq!(one("1").await, expected[1]);
    assert_eq!(one("latest").await, expected[2]);
    assert_eq!(host.get_json(&uri(0)).await, json!({"text": "one"}), "the URI is a path of this host");
    for path in ["b.txt/versions/metadata", "b.txt/versions/latest/metadata", "dir/a.txt/versions/3/metadata"] {
        problem(host.get(&format!("{ARTIFACTS}/{path}")).await, 404, "ARTIFACT_NOT_FOUND").await;
    }
}

#[tokio::test]
async fn custom_metadata_and_the_time_of_saving_are_returned_for_each_version() {
    let host = Host::start().await;
    host.session("says").await;
    let metadata = |version: u32| format!("{ARTIFACTS}/a.txt/versions/{version}/metadata");
    let before = Timestamp::now().as_seconds() - 1.0;
    for (key, author) in [("customMetadata", "ada"), ("custom_metadata", "bob")] {
        let body = json!({"filename": "a.txt", "artifact": {"text": "one"}, key: {"author": author, "pages": [1, 2]}});
        let saved = host.post_json(ARTIFACTS, &body).await;
        assert_eq!(saved["customMetadata"], json!({"author": author, "pages": [1, 2]}));
    }
    let query = "a.txt?customMetadata=%7B%22author%22%3A%22carl%20%C3%A9%22%7D";
    let saved = success(put(&host, query, "text/plain", "three").await).await;
    assert_eq!(saved["customMetadata"], json!({"author": "carl é"}));
    for (version, author) in [(0, "ada"), (1, "bob"), (2, "carl é")] {
        let metadata = host.get_json(&metadata(version)).await;
        assert_eq!(metadata["customMetadata"]["author"], author, "{metadata}");
        let created = metadata["createTime"].as_f64().unwrap();
        assert!(before <= created && created <= Timestamp::now().as_seconds() + 1.0, "{metadata}");
    }
    let read = host.get_json(&format!("{ARTIFACTS}/a.txt?version=0")).await;
    assert_eq!(read, json!({"text": "one"}), "the content is as before");
}

#[tokio::test]
async fn custom_metadata_is_an_object_of_limited_size() {
    let host = Host::start().await;
    host.session("says").await;
    for json in ["%5B1%5D", "author", ""] {
        let refused = put(&host, &format!("a.txt?customMetadata={json}"), "text/plain", "x").await;
        let detail = problem(refused, 422, "INVALID_REQUEST").await["detail"].as_str().unwrap().to_owned();
        let expected = "`customMetadata` is not a JSON object, such as {\"author\": \"ada\"}: ";
        assert!(detail.starts_with(expected), "{detail}");
    }
    let large = json!({"filename": "a.txt", "artifact": {"text": "x"}, "customMetadata": {"a": "x".repeat(64 << 10)}});
    let refused = problem(host.post(ARTIFACTS, &large).await, 400, "BAD_INPUT").await;
    let expected = "the custom metadata of `a.txt` has 65544 bytes, and at most 65536 are stored; save it as an artifact of its own";
    assert_eq!(refused["detail"], expected);
    assert_eq!(host.get_json(ARTIFACTS).await, json!([]));
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
async fn deleting_a_session_deletes_its_artifacts_but_not_the_artifacts_of_the_user() {
    let host = Host::start().await;
    host.session("says").await;
    for name in ["a.txt", "user:b.txt"] {
        save(&host, name, json!({"text": "one"})).await;
    }
    host.request(Method::DELETE, "/apps/says/users/u/sessions/s").send().await.unwrap();
    host.session("says").await;
    assert_eq!(host.get_json(ARTIFACTS).await, json!(["user:b.txt"]));
}
