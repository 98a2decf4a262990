//! The suite of the Model Context Protocol.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::Server;
use crate::step::{self, Steps};
use crate::workspace::Workspace;

/// The runner of the MCP suite, and the version of Node.js that it needs.
const RUNNER: &str = "@modelcontextprotocol/conformance@0.2.0-alpha.12";
const NODE: &str = "node@22";

/// The revisions of MCP whose requirements are checked.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// Runs the suite for a server and a client, in all revisions.
///
/// # Errors
/// If a scenario fails that is not among the expected failures of `tests/conformance`, or one of these passes.
pub(super) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let folder = workspace.target.join("tmp/conformance/mcp");
    let mut steps = Steps::new(2 + 2 * REVISIONS.len());
    steps.run(&format!("the runner: {RUNNER}, {NODE}"), || install(&folder))?;
    steps.run("the server and the client under test", || {
        super::build_examples(workspace, &["conformance_server", "conformance_client"])
    })?;
    let examples = workspace.host_binary()?.with_file_name("examples");
    let server = Server::start(&examples.join("conformance_server"))?;
    for revision in REVISIONS {
        let runner = Runner { workspace, folder: &folder, revision };
        steps.run(&format!("server, {revision}"), || runner.run("server", "--url", &server.url))?;
        let client = examples.join("conformance_client").display().to_string();
        steps.run(&format!("client, {revision}"), || runner.run("client", "--command", &client))?;
    }
    steps.finish();
    Ok(())
}

fn install(folder: &Path) -> anyhow::Result<()> {
    if runner(folder).is_file() && node(folder).is_file() {
        return Ok(());
    }
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(folder).args([RUNNER, NODE]);
    step::run_command(&mut npm)
}

fn runner(folder: &Path) -> PathBuf {
    folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js")
}

fn node(folder: &Path) -> PathBuf {
    folder.join("node_modules/node/bin/node")
}

/// The runner for one revision.
struct Runner<'a> {
    workspace: &'a Workspace,
    folder: &'a Path,
    revision: &'a str,
}

impl Runner<'_> {
    /// Checks one role. `option` is the runner's flag for the tested program.
    fn run(&self, role: &str, option: &str, value: &str) -> anyhow::Result<()> {
        let results = self.folder.join("results").join(self.revision).join(role);
        let expected = self.workspace.root.join(format!("tests/conformance/mcp-{}.yaml", self.revision));
        let mut command = Command::new(node(self.folder));
        command.arg(runner(self.folder)).args([role, option, value, "--requirements", self.revision]);
        command.arg("--expected-failures").arg(expected).arg("-o").arg(results);
        step::run_command(&mut command)
    }
}
