//! The developer UI: checks and builds `host/ui` with Node.js, and tests it in Chromium.
//!
//! `host/ui/dist` is committed, so building the host does not need Node.js.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

use crate::components::FOLDER_VARIABLE;
use crate::workspace::Workspace;
use crate::{step, toolchain};

const FOLDER: &str = "host/ui";
const DIST: &str = "dist";
/// The first major version of Node.js that the build tools support.
const MIN_NODE: u32 = 20;
const CHROMIUM: &str = "/usr/bin/chromium";

/// Generates the types of the host's JSON, checks the sources, runs the tests of the page's model and builds `dist`.
/// With `check`, generates and builds elsewhere and compares instead.
///
/// # Errors
/// If Node.js is missing, a check fails, or the types or `dist` are not what the sources give.
pub fn build(workspace: &Workspace, check: bool) -> anyhow::Result<()> {
    if let Some(reason) = missing_node() {
        bail!("the developer UI cannot be built: {reason}");
    }
    let folder = workspace.root.join(FOLDER);
    install(&folder)?;
    crate::build_host(workspace)?;
    let mut types = npm(&folder);
    types.args(["run", "--silent", "types"]).env("HATCHERY_BINARY", workspace.host_binary()?);
    if check {
        types.args(["--", "--check"]);
    }
    step::run_command(&mut types)?;
    for script in ["check", "test"] {
        step::run_command(npm(&folder).args(["run", "--silent", script]))?;
    }
    if !check {
        return step::run_command(npm(&folder).args(["run", "--silent", "build"]));
    }
    let built = tempfile::tempdir()?;
    let output = built.path().join(DIST);
    let mut build = npm(&folder);
    build.args(["run", "--silent", "build", "--", "--emptyOutDir", "--outDir"]).arg(&output);
    step::run_command(&mut build)?;
    compare(&hashes(&folder.join(DIST))?, &hashes(&output)?)
}

/// Checks `dist` as part of the tests. Without Node.js it reports that it did not.
pub fn check_if_possible(workspace: &Workspace) -> anyhow::Result<()> {
    match missing_node() {
        None => build(workspace, true),
        Some(reason) => {
            eprintln!("\nSKIPPED: the checks of the developer UI, because {reason}\n");
            Ok(())
        }
    }
}

/// Tests the page of the built host in Chromium, which is installed if possible. Otherwise it reports that it tested
/// nothing.
pub fn test_in_browser(workspace: &Workspace, components: &Path) -> anyhow::Result<()> {
    if let Some(reason) = missing_node().or_else(missing_chromium) {
        eprintln!("\nSKIPPED: the tests of the developer UI in a browser, because {reason}\n");
        return Ok(());
    }
    let folder = workspace.root.join(FOLDER);
    install(&folder)?;
    let mut tests = npm(&folder);
    tests.args(["run", "--silent", "e2e"]).env("HATCHERY_BINARY", workspace.host_binary()?);
    tests.env(FOLDER_VARIABLE, components).env("CHROMIUM", CHROMIUM);
    step::run_command(&mut tests)
}

/// Installs the packages of the lock file, unless they are the installed ones.
fn install(folder: &Path) -> anyhow::Result<()> {
    let lock = fs::read(folder.join("package-lock.json")).context("cannot read host/ui/package-lock.json")?;
    let stamp = folder.join("node_modules/.hatchery-lock");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    step::run_command(npm(folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]))?;
    fs::write(stamp, lock).context("cannot write into host/ui/node_modules")
}

fn npm(folder: &Path) -> Command {
    let mut npm = Command::new("npm");
    npm.current_dir(folder);
    npm
}

/// Returns the reason why the page cannot be built here, or `None` if it can.
fn missing_node() -> Option<String> {
    let version = |program: &str| {
        let output = Command::new(program).arg("--version").stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(node) = version("node") else { return Some(format!("node was not found; install Node.js {MIN_NODE}")) };
    if major(&node).is_none_or(|major| major < MIN_NODE) {
        return Some(format!("Node.js {node} is too old; install Node.js {MIN_NODE}"));
    }
    version("npm").is_none().then(|| "npm was not found; it is part of Node.js".to_owned())
}

fn major(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').next()?.parse().ok()
}

/// Returns the reason why there is no Chromium, or `None` if there is one. Installs Debian's as root.
fn missing_chromium() -> Option<String> {
    let exists = || Path::new(CHROMIUM).exists();
    if !exists() {
        eprintln!("installing Debian's chromium for the tests of the developer UI");
        toolchain::install_debian_package("chromium");
    }
    (!exists()).then(|| format!("{CHROMIUM} does not exist and cannot be installed; install Debian's chromium"))
}

type Hashes = BTreeMap<String, String>;

/// Returns the SHA-256 of each file below a folder by its path.
fn hashes(folder: &Path) -> anyhow::Result<Hashes> {
    let mut hashes = Hashes::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let hash = Sha256::digest(fs::read(&path)?).iter().map(|byte| format!("{byte:02x}")).collect();
            hashes.insert(path.strip_prefix(folder)?.display().to_string(), hash);
        }
    }
    Ok(hashes)
}

fn compare(committed: &Hashes, built: &Hashes) -> anyhow::Result<()> {
    let names = committed.keys().chain(built.keys().filter(|name| !committed.contains_key(*name)));
    let different: Vec<_> = names.filter(|name| committed.get(*name) != built.get(*name)).cloned().collect();
    if !different.is_empty() {
        bail!(
            "{FOLDER}/{DIST} does not match the sources; run `cargo xtask ui` and commit it: {}",
            different.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_of_node_is_its_first_number() {
        assert_eq!([major("v20.19.1"), major("9"), major("x")], [Some(20), Some(9), None]);
    }

    #[test]
    fn files_that_differ_are_named() {
        let hash_files = |files: &[(&str, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            hashes(folder.path()).unwrap()
        };
        let committed = hash_files(&[("index.html", "a"), ("assets/one.js", "1")]);
        assert!(compare(&committed, &committed).is_ok());
        let error =
            compare(&committed, &hash_files(&[("index.html", "b"), ("assets/two.js", "1")])).unwrap_err().to_string();
        assert_eq!(
            error,
            "host/ui/dist does not match the sources; run `cargo xtask ui` and commit it: assets/one.js, index.html, assets/two.js"
        );
    }
}
