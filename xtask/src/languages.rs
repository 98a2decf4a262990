//! Builds what is written in Python and JavaScript, by `hatchery build`. Its tools come from the package registries: where they cannot be had,
//! that is said loudly, and left beside where the component would be, so that tests can tell why they have nothing to test.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::workspace::Workspace;

/// Folders with samples, which become NAME.wasm beside their sources.
const SAMPLES: [&str; 2] = ["sample-agents/haiku", "sample-agents/unit-converter"];

/// Folders with components that only tests use, and the names of those.
const FIXTURES: [(&str, &str); 2] =
    [("tests/components/polyglot/js", "polyglot_js"), ("tests/components/polyglot/python", "polyglot_python")];

/// Where the build tools are kept, below cargo's folder: where tests look for them too.
const TOOLS: &str = "tmp/cache/hatchery/build";

/// What `hatchery build` says when the machine is at fault, not the program that is built.
const NO_TOOLS: [&str; 5] = [
    "was not found",
    "is too old",
    "could not install componentize-",
    "cannot make a virtual environment",
    "there is no place for build tools",
];

/// What it says when a tool could be had, but is not the one that it must be.
const FAULTS: [&str; 3] = ["DO NOT MATCH THE HASHES", "EINTEGRITY", "can only install packages when"];

/// Tests of what is written in other languages: the folder, the program, its arguments.
const TESTS: [(&str, &str, &[&str]); 3] = [
    ("guest-sdk/python", "python3", &["-m", "unittest", "discover", "--start-directory", "tests"]),
    ("sample-agents/unit-converter", "python3", &["-m", "unittest"]),
    ("guest-sdk/js", "node", &["--test"]),
];

/// Runs the tests that need nothing but the language itself. What is not there is said loudly.
pub fn test_sdks(workspace: &Workspace) -> anyhow::Result<()> {
    for (folder, program, args) in TESTS {
        let mut command = Command::new(program);
        command.args(args).current_dir(workspace.root.join(folder)).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("PYTHONPATH", workspace.root.join("guest-sdk/python/src"));
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => bail!("the tests in {folder} have failed: {status}"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                eprintln!("\nSKIPPED: the tests in {folder}, because {program} was not found\n");
            }
            Err(error) => return Err(error).with_context(|| format!("cannot start {program}")),
        }
    }
    Ok(())
}

/// Components to build: each folder, with the file that it becomes.
pub struct Projects(Vec<(PathBuf, PathBuf)>);

impl Projects {
    /// Those of `sample-agents`.
    pub fn of_samples(workspace: &Workspace) -> Self {
        let samples = SAMPLES.iter().map(|sample| workspace.root.join(sample));
        Self(samples.map(|folder| (folder.clone(), folder.join(file_name(&folder)).with_extension("wasm"))).collect())
    }

    /// Those of `sample-agents` and of `tests/components`; the latter land in the folder of the other fixtures.
    pub fn all(workspace: &Workspace, built: &Path) -> Self {
        let mut projects = Self::of_samples(workspace);
        let fixtures = FIXTURES.iter().map(|(folder, name)| (workspace.root.join(folder), built.join(name)));
        projects.0.extend(fixtures.map(|(folder, file)| (folder, file.with_extension("wasm"))));
        projects
    }

    /// Builds all whose tools can be had.
    pub fn build(&self, workspace: &Workspace) -> anyhow::Result<()> {
        let hatchery = workspace.host_binary()?;
        let tools = workspace.target.join(TOOLS);
        for (folder, file) in &self.0 {
            build(&hatchery, folder, file, &tools)?;
        }
        Ok(())
    }
}

impl fmt::Display for Projects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(_, file)| file.with_extension("")).map(|file| file_name(&file));
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn build(hatchery: &Path, folder: &Path, file: &Path, tools: &Path) -> anyhow::Result<()> {
    let mut build = Command::new(hatchery);
    let build = build.arg("build").arg(folder).arg("--out").arg(file).stdout(Stdio::null());
    build.env("HATCHERY_BUILD_CACHE", tools);
    let output = build.output().with_context(|| format!("cannot start {}", hatchery.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    eprint!("{said}");
    let skipped = file.with_extension("skipped");
    if output.status.success() {
        let _ = fs::remove_file(&skipped);
        return Ok(());
    }
    let has = |reasons: &[&str]| reasons.iter().any(|reason| said.contains(reason));
    if !has(&NO_TOOLS) || has(&FAULTS) {
        bail!("{} cannot be built", folder.display());
    }
    let _ = fs::remove_file(file);
    eprintln!("\nSKIPPED: {} is not built, because its tools cannot be had on this machine\n", file.display());
    fs::write(&skipped, said.trim()).with_context(|| skipped.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script in place of `hatchery build`.
    fn built(script: &str) -> (anyhow::Result<()>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hatchery");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        #[cfg(unix)]
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        (build(&program, Path::new("x"), &folder.path().join("x.wasm"), folder.path()), folder)
    }

    #[test]
    fn what_has_no_tools_is_skipped_with_the_reason() {
        let (result, folder) = built("echo 'error: python3 was not found; install Python' >&2; exit 1");
        result.unwrap();
        let reason = fs::read_to_string(folder.path().join("x.skipped")).unwrap();
        assert_eq!(reason, "error: python3 was not found; install Python");
    }

    #[test]
    fn a_program_that_is_wrong_is_not_skipped() {
        let (result, folder) = built("echo 'error: `app` exports nothing' >&2; exit 1");
        assert_eq!(result.unwrap_err().to_string(), "x cannot be built");
        assert!(!folder.path().join("x.skipped").exists());
    }
}
