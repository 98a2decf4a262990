//! Who asked for a run: the identity that quotas, the audit log and, later, roles are based on.

use std::fmt;
use std::sync::Arc;

/// Who asked for a run, and how the request reached the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's id.
    pub user: Arc<str>,
    /// How the request came in.
    pub origin: CallerOrigin,
    /// True once the host has verified the user's id. Nothing does yet: the id is what the client claims.
    pub is_authenticated: bool,
}

/// How a request for a run reached the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
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
    /// A caller whose id is a claim.
    pub fn claimed(user: impl Into<Arc<str>>, origin: CallerOrigin) -> Self {
        Self { user: user.into(), origin, is_authenticated: false }
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
