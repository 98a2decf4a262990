//! The memory of users: filled when a session is closed, and managed by `hatchery memory`.

use anyhow::{Result, ensure};
use hatchery_tests::host::{USER, session_path};
use hatchery_tests::{Folder, Host, event};
use serde_json::{Value, json};

use crate::cli::{Output, hatchery};

const FILES: [(&str, &str); 3] = [
    ("desk/root_agent.yaml", "name: desk\nmodel: scripted:desk/answers.yaml\ninstruction: Note what is said.\n"),
    ("desk/answers.yaml", "turns:\n  - reply: \"Noted: {user}\"\n"),
    ("hatchery.yaml", "apps:\n  desk: { memory: { add: on_close } }\n"),
];

/// Returns a host with the app `desk`, which remembers sessions that are closed, and its folder.
async fn serve() -> Result<(Folder, Host)> {
    let folder = Folder::empty()?;
    for (name, text) in FILES {
        folder.write(name, text)?;
    }
    let config = folder.file("hatchery.yaml").display().to_string();
    let memory = format!("sqlite://{}", folder.data().join("memory.db").display());
    let host = Host::serve_with_args(&folder, &[], &["--config", &config, "--memory-service", &memory]).await?;
    Ok((folder, host))
}

async fn memory(folder: &Folder, args: &[&str]) -> Result<Output> {
    let data = folder.data();
    let place = ["--data-dir", data.to_str().unwrap_or_default()];
    hatchery(&folder.served(), &[&["memory"], args, &place[..]].concat()).await
}

async fn error_of(folder: &Folder, args: &[&str]) -> Result<String> {
    let output = memory(folder, args).await?;
    ensure!(!output.success && output.stdout.is_empty(), "{}", output.stdout);
    // There may be a warning about the rights of the temporary folder.
    Ok(output.stderr.trim().lines().last().unwrap_or_default().to_owned())
}

fn texts(found: &Value) -> Vec<String> {
    let entries = found.pointer("/memories").and_then(Value::as_array).into_iter().flatten();
    entries.map(|entry| event::text_at(entry, "/content/parts/0/text").to_owned()).collect()
}

#[tokio::test]
async fn a_session_is_remembered_when_its_client_closes_it() -> Result<()> {
    let (_folder, host) = serve().await?;
    host.ask("desk", "first", "The lamp is red").await?;
    let query = format!("/apps/desk/users/{USER}/memory?query=lamp");
    assert_eq!(host.get(&query).await?.json(200)?, json!({"memories": []}));
    let path = format!("{}/close", session_path("desk", "first"));
    for _ in 0..2 {
        ensure!(host.post(&path, &json!({})).await?.status == 204);
        let mut found = texts(&host.get(&query).await?.json(200)?);
        found.sort();
        assert_eq!(found, ["Noted: The lamp is red", "The lamp is red"]);
    }
    assert_eq!(event::texts(&host.run("desk", "first", "It is on").await?), ["Noted: It is on"], "it stays usable");
    let nowhere = format!("{}/close", session_path("desk", "nowhere"));
    host.post(&nowhere, &json!({})).await?.error(404, "SESSION_NOT_FOUND")?;
    let nobody = format!("{}/close", session_path("nobody", "first"));
    host.post(&nobody, &json!({})).await?.error(404, "APP_NOT_FOUND")?;
    Ok(())
}

#[tokio::test]
async fn memory_is_added_listed_searched_and_deleted_beside_a_running_server() -> Result<()> {
    let (folder, host) = serve().await?;
    host.ask("desk", "first", "The lamp is red").await?;
    host.ask("desk", "second", "The rug is blue").await?;
    let whose = ["--app", "desk", "--user", USER];
    let none = memory(&folder, &["list"]).await?;
    assert_eq!((none.success, &*none.stdout), (true, "the memory has no sessions\n"), "{}", none.stderr);

    for session in ["first", "second"] {
        let added = memory(&folder, &[&["add", "--session", session, "--json"], &whose[..]].concat()).await?;
        assert_eq!(added.json()?, json!({"sessionId": session, "entries": 2}));
    }
    let again = memory(&folder, &[&["add", "--session", "second"], &whose[..]].concat()).await?;
    assert_eq!(again.stdout, "added 2 entries of session second\n");
    let listed = memory(&folder, &["list", "--json"]).await?.json()?;
    let sessions = listed["sessions"].as_array().cloned().unwrap_or_default();
    let names: Vec<_> =
        sessions.iter().map(|it| (&it["appName"], &it["userId"], &it["sessionId"], &it["entries"])).collect();
    let (app, user, two) = (json!("desk"), json!(USER), json!(2));
    assert_eq!(names, [(&app, &user, &json!("second"), &two), (&app, &user, &json!("first"), &two)]);
    let lines = memory(&folder, &["list"]).await?.stdout;
    assert!(lines.starts_with(&format!("app desk  user {USER}  session second  2 entries  newest ")), "{lines}");
    let entries = memory(&folder, &[&["list", "--session", "first"], &whose[..]].concat()).await?.stdout;
    let messages: Vec<_> =
        entries.lines().filter_map(|line| line.split_once("GMT  ")).map(|(_, message)| message).collect();
    assert_eq!(messages, ["user: The lamp is red", "desk: Noted: The lamp is red"], "{entries}");

    let found = memory(&folder, &[&["search", "blue", "rug", "--json"], &whose[..]].concat()).await?.json()?;
    assert_eq!(texts(&found).len(), 2);
    let served = host.get(&format!("/apps/desk/users/{USER}/memory?query=blue%20rug")).await?.json(200)?;
    assert_eq!(found, served, "the command and the server agree");
    let nothing = memory(&folder, &[&["search", "curtain"], &whose[..]].concat()).await?.stdout;
    assert_eq!(nothing, "no entry has one of these words\n");

    let deleted = memory(&folder, &[&["delete", "--session", "first"], &whose[..]].concat()).await?.stdout;
    assert_eq!(deleted, "deleted 2 entries of 1 session\n");
    let gone = host.get(&format!("/apps/desk/users/{USER}/memory?query=lamp")).await?.json(200)?;
    assert!(texts(&gone).is_empty());
    host.session("desk", "first").await?;
    let rest = memory(&folder, &[&["delete", "--all", "--json"], &whose[..]].concat()).await?.json()?;
    assert_eq!(rest["deleted"][0]["sessionId"], "second");
    assert_eq!(memory(&folder, &["list", "--json"]).await?.json()?, json!({"sessions": []}));

    let log = std::fs::read_to_string(folder.data().join("audit/audit.log"))?;
    let lines = log.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let recorded: Vec<_> = lines.iter().filter(|line| line["kind"] == "deletion").collect();
    assert_eq!(recorded.len(), 2, "{log}");
    for (line, session) in recorded.into_iter().zip(["first", "second"]) {
        assert_eq!((&line["app"], &line["user"], &line["session"]), (&app, &user, &json!(session)));
        assert_eq!((&line["action"], &line["decision"]), (&json!("hatchery memory delete"), &json!("deleted")));
    }
    Ok(())
}

#[tokio::test]
async fn mistakes_are_explained() -> Result<()> {
    let (folder, host) = serve().await?;
    host.ask("desk", "first", "The lamp is red").await?;
    let whose = ["--app", "desk", "--user", USER];
    assert_eq!(
        error_of(&folder, &[&["add", "--session", "frist"], &whose[..]].concat()).await?,
        format!("error: no session `frist` of user `{USER}` in app `desk`; available: first")
    );
    assert_eq!(
        error_of(&folder, &[&["delete", "--session", "first"], &whose[..]].concat()).await?,
        format!("error: the memory has no session `first` of user `{USER}` in app `desk`")
    );
    assert_eq!(error_of(&folder, &["list", "--dir", "nowhere"]).await?, "error: nowhere is not a folder");
    let neither = memory(&folder, &[&["delete"], &whose[..]].concat()).await?.stderr;
    assert!(neither.contains("<--session <SESSION>|--all>"), "{neither}");
    Ok(())
}
