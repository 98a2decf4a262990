//! `cargo xtask load`: builds the host, the load test and, if asked for, other agent servers in the release profile, and measures
//! them one after the other.

use std::path::PathBuf;
use std::process::Command;

use crate::components::{self, Components};
use crate::step::{self, Steps};
use crate::workspace::Workspace;
use crate::{ALLOCATOR, TOOLCHAIN, toolchain};

/// Where the picture of long sessions is kept.
const PICTURE: &str = "docs/images/turn-cost.svg";

/// Other agent servers: the folder below `tests/rivals`, which is the name of the program, too.
const RIVALS: [&str; 1] = ["adk-rust"];

#[derive(clap::Args)]
pub struct Arguments {
    /// Duration of each row, after a fifth of it as warm-up
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Measure only rows whose names contain this text, and neither starts nor long or idle sessions
    #[arg(long)]
    filter: Option<String>,
    /// Build and measure the servers of tests/rivals, too; the first build takes some minutes
    #[arg(long)]
    rivals: bool,
    /// Print the report as JSON instead of tables
    #[arg(long)]
    json: bool,
}

pub fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<()> {
    let components = Components::of_samples(workspace)?;
    let mut steps = Steps::new(if arguments.rivals { 5 } else { 4 });
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    steps.run(&format!("components: {components}"), || components.build(workspace))?;
    steps.run("host: a release build", || {
        // The features of all packages, as for the benches, so that both share one build.
        let build =
            ["build", "--release", "--workspace", "--bin", "hatchery", "--example", "load", "--features", ALLOCATOR];
        step::run_command(&mut workspace.cargo(build))
    })?;
    let mut load = Command::new(workspace.target.join("release/examples/load"));
    load.env(components::FOLDER_VARIABLE, components.folder()).current_dir(&workspace.root);
    load.args(["--seconds", &arguments.seconds.to_string()]).args(arguments.json.then_some("--json"));
    match &arguments.filter {
        Some(filter) => load.args(["--filter", filter]),
        None => load.args(["--svg", PICTURE]),
    };
    if arguments.rivals {
        steps.run("other servers: a release build", || {
            for rival in RIVALS {
                let program = build_rival(workspace, rival)?;
                load.arg("--rival").arg(format!("{rival}={}", program.display()));
            }
            Ok(())
        })?;
    }
    steps.run("load", || step::run_command(&mut load))?;
    steps.finish();
    Ok(())
}

/// Builds a server of `tests/rivals`, and returns its program.
fn build_rival(workspace: &Workspace, name: &str) -> anyhow::Result<PathBuf> {
    let manifest = workspace.root.join("tests/rivals").join(name).join("Cargo.toml");
    let target = workspace.target.join("rivals");
    let mut build = workspace.cargo(["build", "--release", "--locked", "--manifest-path"]);
    step::run_command(build.arg(manifest).arg("--target-dir").arg(&target))?;
    Ok(target.join("release").join(name))
}
