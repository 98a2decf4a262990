//! Profile-guided optimisation (PGO): a build of the host with counters serves the load test, and the build that is shipped is
//! optimised for what was counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};

use crate::components::{self, Components};
use crate::step;
use crate::workspace::Workspace;
use crate::{ALLOCATOR, toolchain};

/// The title of the step that trains.
pub const TRAINING_STEP: &str = "training: a build with counters, and the load test";

/// Rows of the load test, by a part of their names.
const TRAINING: [&str; 2] = ["memory", "SQLite"];

/// Duration of each row in seconds.
const SECONDS: &str = "2";

/// How all programs of a build are compiled.
pub struct Compilation {
    target_folder: PathBuf,
    rust_flags: String,
    /// Settings of cargo.
    settings: &'static [&'static str],
}

impl Compilation {
    /// Builds with counters. Link-time optimisation would take long, and the counts are of functions before it.
    fn counting(workspace: &Workspace, counts: &Path) -> Self {
        Self {
            target_folder: workspace.target.join("guided/counting"),
            rust_flags: format!("-Cprofile-generate={}", counts.display()),
            settings: &["--config=profile.dist.lto=\"off\"", "--config=profile.dist.codegen-units=16"],
        }
    }

    fn guided(workspace: &Workspace, profile: &Path) -> Self {
        Self {
            target_folder: workspace.target.join("guided/shipped"),
            rust_flags: format!("-Cprofile-use={}", profile.display()),
            settings: &[],
        }
    }

    /// Builds programs with the profile `dist`, and returns their folder. With `--target`, cargo leaves build scripts and macros
    /// without the flags.
    ///
    /// # Errors
    /// If the build fails.
    pub fn build(&self, workspace: &Workspace, programs: &[&str]) -> anyhow::Result<PathBuf> {
        let target = toolchain::host_target()?;
        let mut cargo =
            workspace.cargo(["build", "--locked", "--profile", "dist", "--target", &target, "--target-dir"]);
        cargo.arg(&self.target_folder).args(self.settings).args(programs).args(["--features", ALLOCATOR]);
        step::run_command(cargo.env("RUSTFLAGS", &self.rust_flags).env_remove("CARGO_ENCODED_RUSTFLAGS"))?;
        Ok(self.target_folder.join(target).join("dist"))
    }
}

/// Counts what the host does under load.
///
/// # Errors
/// If the build or the load test fails.
pub fn train(workspace: &Workspace) -> anyhow::Result<Compilation> {
    let components = Components::of_samples(workspace)?;
    components.build(workspace)?;
    let merge = profile_merger(workspace)?;
    let folder = workspace.target.join("guided/counts");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let programs = ["--workspace", "--bin", "hatchery", "--example", "load"];
    let built = Compilation::counting(workspace, &folder).build(workspace, &programs)?;
    for rows in TRAINING {
        let mut load = Command::new(built.join("examples/load"));
        load.args(["--seconds", SECONDS, "--filter", rows]).current_dir(&workspace.root).env_remove("RUST_BACKTRACE");
        load.env(components::FOLDER_VARIABLE, components.folder()).env("LLVM_PROFILE_FILE", folder.join("%p.profraw"));
        let load = load.spawn().context("cannot start the load test")?;
        let client = folder.join(format!("{}.profraw", load.id()));
        wait(load)?;
        // What the clients do says nothing about servers.
        fs::remove_file(&client).with_context(|| format!("cannot remove {}", client.display()))?;
    }
    Ok(Compilation::guided(workspace, &merge_counts(&merge, &folder)?))
}

fn wait(mut load: Child) -> anyhow::Result<()> {
    let status = load.wait()?;
    ensure!(status.success(), "the load test failed ({status})");
    Ok(())
}

/// Merges the counts of all processes to a profile, and returns its path. Cargo notices a new profile only by its path.
fn merge_counts(merge: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let merged = folder.join("merged");
    step::run_command(Command::new(merge).args(["merge", "--output"]).arg(&merged).arg(folder))?;
    let digest = Sha256::digest(fs::read(&merged)?);
    let name: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let profile = folder.join(name).with_extension("profdata");
    fs::rename(&merged, &profile)?;
    Ok(profile)
}

/// Returns the path of `llvm-profdata` of the toolchain, which rustup installs if it is missing.
fn profile_merger(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let tools = toolchain::sysroot(workspace)?.join("lib/rustlib").join(toolchain::host_target()?).join("bin");
    let merger = tools.join("llvm-profdata");
    if !merger.is_file() {
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add", "llvm-tools"]).current_dir(&workspace.root);
        step::run_command(&mut rustup).context("profile-guided builds need `llvm-profdata`")?;
    }
    ensure!(merger.is_file(), "{} does not exist; add the component llvm-tools of the toolchain", merger.display());
    Ok(merger)
}
