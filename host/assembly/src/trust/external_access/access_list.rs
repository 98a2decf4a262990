//! The external access of a configuration, collected section by section.

use std::collections::BTreeMap;
use std::path::Path;

use hatchery_engine::plugins::PluginConfig;
use hatchery_registry::SignaturePolicy;
use hatchery_wasm::policy::Variable;
use hatchery_wasm::{CompileLimits, Grants, InstanceSettings};

use super::connections::{external_agent, external_api, external_executor, external_integration, external_server};
use super::{ExternalAccess, Section, is_outside};
use crate::config::{
    A2aConfig, AuditConfig, ComponentConfig, Config, DevUi, RegistryConfig, ServerAuthConfig, ServerConfig,
    without_credentials,
};
use crate::plugins;

/// The access that was found so far.
pub(super) struct AccessList<'a> {
    /// The folder of the configuration.
    folder: &'a Path,
    entries: Vec<ExternalAccess>,
}

impl<'a> AccessList<'a> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self { folder, entries: Vec::new() }
    }

    pub(super) fn into_entries(self) -> Vec<ExternalAccess> {
        self.entries
    }

    fn add(&mut self, section: Section, key: impl Into<String>, value: impl AsRef<str>) {
        self.entries.push(ExternalAccess { section, key: key.into(), value: escape_control(value.as_ref()) });
    }

    /// Adds stores, their keys and model providers.
    pub(super) fn add_services(&mut self, config: &Config) {
        for (section, key, uri) in [
            (Section::SessionService, "session_service", &config.session_service),
            (Section::ArtifactService, "artifact_service", &config.artifact_service),
            (Section::MemoryService, "memory_service", &config.memory_service),
        ] {
            if let Some(uri) = uri.as_ref().filter(|uri| is_external_service(uri, self.folder)) {
                self.add(section, key, without_credentials(uri));
            }
        }
        for key in &config.encryption.keys {
            // Also a file inside of the folder: its author would know the key.
            let file = key.file.as_ref().map(|file| file.display().to_string());
            let source = file.or(key.from.clone()).unwrap_or_default();
            self.add(Section::Encryption, format!("encryption.keys.{}", key.id), format!("from {source}"));
        }
        for (_, key, url) in config.models.base_urls() {
            self.add(Section::Models, format!("models.{key}"), url);
        }
    }

    pub(super) fn add_plugins(&mut self, configured: &[PluginConfig]) {
        for (index, plugin) in configured.iter().enumerate() {
            if let Some(path) = plugins::folder(plugin).filter(|path| is_outside(path, self.folder)) {
                self.add(Section::Plugin(index), format!("plugins[{index}].args.folder"), path.display().to_string());
            }
        }
    }

    /// Adds MCP servers, remote agents, APIs, integrations and code executors.
    pub(super) fn add_connections(&mut self, config: &Config) {
        for (name, server) in &config.mcp.servers {
            for (key, value) in external_server(server) {
                self.add(Section::McpServer { server: name.clone() }, format!("mcp.servers.{name}.{key}"), value);
            }
        }
        for (name, agent) in &config.a2a.agents {
            for (key, value) in external_agent(agent, self.folder) {
                self.add(Section::A2aAgent { agent: name.clone() }, format!("a2a.agents.{name}.{key}"), value);
            }
        }
        for (name, api) in &config.openapi.apis {
            for (key, value) in external_api(api, self.folder) {
                self.add(Section::OpenApi { api: name.clone() }, format!("openapi.apis.{name}.{key}"), value);
            }
        }
        for (name, integration) in &config.integrations {
            for (key, value) in external_integration(integration) {
                let section = Section::Integration { integration: name.clone() };
                self.add(section, format!("integrations.{name}.{key}"), value);
            }
        }
        for (name, executor) in &config.code_executors {
            for (key, value) in external_executor(executor) {
                let section = Section::CodeExecutor { executor: name.clone() };
                self.add(section, format!("code_executors.{name}.{key}"), value);
            }
        }
    }

    pub(super) fn add_a2a_server(&mut self, config: &A2aConfig) {
        if let Some(url) = &config.public_url {
            // Clients send their messages and credentials there.
            self.add(Section::A2aPublicUrl, "a2a.public_url", without_credentials(url));
        }
        let hosts = [("network", list(&config.push.network)), ("private_network", list(&config.push.private_network))];
        for (key, hosts) in hosts.into_iter().filter(|(_, hosts)| !hosts.is_empty()) {
            self.add(Section::A2aPush, format!("a2a.push.{key}"), hosts);
        }
    }

    pub(super) fn add_components(&mut self, components: &BTreeMap<String, ComponentConfig>) {
        for (name, component) in components {
            self.add_grants(name, &component.grants);
        }
    }

    fn add_grants(&mut self, component: &str, grants: &Grants) {
        let network = || Section::Network { component: component.into() };
        let other = || Section::Grants { component: component.into() };
        let key = |key: &str| format!("components.{component}.grants.{key}");
        if !grants.network.is_empty() {
            self.add(network(), key("network"), list(&grants.network));
        }
        if !grants.private_network.is_empty() {
            self.add(network(), key("private_network"), list(&grants.private_network));
        }
        for secret in &grants.secrets {
            self.add(network(), key("secrets"), format!("{} for {}", secret.name(), secret.host()));
        }
        for (name, variable) in &grants.environment {
            if let Variable::Host { from } = variable {
                self.add(other(), key(&format!("environment.{name}")), format!("from {from}"));
            }
        }
        let folder = self.folder;
        for granted in grants.files.iter().filter(|granted| is_outside(&granted.host, folder)) {
            self.add(other(), key("files"), format!("{} {}", granted.access, granted.host.display()));
        }
    }

    pub(super) fn add_registry(&mut self, config: &RegistryConfig) {
        if !config.trusted_keys.is_empty() {
            let keys: Vec<_> = config.trusted_keys.iter().map(|key| key.id()).collect();
            self.add(Section::Registry, "registry.trusted_keys", list(&keys));
        }
        if config.signatures == SignaturePolicy::Off {
            self.add(Section::Registry, "registry.signatures", "off");
        }
    }

    pub(super) fn add_server(&mut self, config: &ServerConfig) {
        if !config.allowed_hosts.is_empty() {
            self.add(Section::Server, "server.allowed_hosts", config.allowed_hosts.join(", "));
        }
        for (index, cors) in config.cors.iter().enumerate() {
            self.add(Section::Server, format!("server.cors[{index}].origins"), cors.origins.join(", "));
        }
        if let Some(auth) = &config.auth {
            self.add_auth(auth);
        }
        if let Some(tls) = &config.tls {
            // The certificate of the author of the folder would make the server pass for another one.
            let files = format!("{}, key {}", tls.certificate.display(), tls.key.display());
            self.add(Section::Server, "server.tls", files);
        }
        if config.allow_import {
            self.add(Section::Server, "server.allow_import", "true");
        }
        if config.dev_ui == Some(DevUi::Full) {
            // On addresses other than loopback, every client could replace components by earlier revisions.
            self.add(Section::Server, "server.dev_ui", "full");
        }
        if let Some(file) = &config.secret_file {
            // Also if it is inside of the folder: the author of the folder would know the key.
            self.add(Section::Server, "server.secret_file", file.display().to_string());
        }
    }

    fn add_auth(&mut self, auth: &ServerAuthConfig) {
        for key in &auth.keys {
            self.add(Section::Server, format!("server.auth.keys.{}", key.name), key.summary());
        }
        if let Some(oidc) = &auth.oidc {
            let access = format!("tokens of {}, keys at {}", oidc.issuer, oidc.jwks_url);
            self.add(Section::Server, "server.auth.oidc", access);
        }
    }

    /// Adds limits of the whole host that are above their defaults. They bound the resources of all components and
    /// clients together.
    pub(super) fn add_raised_limits(&mut self, config: &Config) {
        let (instances, default) = (&config.instances, InstanceSettings::default());
        let mut compare = |section, key: &str, value: u64, default: u64| {
            if value > default {
                self.add(section, key, value.to_string());
            }
        };
        let (options, default_options) = (instances.options(), default.options());
        compare(Section::Instances, "instances.memory", options.memory, default_options.memory);
        compare(
            Section::Instances,
            "instances.run_memory",
            instances.run_memory.unwrap_or(0),
            default_options.run_memory,
        );
        compare(Section::Instances, "instances.max", instances.max.get().into(), default.max.get().into());
        let (compile, defaults) = (&config.compile, CompileLimits::default());
        compare(Section::Compile, "compile.time", compile.time.as_secs(), defaults.time.as_secs());
        compare(Section::Compile, "compile.wall", compile.wall.as_secs(), defaults.wall.as_secs());
        compare(Section::Compile, "compile.memory", compile.memory, defaults.memory);
        compare(Section::Compile, "compile.threads", compile.threads.get().into(), defaults.threads.get().into());
        compare(Section::Compile, "compile.processes", compile.processes.get().into(), defaults.processes.get().into());
        compare(Section::Compile, "compile.max_file_size", compile.max_file_size, defaults.max_file_size);
        compare(Section::Compile, "compile.max_function_size", compile.max_function_size, defaults.max_function_size);
        compare(Section::Compile, "compile.max_functions", compile.max_functions.into(), defaults.max_functions.into());
        let (bodies, default) = (config.server.body_memory, ServerConfig::default().body_memory);
        compare(Section::Server, "server.body_memory", bodies.bytes() as u64, default.bytes() as u64);
    }

    pub(super) fn add_audit(&mut self, config: &AuditConfig) {
        if let Some(file) = config.file.as_ref().filter(|file| is_outside(file, self.folder)) {
            self.add(Section::Audit, "audit.file", file.display().to_string());
        }
        if !config.enabled {
            self.add(Section::Audit, "audit.enabled", "false");
        }
    }
}

/// Returns the entries of a list as one value.
pub(super) fn list(entries: &[impl ToString]) -> String {
    entries.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn is_external_service(uri: &str, folder: &Path) -> bool {
    match uri.split_once(':') {
        Some(("memory", "")) => false,
        Some(("sqlite" | "file", path)) => is_outside(Path::new(path.strip_prefix("//").unwrap_or(path)), folder),
        _ => true,
    }
}

/// Escapes control characters, so that a value cannot look like several lines.
fn escape_control(value: &str) -> String {
    value.chars().map(|c| if c.is_control() { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}
