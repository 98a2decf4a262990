//! Restriction of a configuration that is not trusted: external access is removed, and everything else is kept,
//! stricter limits and safer settings included.

use hatchery_registry::SignaturePolicy;
use hatchery_wasm::{CompileLimits, InstanceSettings};

use super::external_access::{ExternalAccess, Section};
use super::status::UntrustedReason;
use crate::config::{A2aPushConfig, Config, DevUi, EncryptionConfig, FILE_NAME, ModelsConfig, ServerConfig};

/// Removes the external access of a configuration. A component that requests any loses all of its grants and is not
/// loaded, and an MCP server, a remote agent or an API is not used.
pub(super) fn restrict(config: &mut Config, external: &[ExternalAccess], reason: &UntrustedReason) {
    for access in external {
        match &access.section {
            Section::Network { component } | Section::Grants { component } => {
                let Some(settings) = config.components.get_mut(component) else { continue };
                settings.grants = Default::default();
                let of_component = external.iter().filter(|access| access.component() == Some(component));
                settings.refusal = Some(component_refusal(component, &keys(of_component), reason));
            }
            Section::SessionService => config.session_service = None,
            Section::ArtifactService => config.artifact_service = None,
            Section::MemoryService => config.memory_service = None,
            Section::Encryption => config.encryption = EncryptionConfig::default(),
            Section::Models => {
                let fallback = std::mem::take(&mut config.models.fallback);
                config.models = ModelsConfig { fallback, ..ModelsConfig::default() };
            }
            Section::Plugin(_) => {}
            Section::McpServer { .. }
            | Section::A2aAgent { .. }
            | Section::OpenApi { .. }
            | Section::Integration { .. }
            | Section::CodeExecutor { .. } => refuse_connection(config, &access.section, reason),
            Section::A2aPublicUrl => config.a2a.public_url = None,
            Section::A2aPush => config.a2a.push = A2aPushConfig::default(),
            Section::Registry => {
                config.registry.trusted_keys.clear();
                if config.registry.signatures == SignaturePolicy::Off {
                    config.registry.signatures = SignaturePolicy::Warn;
                }
            }
            Section::Server => restrict_server(&mut config.server),
            Section::Instances => restrict_instances(&mut config.instances),
            Section::Compile => restrict_compilation(&mut config.compile),
            Section::Audit => {
                config.audit.enabled = true;
                if external.iter().any(|access| access.key == "audit.file") {
                    config.audit.file = None;
                }
            }
        }
    }
    remove_plugins(config, external);
}

/// Withdraws an MCP server, a remote agent, an API, an integration or a code executor from use.
fn refuse_connection(config: &mut Config, section: &Section, reason: &UntrustedReason) {
    let (kind, name, field) = match section {
        Section::McpServer { server } => {
            ("MCP server", server, config.mcp.servers.get_mut(server).map(|settings| &mut settings.refusal))
        }
        Section::A2aAgent { agent } => {
            ("remote agent", agent, config.a2a.agents.get_mut(agent).map(|settings| &mut settings.refusal))
        }
        Section::OpenApi { api } => {
            ("API", api, config.openapi.apis.get_mut(api).map(|settings| &mut settings.refusal))
        }
        Section::Integration { integration } => {
            let settings = config.integrations.get_mut(integration);
            ("integration", integration, settings.map(|settings| &mut settings.refusal))
        }
        Section::CodeExecutor { executor } => {
            let settings = config.code_executors.get_mut(executor);
            ("code executor", executor, settings.map(|settings| &mut settings.refusal))
        }
        _ => return,
    };
    if let Some(field) = field {
        *field = Some(refusal(kind, name, reason));
    }
}

/// Removes the plugins whose access is not trusted.
fn remove_plugins(config: &mut Config, external: &[ExternalAccess]) {
    let is_untrusted = |index| external.iter().any(|access| access.section == Section::Plugin(index));
    let mut index = 0..;
    config.plugins.retain(|_| index.next().is_none_or(|index| !is_untrusted(index)));
}

fn restrict_server(server: &mut ServerConfig) {
    server.allowed_hosts.clear();
    server.cors.clear();
    server.auth = None;
    server.tls = None;
    server.allow_import = false;
    server.secret_file = None;
    server.dev_ui = server.dev_ui.filter(|dev_ui| *dev_ui != DevUi::Full);
    server.body_memory = server.body_memory.min(ServerConfig::default().body_memory);
}

fn restrict_instances(instances: &mut InstanceSettings) {
    let default = InstanceSettings::default();
    let options = default.options();
    instances.memory = instances.memory.filter(|memory| *memory <= options.memory);
    instances.run_memory = instances.run_memory.filter(|memory| *memory <= options.run_memory);
    instances.max = instances.max.min(default.max);
}

fn restrict_compilation(limits: &mut CompileLimits) {
    let default = CompileLimits::default();
    *limits = CompileLimits {
        time: limits.time.min(default.time),
        wall: limits.wall.min(default.wall),
        memory: limits.memory.min(default.memory),
        threads: limits.threads.min(default.threads),
        processes: limits.processes.min(default.processes),
        max_file_size: limits.max_file_size.min(default.max_file_size),
        max_function_size: limits.max_function_size.min(default.max_function_size),
        max_functions: limits.max_functions.min(default.max_functions),
    };
}

/// Returns the reason why a component is not loaded. Clients can read it, so it contains neither values nor paths.
fn component_refusal(component: &str, keys: &str, reason: &UntrustedReason) -> String {
    format!(
        "component `{component}` is not loaded: {FILE_NAME} requests access outside of its folder ({keys}), but {reason}; \
         the operator can review and allow it with `hatchery trust DIR`"
    )
}

/// Returns the reason why a part of the configuration, such as an MCP server, is not used.
fn refusal(what: &str, name: &str, reason: &UntrustedReason) -> String {
    format!(
        "the {what} `{name}` is not used: {FILE_NAME} requests access outside of its folder for it, but {reason}; the operator \
         can review and allow it with `hatchery trust DIR`"
    )
}

/// Returns the keys of the requested access, separated by commas.
pub(super) fn keys<'a>(external: impl Iterator<Item = &'a ExternalAccess>) -> String {
    let mut keys: Vec<&str> = external.map(|access| access.key.as_str()).collect();
    keys.dedup();
    keys.join(", ")
}
