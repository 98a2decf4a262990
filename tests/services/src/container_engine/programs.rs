//! The programs of engines: on the search path, or else in Debian's packages.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::EngineKind;
use crate::packages::{apt_get, is_on_path, is_root, run};

/// Docker's packages. They are unpacked: to install them would start a service.
const DOCKER: [&str; 4] = ["docker.io", "containerd", "runc", "libdevmapper1.02.1"];

/// Podman's packages. `crun` refuses control groups of both versions at a time.
const PODMAN: [&str; 2] = ["podman", "runc"];

/// The location of an engine's programs.
#[derive(Clone, Default)]
pub(crate) struct Programs {
    /// Folder of unpacked packages; `None` if they are installed.
    unpacked: Option<PathBuf>,
}

impl Programs {
    pub(crate) fn add_to(&self, command: &mut Command) {
        let Some(folder) = &self.unpacked else { return };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = ["usr/bin", "usr/sbin"].map(|name| folder.join(name));
        command.env("PATH", join(folders.into_iter().chain(std::env::split_paths(&path))));
        let libraries = fs::read_dir(folder.join("usr/lib")).into_iter().chain(fs::read_dir(folder.join("lib")));
        let libraries = libraries.flatten().filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir());
        command.env("LD_LIBRARY_PATH", join(libraries));
    }

    /// Returns the program that runs Podman's containers.
    pub(crate) fn runtime(&self) -> &'static str {
        if is_on_path("runc") { "runc" } else { "crun" }
    }
}

fn join(folders: impl Iterator<Item = PathBuf>) -> OsString {
    std::env::join_paths(folders).unwrap_or_default()
}

/// Returns the programs of an engine, after their installation if they are missing.
pub(crate) fn programs(kind: EngineKind, cache: &Path) -> anyhow::Result<Programs> {
    ensure!(is_root(), "only root can start an engine of its own");
    fs::create_dir_all(cache)?;
    let lock = File::create(cache.join("container-engine.lock"))?;
    lock.lock()?;
    match kind {
        EngineKind::Docker if is_on_path("dockerd") && is_on_path("docker") => Ok(Programs::default()),
        EngineKind::Docker => Ok(Programs { unpacked: Some(unpacked_docker(cache)?) }),
        EngineKind::Podman => {
            if !is_on_path("podman") {
                let mut args = vec!["install", "--yes", "--no-install-recommends"];
                args.extend(PODMAN);
                apt_get(&args, Path::new("/")).context("Podman cannot be installed (apt-get install podman runc)")?;
            }
            Ok(Programs::default())
        }
    }
}

fn unpacked_docker(cache: &Path) -> anyhow::Result<PathBuf> {
    let unpacked = cache.join("docker.io");
    if unpacked.is_dir() {
        return Ok(unpacked);
    }
    let staging = tempfile::tempdir_in(cache)?;
    let mut args = vec!["download"];
    args.extend(DOCKER);
    apt_get(&args, staging.path())
        .context("Docker cannot be downloaded (apt-get download docker.io containerd runc)")?;
    let content = staging.path().join("content");
    for entry in fs::read_dir(staging.path())? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&content))?;
        }
    }
    fs::rename(&content, &unpacked)?;
    Ok(unpacked)
}
