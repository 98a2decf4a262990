//! Builds components in Python and JavaScript by `hatchery build`. The build tools come from package registries. If
//! they cannot be installed, the component is skipped: a message on stderr and a file next to the component hold the
//! reason, which tests report.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::workspace::Workspace;

/// Folders of samples. Each builds to `NAME.wasm` next to its sources.
const SAMPLES: [&str; 2] = ["sample-agents/haiku", "sample-agents/unit-converter"];

/// Folders of components that only tests use, and the component's names.
const FIXTURES: [(&str, &str); 2] =
    [("tests/components/polyglot/js", "polyglot_js"), ("tests/components/polyglot/python", "polyglot_python")];

/// The folder of the build tools, below cargo's target folder. Tests use the same one.
const TOOLS: &str = "tmp/cache/hatchery/build";

/// Errors of `hatchery build` that mean that build tools cannot be installed on this machine.
const MISSING_TOOLS: [&str; 5] = [
    "was not found",
    "is too old",
    "could not install componentize-",
    "cannot create a virtual environment",
    "no folder for build tools",
];

/// Errors that mean that a tool was downloaded but is not the expected one.
const WRONG_TOOLS: [&str; 3] = ["DO NOT MATCH THE HASHES", "EINTEGRITY", "can only install packages when"];

/// Test commands of other languages: folder, program, arguments.
const TESTS: [(&str, &str, &[&str]); 3] = [
    ("guest-sdk/python", "python3", &["-m", "unittest", "discover", "--start-directory", "tests"]),
    ("sample-agents/unit-converter", "python3", &["-m", "unittest"]),
    ("guest-sdk/js", "node", &["--test"]),
];

/// Runs the tests that need only the language itself. A missing language is reported on stderr.
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

/// Components to build: pairs of a source folder and the file to write.
pub struct Projects(Vec<(PathBuf, PathBuf)>);

impl Projects {
    /// The projects of `sample-agents`.
    pub fn samples(workspace: &Workspace) -> Self {
        let samples = SAMPLES.iter().map(|sample| workspace.root.join(sample));
        Self(samples.map(|folder| (folder.clone(), folder.join(file_name(&folder)).with_extension("wasm"))).collect())
    }

    /// The projects of `sample-agents` and `tests/components`. Components of the latter are written to `output`.
    pub fn all(workspace: &Workspace, output: &Path) -> Self {
        let mut projects = Self::samples(workspace);
        let fixtures = FIXTURES.iter().map(|(folder, name)| (workspace.root.join(folder), output.join(name)));
        projects.0.extend(fixtures.map(|(folder, file)| (folder, file.with_extension("wasm"))));
        projects
    }

    /// Builds all projects, except those whose build tools cannot be installed.
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
    let errors = String::from_utf8_lossy(&output.stderr);
    eprint!("{errors}");
    let skipped = file.with_extension("skipped");
    if output.status.success() {
        let _ = fs::remove_file(&skipped);
        return Ok(());
    }
    let has = |reasons: &[&str]| reasons.iter().any(|reason| errors.contains(reason));
    if !has(&MISSING_TOOLS) || has(&WRONG_TOOLS) {
        bail!("{} cannot be built", folder.display());
    }
    let _ = fs::remove_file(file);
    eprintln!(
        "\nSKIPPED: {} is not built, because its build tools cannot be installed on this machine\n",
        file.display()
    );
    fs::write(&skipped, errors.trim()).with_context(|| skipped.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds with a shell script instead of `hatchery build`.
    fn build_with(script: &str) -> (anyhow::Result<()>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hatchery");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        #[cfg(unix)]
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        (build(&program, Path::new("x"), &folder.path().join("x.wasm"), folder.path()), folder)
    }

    #[test]
    fn a_component_without_build_tools_is_skipped_with_the_reason() {
        let (result, folder) = build_with("echo 'error: python3 was not found; install Python' >&2; exit 1");
        result.unwrap();
        let reason = fs::read_to_string(folder.path().join("x.skipped")).unwrap();
        assert_eq!(reason, "error: python3 was not found; install Python");
    }

    #[test]
    fn a_broken_program_is_not_skipped() {
        let (result, folder) = build_with("echo 'error: `app` exports nothing' >&2; exit 1");
        assert_eq!(result.unwrap_err().to_string(), "x cannot be built");
        assert!(!folder.path().join("x.skipped").exists());
    }
}
