//! `cargo xtask demo`: builds the host and the Rust samples, then serves them. Samples that take long to build, or need
//! Python or Node.js, are built in the background: the running host loads each as soon as it exists.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::components::Components;
use crate::languages::Projects;
use crate::step::Steps;
use crate::workspace::Workspace;
use crate::{HOST, TOOLCHAIN, build_host, toolchain};

/// Builds the programs for the first answer and becomes the server.
pub fn serve(workspace: &Workspace, port: u16) -> anyhow::Result<()> {
    let samples = Components::samples(workspace)?;
    let mut steps = Steps::new(4);
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    steps.run(&format!("components: {samples}"), || samples.build(workspace))?;
    steps.run(HOST, || build_host(workspace))?;
    let detached = Command::new(std::env::current_exe()?).args(["slow-samples", "--detach"]).status();
    ensure!(detached.is_ok_and(|status| status.success()), "cannot build samples in the background");
    steps.announce(&format!("hatchery serve sample-agents --port {port}, until Ctrl-C"));
    let mut serve = Command::new(workspace.host_binary()?);
    serve.args(["serve", "sample-agents", "--host", "127.0.0.1", "--port", &port.to_string()]);
    // The samples are the repository's own, so their configuration is trusted.
    serve.args(["--config", "sample-agents/hatchery.yaml"]);
    // The host replaces this process, so that it receives signals and its exit code is the demo's.
    Err(serve.current_dir(&workspace.root).exec()).context("cannot start the host")
}

/// Starts [`build_slow_samples`] as a process whose parent ends immediately, so that the host never becomes the parent
/// of a builder. It stays in the process group of the terminal: Ctrl-C ends it too.
pub fn detach_slow_samples() -> anyhow::Result<()> {
    let mut builder = Command::new(std::env::current_exe()?);
    builder.arg("slow-samples").stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    Ok(())
}

/// Builds the samples that the demo does not wait for.
pub fn build_slow_samples(workspace: &Workspace) -> anyhow::Result<()> {
    let standalone = Components::standalone_samples(workspace)?;
    let projects = Projects::samples(workspace);
    eprintln!("building {projects} and {standalone} in the background; each is served as soon as it is built");
    projects.build(workspace)?;
    standalone.build(workspace)?;
    eprintln!("built {projects} and {standalone}");
    Ok(())
}
