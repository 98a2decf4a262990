//! `hatchery grant`: the grants that a component requests, added to `hatchery.yaml`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::TIMEOUT;
use hatchery_tests::{Folder, paths};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cli::hatchery;

#[tokio::test]
async fn grants_are_shown_and_added_to_the_file_with_its_comments() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("seeker.wasm", paths::component("seeker")?)?;
    let file = "# mine\nserver: {}   # nothing yet\n";
    folder.put("hatchery.yaml", file)?;
    fs::set_permissions(folder.file("hatchery.yaml"), Permissions::from_mode(0o600))?;
    let request = hatchery(&folder.served(), &["grant", "seeker"]).await?;
    assert!(!request.success && request.stderr.contains("pass --yes to add these lines"), "{}", request.stderr);
    let lines = "components:\n  seeker:\n    grants:\n      models: [\"seek-*\"]\n      memory: read\n";
    assert!(
        request.stdout.starts_with(lines) && request.stdout.contains("# models: it asks around"),
        "{}",
        request.stdout
    );
    assert_eq!(fs::read_to_string(folder.file("hatchery.yaml"))?, file);
    let granted = hatchery(&folder.served(), &["grant", "seeker", "--yes"]).await?;
    ensure!(granted.success, "{}", granted.stderr);
    assert!(
        granted.stderr.contains("not added: `files`, since only you know which FOLDER to give"),
        "{}",
        granted.stderr
    );
    let text = fs::read_to_string(folder.file("hatchery.yaml"))?;
    assert_eq!(text, format!("{file}{lines}      state: {{read: [\"app:theme\"]}}\n"));
    let mode = fs::metadata(folder.file("hatchery.yaml"))?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "what only its owner could read stays so");
    // A folder of the host is the operator's choice.
    let rest = hatchery(&folder.served(), &["grant", "seeker", "--yes"]).await?;
    assert!(!rest.success && !rest.stdout.contains("models") && rest.stdout.contains("files: ["), "{}", rest.stdout);
    fs::create_dir(folder.file("data"))?;
    folder.put("hatchery.yaml", format!("{text}      files: [{{host: data, guest: /data, access: read}}]\n"))?;
    let all = hatchery(&folder.served(), &["grant", "seeker"]).await?;
    assert!(all.success && all.stdout.contains("has all grants that it requests"), "{}{}", all.stdout, all.stderr);
    let unknown = hatchery(&folder.served(), &["grant", "nobody"]).await?;
    assert!(unknown.stderr.contains("no component `nobody` in .; available: seeker"), "{}", unknown.stderr);
    Ok(())
}

#[tokio::test]
async fn a_change_of_the_file_by_another_command_is_kept() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("seeker.wasm", paths::component("seeker")?)?;
    let other = File::open(folder.served())?;
    other.lock()?;
    let mut command = paths::command()?;
    command.args(["grant", "seeker", "--yes"]).current_dir(folder.served()).stdout(Stdio::piped());
    let mut grant = command.stderr(Stdio::null()).spawn()?;
    let mut lines = BufReader::new(grant.stdout.take().context("stdout")?).lines();
    // It has printed what it is about to add.
    tokio::time::timeout(TIMEOUT, lines.next_line()).await??.context("a line")?;
    folder.put("hatchery.yaml", "# by another command\n")?;
    other.unlock()?;
    while tokio::time::timeout(TIMEOUT, lines.next_line()).await??.is_some() {}
    ensure!(tokio::time::timeout(TIMEOUT, grant.wait()).await??.success());
    let text = fs::read_to_string(folder.file("hatchery.yaml"))?;
    ensure!(text.starts_with("# by another command\ncomponents:\n  seeker:\n"), "{text}");
    Ok(())
}
