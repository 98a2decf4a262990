//! Attacks on granted folders and environment variables.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::Result;
use hatchery_tests::paths::component;
use hatchery_tests::{Folder, Host, Stage};
use serde_json::{Value, json};

/// Creates a folder with `data/ref/note.txt`, and a file outside of the served folder.
fn folder(settings: &str) -> Result<Folder> {
    let folder = Stage::folder(settings)?;
    folder.write("data/ref/note.txt", "inside")?;
    fs::write(folder.data().join("outside.txt"), "outside")?;
    Ok(folder)
}

fn file(action: &str, folder: &str, path: &str, to: &str) -> Value {
    json!({ "action": action, "folder": folder, "path": path, "to": to })
}

#[tokio::test]
async fn a_folder_below_a_written_one_is_not_granted_to_the_same_component() -> Result<()> {
    let folder = folder(
        "components: {hostile: {grants: {files: [\
         {host: data, guest: /data, access: write}, {host: data/ref, guest: /ref, access: read}]}}}\n",
    )?;
    check_nested_grant_is_rejected(&folder).await
}

#[tokio::test]
async fn a_folder_below_a_written_one_is_not_granted_to_another_component() -> Result<()> {
    let folder = folder(
        "components:\n  hostile: {grants: {files: [{host: data, guest: /data, access: write}]}}\n  \
         vault: {grants: {files: [{host: data/ref, guest: /vault, access: read}]}}\n",
    )?;
    folder.put("vault.wasm", component("vault")?)?;
    check_nested_grant_is_rejected(&folder).await
}

#[tokio::test]
async fn a_link_to_a_folder_below_a_written_one_is_detected() -> Result<()> {
    let folder = folder(
        "components:\n  hostile: {grants: {files: [{host: data, guest: /data, access: write}]}}\n  \
         vault: {grants: {files: [{host: alias, guest: /vault, access: read}]}}\n",
    )?;
    symlink(folder.file("data/ref"), folder.file("alias"))?;
    folder.put("vault.wasm", component("vault")?)?;
    check_nested_grant_is_rejected(&folder).await
}

/// Checks that the host does not start, or rejects a component.
async fn check_nested_grant_is_rejected(folder: &Folder) -> Result<()> {
    match Host::serve(folder).await {
        // The settings as a whole are refused.
        Err(error) => {
            let error = format!("{error:#}");
            assert!(error.contains("data") && error.contains("write"), "{error}");
        }
        Ok(host) => {
            let is_refused = |components: &Value| {
                let mut files = components["files"].as_array().into_iter().flatten();
                files.any(|file| file["reason"].as_str().is_some_and(|reason| reason.contains("data")))
            };
            host.wait_until("a component with nested grants is refused", is_refused).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_granted_folder_that_is_replaced_by_a_link_is_still_the_one_that_was_granted() -> Result<()> {
    let folder = folder("components: {hostile: {grants: {files: [{host: data/ref, guest: /ref, access: read}]}}}\n")?;
    let stage = Stage::serve(folder).await?;
    let read = async |path: &str| stage.attack("file", file("read", "/ref", path, "")).await;
    assert_eq!(read("note.txt").await?, json!({ "text": "inside" }));
    fs::rename(stage.folder.file("data/ref"), stage.folder.file("data/old"))?;
    symlink(stage.folder.data(), stage.folder.file("data/ref"))?;
    let outside = read("outside.txt").await?;
    assert!(outside.get("text").is_none(), "a link was followed: {outside}");
    Ok(())
}

#[tokio::test]
async fn paths_and_links_cannot_leave_a_granted_folder() -> Result<()> {
    let folder = folder(
        "components: {hostile: {grants: {files: [\
         {host: data, guest: /data, access: write}, {host: reference, guest: /reference, access: read}]}}}\n",
    )?;
    folder.write("reference/note.txt", "inside")?;
    let stage = Stage::serve(folder).await?;
    let act = async |action: &str, folder: &str, path: &str, to: &str| {
        stage.attack("file", file(action, folder, path, to)).await
    };
    stage
        .withstand(async {
            assert_eq!(stage.attack("climb", json!({})).await?, json!({ "result": [] }));
            let up = "../".repeat(12);
            let targets = [
                ("up", format!("{up}etc/hostname")),
                ("root", "/etc/hostname".into()),
                ("all", up),
                ("beside", "../../data/outside.txt".into()),
            ];
            for (name, target) in targets {
                // Whether the link can be made is not the question: nothing may be found behind it.
                act("symlink", "/data", name, &target).await?;
                for action in ["read", "list"] {
                    let answer = act(action, "/data", name, "").await?;
                    assert!(answer.get("refused").is_some(), "{action} {name}: {answer}");
                }
                // Where no link could be made, this makes a file.
                act("write", "/data", name, "").await?;
            }
            let hostname = act("read", "/data", "all/etc/hostname", "").await?;
            assert!(hostname.get("refused").is_some(), "{hostname}");
            for (action, path, to) in [
                ("hardlink", "../../data/outside.txt", "stolen.txt"),
                ("rename", "ref", "../../data/moved"),
                ("rename", "../../data/outside.txt", "stolen.txt"),
            ] {
                let answer = act(action, "/data", path, to).await?;
                assert!(answer.get("refused").is_some(), "{action} {path}: {answer}");
            }
            for (action, path) in
                [("write", "note.txt"), ("write", "new.txt"), ("symlink", "link"), ("rename", "note.txt")]
            {
                let answer = act(action, "/reference", path, "other.txt").await?;
                assert!(answer.get("refused").is_some(), "{action} {path} in a folder to read: {answer}");
            }
            Ok(())
        })
        .await?;
    assert_eq!(fs::read_to_string(stage.folder.file("reference/note.txt"))?, "inside");
    assert_eq!(fs::read_to_string(stage.folder.data().join("outside.txt"))?, "outside");
    Ok(())
}

#[tokio::test]
async fn without_a_grant_there_are_neither_folders_nor_variables() -> Result<()> {
    let stage = Stage::new("").await?;
    let found = stage.attack("surroundings", json!({})).await?;
    assert_eq!((&found["folders"], &found["variables"]), (&json!([]), &json!([])), "{found}");
    assert!(!found["arguments"].to_string().contains('/'), "{found}");
    assert_eq!(stage.attack("climb", json!({})).await?, json!({ "result": [] }));
    Ok(())
}
