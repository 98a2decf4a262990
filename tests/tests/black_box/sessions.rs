//! `hatchery sessions`: stored sessions on the command line.

use std::path::Path;

use anyhow::{Result, ensure};
use hatchery_tests::host::{USER, session_path};
use hatchery_tests::{Folder, Host, paths};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::{Output, hatchery};

/// Returns a host with the app `desk`, and its folder.
async fn serve() -> Result<(Folder, Host)> {
    let folder = desk()?;
    let host = Host::serve(&folder).await?;
    Ok((folder, host))
}

fn desk() -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.write(
        "desk/root_agent.yaml",
        "name: desk\nmodel: scripted:desk/answers.yaml\ninstruction: Note what is said.\n",
    )?;
    folder.write("desk/answers.yaml", "turns:\n  - reply: \"Noted: {user}\"\n")?;
    Ok(folder)
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
    let messages: Vec<_> =
        shown.lines().filter_map(|line| line.split_once("GMT  ")).map(|(_, message)| message).collect();
    assert_eq!(messages, ["user: The lamp is red", "desk: Noted: The lamp is red"], "{shown}");
    let revisions: Vec<_> =
        shown.lines().filter_map(|line| line.split_once("  ")).map(|(revision, _)| revision).collect();
    assert_eq!(revisions, ["first", "1", "2"], "{shown}");
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

#[tokio::test]
async fn sessions_are_forked_rewound_and_imported_beside_a_running_server() -> Result<()> {
    let (folder, host) = serve().await?;
    host.ask("desk", "first", "The lamp is red").await?;
    host.run("desk", "first", "The rug is blue").await?;
    let events = host.session("desk", "first").await?["events"].as_array().cloned().unwrap_or_default();
    ensure!(events.len() == 4, "{events:?}");
    let id = events[1]["id"].as_str().unwrap_or_default();

    let forked = sessions(&folder, &["fork", "first", "--event", id, "--as", "second"]).await?;
    assert_eq!(forked.stdout, "created session second with 2 events\n", "{}", forked.stderr);
    ensure!(host.session("desk", "second").await?["events"] == json!(events[..2]));
    let exported = sessions(&folder, &["export", "first"]).await?.stdout;
    folder.write("first.json", exported)?;

    let rewound = sessions(&folder, &["rewind", "first", "--revision", "1"]).await?;
    assert_eq!(rewound.stdout, "session first has 1 event now\n", "{}", rewound.stderr);
    ensure!(host.session("desk", "first").await?["events"] == json!(events[..1]));
    host.run("desk", "first", "The cup is green").await?;
    ensure!(host.session("desk", "first").await?["events"].as_array().map(Vec::len) == Some(3));

    let taken = sessions(&folder, &["import", "first.json"]).await?;
    ensure!(!taken.success && taken.stderr.contains("name another id with --session"), "{}", taken.stderr);
    let imported = sessions(&folder, &["import", "first.json", "--session", "third"]).await?;
    let line = format!("imported session third of user {USER} in app desk with 4 events\n");
    assert_eq!(imported.stdout, line, "{}", imported.stderr);
    let third = host.session("desk", "third").await?;
    ensure!(third["events"].as_array().map(Vec::len) == Some(4), "{third}");
    for args in [&["rewind", "first"][..], &["rewind", "none", "--revision", "0"], &["import", "desk/answers.yaml"]] {
        ensure!(!sessions(&folder, args).await?.success, "{args:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_host_that_stops_moves_the_write_ahead_logs_into_the_databases() -> Result<()> {
    let folder = desk()?;
    let data = folder.data();
    let host = Host::serve_with_args(&folder, &[], &["--data-dir".as_ref(), data.as_os_str()]).await?;
    host.ask("desk", "first", "The lamp is red").await?;
    let memory = host.request(Method::PATCH, &format!("/apps/desk/users/{USER}/memory"));
    ensure!(host.send(memory.json(&json!({"sessionId": "first"}))).await?.status == 204);
    let log = |name: &str| data.join(format!("{name}-wal"));
    for name in ["sessions.db", "memory.db"] {
        ensure!(log(name).metadata()?.len() > 0, "{name}");
    }
    ensure!(host.stop().await?);
    for name in ["sessions.db", "memory.db"] {
        ensure!(!log(name).exists(), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn commands_on_stored_data_create_nothing_in_a_folder_that_has_none() -> Result<()> {
    let folder = Folder::empty()?;
    let whose = ["--app", "desk", "--user", USER];
    let expected = format!(
        "error: nothing is stored for {} yet; name the served folder with --dir, or the data folder of its server with \
         --data-dir\n",
        folder.served().canonicalize()?.display()
    );
    for command in [
        &["sessions", "list"][..],
        &["sessions", "show", "first"],
        &["sessions", "export", "first"],
        &["sessions", "delete", "first"],
        &["memory", "search", "lamp"],
        &["memory", "list"],
        &["memory", "delete", "--all"],
    ] {
        let output = hatchery(&folder.served(), &[command, &whose[..]].concat()).await?;
        assert_eq!((output.success, &*output.stdout, &*output.stderr), (false, "", &*expected), "{command:?}");
    }
    assert_eq!(std::fs::read_dir(folder.served())?.count(), 0);
    Ok(())
}

/// Returns the deletions of an audit log, with the field that identifies the caller.
fn deletions(log: &Path) -> Result<Vec<Value>> {
    audited(log, "deletion")
}

/// Returns the lines of a kind in an audit log, without their time.
fn audited(log: &Path, kind: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(log)?;
    let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let of_kind = lines.into_iter().filter(|line| line["kind"] == kind);
    let without_time = of_kind.map(|mut line| {
        line.as_object_mut().map(|line| line.remove("time"));
        line
    });
    Ok(without_time.collect())
}

#[tokio::test]
async fn a_deletion_by_the_command_is_in_the_audit_log_beside_deletions_by_the_server() -> Result<()> {
    let folder = desk()?;
    let data = folder.data();
    let host = Host::serve_with_args(&folder, &[], &["--data-dir".as_ref(), data.as_os_str()]).await?;
    for id in ["first", "second", "third"] {
        host.ask("desk", id, "The lamp is red").await?;
    }
    ensure!(host.delete(&session_path("desk", "first")).await?.status == 204);
    ensure!(sessions(&folder, &["delete", "second"]).await?.success);
    ensure!(!sessions(&folder, &["delete", "nowhere"]).await?.success);
    ensure!(host.delete(&session_path("desk", "third")).await?.status == 204);
    let deleted = |id: &str| json!({"level": "INFO", "kind": "deletion", "app": "desk", "user": USER, "session": id, "decision": "deleted"});
    let mut by_command = deleted("second");
    by_command["action"] = json!("hatchery sessions delete");
    let log = folder.data().join("audit/audit.log");
    assert_eq!(deletions(&log)?, [deleted("first"), by_command, deleted("third")]);

    host.ask("desk", "long", "The lamp is red").await?;
    host.post(&format!("{}/rewind", session_path("desk", "long")), &json!({"revision": 1})).await?.json(200)?;
    ensure!(sessions(&folder, &["rewind", "long", "--revision", "0"]).await?.success);
    let rewound: Vec<_> = deletions(&log)?.into_iter().skip(3).map(|line| line["action"].clone()).collect();
    assert_eq!(rewound, ["rewind to revision 1", "hatchery sessions rewind to revision 0"]);

    // Nothing is deleted that cannot be recorded.
    host.ask("desk", "fourth", "The rug is blue").await?;
    folder.write("hatchery.yaml", "audit: { file: desk }\n")?;
    let refused = sessions(&folder, &["delete", "fourth"]).await?;
    ensure!(!refused.success && refused.stderr.contains("cannot open the audit log"), "{}", refused.stderr);
    folder.write("hatchery.yaml", "audit: { enabled: false }\n")?;
    host.session("desk", "fourth").await?;
    // Only the operator switches the log off.
    let untrusted = sessions(&folder, &["delete", "fourth"]).await?;
    ensure!(!untrusted.success && untrusted.stderr.contains("trust"), "{}", untrusted.stderr);
    let config = folder.file("hatchery.yaml").display().to_string();
    let deleted = sessions(&folder, &["delete", "fourth", "--config", &config]).await?;
    ensure!(deleted.success, "{}", deleted.stderr);
    assert_eq!(deletions(&log)?.len(), 5, "the log is switched off");
    Ok(())
}

#[tokio::test]
async fn an_import_by_the_command_is_in_the_audit_log_beside_imports_by_clients() -> Result<()> {
    let folder = desk()?;
    folder.write_operator_config("server: { allow_import: true }\n")?;
    let (data, config) = (folder.data(), folder.operator_config());
    let args = ["--config".as_ref(), config.as_os_str(), "--data-dir".as_ref(), data.as_os_str()];
    let host = Host::serve_with_args(&folder, &[], &args).await?;
    host.ask("desk", "first", "The lamp is red").await?;
    let export = sessions(&folder, &["export", "first"]).await?;
    folder.write("first.json", &export.stdout)?;
    for (id, more) in [("second", &[][..]), ("third", &["--shared-state"])] {
        let args = [&["import", "first.json", "--session", id], more].concat();
        let imported = sessions(&folder, &args).await?;
        ensure!(imported.success, "{}", imported.stderr);
    }
    ensure!(!sessions(&folder, &["import", "first.json"]).await?.success, "there is a session of its id");
    let import = format!("{}/import", session_path("desk", "fourth"));
    host.post(&import, &export.json()?).await?.json(200)?;
    let log = folder.data().join("audit/audit.log");
    let line = |id: &str, detail: &str| {
        json!({"level": "INFO", "kind": "import", "app": "desk", "user": USER, "session": id, "decision": "allowed",
            "detail": detail, "action": "hatchery sessions import"})
    };
    let mut by_client = line("fourth", "2 events");
    by_client.as_object_mut().map(|line| line.remove("action"));
    let lines = [line("second", "2 events"), line("third", "2 events, with shared state"), by_client];
    assert_eq!(audited(&log, "import")?, lines);

    // Nothing is imported that cannot be recorded.
    folder.write("hatchery.yaml", "audit: { file: desk }\n")?;
    let refused = sessions(&folder, &["import", "first.json", "--session", "fifth"]).await?;
    ensure!(!refused.success && refused.stderr.contains("cannot open the audit log"), "{}", refused.stderr);
    host.get(&session_path("desk", "fifth")).await?.error(404, "SESSION_NOT_FOUND")?;
    Ok(())
}

#[tokio::test]
async fn a_deletion_by_a_component_deletes_the_artifacts_unless_they_are_kept() -> Result<()> {
    for (retention, left) in
        [("", json!(["user:kept"])), ("retention: { keep_artifacts: true }\n", json!(["note", "user:kept"]))]
    {
        let folder = desk()?;
        folder.put("services.wasm", paths::component("services")?)?;
        let order = "{ what: delete, app: desk, id: first }";
        folder.write(
            "services.yaml",
            format!("turns:\n  - when: {{ tool: sessions }}\n    reply: Done.\n  - reply: [{{ call: {{ name: sessions, args: {order} }} }}]\n"),
        )?;
        let grants = "components: { services: { grants: { sessions: { write: [desk] } } } }\n";
        folder.write("hatchery.yaml", format!("{grants}{retention}"))?;
        let host = Host::serve(&folder).await?;
        host.ask("desk", "first", "The lamp is red").await?;
        for name in ["note", "user:kept"] {
            let body = json!({ "filename": name, "artifact": { "text": "x" } });
            ensure!(host.post(&format!("{}/artifacts", session_path("desk", "first")), &body).await?.status == 200);
        }
        host.ask("office", "s", "Delete it.").await?;
        host.get(&session_path("desk", "first")).await?.error(404, "SESSION_NOT_FOUND")?;
        // A new session with the id sees what was left.
        host.create_session("desk", "first").await?;
        let found = host.get(&format!("{}/artifacts", session_path("desk", "first"))).await?.json(200)?;
        assert_eq!(found, left, "{retention}");
        ensure!(host.stop().await?);
    }
    Ok(())
}

#[tokio::test]
async fn the_call_of_a_single_tool_leaves_no_artifact() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("services.wasm", paths::component("services")?)?;
    let grants = "components: { services: { grants: { artifacts: write } } }\n";
    folder.write_operator_config(&format!("{grants}server: {{ dev_ui: full }}\n"))?;
    let host = Host::serve(&folder).await?;
    let call = host.request(Method::POST, "/components/services/tools/shred/call");
    let called = host.send(call).await?.json(200)?;
    ensure!(called["result"].is_null() && called["error"].is_null(), "{called}");
    ensure!(host.stop().await?);
    let mut folders = vec![folder.data().join("artifacts")];
    while let Some(path) = folders.pop() {
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(entry.file_name(), ".layout", "{}", path.display());
            }
        }
    }
    Ok(())
}
