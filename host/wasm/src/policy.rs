//! What a component may do beyond computing: the operator's `components.NAME.grants` in `hatchery.yaml`. Nothing that is not written there
//! is allowed, but for clocks and random numbers: no language's runtime starts without them, and they reach nobody.
//!
//! Each import asks here before it acts. A refusal is a [`Denial`]: an ordinary error to the guest, with the lines that would allow it,
//! and one line in the audit log for the operator. What a component says that it needs, its [`RequestedGrants`], grants nothing; it is compared
//! with what it is granted, for the operator to see.

mod address;
mod denial;
mod deterministic;
mod environment;
mod files;
mod grant_report;
mod network;
mod path_conflict;
mod pattern;
mod permission;
mod requested_grants;
mod resolved_path;
mod secrets;
mod wasi_environment;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

pub use deterministic::{ClockGrant, RandomGrant};
pub use environment::Variable;
pub use files::{Access, Folder};
pub use grant_report::{GrantEntries, GrantReport};
pub(crate) use path_conflict::check_folders_of;
pub use path_conflict::{PathConflict, ProtectedPath, check_readable_folders, check_writable_folders};
pub use pattern::Pattern;
pub use requested_grants::{RequestedFolder, RequestedGrants};

pub(crate) use denial::{CODE as DENIED, Denial, lines};
pub use network::{HostPattern, PrivateEntry};
pub(crate) use network::{Target, blocked_range};
pub(crate) use permission::Permission;
pub(crate) use secrets::ResolvedSecret;
pub use secrets::Secret;
pub(crate) use wasi_environment::{Preopens, WasiEnvironment, link};

/// What one component is granted. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// Hosts that it may send HTTP requests to.
    pub network: Vec<HostPattern>,
    /// Hosts and addresses of these that need not be of the public internet.
    pub private_network: Vec<PrivateEntry>,
    /// What the host adds to requests.
    pub secrets: Vec<Secret>,
    /// Models that its code may ask, and that its agents may be described with. Its own need no grant: those that it
    /// offers, and scripts that have its name or lie in the folder that has its name.
    pub models: Vec<Pattern>,
    /// Whether its code may search what was said in the user's earlier sessions.
    pub memory: bool,
    /// Whether its code may read, or also save and delete, the files of the session and of the user.
    pub artifacts: Option<Access>,
    /// State that is shared beyond the session.
    pub state: StateGrants,
    /// Tools of others that its code may call, among those that its agent was given, by full name as in `search/find`;
    /// and items of others that its agents may be described with: tools, callbacks, code executors and example
    /// providers by full name, whole toolsets as `search/*`, agents as `agent:search/clerk`, and tools that run inside
    /// of models, such as `url_context`.
    pub tools: Vec<Pattern>,
    /// Environment variables that it sees, by name.
    pub environment: BTreeMap<String, Variable>,
    /// Folders of the host that it sees.
    pub files: Vec<Folder>,
    /// What time it is to it.
    pub clock: ClockGrant,
    /// Where its random numbers come from.
    pub random: RandomGrant,
    /// Other components that keep what they offer to themselves, by `components.NAME.private`: none of the patterns
    /// stands for it.
    #[serde(skip)]
    pub private_components: BTreeSet<String>,
}

/// Keys `user:…` and `app:…` that a component may use. Those of the session, and `temp:…`, it may always use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StateGrants {
    /// Keys that it may read.
    pub read: Vec<Pattern>,
    /// Keys that it may set, and read.
    pub write: Vec<Pattern>,
}

impl Grants {
    /// Lets relative folders start at `folder`, which is that of `hatchery.yaml`.
    pub fn resolve_paths(&mut self, folder: &Path) {
        for granted in &mut self.files {
            granted.base = granted.host.is_relative().then(|| folder.to_owned());
            granted.host = folder.join(&granted.host);
        }
    }

    /// The folder by which `path` may be written, if there is one.
    pub fn writes(&self, path: &Path) -> Option<&Folder> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let path = real(if path.as_os_str().is_empty() { Path::new(".") } else { path });
        self.files.iter().find(|folder| folder.access == Access::Write && path.starts_with(real(&folder.host)))
    }
}
