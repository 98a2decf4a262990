//! Profile-guided optimization (PGO): the command is built with counters, serves a load test, and is built again with
//! the collected profile. Code that the load test did not run is kept small and separate from the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::step::{self, Steps};
use crate::workspace::Workspace;
use crate::{ALLOCATOR, components, toolchain};

/// The profile of both builds.
const PROFILE: &str = "guided";

/// The counters need no link-time optimization, which would take longer than the rest of the build.
const WITHOUT_LTO: [&str; 3] = ["-Clto=off", "-Clinker-plugin-lto=no", "-Cembed-bitcode=yes"];

/// Inlines fewer of the calls that are not hot. The limit of hot calls is another one.
const SMALL_COLD_CODE: &str = "-Cllvm-args=-inline-threshold=40";

/// Functions that were never called have no counts, which is no reason for a warning.
const WITHOUT_WARNINGS: &str = "-Cllvm-args=-pgo-warn-missing-function=false";

/// Flags of LLVM's linker: fold functions with the same code, unless their addresses are compared, and keep hot
/// functions together, apart from those that were never called.
const LINKER_FLAGS: [&str; 2] = ["-Clink-arg=-Wl,--icf=safe", "-Clink-arg=-Wl,-z,keep-text-section-prefix"];

/// The target whose default linker is LLVM's.
const LLD_TARGET: &str = "x86_64-unknown-linux-gnu";

/// The separator of flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";

/// The two builds of the command, and the counts between them.
pub struct GuidedBuild<'a> {
    workspace: &'a Workspace,
    target: String,
    folder: PathBuf,
}

impl<'a> GuidedBuild<'a> {
    /// The number of steps of [`Self::run`].
    pub const STEPS: usize = 3;

    /// Creates the builds for this machine.
    ///
    /// # Errors
    /// If there is no `rustc`.
    pub fn new(workspace: &'a Workspace) -> anyhow::Result<Self> {
        Ok(Self { workspace, target: toolchain::host()?, folder: workspace.target.join("pgo") })
    }

    /// Builds the command with counters, lets it serve the whole load test, and builds it again. Returns its path.
    pub fn run(&self, steps: &mut Steps, load: &Path, components: &Path) -> anyhow::Result<PathBuf> {
        steps.run("host: a build with counters", || self.instrument())?;
        steps.run("load test of the build with counters", || self.train(load, components))?;
        steps.run("host: a build for what the counters say", || self.optimize())?;
        Ok(self.command())
    }

    /// Builds the command with counters.
    fn instrument(&self) -> anyhow::Result<()> {
        let counters = format!("-Cprofile-generate={}", self.counts().display());
        self.build(std::iter::once(counters.as_str()).chain(WITHOUT_LTO))?;
        fs::copy(self.command(), self.instrumented()).context("cannot copy the command with counters")?;
        Ok(())
    }

    /// Runs the program `load` with the command with counters.
    fn train(&self, load: &Path, components: &Path) -> anyhow::Result<()> {
        let counts = self.counts();
        if counts.exists() {
            fs::remove_dir_all(&counts).with_context(|| format!("cannot delete {}", counts.display()))?;
        }
        let mut load = Command::new(load);
        load.args(["--seconds", "1"]).current_dir(&self.workspace.root).stdout(Stdio::null());
        load.env("HATCHERY_BIN", self.instrumented()).env(components::FOLDER_VARIABLE, components);
        step::run_command(&mut load)?;
        let mut merge = Command::new(toolchain::profdata(self.workspace)?);
        step::run_command(merge.arg("merge").arg("-o").arg(self.profile()).arg(&counts))
    }

    /// Builds the command for the load test.
    fn optimize(&self) -> anyhow::Result<()> {
        let profile = format!("-Cprofile-use={}", self.profile().display());
        let linker = LINKER_FLAGS.into_iter().filter(|_| self.target == LLD_TARGET);
        self.build([profile.as_str(), SMALL_COLD_CODE, WITHOUT_WARNINGS].into_iter().chain(linker))
    }

    /// Builds the command with these flags of the compiler. With a target triple, they are neither used for build
    /// scripts nor for procedural macros.
    fn build<'f>(&self, flags: impl Iterator<Item = &'f str>) -> anyhow::Result<()> {
        fs::create_dir_all(&self.folder).with_context(|| format!("cannot create {}", self.folder.display()))?;
        let build = ["build", "--locked", "--profile", PROFILE, "-p", "hatchery-cli", "--features", ALLOCATOR];
        let mut cargo = self.workspace.cargo(build);
        cargo.arg("--target").arg(&self.target).env("CARGO_ENCODED_RUSTFLAGS", encoded_flags(flags));
        step::run_command(&mut cargo)
    }

    fn counts(&self) -> PathBuf {
        self.folder.join("counts")
    }

    fn profile(&self) -> PathBuf {
        self.folder.join("hatchery.profdata")
    }

    fn instrumented(&self) -> PathBuf {
        self.folder.join("hatchery-with-counters")
    }

    fn command(&self) -> PathBuf {
        self.workspace.target.join(&self.target).join(PROFILE).join("hatchery")
    }
}

/// Returns the flags of the environment and then these, in the format of `CARGO_ENCODED_RUSTFLAGS`.
fn encoded_flags<'f>(flags: impl Iterator<Item = &'f str>) -> String {
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let configured = match (variable("CARGO_ENCODED_RUSTFLAGS"), variable("RUSTFLAGS")) {
        (Some(encoded), _) => encoded,
        (None, Some(plain)) => plain.split_whitespace().collect::<Vec<_>>().join(SEPARATOR),
        (None, None) => String::new(),
    };
    let configured = (!configured.is_empty()).then_some(configured);
    configured.into_iter().chain(flags.map(str::to_owned)).collect::<Vec<_>>().join(SEPARATOR)
}
