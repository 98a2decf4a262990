//! The identity of the caller of a run, which quotas and the audit log are based on.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The user or process that requested a run, and how the request reached the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's id.
    pub user: Arc<str>,
    /// The way in which the request reached the host.
    pub origin: CallerOrigin,
}

/// The way in which a request for a run reached the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallerOrigin {
    /// A client's HTTP request.
    Http,
    /// A `hatchery` command at a terminal.
    Cli,
    /// Code in the host's own process.
    #[default]
    InProcess,
}

impl Caller {
    /// Creates a caller with the id and the origin of its request.
    pub fn new(user: impl Into<Arc<str>>, origin: CallerOrigin) -> Self {
        Self { user: user.into(), origin }
    }
}

impl fmt::Display for CallerOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Cli => "cli",
            Self::InProcess => "in-process",
        })
    }
}
