//! Programs of this machine and packages of Debian.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Calls `apt-get`, a second time with updated package lists if necessary.
pub(crate) fn apt_get(args: &[&str], folder: &Path) -> anyhow::Result<()> {
    let call = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        run(command.env("DEBIAN_FRONTEND", "noninteractive").args(args).current_dir(folder))
    };
    if call(args).is_err() {
        call(&["update"])?;
        call(args)?;
    }
    Ok(())
}

pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{} cannot be started", command.get_program().display()))?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {}", command.get_program().display(), log.trim());
    Ok(())
}

pub(crate) fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
