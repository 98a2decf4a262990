//! Errors of opening a host and of starting runs.

use std::path::PathBuf;

use hatchery_core::{RunError, TreeError};
use hatchery_engine::plugins::config::PluginError;
use hatchery_wasm::LoadError;
use thiserror::Error;

use crate::config::ConfigError;
use crate::host_key::HostKeyError;
use crate::services::ServicesError;

/// Reasons why a host cannot be opened or cannot start a run.
#[derive(Debug, Error)]
pub enum HostError {
    #[error("{} is not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Services(#[from] ServicesError),
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// Components cannot run on this machine, or the folder cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A configured plugin cannot be used.
    #[error("{}: {source}", file.display())]
    Plugin { file: PathBuf, source: PluginError },
    /// A native agent cannot be an app.
    #[error("app `{name}`: {source}")]
    InvalidApp { name: String, source: TreeError },
    #[error("two native apps are named `{0}`; rename one of them")]
    DuplicateApp(String),
    #[error("two native plugins are named `{0}`; rename one of them")]
    DuplicatePlugin(String),
    #[error("app `{name}` not found; available: {}", names(known))]
    AppNotFound { name: String, known: Vec<String> },
    /// The run was refused.
    #[error(transparent)]
    Run(#[from] RunError),
}

fn names(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
