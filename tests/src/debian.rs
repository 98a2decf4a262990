//! Programs of Debian's packages. Installing a package would start its service.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::host::TIMEOUT;
use crate::paths;

/// Returns a program: the installed one, or else the one in the package, which is unpacked into the target folder.
/// `path` is its path in the package.
///
/// # Errors
/// If it is not installed and the package cannot be downloaded.
pub async fn program(package: &str, path: &str) -> anyhow::Result<PathBuf> {
    static FOUND: Mutex<BTreeMap<String, Result<PathBuf, String>>> = Mutex::const_new(BTreeMap::new());
    let mut found = FOUND.lock().await;
    if !found.contains_key(path) {
        let program = find(package, path).await.map_err(|error| format!("{error:#}"));
        found.insert(path.to_owned(), program);
    }
    found.get(path).cloned().context("it was looked for")?.map_err(anyhow::Error::msg)
}

async fn find(package: &str, path: &str) -> anyhow::Result<PathBuf> {
    let name = Path::new(path).file_name().context("the path of a program")?;
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    if let Some(program) = installed {
        return Ok(program);
    }
    let folder = paths::cache_folder(package)?;
    let program = folder.join("unpacked").join(path);
    if !program.is_file() {
        unpack(package, &folder).await?;
    }
    Ok(program)
}

async fn unpack(package: &str, folder: &Path) -> anyhow::Result<()> {
    let staging = tempfile::tempdir_in(folder)?;
    if run(staging.path(), &["apt-get", "download", package]).await.is_err() {
        // The package lists may be missing or outdated; only root can update them.
        run(staging.path(), &["apt-get", "update"]).await?;
        run(staging.path(), &["apt-get", "download", package]).await?;
    }
    let mut files = fs::read_dir(staging.path())?.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let file = file.context("apt-get has not downloaded a package")?;
    let unpacked = staging.path().join("unpacked");
    run(staging.path(), &["dpkg-deb", "--extract", &file.to_string_lossy(), &unpacked.to_string_lossy()]).await?;
    // An interrupted run may have left it.
    let _ = fs::remove_dir_all(folder.join("unpacked"));
    fs::rename(&unpacked, folder.join("unpacked")).context("another run has unpacked it")
}

async fn run(folder: &Path, command: &[&str]) -> anyhow::Result<()> {
    let (program, args) = command.split_first().context("a command")?;
    let mut started = Command::new(program);
    started.args(args).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, started.output()).await;
    let output = output.with_context(|| format!("{command:?} takes longer than {TIMEOUT:?}"))?;
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
