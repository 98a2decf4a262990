//! A folder to serve, gone after the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::paths;

/// A temporary folder to serve, with places beside it for the host's data and for files on their way into it. It is there until the last
/// clone, such as that of a running host, is dropped.
#[derive(Clone)]
pub struct Folder {
    root: Arc<TempDir>,
}

/// Samples whose build tools not every machine has.
const OTHER_LANGUAGES: [&str; 2] = ["haiku", "unit-converter"];

impl Folder {
    /// An empty one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn empty() -> anyhow::Result<Self> {
        let root = tempfile::tempdir()?;
        for name in ["served", "data", "staging"] {
            fs::create_dir(root.path().join(name))?;
        }
        Ok(Self { root: Arc::new(root) })
    }

    /// A copy of `sample-agents` as it is served: YAML files and built components, without sources. The samples in other languages than
    /// Rust are not among them.
    ///
    /// # Errors
    /// When the components have not been built.
    pub fn of_samples() -> anyhow::Result<Self> {
        let folder = Self::empty()?;
        let samples = paths::repository().join("sample-agents");
        copy(&samples, &folder.served())?;
        for component in [
            "data-analyst/data-analyst.wasm",
            "dice/dice.wasm",
            "greeter/greeter.wasm",
            "help-desk/help-desk.wasm",
            "pii-guard/pii-guard.wasm",
            "trip-planner/tools/trip-tools.wasm",
            "web-fetch/web-fetch.wasm",
        ] {
            let path = folder.served().join(component);
            ensure!(path.is_file(), "sample-agents/{component} has not been built; `cargo xtask test` builds it");
        }
        for sample in OTHER_LANGUAGES {
            fs::remove_dir_all(folder.served().join(sample))?;
        }
        Ok(folder)
    }

    /// Adds the samples in other languages than Rust, as far as their build tools could be had on this machine; those that could not are
    /// named on stderr. Gives the names of those that were added.
    ///
    /// # Errors
    /// When one cannot be copied.
    pub fn with_other_languages(&self) -> anyhow::Result<Vec<&'static str>> {
        let mut added = Vec::new();
        for sample in OTHER_LANGUAGES {
            let source = paths::repository().join("sample-agents").join(sample);
            let component = source.join(format!("{sample}.wasm"));
            if component.is_file() {
                copy(&source, &self.served().join(sample))?;
                added.push(sample);
            } else {
                let reason = fs::read_to_string(component.with_extension("skipped"));
                let reason = reason.unwrap_or_else(|_| "`cargo xtask components` builds it".into());
                crate::skip(&format!("sample-agents/{sample}"), &reason);
            }
        }
        Ok(added)
    }

    /// The folder that is served.
    pub fn served(&self) -> PathBuf {
        self.root.path().join("served")
    }

    /// The folder for the host's data.
    pub fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// A configuration outside of the served folder, where folders cannot ask for rights by themselves. [`Host::serve`](crate::Host::serve)
    /// takes it when it is there.
    pub fn operator_config(&self) -> PathBuf {
        self.root.path().join("operator.yaml")
    }

    /// Writes the operator's configuration.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_operator_config(&self, text: &str) -> anyhow::Result<()> {
        fs::write(self.operator_config(), text).context("the operator's configuration")
    }

    /// A file in the served folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.served().join(name)
    }

    /// Writes a file where it is served, as an editor or `cp` does; the host may see it half-written.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let path = self.file(name);
        make_parent(&path)?;
        fs::write(&path, contents).with_context(|| path.display().to_string())
    }

    /// Puts a file in its place in one step, as careful deployments do.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, name: &str, contents: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let path = self.file(name);
        make_parent(&path)?;
        let staged = self.root.path().join("staging/file");
        fs::write(&staged, contents)?;
        fs::rename(&staged, &path).with_context(|| path.display().to_string())
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        let path = self.file(name);
        fs::remove_file(&path).with_context(|| path.display().to_string())
    }
}

fn make_parent(path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&path, &target)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "wasm") {
            make_parent(&target)?;
            fs::copy(&path, &target).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
