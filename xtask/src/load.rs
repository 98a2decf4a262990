//! `cargo xtask load`: builds the host, the load test and, if asked for, other agent servers in the same profile, and measures them
//! one after the other.

use std::path::PathBuf;
use std::process::Command;

use crate::components::{self, Components};
use crate::step::{self, Steps};
use crate::workspace::Workspace;
use crate::{ALLOCATOR, TOOLCHAIN, guided, toolchain};

/// Where the picture of long sessions is kept.
const PICTURE: &str = "docs/images/turn-cost.svg";

/// Other agent servers: the folder below `tests/rivals`, which is the name of the program, too.
const RIVALS: [&str; 1] = ["adk-rust"];

/// How all measured programs are built.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Profile {
    /// As for the benches
    Release,
    /// As what `cargo xtask dist` packs: all crates optimised together
    Dist,
    /// As `dist`, and the host is optimised for this load, as by `cargo xtask dist --profile-guided`
    Guided,
}

impl Profile {
    /// Returns the name of the profile, which is that of its folder, too.
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dist | Self::Guided => "dist",
        }
    }

    /// Returns settings of cargo that give the release profile of another workspace the same optimisations.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Release => &[],
            Self::Dist | Self::Guided => {
                &["--config=profile.release.lto=\"fat\"", "--config=profile.release.codegen-units=1"]
            }
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
    let components = Components::of_samples(workspace)?;
    let mut steps = Steps::new(4 + usize::from(arguments.rivals) + usize::from(arguments.profile == Profile::Guided));
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    steps.run(&format!("components: {components}"), || components.build(workspace))?;
    let folder = build_host(workspace, arguments.profile, &mut steps)?;
    let mut load = Command::new(folder.join("examples/load"));
    load.env(components::FOLDER_VARIABLE, components.folder()).current_dir(&workspace.root);
    // Wasmtime makes an error whenever a call ends, whose backtrace nobody reads.
    load.env_remove("RUST_BACKTRACE");
    load.args(["--seconds", &arguments.seconds.to_string()]).args(arguments.json.then_some("--json"));
    match &arguments.filter {
        Some(filter) => load.args(["--filter", filter]),
        None => load.args(["--svg", PICTURE]),
    };
    if arguments.rivals {
        steps.run(&format!("other servers: a {} build", arguments.profile.name()), || {
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

/// Builds the host and the load test, and returns their folder.
fn build_host(workspace: &Workspace, profile: Profile, steps: &mut Steps) -> anyhow::Result<PathBuf> {
    // The features of all packages, as for the benches, so that both share one build.
    let programs = ["--workspace", "--bin", "hatchery", "--example", "load"];
    let name = profile.name();
    let title = format!("host: a {name} build");
    match profile {
        Profile::Release | Profile::Dist => steps.run(&title, || {
            let mut cargo = workspace.cargo(["build", "--profile", name, "--features", ALLOCATOR]);
            step::run_command(cargo.args(programs))?;
            Ok(workspace.target.join(name))
        }),
        Profile::Guided => {
            let compilation = steps.run(guided::TRAINING_STEP, || guided::train(workspace))?;
            steps.run(&title, || compilation.build(workspace, &programs))
        }
    }
}

/// Builds a server of `tests/rivals`, and returns its program.
fn build_rival(workspace: &Workspace, name: &str, profile: Profile) -> anyhow::Result<PathBuf> {
    let manifest = workspace.root.join("tests/rivals").join(name).join("Cargo.toml");
    let target = workspace.target.join("rivals").join(profile.name());
    let mut build = workspace.cargo(["build", "--release", "--locked", "--manifest-path"]);
    step::run_command(build.arg(manifest).arg("--target-dir").arg(&target).args(profile.settings()))?;
    Ok(target.join("release").join(name))
}
