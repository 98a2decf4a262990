//! Public conformance suites: `cargo xtask conformance mcp`, `a2a` and `http`.

mod a2a;
mod http;
mod mcp;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use crate::step;
use crate::workspace::Workspace;

/// A suite and its source.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The protocol
    protocol: Protocol,
    /// A clone of the suite's repository, instead of the public one; for a2a
    #[arg(long, value_name = "DIR")]
    suite: Option<PathBuf>,
}

/// A protocol with a public suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// The Model Context Protocol, a server and a client; needs npm
    Mcp,
    /// Agent2Agent, a server in both versions of the protocol; needs git and Python 3.11
    A2a,
    /// The OpenAPI document of the server, by Schemathesis; needs Python 3.11
    Http,
}

/// Runs a suite. Needs a network the first time.
///
/// # Errors
/// If a test fails that is not among the expected failures of `tests/conformance`, or one of these passes.
pub fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<()> {
    match (arguments.protocol, &arguments.suite) {
        (Protocol::Mcp, None) => mcp::run(workspace),
        (Protocol::Http, None) => http::run(workspace),
        (Protocol::Mcp | Protocol::Http, Some(_)) => bail!("this suite is a package; `--suite` is for a2a"),
        (Protocol::A2a, clone) => a2a::run(workspace, clone.as_deref()),
    }
}

/// Builds programs of the folders `examples`. Built with the whole workspace, as tests are, so that nothing is built
/// twice.
fn build_examples(workspace: &Workspace, names: &[&str]) -> anyhow::Result<()> {
    let mut cargo = workspace.cargo(["build", "--workspace", "--test", "crate_borders"]);
    for name in names {
        cargo.args(["--example", name]);
    }
    step::run_command(&mut cargo)
}

/// A server under test. Dropping it ends it.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts a program that prints its URL.
    fn start(program: &Path) -> anyhow::Result<Self> {
        Self::start_with(Command::new(program), |line| (!line.is_empty()).then(|| line.to_owned()))
    }

    /// Starts a program whose first line has its URL.
    fn start_with(mut command: Command, url: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let program = command.get_program().display().to_string();
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| program.clone())?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        // Ends the program if its URL is missing.
        let mut server = Self { child, url: String::new() };
        server.url = url(line.trim()).with_context(|| format!("{program} has not printed its URL"))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
