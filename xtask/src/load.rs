//! `cargo xtask load`: builds the host, the load test and, if asked for, other agent servers in the same profile, and
//! measures them in sequence.

use std::path::PathBuf;
use std::process::Command;

use crate::components::{self, Components};
use crate::pgo::GuidedBuild;
use crate::step::{self, Steps};
use crate::workspace::Workspace;
use crate::{ALLOCATOR, TOOLCHAIN, toolchain};

/// The path of the chart of long sessions.
const PICTURE: &str = "docs/images/turn-cost.svg";

/// Other agent servers: the folder below `tests/rivals`, which is the name of the program, too.
const RIVALS: [&str; 1] = ["adk-rust"];

/// How all measured programs are built.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Profile {
    /// As for the benches
    Release,
    /// As `cargo xtask dist` builds: all crates optimised together, and the host for the load test
    Dist,
}

impl Profile {
    /// Returns the name of the profile, which is also the name of its folder.
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }

    /// Returns the number of steps that a guided build adds.
    fn guided_steps(self) -> usize {
        match self {
            Self::Release => 0,
            Self::Dist => GuidedBuild::STEPS,
        }
    }

    /// Returns cargo settings with the same optimisations for the release profile of another workspace.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Release => &[],
            Self::Dist => &["--config=profile.release.lto=\"fat\"", "--config=profile.release.codegen-units=1"],
        }
    }
}

#[derive(clap::Args)]
pub struct Arguments {
    /// Duration of each row, after a fifth of it as warm-up
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Measure only rows whose names contain this text, and neither starts nor long or idle sessions
    #[arg(long)]
    filter: Option<String>,
    /// Profile of all measured programs; `dist` takes long to build
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// Build and measure the servers of tests/rivals, too; the first build takes some minutes
    #[arg(long)]
    rivals: bool,
    /// Print the report as JSON instead of tables
    #[arg(long)]
    json: bool,
}

pub fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<()> {
    let components = Components::samples(workspace)?;
    let mut steps = Steps::new(4 + usize::from(arguments.rivals) + arguments.profile.guided_steps());
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    steps.run(&format!("components: {components}"), || components.build(workspace))?;
    let profile = arguments.profile.name();
    steps.run(&format!("load test: a {profile} build"), || build_load_test(workspace, arguments.profile))?;
    let programs = workspace.target.join(profile);
    let program = programs.join("examples/load");
    let host = match arguments.profile {
        Profile::Release => programs.join("hatchery"),
        Profile::Dist => GuidedBuild::new(workspace)?.run(&mut steps, &program, components.folder())?,
    };
    let mut load = Command::new(program);
    load.env("HATCHERY_BIN", host).env(components::FOLDER_VARIABLE, components.folder()).current_dir(&workspace.root);
    // Wasmtime creates an error whenever a call ends, whose backtrace is never used.
    load.env_remove("RUST_BACKTRACE");
    load.args(["--seconds", &arguments.seconds.to_string()]).args(arguments.json.then_some("--json"));
    match &arguments.filter {
        Some(filter) => load.args(["--filter", filter]),
        None => load.args(["--svg", PICTURE]),
    };
    if arguments.rivals {
        steps.run(&format!("other servers: a {profile} build"), || {
            for rival in RIVALS {
                let program = build_rival(workspace, rival, arguments.profile)?;
                load.arg("--rival").arg(format!("{rival}={}", program.display()));
            }
            Ok(())
        })?;
    }
    steps.run("load", || step::run_command(&mut load))?;
    steps.finish();
    Ok(())
}

/// Builds the load test and, in the release profile, the host.
fn build_load_test(workspace: &Workspace, profile: Profile) -> anyhow::Result<()> {
    // The features of all packages, as for the benches, so that both share one build.
    let mut cargo = workspace.cargo(["build", "--profile", profile.name(), "--workspace", "--features", ALLOCATOR]);
    cargo.args(["--example", "load"]);
    if matches!(profile, Profile::Release) {
        cargo.args(["--bin", "hatchery"]);
    }
    step::run_command(&mut cargo)
}

/// Builds a server of `tests/rivals`, and returns its program.
fn build_rival(workspace: &Workspace, name: &str, profile: Profile) -> anyhow::Result<PathBuf> {
    let manifest = workspace.root.join("tests/rivals").join(name).join("Cargo.toml");
    let target = workspace.target.join("rivals").join(profile.name());
    let mut build = workspace.cargo(["build", "--release", "--locked", "--manifest-path"]);
    step::run_command(build.arg(manifest).arg("--target-dir").arg(&target).args(profile.settings()))?;
    Ok(target.join("release").join(name))
}
