//! Builds Rust components. Samples are also copied next to their sources, where `hatchery serve sample-agents` finds
//! them; tests read components from cargo's output folder.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::step;
use crate::toolchain::TARGET;
use crate::workspace::{Package, Workspace};

const PROFILE: &str = "guest";

/// The environment variable with the folder of the built components, for tests.
pub const FOLDER_VARIABLE: &str = "HATCHERY_COMPONENTS";

/// The built component with the default code executor, which is built for the sample `data-analyst`.
const SANDBOX: &str = "data_analyst.wasm";

/// Components to build.
pub struct Components<'a> {
    samples: Vec<&'a Package>,
    /// Samples with their own workspace.
    standalone: Vec<Workspace>,
    /// Components that only tests use.
    fixtures: Vec<&'a Package>,
    output: PathBuf,
}

impl<'a> Components<'a> {
    /// The samples that are members of the workspace.
    pub fn samples(workspace: &'a Workspace) -> anyhow::Result<Self> {
        let samples = workspace.components_below("sample-agents")?;
        Ok(Self { samples, ..Self::none(workspace) })
    }

    /// The samples with their own workspace.
    pub fn standalone_samples(workspace: &'a Workspace) -> anyhow::Result<Self> {
        Ok(Self { standalone: workspace.standalone_samples()?, ..Self::none(workspace) })
    }

    /// All samples, and the components of `tests/components`.
    pub fn all(workspace: &'a Workspace) -> anyhow::Result<Self> {
        let fixtures = workspace.components_below("tests/components")?;
        Ok(Self { fixtures, standalone: workspace.standalone_samples()?, ..Self::samples(workspace)? })
    }

    fn none(workspace: &Workspace) -> Self {
        let output = workspace.target.join(TARGET).join(PROFILE);
        Self { samples: Vec::new(), standalone: Vec::new(), fixtures: Vec::new(), output }
    }

    /// The folder that cargo writes the components to.
    pub fn folder(&self) -> &Path {
        &self.output
    }

    /// Builds all of them, and copies each sample to `<its folder>/<its name>.wasm`.
    pub fn build(&self, workspace: &Workspace) -> anyhow::Result<()> {
        let members: Vec<_> = self.samples.iter().chain(&self.fixtures).map(|package| package.name.as_str()).collect();
        if !members.is_empty() {
            let mut cargo = workspace.cargo(["build", "--profile", PROFILE, "--target", TARGET]);
            step::run_command(cargo.args(members.into_iter().flat_map(|name| ["-p", name])))?;
        }
        for standalone in &self.standalone {
            let mut cargo = standalone.cargo(["build", "--profile", PROFILE, "--target", TARGET, "--target-dir"]);
            step::run_command(cargo.arg(&workspace.target))?;
        }
        for sample in self.samples.iter().copied().chain(self.standalone_packages()) {
            let library = sample.library().unwrap_or(&sample.name);
            let to = sample.folder().join(format!("{}.wasm", sample.name));
            copy_if_changed(&self.output.join(format!("{library}.wasm")), &to)?;
        }
        if self.standalone.is_empty() {
            Ok(())
        } else {
            // The command that is built here finds it as an installed one does.
            let program = std::env::current_exe().context("cannot find the path of this program")?;
            self.install_sandbox(program.parent().unwrap_or(Path::new("")))
        }
    }

    /// Copies the component of the default code executor to its place in an installation, where `folder` has the
    /// command.
    pub fn install_sandbox(&self, folder: &Path) -> anyhow::Result<()> {
        let to = folder.join("components");
        fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
        copy_if_changed(&self.output.join(SANDBOX), &to.join("sandbox.wasm"))
    }

    /// Runs the tests of the samples with their own workspace.
    pub fn test_standalone(&self, workspace: &Workspace) -> anyhow::Result<()> {
        for standalone in &self.standalone {
            step::run_command(standalone.cargo(["test", "--target-dir"]).arg(&workspace.target))?;
        }
        Ok(())
    }

    fn standalone_packages(&self) -> impl Iterator<Item = &Package> {
        self.standalone.iter().flat_map(Workspace::components)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let packages = self.samples.iter().copied().chain(self.standalone_packages());
        packages.chain(self.fixtures.iter().copied()).map(|package| package.name.as_str())
    }
}

impl fmt::Display for Components<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(", "))
    }
}

/// Copies a file unless the copy exists already: a host that serves the folder need not load it again. The copy is
/// replaced atomically, so a watcher never reads half of it.
fn copy_if_changed(from: &Path, to: &Path) -> anyhow::Result<()> {
    let built = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|existing| existing == built) {
        return Ok(());
    }
    let temporary = to.with_extension("wasm.new");
    fs::write(&temporary, built).with_context(|| format!("cannot write {}", temporary.display()))?;
    fs::rename(&temporary, to).with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_components_are_the_samples_and_the_fixtures() {
        let workspace = Workspace::load().unwrap();
        let samples = Components::samples(&workspace).unwrap().to_string();
        let standalone = Components::standalone_samples(&workspace).unwrap().to_string();
        let all = Components::all(&workspace).unwrap().to_string();
        assert!(samples.starts_with("concierge, dice, greeter, ") && !samples.contains("swap"), "{samples}");
        assert_eq!(standalone, "data-analyst");
        let fixtures = all.strip_prefix(&format!("{samples}, {standalone}, ")).unwrap();
        assert!(fixtures.contains("misbehaver") && fixtures.ends_with(", swap, vault"), "{fixtures}");
    }

    #[test]
    fn a_copy_is_written_only_when_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from.wasm"), folder.path().join("to.wasm"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        copy_if_changed(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "new");
        let written = fs::metadata(&to).unwrap().modified().unwrap();
        copy_if_changed(&from, &to).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), written);
        assert!(!folder.path().join("to.wasm.new").exists());
    }
}
