//! Detection of settings that access anything outside of the folder of the configuration.

mod connections;

use std::fmt;
use std::path::{Component, Path, PathBuf};

use hatchery_registry::SignaturePolicy;
use hatchery_wasm::policy::Variable;
use hatchery_wasm::{CompileLimits, Grants, InstanceSettings};

use crate::config::{Config, DevUi, ServerConfig, without_credentials};
use crate::plugins;
use connections::{external_agent, external_api, external_executor, external_integration, external_server};

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
    pub fn is_of_host(&self) -> bool {
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
    let mut found = Vec::new();
    let mut add = |section: Section, key: &str, value: String| {
        found.push(ExternalAccess { section, key: key.into(), value: escape_control(&value) });
    };
    for (section, key, uri) in [
        (Section::SessionService, "session_service", &config.session_service),
        (Section::ArtifactService, "artifact_service", &config.artifact_service),
        (Section::MemoryService, "memory_service", &config.memory_service),
    ] {
        if let Some(uri) = uri.as_ref().filter(|uri| is_external_service(uri, folder)) {
            add(section, key, without_credentials(uri));
        }
    }
    for key in &config.encryption.keys {
        // Also a file inside of the folder: its author would know the key.
        let file = key.file.as_ref().map(|file| file.display().to_string());
        let place = file.or(key.from.clone()).unwrap_or_default();
        add(Section::Encryption, &format!("encryption.keys.{}", key.id), format!("from {place}"));
    }
    for (_, key, url) in config.models.base_urls() {
        add(Section::Models, &format!("models.{key}"), url.to_owned());
    }
    for (index, plugin) in config.plugins.iter().enumerate() {
        if let Some(path) = plugins::folder(plugin).filter(|path| is_outside(path, folder)) {
            add(Section::Plugin(index), &format!("plugins[{index}].args.folder"), path.display().to_string());
        }
    }
    for (name, server) in &config.mcp.servers {
        for (key, value) in external_server(server) {
            add(Section::McpServer { server: name.clone() }, &format!("mcp.servers.{name}.{key}"), value);
        }
    }
    for (name, agent) in &config.a2a.agents {
        for (key, value) in external_agent(agent, folder) {
            add(Section::A2aAgent { agent: name.clone() }, &format!("a2a.agents.{name}.{key}"), value);
        }
    }
    for (name, api) in &config.openapi.apis {
        for (key, value) in external_api(api, folder) {
            add(Section::OpenApi { api: name.clone() }, &format!("openapi.apis.{name}.{key}"), value);
        }
    }
    for (name, integration) in &config.integrations {
        for (key, value) in external_integration(integration) {
            add(Section::Integration { integration: name.clone() }, &format!("integrations.{name}.{key}"), value);
        }
    }
    for (name, executor) in &config.code_executors {
        for (key, value) in external_executor(executor) {
            add(Section::CodeExecutor { executor: name.clone() }, &format!("code_executors.{name}.{key}"), value);
        }
    }
    if let Some(url) = &config.a2a.public_url {
        // Clients send their messages and credentials there.
        add(Section::A2aPublicUrl, "a2a.public_url", without_credentials(url));
    }
    for (key, hosts) in
        [("network", list(&config.a2a.push.network)), ("private_network", list(&config.a2a.push.private_network))]
    {
        if !hosts.is_empty() {
            add(Section::A2aPush, &format!("a2a.push.{key}"), hosts);
        }
    }
    for (name, component) in &config.components {
        for (section, key, value) in external_grants(name, &component.grants, folder) {
            add(section, &format!("components.{name}.grants.{key}"), value);
        }
    }
    if !config.registry.trusted_keys.is_empty() {
        let keys: Vec<_> = config.registry.trusted_keys.iter().map(|key| key.id().to_string()).collect();
        add(Section::Registry, "registry.trusted_keys", keys.join(", "));
    }
    if config.registry.signatures == SignaturePolicy::Off {
        add(Section::Registry, "registry.signatures", "off".into());
    }
    if !config.server.allowed_hosts.is_empty() {
        add(Section::Server, "server.allowed_hosts", config.server.allowed_hosts.join(", "));
    }
    for (index, cors) in config.server.cors.iter().enumerate() {
        add(Section::Server, &format!("server.cors[{index}].origins"), cors.origins.join(", "));
    }
    if let Some(auth) = &config.server.auth {
        for key in &auth.keys {
            add(Section::Server, &format!("server.auth.keys.{}", key.name), key.summary());
        }
        if let Some(oidc) = &auth.oidc {
            add(Section::Server, "server.auth.oidc", format!("tokens of {}, keys at {}", oidc.issuer, oidc.jwks_url));
        }
    }
    if let Some(tls) = &config.server.tls {
        // The certificate of the author of the folder would make the server pass for another one.
        add(Section::Server, "server.tls", format!("{}, key {}", tls.certificate.display(), tls.key.display()));
    }
    if config.server.allow_import {
        add(Section::Server, "server.allow_import", "true".into());
    }
    if config.server.dev_ui == Some(DevUi::Full) {
        // On addresses other than loopback, every client could replace components by earlier revisions.
        add(Section::Server, "server.dev_ui", "full".into());
    }
    if let Some(file) = &config.server.secret_file {
        // Also if it is inside of the folder: the author of the folder would know the key.
        add(Section::Server, "server.secret_file", file.display().to_string());
    }
    for (section, key, value) in raised_limits(config) {
        add(section, key, value);
    }
    if let Some(file) = config.audit.file.as_ref().filter(|file| is_outside(file, folder)) {
        add(Section::Audit, "audit.file", file.display().to_string());
    }
    if !config.audit.enabled {
        add(Section::Audit, "audit.enabled", "false".into());
    }
    found
}

fn list(entries: &[impl ToString]) -> String {
    entries.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the grants of a component that need trust, as section, key and value.
fn external_grants(component: &str, grants: &Grants, folder: &Path) -> Vec<(Section, String, String)> {
    let network = || Section::Network { component: component.into() };
    let other = || Section::Grants { component: component.into() };
    let mut found = Vec::new();
    if !grants.network.is_empty() {
        let hosts: Vec<_> = grants.network.iter().map(ToString::to_string).collect();
        found.push((network(), "network".into(), hosts.join(", ")));
    }
    if !grants.private_network.is_empty() {
        let hosts: Vec<_> = grants.private_network.iter().map(ToString::to_string).collect();
        found.push((network(), "private_network".into(), hosts.join(", ")));
    }
    for secret in &grants.secrets {
        found.push((network(), "secrets".into(), format!("{} for {}", secret.name(), secret.host())));
    }
    for (name, variable) in &grants.environment {
        if let Variable::Host { from } = variable {
            found.push((other(), format!("environment.{name}"), format!("from {from}")));
        }
    }
    for granted in grants.files.iter().filter(|granted| is_outside(&granted.host, folder)) {
        found.push((other(), "files".into(), format!("{} {}", granted.access, granted.host.display())));
    }
    found
}

/// Returns limits of the whole host that are above their defaults. They bound the resources of all components and
/// clients together.
fn raised_limits(config: &Config) -> Vec<(Section, &'static str, String)> {
    let (instances, default) = (&config.instances, InstanceSettings::default());
    let mut raised = Vec::new();
    let mut compare = |section, key, value: u64, default: u64| {
        if value > default {
            raised.push((section, key, value.to_string()));
        }
    };
    let (options, default_options) = (instances.options(), default.options());
    compare(Section::Instances, "instances.memory", options.memory, default_options.memory);
    compare(Section::Instances, "instances.run_memory", instances.run_memory.unwrap_or(0), default_options.run_memory);
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
    raised
}

fn is_external_service(uri: &str, folder: &Path) -> bool {
    match uri.split_once(':') {
        Some(("memory", "")) => false,
        Some(("sqlite" | "file", path)) => is_outside(Path::new(path.strip_prefix("//").unwrap_or(path)), folder),
        _ => true,
    }
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

/// Escapes control characters, so that a value cannot look like several lines.
fn escape_control(value: &str) -> String {
    value.chars().map(|c| if c.is_control() { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the external access of a configuration in `folder`, with paths relative to the parent folder.
    fn requested(folder: &Path, text: &str) -> Vec<String> {
        let config = Config::parse(text, &folder.join("hatchery.yaml")).unwrap();
        let parent = format!("{}/", folder.parent().unwrap().display());
        external_access(&config, folder).iter().map(|access| access.to_string().replace(&parent, "")).collect()
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().canonicalize().unwrap().join("agents");
        std::fs::create_dir_all(folder.join("data")).unwrap();
        (root, folder)
    }

    #[test]
    fn settings_inside_of_the_folder_need_no_trust() {
        let (_root, folder) = folder();
        let inside = "session_service: sqlite:sessions.db\nartifact_service: file:artifacts\nmemory_service: 'memory:'\n\
                      plugins: [logging, {name: recorder, args: {folder: recorded}}, kitchen/redact]\n\
                      limits: {memory: 1GiB}\nregistry: {signatures: warn}\naudit: {file: audit.log}\nserver: {body_limit: 1MiB}\n\
                      components:\n  a:\n    config: {url: 'http://example.com'}\n    grants:\n      models: ['*']\n      memory: read\n      \
                      artifacts: write\n      state: {write: ['app:*']}\n      tools: ['*']\n      environment: {LANG: C}\n      \
                      files: [{host: data, guest: /data, access: write}, {host: not/yet/there, guest: /x}]\n";
        assert_eq!(requested(&folder, inside), Vec::<String>::new());
        let absolute =
            format!("components: {{a: {{grants: {{files: [{{host: {}/data, guest: /d}}]}}}}}}", folder.display());
        assert_eq!(requested(&folder, &absolute), Vec::<String>::new());
    }

    #[test]
    fn external_access_is_listed_with_its_keys() {
        let (_root, folder) = folder();
        let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        let text = format!(
            "session_service: postgres://me:secret@db/x\nartifact_service: file:../artifacts\n\
             models: {{openai_base_url: 'http://evil.example', gemini_base_url: 'https://evil.example', vertex_base_url: 'https://v', \
             anthropic_base_url: 'https://a', ollama_base_url: 'http://o', vllm_base_url: 'http://v', llamacpp_base_url: 'http://l', \
             openrouter_base_url: 'https://r', apigee_base_url: 'https://g', fallback: {{a: [b]}}}}\n\
             plugins: [{{name: recorder, args: {{folder: /srv/recorded}}}}]\n\
             encryption: {{keys: [{{id: new, from: STORE_KEY}}, {{id: old, file: old.key}}]}}\n\
             components:\n  web:\n    grants:\n      network: ['*']\n      private_network: ['10.0.0.0/8']\n      \
             secrets: [{{name: key, from: KEY, host: evil.example, header: X-Key}}]\n      \
             environment: {{TOKEN: {{from: GITHUB_TOKEN}}}}\n      \
             files: [{{host: /, guest: /root}}, {{host: data/../../other, guest: /o, access: write}}]\n\
             registry: {{signatures: off, trusted_keys: [{key}]}}\n\
             server: {{allowed_hosts: ['*'], cors: {{origins: '*'}}, allow_import: true, \
             tls: {{certificate: cert.pem, key: /srv/key.pem}}, auth: {{keys: [{{name: ci, from: CI_KEY, user: bot, apps: [dice, 'trip-*']}}, {{name: ops, role: operate, file: ops.key}}], \
             oidc: {{issuer: 'https://id.example', audience: hatchery, jwks_url: 'https://id.example/keys'}}}}, dev_ui: full, secret_file: key, body_memory: 1GiB}}\n\
             instances: {{max: 1001}}\n\
             compile: {{time: 61s, threads: 1000, max_file_size: 1GiB, max_function_size: 2MiB, max_functions: 1000000}}\n\
             audit: {{enabled: false, file: /dev/null}}\n\
             mcp: {{servers: {{files: {{command: npx, args: [-y, server], env: {{HOME: {{from: HOME}}, LANG: C}}, sampling: {{model: small}}}}, \
             web: {{url: 'https://me:secret@mcp.example', headers: {{Authorization: {{from: TOKEN, prefix: 'Bearer '}}}}, oauth: {{client_id: me, \
             client_secret: {{from: MCP_SECRET}}, network: [login.example]}}}}}}}}\n\
             a2a: {{public_url: 'https://me:secret@hosts.example', push: {{network: [hooks.example]}}, agents: {{far: {{card: 'https://a2a.example/card', network: ['*.a2a.example'], \
             headers: {{X-Key: {{from: KEY}}}}}}, near: {{card: card.json}}}}}}\n\
             openapi: {{apis: {{shop: {{document: shop.json, base_url: 'https://shop.example', network: ['*.shop.example'], \
             auth: {{bearer: {{from: SHOP_TOKEN}}}}, headers: {{X-Team: {{from: TEAM}}, X-App: me}}}}, \
             far: {{document: 'https://far.example/openapi.json', auth: {{oauth2: {{token_url: 'https://login.example/token', \
             client_id: me, client_secret: {{from: SECRET}}}}}}}}, \
             cloud: {{document: cloud.json, auth: {{service_account: {{file: key.json}}}}}}, \
             literal: {{document: a.json, auth: {{service_account: {{json: '{{}}'}}}}}}, \
             users: {{document: a.json, auth: {{user: {{oauth2: {{authorization_url: 'https://login.example/auth', \
             token_url: 'https://login.example/token', client_id: me, client_secret: {{from: SECRET}}}}}}}}}}, \
             variable: {{document: a.json, auth: {{service_account: {{json: {{from: ACCOUNT}}}}}}}}, near: {{document: near.json}}}}}}\n\
             code_executors: {{python: {{container: {{socket: /run/docker.sock, image: python}}}}, \
             cloud: {{vertex: {{extension: projects/p/locations/l/extensions/7, service_account: {{file: key.json}}}}}}}}\n\
             integrations: {{jira: {{project: p, location: l, connection: jira, service_account: {{file: key.json}}}}, \
             orders: {{project: p, location: l, integration: orders, endpoint: 'http://localhost:1'}}}}\n"
        );
        assert_eq!(
            requested(&folder, &text),
            [
                "session_service: postgres://…@db/x",
                "artifact_service: file://agents/../artifacts",
                "encryption.keys.new: from STORE_KEY",
                "encryption.keys.old: from agents/old.key",
                "models.gemini_base_url: https://evil.example",
                "models.vertex_base_url: https://v",
                "models.openai_base_url: http://evil.example",
                "models.anthropic_base_url: https://a",
                "models.ollama_base_url: http://o",
                "models.vllm_base_url: http://v",
                "models.llamacpp_base_url: http://l",
                "models.openrouter_base_url: https://r",
                "models.apigee_base_url: https://g",
                "plugins[0].args.folder: /srv/recorded",
                "mcp.servers.files.command: npx -y server",
                "mcp.servers.files.env.HOME: from HOME",
                "mcp.servers.files.sampling: small",
                "mcp.servers.web.url: https://…@mcp.example",
                "mcp.servers.web.headers.Authorization: from TOKEN",
                "mcp.servers.web.oauth.network: login.example",
                "mcp.servers.web.oauth.client_secret: from MCP_SECRET",
                "a2a.agents.far.card: https://a2a.example/card",
                "a2a.agents.far.network: *.a2a.example",
                "a2a.agents.far.headers.X-Key: from KEY",
                "openapi.apis.cloud.auth.service_account.file: agents/key.json",
                "openapi.apis.far.document: https://far.example/openapi.json",
                "openapi.apis.far.auth.oauth2.token_url: https://login.example/token",
                "openapi.apis.far.auth.oauth2.client_secret: from SECRET",
                "openapi.apis.literal.auth.service_account.json: a key in the file",
                "openapi.apis.shop.base_url: https://shop.example",
                "openapi.apis.shop.network: *.shop.example",
                "openapi.apis.shop.auth.bearer: from SHOP_TOKEN",
                "openapi.apis.shop.headers.X-Team: from TEAM",
                "openapi.apis.users.auth.user.oauth2.authorization_url: https://login.example/auth",
                "openapi.apis.users.auth.user.oauth2.token_url: https://login.example/token",
                "openapi.apis.users.auth.user.oauth2.client_secret: from SECRET",
                "openapi.apis.variable.auth.service_account.json: from ACCOUNT",
                "integrations.jira.connection: projects/p/locations/l/connections/jira",
                "integrations.jira.service_account.file: agents/key.json",
                "integrations.orders.integration: projects/p/locations/l/integrations/orders",
                "integrations.orders.endpoint: http://localhost:1",
                "code_executors.cloud.vertex.extension: projects/p/locations/l/extensions/7",
                "code_executors.cloud.vertex.service_account.file: agents/key.json",
                "code_executors.python.container.socket: /run/docker.sock",
                "code_executors.python.container.image: python",
                "a2a.public_url: https://…@hosts.example",
                "a2a.push.network: hooks.example",
                "components.web.grants.network: *",
                "components.web.grants.private_network: 10.0.0.0/8",
                "components.web.grants.secrets: key for evil.example",
                "components.web.grants.environment.TOKEN: from GITHUB_TOKEN",
                "components.web.grants.files: read /",
                "components.web.grants.files: write agents/data/../../other",
                "registry.trusted_keys: E7620F1842B4E81F",
                "registry.signatures: off",
                "server.allowed_hosts: *",
                "server.cors[0].origins: *",
                "server.auth.keys.ci: use dice, trip-* as the user bot, from CI_KEY",
                "server.auth.keys.ops: operate *, from agents/ops.key",
                "server.auth.oidc: tokens of https://id.example, keys at https://id.example/keys",
                "server.tls: agents/cert.pem, key /srv/key.pem",
                "server.allow_import: true",
                "server.dev_ui: full",
                "server.secret_file: agents/key",
                "instances.max: 1001",
                "compile.time: 61",
                "compile.threads: 1000",
                "compile.max_file_size: 1073741824",
                "compile.max_function_size: 2097152",
                "compile.max_functions: 1000000",
                "server.body_memory: 1073741824",
                "audit.file: /dev/null",
                "audit.enabled: false",
            ]
        );
    }

    #[test]
    fn a_service_in_a_cloud_is_external_access() {
        let (_root, folder) = folder();
        for (key, uri) in [
            ("artifact_service", "s3://bucket/prefix"),
            ("artifact_service", "gs://bucket"),
            ("artifact_service", "az://container/prefix"),
            ("session_service", "postgres://db/agents"),
            ("session_service", "agentengine://project/location/1"),
            ("memory_service", "agentengine://project/location/1"),
        ] {
            assert_eq!(requested(&folder, &format!("{key}: {uri}")), [format!("{key}: {uri}")]);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_out_of_the_folder_is_external_access() {
        let (_root, folder) = folder();
        std::os::unix::fs::symlink("/etc", folder.join("etc")).unwrap();
        std::os::unix::fs::symlink("data", folder.join("inner")).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", folder.join("dangling")).unwrap();
        let grant = |host: &str| format!("components: {{a: {{grants: {{files: [{{host: {host}, guest: /x}}]}}}}}}");
        for outside in ["etc", "etc/not-there", "dangling", "dangling/x"] {
            assert_eq!(requested(&folder, &grant(outside)).len(), 1, "{outside}");
        }
        assert!(requested(&folder, &grant("inner")).is_empty());
    }

    #[test]
    fn a_value_cannot_look_like_another_line() {
        let (_root, folder) = folder();
        let values = requested(&folder, "server: {allowed_hosts: [\"a\\n\\nNothing else is requested.\\e[2K\"]}");
        assert_eq!(values, ["server.allowed_hosts: a\\u{a}\\u{a}Nothing else is requested.\\u{1b}[2K"]);
    }
}
