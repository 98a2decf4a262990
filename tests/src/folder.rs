//! A temporary folder to serve.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::paths;

/// A temporary folder to serve, with folders beside it for the host's data and for staging. It is deleted when the last
/// clone, such as a running host's, is dropped.
#[derive(Clone)]
pub struct Folder {
    root: Arc<TempDir>,
}

/// Samples whose build tools may be missing.
const OTHER_LANGUAGES: [&str; 2] = ["haiku", "unit-converter"];

/// The sample that starts a program in Python.
const LIBRARY: &str = "library";

/// The sample that starts an MCP server from npm.
const NOTES: &str = "notes";

/// The sample with an agent of another host, whose card is at a fixed port.
const CROUPIER: &str = "croupier";

impl Folder {
    /// Creates an empty folder.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn empty() -> anyhow::Result<Self> {
        let root = tempfile::tempdir()?;
        for name in ["served", "data", "staging"] {
            fs::create_dir(root.path().join(name))?;
        }
        Ok(Self { root: Arc::new(root) })
    }

    /// Copies `sample-agents`: YAML and JSON files and built components, without the samples in other languages than
    /// Rust.
    ///
    /// # Errors
    /// If the components have not been built.
    pub fn with_samples() -> anyhow::Result<Self> {
        let folder = Self::empty()?;
        let samples = paths::repository().join("sample-agents");
        copy(&samples, &folder.served())?;
        for component in [
            "concierge/concierge.wasm",
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
        for sample in OTHER_LANGUAGES.into_iter().chain([LIBRARY, NOTES, CROUPIER]) {
            fs::remove_dir_all(folder.served().join(sample))?;
        }
        Ok(folder)
    }

    /// Adds the samples in other languages than Rust, and returns their names. Samples that could not be built here are
    /// reported on stderr.
    ///
    /// # Errors
    /// If one cannot be copied.
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

    /// Adds the sample `library` and returns true, if Python is installed. Otherwise this is reported on stderr.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn with_library(&self) -> anyhow::Result<bool> {
        let is_installed =
            Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
        if is_installed {
            copy(&paths::repository().join("sample-agents").join(LIBRARY), &self.served().join(LIBRARY))?
        } else {
            crate::skip("sample-agents/library", "python3 is not installed")
        }
        Ok(is_installed)
    }

    /// Adds the sample `notes` and returns true, if its server can be downloaded. Otherwise this is reported on stderr.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn with_notes(&self) -> anyhow::Result<bool> {
        let source = paths::repository().join("sample-agents").join(NOTES);
        let server = ["-y", "@modelcontextprotocol/server-filesystem@2026.8.31"];
        // It ends at once, because it has no input.
        let started = Command::new("npx").args(server).arg(source.join("files")).stdin(Stdio::null()).output();
        let is_available = started.is_ok_and(|output| output.status.success());
        if is_available {
            copy(&source, &self.served().join(NOTES))?
        } else {
            crate::skip("sample-agents/notes", "npx cannot start its server")
        }
        Ok(is_available)
    }

    /// Creates a folder with the sample `croupier`, whose card is at the host at `url`.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn with_croupier(url: &str) -> anyhow::Result<Self> {
        let folder = Self::empty()?;
        let samples = paths::repository().join("sample-agents");
        copy(&samples.join(CROUPIER), &folder.served().join(CROUPIER))?;
        let config = fs::read_to_string(samples.join("hatchery.yaml"))?;
        let (_, a2a) = config.split_once("\na2a:").context("`a2a` in sample-agents/hatchery.yaml")?;
        folder.write_operator_config(&format!("a2a:{}", a2a.replace("http://127.0.0.1:8080", url)))?;
        Ok(folder)
    }

    /// Returns the served folder.
    pub fn served(&self) -> PathBuf {
        self.root.path().join("served")
    }

    /// Returns the folder for the host's data.
    pub fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// Returns the path of a configuration file outside of the served folder. [`Host::serve`](crate::Host::serve) uses
    /// it if it exists.
    pub fn operator_config(&self) -> PathBuf {
        self.root.path().join("operator.yaml")
    }

    /// Writes the operator's configuration.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_operator_config(&self, text: &str) -> anyhow::Result<()> {
        fs::write(self.operator_config(), text).context("the operator's configuration")
    }

    /// Returns the path of a file in the served folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.served().join(name)
    }

    /// Writes a served file in place, like an editor or `cp`. The host may read it half-written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let path = self.file(name);
        create_parent(&path)?;
        fs::write(&path, contents).with_context(|| path.display().to_string())
    }

    /// Replaces a served file atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, name: &str, contents: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let path = self.file(name);
        create_parent(&path)?;
        let staged = self.root.path().join("staging/file");
        fs::write(&staged, contents)?;
        fs::rename(&staged, &path).with_context(|| path.display().to_string())
    }

    /// Deletes a served file.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        let path = self.file(name);
        fs::remove_file(&path).with_context(|| path.display().to_string())
    }
}

fn create_parent(path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&path, &target)?;
        } else if path
            .extension()
            .is_some_and(|extension| ["json", "md", "py", "wasm", "yaml"].iter().any(|copied| extension == *copied))
        {
            create_parent(&target)?;
            fs::copy(&path, &target).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
