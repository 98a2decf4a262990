//! Packages of a component in Python. pip resolves `requirements.txt` once and the versions and hashes are written to
//! `requirements.lock`, from which later builds install.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::program;
use crate::languages::build_cache::hash;
use crate::terminal::WARNING;

/// The version of Python in components, for which packages are installed.
const GUEST_VERSION: &str = "3.14";

/// The packages that the author lists.
const LIST: &str = "requirements.txt";

/// The versions that pip resolved.
const LOCK: &str = "requirements.lock";

/// The first line of a lock file, before the hash of the list.
const HEADER: &str =
    "# Written by `hatchery build`; delete this file to update the packages. For requirements.txt with the hash ";

/// Options of pip in a list that say where packages come from.
const SOURCE_OPTIONS: [&str; 7] =
    ["--index-url", "-i ", "--extra-index-url", "--find-links", "-f ", "--trusted-host", "--no-index"];

/// Returns the command `pip install` of a virtual environment.
pub(super) fn pip(tools: &Path) -> Command {
    let mut pip = Command::new(program(tools, "python"));
    pip.args(["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]).current_dir(tools);
    pip
}

/// Installs the packages of a project below `work`, unless they are installed. Returns their folder; `None` if the
/// project lists none.
pub(super) fn install(project: &Path, work: &Path, tools: &Path) -> anyhow::Result<Option<PathBuf>> {
    let (folder, key_file) = (work.join("packages"), work.join("packages-key"));
    let list = project.join(LIST);
    if !list.is_file() {
        let _ = std::fs::remove_dir_all(&folder);
        return Ok(None);
    }
    let text = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let lock = read_lock(project, &text);
    let key = |lock: &str| hash([lock.as_bytes(), tools.as_os_str().as_encoded_bytes()]);
    let installed = std::fs::read_to_string(&key_file).unwrap_or_default();
    if folder.is_dir() && lock.as_deref().is_some_and(|lock| installed == key(lock)) {
        return Ok(Some(folder));
    }
    let _ = std::fs::remove_file(&key_file);
    let _ = std::fs::remove_dir_all(&folder);
    let lock = match lock {
        Some(lock) => {
            install_locked(project, &folder, tools)?;
            Some(lock)
        }
        None => resolve(project, &text, work, tools)?,
    };
    // Versions that are not locked may have changed, so they are installed again each time.
    if let Some(lock) = lock {
        std::fs::write(&key_file, key(&lock)).with_context(|| key_file.display().to_string())?;
    }
    Ok(Some(folder))
}

/// Returns the lock file of a project. `None` if there is none, or if it is not of this list.
fn read_lock(project: &Path, list: &str) -> Option<String> {
    let lock = std::fs::read_to_string(project.join(LOCK)).ok()?;
    let list_hash = lock.lines().next()?.strip_prefix(HEADER)?;
    (list_hash == hash([list.as_bytes()])).then_some(lock)
}

/// Returns the command that installs pure packages into a folder.
fn pip_for_guests(tools: &Path, folder: &Path) -> Command {
    let mut pip = pip(tools);
    pip.args(["--only-binary", ":all:", "--platform", "any", "--implementation", "py", "--abi", "none"]);
    pip.args(["--python-version", GUEST_VERSION, "--target"]).arg(folder).stdout(Stdio::null());
    pip
}

fn install_locked(project: &Path, folder: &Path, tools: &Path) -> anyhow::Result<()> {
    let lock = project.join(LOCK);
    anstream::eprintln!("installing the packages of {}", lock.display());
    let mut pip = pip_for_guests(tools, folder);
    let status = pip.args(["--no-deps", "--require-hashes", "-r"]).arg(&lock).status();
    if !status.context("cannot start pip")?.success() {
        bail!("pip could not install the packages in {}; delete the file to resolve {LIST} again", lock.display());
    }
    Ok(())
}

/// Resolves and installs the packages of a list. Returns the lock file, which is written to the project; `None` if a
/// package is not from an index.
fn resolve(project: &Path, text: &str, work: &Path, tools: &Path) -> anyhow::Result<Option<String>> {
    let (list, report) = (project.join(LIST), work.join("packages.json"));
    anstream::eprintln!("installing the packages of {}", list.display());
    let mut pip = pip_for_guests(tools, &work.join("packages"));
    let status = pip.arg("--report").arg(&report).arg("-r").arg(&list).status();
    if !status.context("cannot start pip")?.success() {
        bail!(
            "pip could not install the packages in {}; only pure Python packages work in a component, packages with native \
             code do not, and neither do those that need one (docs/components.md lists some that work)",
            list.display()
        );
    }
    let report = std::fs::read(&report).with_context(|| report.display().to_string())?;
    let report: Report = serde_json::from_slice(&report).context("cannot read the report of pip")?;
    let names: Vec<_> =
        report.install.iter().map(|it| format!("{} {}", it.metadata.name, it.metadata.version)).collect();
    anstream::eprintln!("installed {}", names.join(", "));
    let Some(lock) = report.lock(text) else {
        anstream::eprintln!(
            "{WARNING}warning:{WARNING:#} the packages are not locked, because some do not come from a package index"
        );
        return Ok(None);
    };
    let file = project.join(LOCK);
    std::fs::write(&file, &lock).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Some(lock))
}

/// The parts of pip's installation report that are used.
#[derive(Deserialize)]
struct Report {
    install: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    /// True for a path or a URL in the list.
    #[serde(default)]
    is_direct: bool,
    metadata: PackageMetadata,
    download_info: DownloadInfo,
}

#[derive(Deserialize)]
struct PackageMetadata {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct DownloadInfo {
    archive_info: Option<ArchiveInfo>,
}

#[derive(Deserialize)]
struct ArchiveInfo {
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

impl Report {
    /// Returns the lock file of a list. `None` if the origin of a package cannot be locked.
    fn lock(&self, list: &str) -> Option<String> {
        let mut lock = format!("{HEADER}{}\n", hash([list.as_bytes()]));
        for option in list.lines().filter(|line| SOURCE_OPTIONS.iter().any(|option| line.starts_with(option))) {
            lock.extend([option, "\n"]);
        }
        for package in &self.install {
            let sha256 = package.download_info.archive_info.as_ref()?.hashes.get("sha256")?;
            if package.is_direct {
                return None;
            }
            let PackageMetadata { name, version } = &package.metadata;
            writeln!(lock, "{name}=={version} --hash=sha256:{sha256}").ok()?;
        }
        Some(lock)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(is_direct: bool) -> Report {
        let package = json!({
            "is_direct": is_direct, "metadata": {"name": "toolz", "version": "1.0.0"},
            "download_info": {"url": "https://example.org/toolz.whl", "archive_info": {"hashes": {"sha256": "ab12"}}},
        });
        serde_json::from_value(json!({"version": "1", "install": [package]})).unwrap()
    }

    #[test]
    fn a_lock_file_has_versions_hashes_and_indexes_and_belongs_to_one_list() {
        let list = "--index-url https://example.org/simple\ntoolz  # any version\n";
        let lock = report(false).lock(list).unwrap();
        let lines: Vec<_> = lock.lines().skip(1).collect();
        assert_eq!(lines, ["--index-url https://example.org/simple", "toolz==1.0.0 --hash=sha256:ab12"]);
        let project = tempfile::tempdir().unwrap();
        std::fs::write(project.path().join(LOCK), &lock).unwrap();
        assert_eq!(read_lock(project.path(), list), Some(lock));
        assert_eq!(read_lock(project.path(), "toolz>=1\n"), None);
    }

    #[test]
    fn a_package_that_is_not_from_an_index_is_not_locked() {
        assert_eq!(report(true).lock("./toolz.whl\n"), None);
    }
}
