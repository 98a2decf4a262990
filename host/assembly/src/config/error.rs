//! Errors of reading the configuration.

use std::io;
use std::path::PathBuf;

use hatchery_wasm::policy::PathConflict;
use thiserror::Error;

/// Reasons why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file exists but cannot be read.
    #[error("{}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    /// The file does not exist although it is required.
    #[error(
        "{}: file not found; {}", file.display(),
        if *is_named { "name an existing configuration file" } else { "a configuration file is required, so create it" }
    )]
    Missing {
        file: PathBuf,
        /// True if the operator names the file, with
        /// [`ConfigSource::with_file`](crate::trust::ConfigSource::with_file).
        is_named: bool,
    },
    /// The file requests access for the whole host that is not trusted.
    #[error("{explanation}")]
    Untrusted {
        /// The requested access and the next step.
        explanation: String,
    },
    /// A grant covers a path that belongs to the host.
    #[error("{}: {conflict}", file.display())]
    ProtectedPath { file: PathBuf, conflict: Box<PathConflict> },
    /// The content of the file is invalid.
    #[error("{}{}: {message}", file.display(), position(location))]
    Invalid {
        file: PathBuf,
        /// Line and column, from 1.
        location: Option<(usize, usize)>,
        message: String,
    },
}

fn position(location: &Option<(usize, usize)>) -> String {
    location.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default()
}
