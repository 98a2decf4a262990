//! What is in the served directory: components and YAML files, at any depth.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hatchery_engine::yaml::ROOT_FILE;

/// Folders that hold no agents.
const IGNORED: &[&str] = &["target", "node_modules"];

/// What a file is to the loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `*.wasm`.
    Component,
    /// `root_agent.yaml`.
    RootAgent,
    /// Any other YAML file: an agent or a script that others may refer to.
    Yaml,
}

/// Tells a file from a later state of itself, without reading it. The signature beside a component is part of its state: with another
/// one, the component may be let in or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: Seen,
    signature: Option<Seen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// The stamp of a file, if there is one.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let signature = path.extension().filter(|extension| *extension == "wasm");
        let signature = signature.and_then(|_| Seen::at(&path.with_extension("wasm.minisig")));
        Some(Self { file: Seen::at(path)?, signature })
    }
}

impl Seen {
    fn at(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self { size: metadata.len(), modified: metadata.modified().ok() })
    }
}

/// The files that were found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) files: BTreeMap<PathBuf, (Kind, Stamp)>,
    /// Folders that could not be read: a file that is missing below one of them may still be there.
    pub(crate) unreadable: Vec<PathBuf>,
}

impl Scan {
    /// What a scan found that could not look at anything.
    pub(crate) fn failed(directory: &Path) -> Self {
        Self { unreadable: vec![directory.to_path_buf()], ..Self::default() }
    }

    /// True when this file is known not to be there any more.
    pub(crate) fn misses(&self, path: &Path) -> bool {
        !self.files.contains_key(path) && !self.unreadable.iter().any(|folder| path.starts_with(folder))
    }
}

/// True when `path` lies in a folder below `directory` that is never looked at: hidden, or of a build tool.
pub(crate) fn is_ignored(directory: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(directory).unwrap_or(path);
    below.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        name.starts_with('.') || IGNORED.contains(&name.as_ref())
    })
}

/// Looks through `directory`, skipping hidden folders, those of build tools, and those that components may write: a component that may
/// keep files must not be able to add agents.
pub(crate) fn scan(directory: &Path, written: &[PathBuf]) -> Scan {
    let is_written = |path: &Path| {
        !written.is_empty() && path.canonicalize().is_ok_and(|path| written.iter().any(|it| path.starts_with(it)))
    };
    let mut scan = Scan::default();
    let mut open = vec![directory.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!("{}: cannot be read: {error}", folder.display());
                scan.unreadable.push(folder);
                continue;
            }
        };
        for entry in entries {
            let Ok(entry) = entry else {
                scan.unreadable.push(folder.clone());
                continue;
            };
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            if path.is_dir() {
                if !IGNORED.contains(&name.as_ref()) && !is_link(&path) && !is_written(&path) {
                    open.push(path);
                }
            } else if let (Some(kind), Some(stamp)) = (kind(&name), Stamp::of(&path)) {
                // A link to a file that a component may write would make that file an agent or a component.
                if !(is_link(&path) && is_written(&path)) {
                    scan.files.insert(path, (kind, stamp));
                }
            }
        }
    }
    scan
}

/// A linked folder could lead back up.
fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink())
}

fn kind(name: &str) -> Option<Kind> {
    if name == ROOT_FILE {
        return Some(Kind::RootAgent);
    }
    match name.rsplit_once('.')?.1 {
        "wasm" => Some(Kind::Component),
        "yaml" | "yml" => Some(Kind::Yaml),
        _ => None,
    }
}
