//! The workspace as `cargo metadata` describes it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::Deserialize;

/// The workspace that this program belongs to.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
    packages: Vec<Package>,
}

/// Samples with their own workspace: cargo would unify the features of their dependencies with the host's.
const STANDALONE_SAMPLES: [&str; 1] = ["sample-agents/data-analyst"];

/// A crate of a workspace.
#[derive(Debug, Deserialize)]
pub struct Package {
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
    /// Loads the workspace that this program belongs to.
    pub fn load() -> anyhow::Result<Self> {
        Self::load_manifest(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
    }

    /// Loads the samples with their own workspace.
    pub fn standalone_samples(&self) -> anyhow::Result<Vec<Self>> {
        STANDALONE_SAMPLES
            .iter()
            .map(|folder| Self::load_manifest(&self.root.join(folder).join("Cargo.toml")))
            .collect()
    }

    fn load_manifest(manifest: &Path) -> anyhow::Result<Self> {
        let output = Command::new(cargo())
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(manifest)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed ({})", output.status);
        }
        serde_json::from_slice(&output.stdout).context("cannot parse the output of `cargo metadata`")
    }

    /// Returns a cargo command that runs in the workspace's folder.
    pub fn cargo<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(cargo());
        command.args(args).current_dir(&self.root);
        command
    }

    /// Returns the crates below `folder` that build a component (a `cdylib`), sorted by name.
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

    /// Returns the crates that build a component.
    pub fn components(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.library().is_some())
    }

    /// Returns the path of the built `hatchery` command. Cargo puts it next to this program, because both have the same
    /// profile.
    pub fn host_binary(&self) -> anyhow::Result<PathBuf> {
        let own = std::env::current_exe().context("cannot find the path of this program")?;
        let host = own.with_file_name("hatchery");
        if !host.is_file() {
            bail!("{} does not exist; run this program by `cargo xtask`", host.display());
        }
        Ok(host)
    }
}

impl Package {
    /// Returns the folder of the manifest.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new(""))
    }

    /// Returns the name of the `cdylib` target, or `None` if the crate builds no component.
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
    fn samples_are_found_with_the_names_of_their_libraries() {
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
