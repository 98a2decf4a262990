//! Schemathesis on the OpenAPI document of a served folder: made-up requests to every route, and checks of the
//! responses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use serde_json::Value;

use super::Server;
use crate::step::{self, Steps};
use crate::workspace::Workspace;

const PACKAGE: &str = "schemathesis==4.32.5";

/// The checks of every response.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,allow_header_conformance";

/// Streams without their own end.
const STREAMS: &str = "/(events|run_sse)$|/runs/[^/]+/events$";

const AGENT: &str = "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Greet people.\n";
const ANSWERS: &str = "turns:\n  - reply: Hello\n";
const SETTINGS: &str = "server: { dev_ui: full, allow_import: true }\n";
/// The values of path parameters, so that requests reach more than the check of the app.
const PARAMETERS: &str =
    "[parameters]\n\"path.app\" = \"hello\"\n\"path.user\" = \"u\"\n\"path.session\" = [\"s\", \"t\"]\n";

/// Serves a folder with one agent, and runs the suite.
///
/// # Errors
/// If a response is not as the document describes it, or is an error of the server.
pub(super) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let folder = workspace.target.join("tmp/conformance/http");
    let mut steps = Steps::new(3);
    steps.run(&format!("the suite: {PACKAGE}"), || install(&folder))?;
    steps.run("the hatchery command", || crate::build_host(workspace))?;
    let served = folder.join("agents");
    fs::create_dir_all(served.join("hello"))?;
    fs::write(served.join("hello/root_agent.yaml"), AGENT)?;
    fs::write(served.join("hello/answers.yaml"), ANSWERS)?;
    fs::write(served.join("hatchery.yaml"), SETTINGS)?;
    fs::write(folder.join("schemathesis.toml"), PARAMETERS)?;
    let server = serve(&workspace.host_binary()?, &served)?;
    steps.run("every route", || check(&folder, &server.url))?;
    steps.finish();
    Ok(())
}

fn suite(folder: &Path) -> PathBuf {
    folder.join("python/bin/schemathesis")
}

fn install(folder: &Path) -> anyhow::Result<()> {
    if suite(folder).is_file() {
        return Ok(());
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    step::run_command(Command::new("python3").args(["-m", "venv"]).arg(folder.join("python")))?;
    step::run_command(Command::new(folder.join("python/bin/pip")).args(["install", "--quiet", PACKAGE]))
}

/// Starts a host on a free port, with all data in memory.
fn serve(hatchery: &Path, folder: &Path) -> anyhow::Result<Server> {
    let mut command = Command::new(hatchery);
    command.arg("serve").arg(folder).arg("--config").arg(folder.join("hatchery.yaml"));
    command.args(["--port", "0", "--json", "--session-service", "memory:", "--artifact-service", "memory:"]);
    command.stderr(Stdio::null());
    Server::start_with(command, |line| {
        let announcement: Value = serde_json::from_str(line).ok()?;
        announcement.get("url")?.as_str().map(str::to_owned)
    })
}

fn check(folder: &Path, url: &str) -> anyhow::Result<()> {
    let mut command = Command::new(suite(folder));
    command.arg("--config-file").arg(folder.join("schemathesis.toml"));
    command.args(["run", "--checks", CHECKS, "--exclude-path-regex", STREAMS, "--max-examples", "50", "--seed", "1"]);
    command.args(["--suppress-health-check", "all", "--warnings", "off", "--continue-on-failure"]);
    command.args(["--url", url]).arg(format!("{}/openapi.json", url.trim_end_matches('/')));
    step::run_command(command.current_dir(folder))
}
