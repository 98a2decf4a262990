//! Capability-based access control for components: the operator's `components.NAME.grants` in `hatchery.yaml`. Access
//! is denied by default. The only exceptions are clocks and random numbers, which every language runtime needs and
//! which cannot reach other systems.
//!
//! Each import checks the grants before it acts. A refusal is a [`Denial`]: an ordinary, short error for the guest, the
//! configuration lines that would allow the action in the log, and one line in the audit log. A component's
//! [`RequestedGrants`] grant nothing. They are only compared with its grants, so that the operator sees the difference.

mod address;
mod denial;
mod deterministic;
mod environment;
mod files;
mod grant_report;
mod grant_uses;
mod model_tools;
mod network;
mod outbound;
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
pub use grant_uses::GrantCounts;
pub(crate) use grant_uses::GrantUses;
pub use outbound::{OutboundPolicy, entries_for};
pub(crate) use path_conflict::check_folders_of;
pub use path_conflict::{
    PathConflict, ProtectedPath, check_opened_folders, check_readable_folders, check_writable_folders,
};
pub use pattern::Pattern;
pub use requested_grants::{RequestedFolder, RequestedGrants};

pub(crate) use denial::{CODE as DENIED, Denial, grants_block};
pub use network::{HostPattern, PrivateEntry};
pub(crate) use network::{Target, blocked_range};
pub(crate) use permission::Permission;
pub(crate) use secrets::ResolvedSecret;
pub use secrets::Secret;
pub(crate) use wasi_environment::{Preopens, WasiEnvironment, link_preopens};

/// The grants of one component. The default grants nothing. Comparisons ignore how often the grants are used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// Hosts that the component may send HTTP requests to.
    pub network: Vec<HostPattern>,
    /// Hosts and addresses that may be outside of the public internet.
    pub private_network: Vec<PrivateEntry>,
    /// Secrets that the host adds to requests.
    pub secrets: Vec<Secret>,
    /// Hosts whose requests get the header `Idempotency-Key`. A call that is repeated after a crash of the host sends
    /// the same key. Requests that change nothing (GET, HEAD, OPTIONS) get none. A component that sets the header
    /// itself keeps it.
    pub idempotency_keys: Vec<HostPattern>,
    /// Models that the component's code may call and that its agents may use. Its own models need no grant: those that
    /// it exports, and scripts that have its name or lie in the folder of its name.
    pub models: Vec<Pattern>,
    /// Allows the component's code to search the user's memory in the app, or also to add to it. `None` denies both.
    pub memory: Option<Access>,
    /// Allows the component's code to read, or also to save and delete, the artifacts of the session and of the user.
    /// `None` denies both.
    pub artifacts: Option<Access>,
    /// Access to state that is shared beyond the session.
    pub state: StateGrants,
    /// Apps that the component's code may run, for the user of its own run.
    pub runs: Vec<Pattern>,
    /// Apps whose sessions of the same user the component's code may read and change.
    pub sessions: SessionGrants,
    /// Items of other components, by qualified name. Tools (`search/find`) that the component's code may call, if its
    /// agent has them. Tools, callbacks, code executors and example providers that its agents may use; whole toolsets
    /// as `search/*`, agents as `agent:search/clerk`, and tools that run inside the model, such as `url_context`.
    pub tools: Vec<Pattern>,
    /// Environment variables by name.
    pub environment: BTreeMap<String, Variable>,
    /// Folders of the host that the component can open.
    pub files: Vec<Folder>,
    /// The wall clock that the component reads.
    pub clock: ClockGrant,
    /// The source of the component's random numbers.
    pub random: RandomGrant,
    /// Components that are `private` in `hatchery.yaml`. No pattern of these grants matches their items. Filled in by
    /// [`Settings::for_component`](crate::Settings::for_component).
    #[serde(skip)]
    pub private_components: BTreeSet<String>,
    /// Counters of their uses; clones share them.
    #[serde(skip)]
    pub(crate) uses: GrantUses,
}

/// State keys `user:…` and `app:…` that a component may use. Session keys and `temp:…` need no grant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StateGrants {
    /// Keys that the component may read.
    pub read: Vec<Pattern>,
    /// Keys that the component may set. It may also read them.
    pub write: Vec<Pattern>,
}

/// Apps whose sessions a component may use. It only reaches sessions of its run's user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionGrants {
    /// Apps whose sessions the component may read.
    pub read: Vec<Pattern>,
    /// Apps whose sessions the component may create, extend and delete. It may also read them.
    pub write: Vec<Pattern>,
}

impl PartialEq for Grants {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            network,
            private_network,
            secrets,
            idempotency_keys,
            models,
            memory,
            artifacts,
            state,
            runs,
            sessions,
            tools,
            environment,
            files,
            clock,
            random,
            private_components,
            uses: _,
        } = self;
        *network == other.network
            && *private_network == other.private_network
            && *secrets == other.secrets
            && *idempotency_keys == other.idempotency_keys
            && *models == other.models
            && *memory == other.memory
            && *artifacts == other.artifacts
            && *state == other.state
            && *runs == other.runs
            && *sessions == other.sessions
            && *tools == other.tools
            && *environment == other.environment
            && *files == other.files
            && *clock == other.clock
            && *random == other.random
            && *private_components == other.private_components
    }
}

impl Eq for Grants {}

impl Grants {
    /// Resolves relative folders against `folder`, which is the folder of `hatchery.yaml`.
    pub fn resolve_paths(&mut self, folder: &Path) {
        for granted in &mut self.files {
            granted.base = granted.host.is_relative().then(|| folder.to_owned());
            granted.host = folder.join(&granted.host);
        }
    }

    /// Returns the writable folder that contains `path`, if any.
    pub fn writable_folder(&self, path: &Path) -> Option<&Folder> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let path = real(if path.as_os_str().is_empty() { Path::new(".") } else { path });
        self.files.iter().find(|folder| folder.access == Access::Write && path.starts_with(real(&folder.host)))
    }
}
