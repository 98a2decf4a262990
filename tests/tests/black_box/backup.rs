//! `hatchery backup`: copies of what a running host has stored.

use anyhow::{Result, ensure};
use hatchery_tests::event::text_at;
use hatchery_tests::host::{USER, session_path};
use hatchery_tests::{Folder, Host, event};
use serde_json::{Value, json};

use crate::cli::{Output, hatchery};

/// Returns a folder with the app `desk`, which remembers sessions that are closed.
fn desk() -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.write("desk/root_agent.yaml", "name: desk\nmodel: scripted:desk/answers.yaml\ninstruction: Note it.\n")?;
    folder.write("desk/answers.yaml", "turns:\n  - reply: \"Noted: {user}\"\n")?;
    folder.write("hatchery.yaml", "apps:\n  desk: { memory: { add: on_close } }\n")?;
    Ok(folder)
}

async fn serve(folder: &Folder) -> Result<Host> {
    let (config, data) = (folder.file("hatchery.yaml"), folder.data());
    let args = ["--config".as_ref(), config.as_os_str(), "--data-dir".as_ref(), data.as_os_str()];
    Host::serve_with_args(folder, &[], &args).await
}

async fn backup(folder: &Folder, args: &[&str]) -> Result<Output> {
    let data = folder.data();
    let place = ["--data-dir", data.to_str().unwrap_or_default()];
    hatchery(&folder.served(), &[&["backup"], args, &place[..]].concat()).await
}

fn outcomes(output: &Output) -> Result<Vec<(String, String)>> {
    let json = output.json()?;
    let items = json.get("items").and_then(Value::as_array).into_iter().flatten();
    Ok(items.map(|item| (text_at(item, "/name").to_owned(), text_at(item, "/outcome").to_owned())).collect())
}

#[tokio::test]
async fn a_backup_of_a_busy_host_is_a_data_folder() -> Result<()> {
    let folder = desk()?;
    let host = serve(&folder).await?;
    host.ask("desk", "first", "The lamp is red").await?;
    ensure!(host.post(&format!("{}/close", session_path("desk", "first")), &json!({})).await?.status == 204);
    let artifacts = format!("{}/artifacts", session_path("desk", "first"));
    host.post(&artifacts, &json!({"filename": "a/b.txt", "artifact": {"text": "kept"}})).await?.json(200)?;
    let metadata = format!("{artifacts}/a/b.txt/versions/0/metadata");
    let described = host.get(&metadata).await?.json(200)?;
    let stored = host.session("desk", "first").await?;

    // Other sessions are written meanwhile.
    let busy = async {
        for number in 0..40 {
            host.ask("desk", &format!("busy-{number}"), "Still here").await?;
        }
        anyhow::Ok(())
    };
    let copy = folder.file("copy");
    let copy_text = copy.display().to_string();
    let args = [copy_text.as_str(), "--json"];
    let (output, done) = tokio::join!(backup(&folder, &args), busy);
    let output = output?;
    done?;
    ensure!(output.success, "{}", output.stderr);
    let copied = |name: &str| (name.to_owned(), "copied".to_owned());
    assert_eq!(
        outcomes(&output)?,
        [
            copied("session_service"),
            copied("artifact_service"),
            copied("memory_service"),
            ("evaluations".into(), "empty".into()),
            copied("host key")
        ]
    );
    assert!(host.stop().await?);

    let restored = desk()?;
    std::fs::create_dir_all(restored.data())?;
    std::fs::remove_dir(restored.data())?;
    std::fs::rename(&copy, restored.data())?;
    let host = serve(&restored).await?;
    assert_eq!(host.session("desk", "first").await?, stored);
    assert_eq!(host.get(&format!("{artifacts}/a/b.txt")).await?.json(200)?["text"], "kept");
    assert_eq!(host.get(&metadata).await?.json(200)?, described, "with the time when it was saved");
    let found = host.get(&format!("/apps/desk/users/{USER}/memory?query=lamp")).await?.json(200)?;
    assert_eq!(found["memories"].as_array().map(Vec::len), Some(2), "{found}");
    assert_eq!(event::texts(&host.run("desk", "first", "It is on").await?), ["Noted: It is on"]);
    Ok(())
}

#[tokio::test]
async fn a_backup_into_a_folder_that_is_in_use_is_refused() -> Result<()> {
    let folder = desk()?;
    let used = folder.served().display().to_string();
    let refused = backup(&folder, &[&used]).await?;
    ensure!(!refused.success, "{}", refused.stdout);
    let message = format!("{used} exists and is not empty; name a new folder");
    assert!(refused.stderr.contains(&message), "{}", refused.stderr);
    Ok(())
}

#[tokio::test]
async fn what_is_not_on_this_disk_is_named() -> Result<()> {
    let folder = desk()?;
    let config = "session_service: \"memory:\"\nartifact_service: \"memory:\"\nmemory_service: \"memory:\"\n";
    folder.write("hatchery.yaml", config)?;
    let copy = folder.file("copy").display().to_string();
    let output = backup(&folder, &[&copy]).await?;
    ensure!(output.success, "{}", output.stderr);
    let lines: Vec<_> = output.stdout.lines().collect();
    assert_eq!(lines[0], "session_service   not on this machine's disk; use the tools of that service  memory:");
    assert!(lines[4].starts_with("host key          nothing stored yet"), "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn a_data_folder_that_does_not_exist_is_refused() -> Result<()> {
    let folder = desk()?;
    let whose = ["--app", "desk", "--user", USER];
    let sessions = [&["sessions", "list"], &whose[..]].concat();
    for command in [vec!["backup", "copy"], sessions, vec!["memory", "list"]] {
        let output = hatchery(&folder.served(), &[&command[..], &["--data-dir", "mistyped"]].concat()).await?;
        let expected =
            "error: --data-dir mistyped is not a folder; name the data folder of the server, or create it first\n";
        assert_eq!((output.success, output.stderr.as_str()), (false, expected), "{command:?}: {}", output.stdout);
    }
    ensure!(!folder.file("mistyped").exists() && !folder.file("copy").exists());
    Ok(())
}
