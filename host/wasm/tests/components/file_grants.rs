//! Grants of host folders: reading and writing, links that lead out, and conflicts between components.

use std::path::Path;
use std::sync::Arc;

use hatchery_wasm::Catalog;
use serde_json::{Value, json};

use crate::grants::{seeker, test_catalog};
use crate::support::{TestCatalog, call, component, settings_with_grants};

/// Creates a folder `data` with a file and links that lead out of it, beside a file that is outside of it.
fn data(root: &Path) -> Value {
    std::fs::create_dir_all(root.join("data/below")).unwrap();
    std::fs::write(root.join("data/note.txt"), "a note").unwrap();
    std::fs::write(root.join("secret.txt"), "a secret").unwrap();
    std::os::unix::fs::symlink(root.join("secret.txt"), root.join("data/absolute")).unwrap();
    std::os::unix::fs::symlink("../secret.txt", root.join("data/relative")).unwrap();
    std::os::unix::fs::symlink("..", root.join("data/up")).unwrap();
    json!(root.join("data"))
}

async fn file(catalog: &Arc<Catalog>, what: &str, path: &str) -> Result<Value, String> {
    call(catalog, "files", json!({"what": what, "path": path})).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn no_files_are_visible_without_a_grant() {
    let catalog = seeker(json!({})).await;
    for path in ["/", "/etc/hostname", ".", "/data/note.txt"] {
        assert!(file(&catalog, "read", path).await.is_err(), "{path}");
        assert!(file(&catalog, "list", path).await.is_err(), "{path}");
    }
}

#[tokio::test]
async fn a_read_grant_allows_reading_and_no_changes() {
    let root = tempfile::tempdir().unwrap();
    let host = data(root.path());
    let catalog = seeker(json!({"files": [{"host": host, "guest": "/data", "access": "read"}]})).await;
    assert_eq!(file(&catalog, "read", "/data/note.txt").await, Ok(json!("a note")));
    assert_eq!(file(&catalog, "list", "/data").await, Ok(json!("absolute below note.txt relative up")));
    for (what, path) in [
        ("write", "/data/new.txt"),
        ("write", "/data/note.txt"),
        ("remove", "/data/note.txt"),
        ("rename", "/data/note.txt"),
    ] {
        assert!(file(&catalog, what, path).await.is_err(), "{what} {path}");
    }
    assert_eq!(std::fs::read_to_string(root.path().join("data/note.txt")).unwrap(), "a note");
    assert_eq!(std::fs::read_dir(root.path().join("data")).unwrap().count(), 5);
}

#[tokio::test]
async fn a_write_grant_allows_changes() {
    let root = tempfile::tempdir().unwrap();
    let host = data(root.path());
    let catalog = seeker(json!({"files": [{"host": host, "guest": "/data", "access": "write"}]})).await;
    assert_eq!(file(&catalog, "write", "/data/below/new.txt").await, Ok(json!("")));
    let written = std::fs::read_to_string(root.path().join("data/below/new.txt")).unwrap();
    assert_eq!(written, "written by a guest");
    assert_eq!(file(&catalog, "remove", "/data/note.txt").await, Ok(json!("")));
    assert!(!root.path().join("data/note.txt").exists());
}

#[tokio::test]
async fn no_path_and_no_link_leads_out_of_a_folder() {
    let root = tempfile::tempdir().unwrap();
    let host = data(root.path());
    let catalog = seeker(json!({"files": [{"host": host, "guest": "/data", "access": "write"}]})).await;
    let out = [
        "/data/../secret.txt",
        "/data/below/../../secret.txt",
        "/data/absolute",
        "/data/relative",
        "/data/up/secret.txt",
    ];
    for path in out {
        assert!(file(&catalog, "read", path).await.is_err(), "{path}");
        assert!(file(&catalog, "write", path).await.is_err(), "{path}");
    }
    assert_eq!(std::fs::read_to_string(root.path().join("secret.txt")).unwrap(), "a secret");
}

#[tokio::test]
async fn a_component_with_a_missing_folder_is_loaded_once_it_exists() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("data");
    let test_catalog = test_catalog(json!({"files": [{"host": folder, "guest": "/data"}]}));
    let handle = test_catalog.open().await;
    assert_eq!(
        test_catalog.reason(&handle.current(), "seeker.wasm"),
        format!(
            "component `seeker` cannot be given the folder `{}` as /data: No such file or directory (os error 2); make the folder, or \
             take it out of `components.seeker.grants.files` in hatchery.yaml",
            folder.display()
        )
    );
    std::fs::create_dir(&folder).unwrap();
    let catalog = handle.reload_now().await;
    assert_eq!(file(&catalog, "list", "/data").await, Ok(json!("")));
}

#[tokio::test]
async fn a_granted_folder_stays_the_same_when_its_path_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let host = data(root.path());
    let catalog = seeker(json!({"files": [{"host": host, "guest": "/data", "access": "write"}]})).await;
    let elsewhere = root.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("note.txt"), "a secret").unwrap();
    std::fs::rename(root.path().join("data"), root.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, root.path().join("data")).unwrap();
    assert_eq!(file(&catalog, "read", "/data/note.txt").await, Ok(json!("a note")));
    assert_eq!(file(&catalog, "write", "/data/new.txt").await, Ok(json!("")));
    assert!(root.path().join("moved/new.txt").exists());
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1);
}

#[tokio::test]
async fn a_component_whose_granted_path_has_a_link_is_not_loaded() {
    let root = tempfile::tempdir().unwrap();
    let real = root.path().canonicalize().unwrap().join("real");
    std::fs::create_dir_all(real.join("below")).unwrap();
    std::os::unix::fs::symlink(&real, root.path().join("link")).unwrap();
    let granted = root.path().join("link/below");
    let test_catalog = test_catalog(json!({"files": [{"host": granted, "guest": "/data"}]}));
    let reason = test_catalog.reason(&test_catalog.open().await.current(), "seeker.wasm");
    let expected = format!(
        "as /data: `{}` is a link, and links are not followed; grant its target `{}`; make the folder, or",
        real.parent().unwrap().join("link").display(),
        real.join("below").display()
    );
    assert!(reason.contains(&expected), "{reason}");
}

/// Two components with a folder each below `root`.
fn neighbours(root: &Path, writer: &str, reader: &str) -> TestCatalog {
    let test_catalog =
        test_catalog(json!({"files": [{"host": root.join(writer), "guest": "/data", "access": "write"}]}))
            .with_grants("reader", json!({"files": [{"host": root.join(reader), "guest": "/ref", "access": "read"}]}));
    std::fs::copy(component("misbehaver"), test_catalog.path("reader.wasm")).unwrap();
    test_catalog
}

#[tokio::test]
async fn a_grant_inside_of_another_components_writable_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("data/ref")).unwrap();
    let test_catalog = neighbours(root.path(), "data", "data/ref");
    let catalog = test_catalog.open().await.current();
    let (data, below) = (root.path().join("data"), root.path().join("data/ref"));
    let conflict = format!(
        "components.seeker.grants.files: `{}` (written) contains `{}`, which components.reader.grants.files reads; grant a folder \
         that is outside of it",
        data.display(),
        below.display()
    );
    for name in ["seeker", "reader"] {
        let reason = test_catalog.reason(&catalog, &format!("{name}.wasm"));
        assert_eq!(reason, format!("component `{name}` cannot be given its grants: {conflict}"));
    }
    let apart = neighbours(root.path(), "data", "data");
    apart.catalog().await;
}

#[tokio::test]
async fn a_link_that_a_component_left_behind_grants_nothing_to_another() {
    let root = tempfile::tempdir().unwrap();
    for folder in ["data", "other", "elsewhere"] {
        std::fs::create_dir(root.path().join(folder)).unwrap();
    }
    std::os::unix::fs::symlink("../elsewhere", root.path().join("data/ref")).unwrap();
    // While the folder is writable, the location of the link counts and not its target.
    let test_catalog = neighbours(root.path(), "data", "data/ref");
    let reason = test_catalog.reason(&test_catalog.open().await.current(), "reader.wasm");
    assert!(reason.contains("(written) contains"), "{reason}");
    // When that grant has been revoked, the link still exists.
    let test_catalog = neighbours(root.path(), "other", "data/ref");
    let reason = test_catalog.reason(&test_catalog.open().await.current(), "reader.wasm");
    assert!(reason.contains("links are not followed"), "{reason}");
}

#[tokio::test]
async fn nested_writable_folders_of_one_component_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let host = data(root.path());
    let below = root.path().join("data/below");
    let test_catalog = test_catalog(
        json!({"files": [{"host": host, "guest": "/data", "access": "write"}, {"host": below, "guest": "/below"}]}),
    );
    let reason = test_catalog.reason(&test_catalog.open().await.current(), "seeker.wasm");
    assert!(reason.contains("(written) contains"), "{reason}");
    assert!(reason.contains("which components.seeker.grants.files reads"), "{reason}");
}

#[tokio::test]
async fn files_that_a_component_writes_are_never_loaded() {
    let test_catalog = test_catalog(json!({}));
    test_catalog.write("kept/greeter/root_agent.yaml", "name: greeter\nmodel: m\ninstruction: Greet.\n");
    let handle = test_catalog.open().await;
    assert!(handle.current().app("greeter").is_some());
    let mut settings = test_catalog.options.settings.clone();
    let grants = json!({"files": [{"host": test_catalog.path("kept"), "guest": "/kept", "access": "write"}]});
    settings.components.insert("seeker".into(), settings_with_grants(grants));
    handle.configure(settings).await;
    let catalog = handle.reload_now().await;
    assert!(catalog.app("greeter").is_none());
    let agent = "/kept/greeter/root_agent.yaml";
    assert_eq!(file(&catalog, "write", agent).await, Ok(json!("")));
    assert!(handle.reload_now().await.app("greeter").is_none());
}
