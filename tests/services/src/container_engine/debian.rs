//! A base image with this machine's version of Debian, made without a registry.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::{ContainerEngine, lossy};
use crate::packages::{apt_get, is_on_path, run};

impl ContainerEngine {
    /// Makes an image with a minimal Debian of the version of this machine, whose programs it can run. `cache` is a
    /// folder for its root file system, which takes a minute.
    pub fn import_debian(&self, image: &str, cache: &Path) -> anyhow::Result<()> {
        self.import(File::open(rootfs(cache)?)?, image, &[])
    }
}

fn rootfs(cache: &Path) -> anyhow::Result<PathBuf> {
    let lock = File::create(cache.join("debootstrap.lock"))?;
    lock.lock()?;
    let release = fs::read_to_string("/etc/os-release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.context("this machine is not a Debian")?.trim_matches('"');
    let archive = cache.join(format!("debian-{codename}.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    if !is_on_path("debootstrap") {
        apt_get(&["install", "--yes", "--no-install-recommends", "debootstrap"], Path::new("/"))?;
    }
    let staging = tempfile::tempdir_in(cache)?;
    let (root, unfinished) = (staging.path().join("root"), staging.path().join("root.tar"));
    let output = Command::new("debootstrap").args(["--variant=minbase", codename]).arg(&root).output()?;
    ensure!(output.status.success(), "debootstrap: {}", lossy(&output.stdout));
    run(Command::new("tar").arg("-cf").arg(&unfinished).arg("-C").arg(&root).arg("."))?;
    fs::rename(&unfinished, &archive)?;
    Ok(archive)
}
