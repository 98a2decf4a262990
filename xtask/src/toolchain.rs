//! Checks of the toolchain: a C compiler and Rust's WebAssembly target.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::step;
use crate::workspace::Workspace;

/// The target triple of components.
pub const TARGET: &str = "wasm32-wasip2";

/// Checks for a C compiler, and adds the WebAssembly target through rustup if it is missing.
pub fn prepare(workspace: &Workspace) -> anyhow::Result<()> {
    let configured = std::env::var_os("CC").filter(|compiler| !compiler.is_empty());
    check_c_compiler(configured)?;
    add_target(workspace)
}

/// Checks that a C compiler exists: SQLite and the TLS library are C code. `configured` is the value of `CC`, which may
/// hold arguments.
fn check_c_compiler(configured: Option<OsString>) -> anyhow::Result<()> {
    let is_found = match &configured {
        Some(compiler) => can_run(compiler.to_string_lossy().split_whitespace().next().unwrap_or_default()),
        None => ["cc", "gcc", "clang"].into_iter().any(can_run),
    };
    match (is_found, configured) {
        (true, _) => Ok(()),
        (false, Some(compiler)) => bail!("CC is `{}`, which cannot be run; correct or unset it", compiler.display()),
        (false, None) => bail!(
            "no C compiler (cc, gcc or clang) was found, and SQLite and the TLS library need one; install it, \
             for example with `apt install build-essential`, `dnf install gcc` or `xcode-select --install`"
        ),
    }
}

/// Installs a package with `apt-get`, as root on Debian. Callers check the result themselves.
pub fn install_debian_package(name: &str) {
    let run = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    let _ = run(&["update"]).and_then(|_| run(&["install", "-y", "--no-install-recommends", name]));
}

fn can_run(program: &str) -> bool {
    let run = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

fn add_target(workspace: &Workspace) -> anyhow::Result<()> {
    let sysroot = sysroot(workspace)?;
    if sysroot.join("lib/rustlib").join(TARGET).is_dir() {
        return Ok(());
    }
    eprintln!("adding the target {TARGET} through rustup");
    match step::run_command(Command::new("rustup").args(["target", "add", TARGET]).current_dir(&workspace.root)) {
        Err(error) if is_missing(&error) => bail!(
            "the Rust in {} cannot build for {TARGET}, and there is no rustup to add it; install Rust from \
             https://rustup.rs, or the target with your package manager",
            sysroot.display()
        ),
        result => result,
    }
}

/// Returns the path of `llvm-profdata`, which merges the counts of a program. Adds it through rustup if it is missing.
pub fn profdata(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let program = sysroot(workspace)?.join("lib/rustlib").join(host()?).join("bin/llvm-profdata");
    if !program.is_file() {
        eprintln!("adding llvm-tools through rustup");
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add", "llvm-tools"]).current_dir(&workspace.root);
        step::run_command(&mut rustup).context("llvm-profdata is missing; install the component llvm-tools of Rust")?;
    }
    Ok(program)
}

/// Returns the target triple that cargo builds for by default.
pub fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let target = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(target.context("`rustc -vV` prints no host")?.to_owned())
}

/// Returns the folder of the toolchain.
fn sysroot(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .current_dir(&workspace.root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start rustc")?;
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_c_compiler_that_cannot_be_run_is_named() {
        let error = check_c_compiler(Some("/no/such/cc -m64".into())).unwrap_err().to_string();
        assert_eq!(error, "CC is `/no/such/cc -m64`, which cannot be run; correct or unset it");
    }

    #[test]
    fn the_first_word_of_cc_is_the_compiler() {
        assert!(check_c_compiler(Some("true -O2".into())).is_ok());
    }

    #[test]
    fn a_missing_rustup_is_distinguished_from_one_that_fails() {
        assert!(is_missing(&step::run_command(&mut Command::new("/no/such/rustup")).unwrap_err()));
        assert!(!is_missing(&step::run_command(&mut Command::new("false")).unwrap_err()));
    }
}
