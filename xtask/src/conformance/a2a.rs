//! The Technology Compatibility Kit of A2A, for both versions of the protocol.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::Server;
use crate::step::{self, Steps};
use crate::workspace::Workspace;

const REPOSITORY: &str = "https://github.com/a2aproject/a2a-tck";

/// The Python packages that the suites of both versions import.
const PACKAGES: [&str; 18] = [
    "pytest==9.2.0",
    "pytest-asyncio==1.5.0",
    "pytest-html==4.2.0",
    "pytest-json-report==1.5.0",
    "deepdiff==9.1.0",
    "gherkin-official==42.0.1",
    "googleapis-common-protos==1.76.0",
    "grpcio-status==1.85.1",
    "grpcio-tools==1.85.1",
    "httpx==0.28.1",
    "Jinja2==3.1.6",
    "jsonschema==4.26.0",
    "packaging==26.3",
    "pyOpenSSL==26.4.0",
    "python-dotenv==1.2.4",
    "PyYAML==6.0.3",
    "requests==2.34.2",
    "responses==0.26.3",
];

/// The suite of one version.
struct Suite {
    version: &'static str,
    /// The commit, whose id is also the checksum of its files.
    commit: &'static str,
    /// The folder of the tests, and which of them.
    args: &'static [&'static str],
    /// The option with the URL of the agent under test.
    url: &'static str,
}

const SUITES: [Suite; 2] = [
    Suite {
        version: "1.0",
        commit: "357c4a87afa2818731590647cccbea31c31733a2",
        args: &["tests/compatibility/", "--transport=jsonrpc,http_json"],
        url: "--sut-host",
    },
    Suite {
        version: "0.3",
        commit: "eb1f804c27ea25db8805264d9ed2d7ca077a7776",
        args: &[
            "tests/mandatory/",
            "-m",
            "mandatory_jsonrpc or mandatory_protocol",
            "--test-scope=all",
            "--transports",
            "jsonrpc",
        ],
        url: "--sut-url",
    },
];

/// Runs the suites of both versions. They come from the public repository, or from a clone of it.
///
/// # Errors
/// If a test fails that is not among the expected failures of `tests/conformance`, or one of these passes.
pub(super) fn run(workspace: &Workspace, clone: Option<&Path>) -> anyhow::Result<()> {
    let folder = workspace.target.join("tmp/conformance/a2a");
    let repository = match clone {
        Some(clone) => clone.canonicalize().with_context(|| clone.display().to_string())?.into_os_string(),
        None => REPOSITORY.into(),
    };
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let mut steps = Steps::new(3 + SUITES.len());
    let from = repository.to_string_lossy().into_owned();
    steps.run(&format!("the suites: {from}"), || {
        SUITES.iter().try_for_each(|suite| check_out(&folder, suite, &repository))
    })?;
    steps.run("Python packages of the suites", || install(&folder))?;
    steps.run("the agent under test", || super::build_examples(workspace, &["conformance_agent"]))?;
    let program = workspace.host_binary()?.with_file_name("examples").join("conformance_agent");
    for suite in &SUITES {
        let mut command = Command::new(&program);
        command.arg(suite.version);
        let agent = Server::start_with(command, |line| (!line.is_empty()).then(|| line.to_owned()))?;
        steps.run(&format!("version {}", suite.version), || check(workspace, &folder, suite, &agent.url))?;
    }
    steps.finish();
    Ok(())
}

/// Checks out the commit of a suite.
fn check_out(folder: &Path, suite: &Suite, repository: &OsStr) -> anyhow::Result<()> {
    let clone = folder.join(suite.version);
    if clone.join("run_tck.py").is_file() {
        return Ok(());
    }
    let git = |args: &[&OsStr]| step::run_command(Command::new("git").arg("-C").arg(&clone).args(args));
    step::run_command(Command::new("git").args(["init", "--quiet"]).arg(&clone))?;
    git(&["fetch".as_ref(), "--quiet".as_ref(), "--depth=1".as_ref(), repository, suite.commit.as_ref()])?;
    git(&["checkout".as_ref(), "--quiet".as_ref(), suite.commit.as_ref()])
}

fn python(folder: &Path) -> PathBuf {
    folder.join("python/bin/python")
}

fn install(folder: &Path) -> anyhow::Result<()> {
    if folder.join("python/bin/pytest").is_file() {
        return Ok(());
    }
    step::run_command(Command::new("python3").args(["-m", "venv"]).arg(folder.join("python")))?;
    step::run_command(Command::new(python(folder)).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))
}

/// Runs one suite, and compares its failures with those that are expected.
fn check(workspace: &Workspace, folder: &Path, suite: &Suite, url: &str) -> anyhow::Result<()> {
    let mut command = Command::new(python(folder));
    command.current_dir(folder.join(suite.version)).args(["-m", "pytest", "-q", "--tb=line", "-rfE"]);
    command.args(suite.args).arg(format!("{}={url}/", suite.url));
    let output = command.output().context("cannot start Python")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // 0: all tests pass, 1: some fail.
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("the suite has not run: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    let log = folder.join(format!("{}.log", suite.version));
    std::fs::write(&log, &*text).with_context(|| log.display().to_string())?;
    eprintln!("{}; details are in {}", text.lines().last().unwrap_or_default(), log.display());
    let failed: BTreeSet<&str> = text.lines().filter_map(failed_test).collect();
    let file = workspace.root.join(format!("tests/conformance/a2a-{}.txt", suite.version));
    let expected = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let expected: BTreeSet<&str> = expected_failures(&expected).collect();
    let unexpected: Vec<_> = failed.difference(&expected).collect();
    let passed: Vec<_> = expected.difference(&failed).collect();
    ensure!(
        unexpected.is_empty() && passed.is_empty(),
        "{}: these fail and are not listed: {unexpected:#?}; these are listed and do not fail: {passed:#?}",
        file.display()
    );
    Ok(())
}

/// Returns the test of a line such as `FAILED tests/a.py::test_b - reason`.
fn failed_test(line: &str) -> Option<&str> {
    let line = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
    // The suite prints a heading that begins like this too.
    line.starts_with("tests/").then(|| line.split(" - ").next().unwrap_or(line).trim())
}

/// Returns the tests of a list, one per line, with comments after `#`.
fn expected_failures(list: &str) -> impl Iterator<Item = &str> {
    let tests = list.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    tests.filter(|test| !test.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_from_the_summary() {
        let summary = "FAILED REQUIREMENTS:\nFAILED tests/a.py::T::test_b[jsonrpc] - AssertionError: x - y\nERROR tests/c.py\n1 failed in 2 s";
        let failed: Vec<_> = summary.lines().filter_map(failed_test).collect();
        assert_eq!(failed, ["tests/a.py::T::test_b[jsonrpc]", "tests/c.py"]);
    }

    #[test]
    fn expected_failures_have_comments() {
        let list = "# All of them.\n\ntests/a.py::test_b  # why\ntests/c.py\n";
        assert_eq!(expected_failures(list).collect::<Vec<_>>(), ["tests/a.py::test_b", "tests/c.py"]);
    }
}
