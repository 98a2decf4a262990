//! What cargo knows about the workspace.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::Deserialize;

/// The workspace that this program belongs to.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    /// Its folder.
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    /// Where cargo puts what it builds.
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
    packages: Vec<Package>,
}

/// Samples that are workspaces of their own, because what they depend on must not be mixed with what the host depends on.
const APART: [&str; 1] = ["sample-agents/data-analyst"];

/// A crate of the workspace, or apart from it.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    crate_types: Vec<String>,
}

impl Workspace {
    /// Asks `cargo metadata`.
    pub fn load() -> anyhow::Result<Self> {
        Self::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
    }

    /// The samples that are workspaces of their own.
    pub fn apart(&self) -> anyhow::Result<Vec<Self>> {
        APART.iter().map(|folder| Self::of(&self.root.join(folder).join("Cargo.toml"))).collect()
    }

    fn of(manifest: &Path) -> anyhow::Result<Self> {
        let output = Command::new(cargo())
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(manifest)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed ({})", output.status);
        }
        serde_json::from_slice(&output.stdout).context("the answer of `cargo metadata`")
    }

    /// A cargo command in the workspace's folder.
    pub fn cargo<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(cargo());
        command.args(args).current_dir(&self.root);
        command
    }

    /// The crates below a folder that become components: those that build a `cdylib`. Sorted by name.
    pub fn components_below(&self, folder: &str) -> anyhow::Result<Vec<&Package>> {
        let folder = self.root.join(folder);
        let in_folder = self.packages.iter().filter(|package| package.manifest_path.starts_with(&folder));
        let mut components: Vec<_> = in_folder.filter(|package| package.library().is_some()).collect();
        components.sort_by_key(|package| &package.name);
        if components.is_empty() {
            bail!("{} holds no crate with crate-type = [\"cdylib\"]", folder.display());
        }
        Ok(components)
    }

    /// Its crates that become components.
    pub fn components(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.library().is_some())
    }

    /// The built `hatchery` command. It lies beside this program: cargo builds both for the same machine in the same profile.
    pub fn host_binary(&self) -> anyhow::Result<PathBuf> {
        let own = std::env::current_exe().context("this program does not know where it is")?;
        let host = own.with_file_name("hatchery");
        if !host.is_file() {
            bail!("{} is not there although cargo has built it; is xtask run by `cargo xtask`?", host.display());
        }
        Ok(host)
    }
}

impl Package {
    /// The folder of its sources.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new(""))
    }

    /// The name under which cargo builds its component.
    pub fn library(&self) -> Option<&str> {
        let library = self.targets.iter().find(|target| target.crate_types.iter().any(|kind| kind == "cdylib"));
        library.map(|target| target.name.as_str())
    }
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_found_with_the_names_that_cargo_gives_their_libraries() {
        let workspace = Workspace::load().unwrap();
        let samples = workspace.components_below("sample-agents").unwrap();
        let tools = samples.iter().find(|package| package.name == "trip-tools").unwrap();
        assert_eq!(tools.library(), Some("trip_tools"));
        assert_eq!(tools.folder(), workspace.root.join("sample-agents/trip-planner/tools"));
    }

    #[test]
    fn a_folder_without_components_is_named() {
        let workspace = Workspace::load().unwrap();
        let error = workspace.components_below("host").unwrap_err().to_string();
        assert!(error.ends_with("host holds no crate with crate-type = [\"cdylib\"]"), "{error}");
    }
}
