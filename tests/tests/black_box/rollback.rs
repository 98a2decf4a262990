//! `hatchery rollback`: restores an earlier revision.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::TIMEOUT;
use hatchery_tests::paths::Swap::{Newer, Older};
use hatchery_tests::paths::{Swap, swap};
use hatchery_tests::{Folder, Host, event};
use serde_json::Value;

use crate::cli::{Output, hatchery};

async fn rollback(folder: &Folder, args: &[&str]) -> Result<Output> {
    hatchery(&folder.served(), &[&["rollback"], args].concat()).await
}

/// Returns the error output.
async fn rollback_error(folder: &Folder, args: &[&str]) -> Result<String> {
    let output = rollback(folder, args).await?;
    ensure!(!output.success && output.stdout.is_empty(), "{}", output.stdout);
    Ok(output.stderr.replace(&folder.served().display().to_string(), "DIR").trim().to_owned())
}

/// Deploys a version and waits until it serves.
async fn deploy(host: &Host, folder: &Folder, version: Swap) -> Result<()> {
    folder.put("deep/swap.wasm", swap(version)?)?;
    wait_until_serving(host, version).await
}

/// Waits until a version serves.
async fn wait_until_serving(host: &Host, version: Swap) -> Result<()> {
    static SESSIONS: AtomicUsize = AtomicUsize::new(0);
    let answers = async || {
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed).to_string();
        anyhow::Ok(event::texts(&host.ask("swap", &session, "Who?").await?))
    };
    let look = async {
        while answers().await? != version.texts() {}
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, look).await.with_context(|| format!("{version:?} does not come: {}", host.log()))?
}

fn hash(bytes: &[u8], listed: &Value) -> Result<String> {
    let revisions = listed.get("revisions").and_then(Value::as_array).context("revisions")?;
    let found = revisions.iter().find(|it| it.get("size").and_then(Value::as_u64) == Some(bytes.len() as u64));
    Ok(event::text_at(found.context("a revision")?, "/sha256").to_owned())
}

#[tokio::test]
async fn a_rollback_restores_the_previous_version() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("deep/swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    wait_until_serving(&host, Older).await?;
    deploy(&host, &folder, Newer).await?;

    let list = rollback(&folder, &["swap", "--list", "--json"]).await?.json()?;
    let in_place: Vec<_> =
        list["revisions"].as_array().context("revisions")?.iter().map(|it| &it["isCurrent"]).collect();
    assert_eq!(in_place, [true, false], "{list}");
    let text = rollback(&folder, &["swap", "--list"]).await?.stdout;
    let newer = event::text_at(&list, "/revisions/0/sha256").to_owned();
    let older = event::text_at(&list, "/revisions/1/sha256").to_owned();
    let mut lines = text.lines();
    let first = lines.next().context("a line")?;
    assert!(first.starts_with(&newer[..12]) && first.contains("served since ") && first.ends_with("current"), "{text}");
    assert!(lines.next().context("a second line")?.starts_with(&older[..12]), "{text}");

    let done = rollback(&folder, &["swap"]).await?;
    ensure!(done.success, "{}", done.stderr);
    let file = folder.file("deep/swap.wasm");
    assert_eq!(
        done.stdout.trim(),
        format!(
            "restored ./deep/swap.wasm ({}); it replaces {}. A server that watches the folder reloads it",
            &older[..12],
            &newer[..12]
        )
    );
    assert_eq!(std::fs::read(&file)?, swap(Older)?);
    wait_until_serving(&host, Older).await?;

    let done = rollback(&folder, &["swap", "--to", &newer[..8], "--json"]).await?.json()?;
    assert_eq!((event::text_at(&done, "/sha256"), event::text_at(&done, "/previousSha256")), (&*newer, &*older));
    wait_until_serving(&host, Newer).await?;
    host.wait_for_log("replaced").await
}

#[tokio::test]
async fn a_client_restores_an_earlier_version_over_http() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("deep/swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    wait_until_serving(&host, Older).await?;
    deploy(&host, &folder, Newer).await?;
    let detail = host.get("/components/swap").await?.json(200)?;
    let older = event::text_at(&detail, "/revisions/1/sha256").to_owned();
    assert_eq!(event::text_at(&detail, "/revisions/0/sha256"), event::text_at(&detail, "/sha256"));
    assert_eq!(detail["grants"]["missing"], serde_json::json!({}), "{detail}");
    assert_eq!(detail["size"], swap(Newer)?.len(), "{detail}");

    let unknown = host.post("/components/swap/rollback", &serde_json::json!({"to": "c0ffee"})).await?;
    let problem = unknown.error(404, "REVISION_NOT_FOUND")?;
    assert_eq!(problem, "no revision `c0ffee` of `swap` is stored; GET /components/swap lists the revisions");
    let restored = host.post("/components/swap/rollback", &serde_json::json!({"to": older})).await?;
    assert_eq!(restored.status, 202);
    wait_until_serving(&host, Older).await?;
    assert_eq!(std::fs::read(folder.file("deep/swap.wasm"))?, swap(Older)?);
    Ok(())
}

#[tokio::test]
async fn a_broken_or_missing_file_is_replaced_by_the_last_good_revision() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&folder).await?;
    folder.put("swap.wasm", "no component")?;
    host.wait_for_refusal("swap.wasm").await?;
    ensure!(rollback(&folder, &["swap"]).await?.success);
    assert_eq!(std::fs::read(folder.file("swap.wasm"))?, swap(Older)?);
    folder.remove("swap.wasm")?;
    let done = hatchery(folder.data().as_path(), &["rollback", "swap", "--dir", "../served"]).await?;
    ensure!(done.success, "{}", done.stderr);
    assert_eq!(std::fs::read(folder.file("swap.wasm"))?, swap(Older)?);
    Ok(())
}

#[tokio::test]
async fn a_revision_that_cannot_be_restored_is_an_error() -> Result<()> {
    let folder = Folder::empty()?;
    assert_eq!(
        rollback_error(&folder, &["swap"]).await?,
        "error: no stored revision of `swap` in ./.hatchery/revisions; available: none. `hatchery serve` stores each revision \
         that it serves"
    );
    folder.put("swap.wasm", swap(Older)?)?;
    drop(Host::serve(&folder).await?);
    let list = rollback(&folder, &["swap", "--list", "--json"]).await?.json()?;
    let older = hash(&swap(Older)?, &list)?;
    assert_eq!(
        rollback_error(&folder, &["swpa"]).await?,
        "error: no stored revision of `swpa` in ./.hatchery/revisions; available: swap. `hatchery serve` stores each revision \
         that it serves"
    );
    assert_eq!(
        rollback_error(&folder, &["../swap"]).await?,
        "error: no stored revision of `../swap` in ./.hatchery/revisions; available: swap. `hatchery serve` stores each revision \
         that it serves"
    );
    assert_eq!(
        rollback_error(&folder, &["swap"]).await?,
        format!("error: `swap` has no stored revision before the current one, {}", &older[..12])
    );
    assert_eq!(
        rollback_error(&folder, &["swap", "--to", "xyz"]).await?,
        "error: no stored revision of `swap` starts with `xyz`; see `hatchery rollback swap --list`"
    );
    assert_eq!(
        rollback_error(&folder, &["swap", "--to", "xyz", "--dir", "../served", "--data-dir", ".hatchery"]).await?,
        "error: no stored revision of `swap` starts with `xyz`; see `hatchery rollback swap --list --dir ../served --data-dir \
         .hatchery`"
    );
    assert_eq!(
        rollback_error(&folder, &["swap", "--to", &older]).await?,
        format!("error: `swap` is already at revision {}", &older[..12])
    );
    assert_eq!(rollback_error(&folder, &["swap", "--dir", "missing"]).await?, "error: missing is not a folder");
    folder.put("other/swap.wasm", swap(Newer)?)?;
    assert_eq!(
        rollback_error(&folder, &["swap"]).await?,
        "error: `./other/swap.wasm` and `./swap.wasm` are components named `swap`; rename or remove one"
    );
    folder.remove("other/swap.wasm")?;
    folder.put("swap.wasm", swap(Newer)?)?;
    folder.write(&format!(".hatchery/revisions/swap/{older}.wasm"), "damaged")?;
    let damaged = rollback_error(&folder, &["swap"]).await?;
    assert_eq!(
        damaged,
        format!(
            "error: revision {} of `swap`: the copy is damaged: its bytes do not have the hash that it is named by",
            &older[..12]
        )
    );
    assert_eq!(std::fs::read(folder.file("swap.wasm"))?, swap(Newer)?, "nothing has changed");
    Ok(())
}
