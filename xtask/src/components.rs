//! Builds components in one go. Samples are also copied beside their sources, where `hatchery serve sample-agents` finds them; tests take
//! theirs from cargo's own folder.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::step;
use crate::toolchain::TARGET;
use crate::workspace::{Package, Workspace};

const PROFILE: &str = "guest";

/// Tells tests where built components are.
pub const FOLDER_VARIABLE: &str = "HATCHERY_COMPONENTS";

/// Components to build.
pub struct Components<'a> {
    samples: Vec<&'a Package>,
    /// Samples that are workspaces of their own.
    apart: Vec<Workspace>,
    /// Those that only tests use.
    fixtures: Vec<&'a Package>,
    built: PathBuf,
}

impl<'a> Components<'a> {
    /// Those of `sample-agents`.
    pub fn of_samples(workspace: &'a Workspace) -> anyhow::Result<Self> {
        let samples = workspace.components_below("sample-agents")?;
        let built = workspace.target.join(TARGET).join(PROFILE);
        Ok(Self { samples, apart: workspace.apart()?, fixtures: Vec::new(), built })
    }

    /// Those of `sample-agents` and of `tests/components`.
    pub fn all(workspace: &'a Workspace) -> anyhow::Result<Self> {
        let fixtures = workspace.components_below("tests/components")?;
        Ok(Self { fixtures, ..Self::of_samples(workspace)? })
    }

    /// Where cargo puts them.
    pub fn folder(&self) -> &Path {
        &self.built
    }

    /// Builds all of them, and copies each sample to `<its folder>/<its name>.wasm`.
    pub fn build(&self, workspace: &Workspace) -> anyhow::Result<()> {
        let mut cargo = workspace.cargo(["build", "--profile", PROFILE, "--target", TARGET]);
        let names = self.samples.iter().chain(&self.fixtures).map(|package| package.name.as_str());
        step::succeed(cargo.args(names.flat_map(|name| ["-p", name])))?;
        for apart in &self.apart {
            let mut cargo = apart.cargo(["build", "--profile", PROFILE, "--target", TARGET, "--target-dir"]);
            step::succeed(cargo.arg(&workspace.target))?;
        }
        for sample in self.samples.iter().copied().chain(self.apart.iter().flat_map(Workspace::components)) {
            let library = sample.library().unwrap_or(&sample.name);
            let to = sample.folder().join(format!("{}.wasm", sample.name));
            copy(&self.built.join(format!("{library}.wasm")), &to)?;
        }
        Ok(())
    }

    /// Runs the tests of those that are workspaces of their own.
    pub fn test_apart(&self, workspace: &Workspace) -> anyhow::Result<()> {
        for apart in &self.apart {
            step::succeed(apart.cargo(["test", "--target-dir"]).arg(&workspace.target))?;
        }
        Ok(())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let apart = self.apart.iter().flat_map(Workspace::components);
        self.samples.iter().copied().chain(apart).chain(self.fixtures.iter().copied()).map(|it| it.name.as_str())
    }
}

impl fmt::Display for Components<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(", "))
    }
}

/// Copies a file unless it is there already: a host that serves the folder need not load it again.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let built = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|there| there == built) {
        return Ok(());
    }
    // Whoever watches the folder sees the old file or the new one, never half of it.
    let beside = to.with_extension("wasm.new");
    fs::write(&beside, built).with_context(|| format!("cannot write {}", beside.display()))?;
    fs::rename(&beside, to).with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_components_are_the_samples_and_those_of_tests() {
        let workspace = Workspace::load().unwrap();
        let samples = Components::of_samples(&workspace).unwrap().to_string();
        let all = Components::all(&workspace).unwrap().to_string();
        assert!(
            samples.starts_with("dice, greeter, ") && samples.ends_with(", data-analyst") && !samples.contains("swap"),
            "{samples}"
        );
        let fixtures = all.strip_prefix(&format!("{samples}, ")).unwrap();
        assert!(fixtures.contains("misbehaver") && fixtures.ends_with(", swap, vault"), "{fixtures}");
    }

    #[test]
    fn a_copy_replaces_the_file_only_when_it_differs() {
        let folder = std::env::temp_dir().join(format!("xtask-copy-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (from, to) = (folder.join("from.wasm"), folder.join("to.wasm"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "new");
        let written = fs::metadata(&to).unwrap().modified().unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), written);
        assert!(!folder.join("to.wasm.new").exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
