//! The files of apps over HTTP: for the developer UI, and for ADK's web client.

use std::fs;
use std::path::Path;

use hatchery::{DevUi, ServerConfig};
use serde_json::{Value, json};

use crate::support::{FolderServer, problem, success};

const GOOD: &str = "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Greet.\n";

async fn serve(folder: &Path, dev_ui: DevUi) -> FolderServer {
    fs::create_dir_all(folder.join("hello")).unwrap();
    fs::write(folder.join("hello/root_agent.yaml"), GOOD).unwrap();
    fs::write(folder.join("hello/answers.yaml"), "turns:\n  - reply: Hi\n").unwrap();
    FolderServer::start(folder, ServerConfig { dev_ui: Some(dev_ui), ..ServerConfig::default() }).await
}

fn form(name: &str, text: &str) -> (String, String) {
    let body = format!(
        "--edge\r\nContent-Disposition: form-data; name=\"files\"; filename=\"{name}\"\r\n\
         Content-Type: application/x-yaml\r\n\r\n{text}\r\n--edge--\r\n"
    );
    ("multipart/form-data; boundary=edge".into(), body)
}

#[tokio::test]
async fn files_are_read_checked_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), DevUi::Full).await;
    let files = success(server.get("/dev/apps/hello/files").await).await["files"].clone();
    assert_eq!((&files[0]["path"], &files[0]["text"]), (&json!("root_agent.yaml"), &json!(GOOD)));
    let broken = json!({"files": {"root_agent.yaml": format!("{GOOD}tools: [{{ name: no/such }}]\n")}});
    let found = success(server.post("/dev/apps/hello/check", &broken).await).await["diagnostics"].clone();
    assert_eq!((&found[0]["file"], &found[0]["line"]), (&json!("root_agent.yaml"), &json!(4)));
    let refused = problem(server.post("/dev/apps/hello/files", &broken).await, 422, "INVALID_APP").await;
    assert!(refused["detail"].as_str().unwrap().starts_with("nothing was written: root_agent.yaml:4: "), "{refused}");
    let better = json!({"files": {"root_agent.yaml": GOOD.replace("Greet", "Greet warmly")}, "known": {"root_agent.yaml": files[0]["sha256"]}});
    success(server.post("/dev/apps/hello/files", &better).await).await;
    assert!(fs::read_to_string(folder.path().join("hello/root_agent.yaml")).unwrap().contains("warmly"));
    problem(server.post("/dev/apps/hello/files", &better).await, 412, "FILE_CHANGED").await;
    problem(server.get("/dev/apps/nobody/files").await, 404, "APP_NOT_FOUND").await;
    let above = json!({"files": {"../x.yaml": "a: 1"}});
    problem(server.post("/dev/apps/hello/files", &above).await, 400, "BAD_INPUT").await;
}

#[tokio::test]
async fn the_readme_of_an_app_is_part_of_its_structure_where_developers_are() {
    for (dev_ui, expected) in [(DevUi::Full, json!("# Hello\n")), (DevUi::Read, Value::Null)] {
        let folder = tempfile::tempdir().unwrap();
        let server = serve(folder.path(), dev_ui).await;
        assert_eq!(success(server.get("/dev/apps/hello/build_graph").await).await["readme"], Value::Null);
        fs::write(folder.path().join("hello/README.md"), "# Hello\n").unwrap();
        assert_eq!(success(server.get("/dev/apps/hello/build_graph").await).await["readme"], expected);
    }
}

#[tokio::test]
async fn the_web_client_reads_drafts_saves_and_cancels() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), DevUi::Full).await;
    let read = async |path: &str| server.get(path).await.text().await.unwrap();
    for path in ["/dev/apps/hello/builder?ts=1", "/builder/app/hello?ts=1"] {
        assert_eq!(read(path).await, GOOD);
    }
    assert_eq!(read("/dev/apps/hello/builder?file_path=none.yaml").await, "");
    assert_eq!(read("/dev/apps/nobody/builder").await, "");
    let draft = GOOD.replace("Greet", "Whisper");
    let (kind, body) = form("hello/root_agent.yaml", &draft);
    for (save, cancel) in [
        ("/dev/apps/hello/builder/save", "/dev/apps/hello/builder/cancel"),
        ("/builder/save", "/builder/app/hello/cancel"),
    ] {
        assert_eq!(success(server.post_raw(&format!("{save}?tmp=true"), &kind, &body).await).await, json!(true));
        assert_eq!(read("/dev/apps/hello/builder?tmp=true").await, draft);
        assert_eq!(read("/dev/apps/hello/builder").await, GOOD);
        assert_eq!(success(server.post(cancel, &json!({})).await).await, json!(true));
        assert_eq!(read("/dev/apps/hello/builder?tmp=true").await, GOOD);
    }
    assert_eq!(success(server.post_raw("/dev/apps/hello/builder/save", &kind, &body).await).await, json!(true));
    assert_eq!(fs::read_to_string(folder.path().join("hello/root_agent.yaml")).unwrap(), draft);
    let (kind, body) = form("other/root_agent.yaml", GOOD);
    problem(server.post_raw("/dev/apps/hello/builder/save", &kind, &body).await, 400, "BAD_INPUT").await;
}

#[tokio::test]
async fn a_page_that_only_shows_neither_reads_nor_writes_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), DevUi::Read).await;
    let files = json!({"files": {"root_agent.yaml": GOOD}});
    let refused: [Value; 3] = [
        problem(server.get("/dev/apps/hello/files").await, 403, "BUILDER_NOT_ALLOWED").await,
        problem(server.post("/dev/apps/hello/files", &files).await, 403, "BUILDER_NOT_ALLOWED").await,
        problem(server.post("/dev/apps/hello/check", &files).await, 403, "BUILDER_NOT_ALLOWED").await,
    ];
    for body in refused {
        assert_eq!(body["detail"], "this server does not let its clients read and change the files of apps");
    }
    let (kind, body) = form("hello/root_agent.yaml", GOOD);
    problem(server.post_raw("/dev/apps/hello/builder/save", &kind, &body).await, 403, "BUILDER_NOT_ALLOWED").await;
    assert_eq!(server.get("/dev/apps/hello/builder").await.text().await.unwrap(), "");
}
