//! `hatchery sessions`: stored sessions on the command line.

use anyhow::{Result, ensure};
use hatchery_tests::host::{USER, session_path};
use hatchery_tests::{Folder, Host};
use serde_json::json;

use crate::cli::{Output, hatchery};

/// Returns a host with the app `desk`, and its folder.
async fn serve() -> Result<(Folder, Host)> {
    let folder = Folder::empty()?;
    folder.write(
        "desk/root_agent.yaml",
        "name: desk\nmodel: scripted:desk/answers.yaml\ninstruction: Note what is said.\n",
    )?;
    folder.write("desk/answers.yaml", "turns:\n  - reply: \"Noted: {user}\"\n")?;
    let host = Host::serve(&folder).await?;
    Ok((folder, host))
}

async fn sessions(folder: &Folder, args: &[&str]) -> Result<Output> {
    let data = folder.data();
    let place = ["--app", "desk", "--user", USER, "--data-dir", data.to_str().unwrap_or_default()];
    hatchery(&folder.served(), &[&["sessions"], args, &place[..]].concat()).await
}

#[tokio::test]
async fn sessions_are_listed_shown_exported_and_deleted_beside_a_running_server() -> Result<()> {
    let (folder, host) = serve().await?;
    let none = sessions(&folder, &["list"]).await?;
    assert_eq!(
        (none.success, none.stdout),
        (true, format!("user {USER} has no sessions in app desk\n")),
        "{}",
        none.stderr
    );
    host.ask("desk", "first", "The lamp is red").await?;
    host.ask("desk", "second", "The rug is blue").await?;
    let artifacts = format!("{}/artifacts", session_path("desk", "first"));
    for name in ["note", "user:kept"] {
        let body = json!({ "filename": name, "artifact": { "text": "x" } });
        ensure!(host.post(&artifacts, &body).await?.status == 200);
    }

    let listed = sessions(&folder, &["list"]).await?.stdout;
    let ids: Vec<_> = listed.lines().filter_map(|line| line.split_once("  updated ")).map(|(id, _)| id).collect();
    assert_eq!(ids, ["second", "first"], "{listed}");
    let json = sessions(&folder, &["list", "--json"]).await?.json()?;
    assert_eq!((&json["sessions"][1]["id"], &json["sessions"][1]["events"]), (&json!("first"), &json!([])));

    let shown = sessions(&folder, &["show", "first"]).await?.stdout;
    let said: Vec<_> = shown.lines().filter_map(|line| line.split_once("GMT  ")).map(|(_, said)| said).collect();
    assert_eq!(said, ["user: The lamp is red", "desk: Noted: The lamp is red"], "{shown}");
    let served = host.session("desk", "first").await?;
    assert_eq!(sessions(&folder, &["export", "first"]).await?.json()?, served, "the command and the server agree");
    assert_eq!(sessions(&folder, &["show", "first", "--json"]).await?.json()?, served);

    let deleted = sessions(&folder, &["delete", "first"]).await?;
    assert_eq!(deleted.stdout, "deleted session first with 1 artifact\n", "{}", deleted.stderr);
    host.get(&session_path("desk", "first")).await?.error(404, "SESSION_NOT_FOUND")?;
    let kept = host.get(&format!("{}/artifacts", session_path("desk", "second"))).await?.json(200)?;
    assert_eq!(kept, json!(["user:kept"]));
    for action in ["show", "export", "delete"] {
        let output = sessions(&folder, &[action, "first"]).await?;
        ensure!(!output.success && output.stdout.is_empty(), "{}", output.stdout);
        let error = output.stderr.trim().lines().last().unwrap_or_default().to_owned();
        assert_eq!(error, format!("error: no session `first` of user `{USER}` in app `desk`; available: second"));
    }
    Ok(())
}
