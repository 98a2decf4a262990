//! Which rights of a configuration reach outside of the folder that it is in.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use hatchery_registry::SignaturePolicy;
use hatchery_wasm::policy::Variable;
use hatchery_wasm::{CompileLimits, Grants, InstanceSettings};

use crate::config::{Config, ServerConfig};

/// A right that reaches outside of the folder of the configuration that asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideRight {
    /// What it is a right of.
    pub section: Section,
    /// The key in the file, as in `components.web.grants.network`.
    pub key: String,
    /// What the key asks for, in one line.
    pub value: String,
}

/// The part of a configuration that a right belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// Requests that a component sends, and secrets that the host adds to them.
    Network {
        /// The component.
        component: String,
    },
    /// Other grants of a component.
    Grants {
        /// The component.
        component: String,
    },
    /// `session_service`.
    SessionService,
    /// `artifact_service`.
    ArtifactService,
    /// `memory_service`.
    MemoryService,
    /// `models`.
    Models,
    /// An entry of `plugins`, by its place in the list.
    Plugin(usize),
    /// `registry`.
    Registry,
    /// `server`.
    Server,
    /// `instances`.
    Instances,
    /// `compile`.
    Compile,
    /// `audit`.
    Audit,
}

impl OutsideRight {
    /// The component that asks for it; `None` if it is a right of the whole host.
    pub fn component(&self) -> Option<&str> {
        match &self.section {
            Section::Network { component } | Section::Grants { component } => Some(component),
            _ => None,
        }
    }
}

impl fmt::Display for OutsideRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.value)
    }
}

/// Returns the rights of a configuration that reach outside of `folder`, in the order of its sections. Relative paths of `config` are
/// resolved.
pub fn outside_rights(config: &Config, folder: &Path) -> Vec<OutsideRight> {
    let mut rights = Vec::new();
    let mut add = |section: Section, key: &str, value: String| {
        rights.push(OutsideRight { section, key: key.into(), value: in_one_line(&value) });
    };
    for (section, key, uri) in [
        (Section::SessionService, "session_service", &config.session_service),
        (Section::ArtifactService, "artifact_service", &config.artifact_service),
        (Section::MemoryService, "memory_service", &config.memory_service),
    ] {
        if let Some(uri) = uri.as_ref().filter(|uri| is_service_outside(uri, folder)) {
            add(section, key, crate::services::without_password(uri));
        }
    }
    for (key, url) in [
        ("models.gemini_base_url", &config.models.gemini_base_url),
        ("models.openai_base_url", &config.models.openai_base_url),
    ] {
        if let Some(url) = url {
            add(Section::Models, key, url.clone());
        }
    }
    for (index, plugin) in config.plugins.iter().enumerate() {
        if let Some(path) = plugin.folder().filter(|path| leaves(path, folder)) {
            add(Section::Plugin(index), &format!("plugins[{index}].args.folder"), path.display().to_string());
        }
    }
    for (name, component) in &config.components {
        for (section, key, value) in of_grants(name, &component.grants, folder) {
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
    if config.server.allow_import {
        add(Section::Server, "server.allow_import", "true".into());
    }
    if let Some(file) = &config.server.secret_file {
        // Inside of the folder too: its author would know the key.
        add(Section::Server, "server.secret_file", file.display().to_string());
    }
    for (section, key, value) in raised_budgets(config) {
        add(section, key, value);
    }
    if let Some(file) = config.audit.file.as_ref().filter(|file| leaves(file, folder)) {
        add(Section::Audit, "audit.file", file.display().to_string());
    }
    if !config.audit.enabled {
        add(Section::Audit, "audit.enabled", "false".into());
    }
    rights
}

/// The grants of a component that reach outside, as section, key and value.
fn of_grants(component: &str, grants: &Grants, folder: &Path) -> Vec<(Section, String, String)> {
    let network = || Section::Network { component: component.into() };
    let other = || Section::Grants { component: component.into() };
    let mut rights = Vec::new();
    if !grants.network.is_empty() {
        let hosts: Vec<_> = grants.network.iter().map(ToString::to_string).collect();
        rights.push((network(), "network".into(), hosts.join(", ")));
    }
    if !grants.private_network.is_empty() {
        let hosts: Vec<_> = grants.private_network.iter().map(ToString::to_string).collect();
        rights.push((network(), "private_network".into(), hosts.join(", ")));
    }
    for secret in &grants.secrets {
        rights.push((network(), "secrets".into(), format!("{} for {}", secret.name(), secret.host())));
    }
    for (name, variable) in &grants.environment {
        if let Variable::Host { from } = variable {
            rights.push((other(), format!("environment.{name}"), format!("from {from}")));
        }
    }
    for granted in grants.files.iter().filter(|granted| leaves(&granted.host, folder)) {
        rights.push((other(), "files".into(), format!("{} {}", granted.access, granted.host.display())));
    }
    rights
}

/// Budgets of the whole host that are larger than their defaults. They bound what all components and clients together take of the
/// machine, whatever a folder says of its own components.
fn raised_budgets(config: &Config) -> Vec<(Section, &'static str, String)> {
    let (instances, default) = (&config.instances, InstanceSettings::default());
    let mut raised = Vec::new();
    let mut compare = |section, key, value: u64, default: u64| {
        if value > default {
            raised.push((section, key, value.to_string()));
        }
    };
    let (memory, of_run) = (instances.options(), default.options());
    compare(Section::Instances, "instances.memory", memory.memory, of_run.memory);
    compare(Section::Instances, "instances.run_memory", instances.run_memory.unwrap_or(0), of_run.run_memory);
    compare(Section::Instances, "instances.max", instances.max.get().into(), default.max.get().into());
    let (compile, usual) = (&config.compile, CompileLimits::default());
    compare(Section::Compile, "compile.time", compile.time.as_secs(), usual.time.as_secs());
    compare(Section::Compile, "compile.wall", compile.wall.as_secs(), usual.wall.as_secs());
    compare(Section::Compile, "compile.memory", compile.memory, usual.memory);
    compare(Section::Compile, "compile.processes", compile.processes.get().into(), usual.processes.get().into());
    let (bodies, usual) = (config.server.body_memory, ServerConfig::default().body_memory);
    compare(Section::Server, "server.body_memory", bodies.bytes() as u64, usual.bytes() as u64);
    raised
}

fn is_service_outside(uri: &str, folder: &Path) -> bool {
    match uri.split_once(':') {
        Some(("memory", "")) => false,
        Some(("sqlite" | "file", path)) => leaves(Path::new(path.strip_prefix("//").unwrap_or(path)), folder),
        _ => true,
    }
}

/// Whether a path leads out of `folder`, by `..`, by a link, or because it starts elsewhere. One that cannot be resolved does.
fn leaves(path: &Path, folder: &Path) -> bool {
    match (resolve(path), resolve(folder)) {
        (Some(path), Some(folder)) => !path.starts_with(folder),
        _ => true,
    }
}

/// The canonical path of something that need not exist yet: of as much of it as exists, and the rest as it is. `None` if the rest has
/// `..` in it, or a link on the way leads nowhere.
fn resolve(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(if path.as_os_str().is_empty() { Path::new(".") } else { path }).ok()?;
    let existing = path.ancestors().find(|ancestor| ancestor.symlink_metadata().is_ok())?;
    let rest = path.strip_prefix(existing).ok()?;
    let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain.then(|| existing.canonicalize().ok().map(|existing| existing.join(rest))).flatten()
}

/// A value of a file without control characters, so that it cannot pass for another line.
fn in_one_line(value: &str) -> String {
    value.chars().map(|c| if c.is_control() { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a configuration in `folder` asks for outside of it, with paths relative to the folder above.
    fn asked(folder: &Path, text: &str) -> Vec<String> {
        let config = Config::parse(text, &folder.join("hatchery.yaml")).unwrap();
        let above = format!("{}/", folder.parent().unwrap().display());
        outside_rights(&config, folder).iter().map(|right| right.to_string().replace(&above, "")).collect()
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().canonicalize().unwrap().join("agents");
        std::fs::create_dir_all(folder.join("data")).unwrap();
        (root, folder)
    }

    #[test]
    fn what_stays_inside_of_the_folder_needs_nobody() {
        let (_root, folder) = folder();
        let inside = "session_service: sqlite:sessions.db\nartifact_service: file:artifacts\nmemory_service: 'memory:'\n\
                      plugins: [logging, {name: recorder, args: {folder: recorded}}, kitchen/redact]\n\
                      limits: {memory: 1GiB}\nregistry: {signatures: warn}\naudit: {file: audit.log}\nserver: {body_limit: 1MiB}\n\
                      components:\n  a:\n    config: {url: 'http://example.com'}\n    grants:\n      models: ['*']\n      memory: true\n      \
                      artifacts: write\n      state: {write: ['app:*']}\n      tools: ['*']\n      environment: {LANG: C}\n      \
                      files: [{host: data, guest: /data, access: write}, {host: not/yet/there, guest: /x}]\n";
        assert_eq!(asked(&folder, inside), Vec::<String>::new());
        let absolute =
            format!("components: {{a: {{grants: {{files: [{{host: {}/data, guest: /d}}]}}}}}}", folder.display());
        assert_eq!(asked(&folder, &absolute), Vec::<String>::new());
    }

    #[test]
    fn each_right_that_reaches_outside_is_listed_with_its_key() {
        let (_root, folder) = folder();
        let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        let text = format!(
            "session_service: postgres://me:secret@db/x\nartifact_service: file:../artifacts\n\
             models: {{openai_base_url: 'http://evil.example', gemini_base_url: 'https://evil.example'}}\n\
             plugins: [{{name: recorder, args: {{folder: /srv/recorded}}}}]\n\
             components:\n  web:\n    grants:\n      network: ['*']\n      private_network: ['10.0.0.0/8']\n      \
             secrets: [{{name: key, from: KEY, host: evil.example, header: X-Key}}]\n      \
             environment: {{TOKEN: {{from: GITHUB_TOKEN}}}}\n      \
             files: [{{host: /, guest: /root}}, {{host: data/../../other, guest: /o, access: write}}]\n\
             registry: {{signatures: off, trusted_keys: [{key}]}}\n\
             server: {{allowed_hosts: ['*'], allow_import: true, secret_file: key, body_memory: 1GiB}}\n\
             instances: {{max: 1001}}\ncompile: {{time: 61s}}\n\
             audit: {{enabled: false, file: /dev/null}}\n"
        );
        assert_eq!(
            asked(&folder, &text),
            [
                "session_service: postgres://…@db/x",
                "artifact_service: file://agents/../artifacts",
                "models.gemini_base_url: https://evil.example",
                "models.openai_base_url: http://evil.example",
                "plugins[0].args.folder: /srv/recorded",
                "components.web.grants.network: *",
                "components.web.grants.private_network: 10.0.0.0/8",
                "components.web.grants.secrets: key for evil.example",
                "components.web.grants.environment.TOKEN: from GITHUB_TOKEN",
                "components.web.grants.files: read /",
                "components.web.grants.files: write agents/data/../../other",
                "registry.trusted_keys: E7620F1842B4E81F",
                "registry.signatures: off",
                "server.allowed_hosts: *",
                "server.allow_import: true",
                "server.secret_file: agents/key",
                "instances.max: 1001",
                "compile.time: 61",
                "server.body_memory: 1073741824",
                "audit.file: /dev/null",
                "audit.enabled: false",
            ]
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_folder_that_leads_out_of_it_reaches_outside() {
        let (_root, folder) = folder();
        std::os::unix::fs::symlink("/etc", folder.join("etc")).unwrap();
        std::os::unix::fs::symlink("data", folder.join("inner")).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", folder.join("dangling")).unwrap();
        let grant = |host: &str| format!("components: {{a: {{grants: {{files: [{{host: {host}, guest: /x}}]}}}}}}");
        for outside in ["etc", "etc/not-there", "dangling", "dangling/x"] {
            assert_eq!(asked(&folder, &grant(outside)).len(), 1, "{outside}");
        }
        assert!(asked(&folder, &grant("inner")).is_empty());
    }

    #[test]
    fn a_value_cannot_pass_for_another_line() {
        let (_root, folder) = folder();
        let asked = asked(&folder, "server: {allowed_hosts: [\"a\\n\\nNothing else is asked for.\\e[2K\"]}");
        assert_eq!(asked, ["server.allowed_hosts: a\\u{a}\\u{a}Nothing else is asked for.\\u{1b}[2K"]);
    }
}
