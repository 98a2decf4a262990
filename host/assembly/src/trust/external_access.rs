//! Detection of settings that access anything outside of the folder of the configuration.

mod access_list;
mod connections;

use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::config::Config;
use access_list::AccessList;

/// A setting that accesses something outside of the folder of its configuration, or raises a limit of the whole host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAccess {
    pub section: Section,
    /// The key in the file, as in `components.web.grants.network`.
    pub key: String,
    /// The requested access, in one line.
    pub value: String,
}

/// The part of a configuration that an [`ExternalAccess`] belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// HTTP requests of a component and secrets that the host adds to them.
    Network {
        component: String,
    },
    /// Other grants of a component.
    Grants {
        component: String,
    },
    SessionService,
    ArtifactService,
    MemoryService,
    /// The keys with which services encrypt.
    Encryption,
    Models,
    /// An entry of `plugins`, by index.
    Plugin(usize),
    McpServer {
        server: String,
    },
    /// An agent of another host.
    A2aAgent {
        agent: String,
    },
    /// An HTTP API with an OpenAPI document.
    OpenApi {
        api: String,
    },
    /// An integration or a connection of Google Cloud.
    Integration {
        integration: String,
    },
    /// An executor of the code of models.
    CodeExecutor {
        executor: String,
    },
    /// Push notifications of A2A tasks.
    A2aPush,
    /// The URL in the cards of the host.
    A2aPublicUrl,
    Registry,
    Server,
    Instances,
    Compile,
    Audit,
}

impl ExternalAccess {
    /// Returns the component that requests the access. `None` if it is not a component.
    pub fn component(&self) -> Option<&str> {
        match &self.section {
            Section::Network { component } | Section::Grants { component } => Some(component),
            _ => None,
        }
    }

    /// Returns true if the whole host has the access, not a single component, MCP server, remote agent or API.
    pub fn is_for_host(&self) -> bool {
        !matches!(
            self.section,
            Section::Network { .. }
                | Section::Grants { .. }
                | Section::McpServer { .. }
                | Section::A2aAgent { .. }
                | Section::OpenApi { .. }
                | Section::Integration { .. }
                | Section::CodeExecutor { .. }
        )
    }
}

impl fmt::Display for ExternalAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.value)
    }
}

/// Returns the access of a configuration outside of `folder`, by section. Relative paths of `config` must be resolved.
pub(super) fn external_access(config: &Config, folder: &Path) -> Vec<ExternalAccess> {
    let mut access = AccessList::new(folder);
    access.add_services(config);
    access.add_plugins(&config.plugins);
    access.add_connections(config);
    access.add_a2a_server(&config.a2a);
    access.add_components(&config.components);
    access.add_registry(&config.registry);
    access.add_server(&config.server);
    access.add_raised_limits(config);
    access.add_audit(&config.audit);
    access.into_entries()
}

/// Returns true if a path is outside of `folder`, also by `..` or a symbolic link, or if it cannot be resolved.
fn is_outside(path: &Path, folder: &Path) -> bool {
    match (resolve(path), resolve(folder)) {
        (Some(path), Some(folder)) => !path.starts_with(folder),
        _ => true,
    }
}

/// Returns the canonical path of a file that need not exist: the canonical path of its existing ancestors, with the
/// rest appended. `None` if the rest contains `..`, or if a symbolic link on the path is broken.
fn resolve(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(if path.as_os_str().is_empty() { Path::new(".") } else { path }).ok()?;
    let existing = path.ancestors().find(|ancestor| ancestor.symlink_metadata().is_ok())?;
    let rest = path.strip_prefix(existing).ok()?;
    let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain.then(|| existing.canonicalize().ok().map(|existing| existing.join(rest))).flatten()
}

#[cfg(test)]
mod tests;
