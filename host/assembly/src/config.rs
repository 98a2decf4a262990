//! `hatchery.yaml`: services, models, plugins, limits, trusted keys and the settings of apps and components. Every key is optional, an unknown
//! one is an error, and an error names the file, the line and the column.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hatchery_core::JsonMap;
use hatchery_engine::plugins::PluginConfig;
use hatchery_registry::{Digest, ExpectedIdentity, KeyId, SignaturePolicy, SignatureVerifier, TrustedKey};
use hatchery_wasm::limits::{LimitOverrides, units};
use hatchery_wasm::policy::PathConflict;
use hatchery_wasm::{CompileLimits, Grants, HotReload, InstancePoolConfig, InstanceSettings};
use serde::Deserialize;
use thiserror::Error;

use crate::apps::AppConfig;
use crate::audit::AuditConfig;
use crate::byte_size::ByteSize;
use crate::quotas::{DurabilityConfig, QuotaOverrides};
use crate::trust::Authority;

/// The file's name in the served directory.
pub const FILE_NAME: &str = "hatchery.yaml";

/// Keys of earlier versions, and what replaces them.
const RENAMED_KEYS: [(&str, &str); 4] = [
    ("engine", "it is now `instances`, and its `compile` is a section of its own"),
    ("busy_wait", "it is now `queue_timeout`"),
    ("busy_queue", "it is now `max_queued`"),
    ("swapping", "it is now `hot_reload`"),
];

/// What `hatchery.yaml` says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// URI of the session service; SQLite in the data directory when left out.
    pub session_service: Option<String>,
    /// URI of the artifact service; files in the data directory when left out.
    pub artifact_service: Option<String>,
    /// URI of the memory service; the process's own memory when left out.
    pub memory_service: Option<String>,
    /// Where hosted models are.
    pub models: ModelsConfig,
    /// Plugins that every run passes, in this order.
    pub plugins: Vec<PluginConfig>,
    /// Settings of all apps.
    pub app_defaults: AppConfig,
    /// Settings of single apps, by name. What they leave open is as in `app_defaults`.
    pub apps: BTreeMap<String, AppConfig>,
    /// Limits of every component.
    pub limits: LimitOverrides,
    /// How much sessions, users and apps may store.
    pub quotas: QuotaOverrides,
    /// Which crash a session in SQLite survives.
    pub durability: DurabilityConfig,
    /// Limits that all components share.
    pub instances: InstanceSettings,
    /// Limits on compiling a component.
    pub compile: CompileLimits,
    /// How components are replaced.
    pub hot_reload: HotReload,
    /// Settings of single components, by name.
    pub components: BTreeMap<String, ComponentConfig>,
    /// Whose components may come from registries.
    pub registry: RegistryConfig,
    /// Limits and habits of the server.
    pub server: ServerConfig,
    /// The audit log.
    pub audit: AuditConfig,
    /// Who answers for what reaches outside of the folder. No file can say it.
    #[serde(skip)]
    pub authority: Authority,
}

/// Where hosted models are. The environment's variables win over these.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelsConfig {
    /// Gemini's base URL, as `GOOGLE_GEMINI_BASE_URL`.
    pub gemini_base_url: Option<String>,
    /// The base URL of chat completions, as `OPENAI_BASE_URL`.
    pub openai_base_url: Option<String>,
}

/// Settings of one component.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentConfig {
    /// What the component can read as its configuration.
    pub config: JsonMap,
    /// What the component may do.
    pub grants: Grants,
    /// Limits that differ from those of the others.
    pub limits: LimitOverrides,
    /// How instances are kept between calls; each call has a fresh one when left out.
    pub warm: Option<InstancePoolConfig>,
    /// Whether what the component offers is for YAML agents and its own agents only, whatever other components are
    /// granted.
    pub private: bool,
    /// The name that the component is signed under, where that is not its own.
    pub signed_as: Option<String>,
    /// The id of the only key whose signature counts for the component, which then needs one.
    pub signed_by: Option<KeyId>,
    /// The digest of the only bytes that the component may have.
    pub sha256: Option<Digest>,
    /// Why the component is not loaded, if what it asks for is not trusted.
    #[serde(skip)]
    pub refusal: Option<String>,
}

impl ComponentConfig {
    fn expected_identity(&self) -> ExpectedIdentity {
        ExpectedIdentity { signed_as: self.signed_as.clone(), signed_by: self.signed_by, sha256: self.sha256.clone() }
    }
}

/// Whose components `hatchery pull` puts into this folder and, when signatures are required, whose the host loads.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryConfig {
    /// What happens to components that no trusted key has signed.
    pub signatures: SignaturePolicy,
    /// Keys whose signatures count.
    pub trusted_keys: Vec<TrustedKey>,
}

/// Limits and habits of the server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Names of hosts, with or without a port, that requests may come under beside those of this machine (`localhost`, `127.0.0.1`);
    /// `*` is any.
    pub allowed_hosts: Vec<String>,
    /// Largest body of a request with content: a run, an artifact or a session that is imported.
    pub body_limit: ByteSize,
    /// Largest body of any other request.
    pub small_body_limit: ByteSize,
    /// Memory that the bodies of all requests may take at the same time, as they came and parsed.
    pub body_memory: ByteSize,
    /// How long the body of a request may take in all.
    #[serde(deserialize_with = "units::time")]
    pub body_deadline: Duration,
    /// How long a client may read nothing of its answer.
    #[serde(deserialize_with = "units::time")]
    pub write_timeout: Duration,
    /// Most connections at the same time; further ones wait.
    pub max_connections: usize,
    /// Most connections of one peer, which is an IPv4 address or an IPv6 network of 64 bits; further ones are refused. Behind a proxy
    /// all clients are one peer.
    pub max_connections_per_peer: usize,
    /// Most runs at the same time, those that wait for their session's turn included.
    pub max_concurrent_runs: usize,
    /// Whether a run is cancelled when its client goes away; a request can say otherwise.
    pub cancel_on_disconnect: bool,
    /// Whether clients may create sessions with events of their own.
    pub allow_import: bool,
    /// The file with the key that proves which events the host has made, for hosts that share sessions; `host.key` in the data folder
    /// when left out. `HATCHERY_SECRET_FILE` wins over it.
    pub secret_file: Option<PathBuf>,
    /// How long the head of a request may take, and how long a connection may be idle between two requests.
    #[serde(skip)]
    pub head_timeout: Duration,
    /// How long the body of a request may be silent.
    #[serde(skip)]
    pub body_timeout: Duration,
    /// Bytes of a body that have to come in each second, on average.
    #[serde(skip)]
    pub min_body_rate: ByteSize,
    /// How long a stream may be silent before it says that it is alive.
    #[serde(skip)]
    pub keep_alive: Duration,
    /// How long active runs may take to end when the server stops.
    #[serde(skip)]
    pub drain_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            body_limit: ByteSize(16 << 20),
            small_body_limit: ByteSize(1 << 20),
            body_memory: ByteSize(512 << 20),
            body_deadline: Duration::from_secs(300),
            write_timeout: Duration::from_secs(30),
            max_connections: 4096,
            max_connections_per_peer: 256,
            max_concurrent_runs: 512,
            cancel_on_disconnect: false,
            allow_import: false,
            secret_file: None,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            min_body_rate: ByteSize(1 << 10),
            keep_alive: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file is there but cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not there, and somebody has said that it must be.
    #[error(
        "{}: there is no such file, and {}", file.display(),
        if *is_named { "--config names it" } else { "--config-required asks for one" }
    )]
    Missing {
        /// The file.
        file: PathBuf,
        /// Whether it was named on the command line.
        is_named: bool,
    },
    /// It asks for rights of the whole host that nobody has trusted.
    #[error("{explanation}")]
    Untrusted {
        /// The rights, and what to do.
        explanation: String,
    },
    /// A component is granted a folder that belongs to the host.
    #[error("{}: {conflict}", file.display())]
    ProtectedPath {
        /// The file.
        file: PathBuf,
        /// Which one, and whose it is.
        conflict: Box<PathConflict>,
    },
    /// The file does not say what it should.
    #[error("{}{}: {message}", file.display(), position(location))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Line and column, from 1.
        location: Option<(usize, usize)>,
        /// What is wrong.
        message: String,
    },
}

fn position(location: &Option<(usize, usize)>) -> String {
    location.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default()
}

impl Config {
    /// Returns which signatures count, for all components and for single ones.
    pub fn signature_verifier(&self) -> SignatureVerifier {
        self.signature_verifier_with(self.registry.signatures, self.registry.trusted_keys.clone())
    }

    /// The same with another policy and other keys for all.
    pub fn signature_verifier_with(&self, policy: SignaturePolicy, keys: Vec<TrustedKey>) -> SignatureVerifier {
        SignatureVerifier::new(policy, keys).with_identities(self.expected_identities())
    }

    /// What single components must be, by name.
    pub fn expected_identities(&self) -> BTreeMap<String, ExpectedIdentity> {
        let identities = self.components.iter().map(|(name, component)| (name.clone(), component.expected_identity()));
        identities.filter(|(_, identity)| *identity != ExpectedIdentity::default()).collect()
    }

    /// Reads `hatchery.yaml` in a directory; without one, everything has its default. Whether it is trusted, [`ConfigSource`] asks.
    ///
    /// [`ConfigSource`]: crate::trust::ConfigSource
    ///
    /// # Errors
    /// When the file cannot be read or does not say what it should.
    pub fn load(directory: &Path) -> Result<Self, ConfigError> {
        let file = directory.join(FILE_NAME);
        match std::fs::read_to_string(&file) {
            Ok(text) => Self::parse(&text, &file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read { file, source }),
        }
    }

    /// Reads a configuration's text; `file` is named in errors, and relative paths in services' URIs, grants and
    /// arguments of plugins start at its folder.
    ///
    /// # Errors
    /// When the text does not say what it should.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        // An empty file is valid, and so is one of comments only.
        let config: Option<Self> = serde_yaml::from_str(text).map_err(|error| {
            let location = error.location().map(|location| (location.line(), location.column()));
            let mut message = error.to_string();
            if let Some((line, column)) = location {
                message = message.replace(&format!(" at line {line} column {column}"), "");
            }
            if let Some((_, hint)) =
                RENAMED_KEYS.iter().find(|(key, _)| message.contains(&format!("unknown field `{key}`")))
            {
                message = format!("{message}; {hint}");
            }
            ConfigError::Invalid { file: file.to_owned(), location, message }
        })?;
        let mut config = config.unwrap_or_default();
        config.signature_verifier().check().map_err(|error| ConfigError::Invalid {
            file: file.to_owned(),
            location: None,
            message: error.to_string(),
        })?;
        if config.audit.max_size < AuditConfig::SMALLEST {
            let message =
                format!("audit.max_size is {}; it must be at least {}", config.audit.max_size, AuditConfig::SMALLEST);
            return Err(ConfigError::Invalid { file: file.to_owned(), location: None, message });
        }
        let folder = file.parent().unwrap_or(Path::new(""));
        for uri in [&mut config.session_service, &mut config.artifact_service].into_iter().flatten() {
            *uri = below(folder, uri);
        }
        for (name, component) in &mut config.components {
            component.grants.resolve_paths(folder);
            check_not_written(name, &component.grants, folder, file)?;
        }
        for plugin in &mut config.plugins {
            plugin.resolve_paths(folder);
        }
        if let Some(file) = &mut config.server.secret_file {
            *file = folder.join(&*file);
        }
        if let Some(log) = &mut config.audit.file {
            *log = folder.join(&*log);
        }
        Ok(config)
    }

    /// Checks that no component may write the folder that is served, which need not be that of the configuration's `file`.
    pub(crate) fn check_served_folder(&self, folder: &Path, file: &Path) -> Result<(), ConfigError> {
        let mut components = self.components.iter();
        components.try_for_each(|(name, component)| check_not_written(name, &component.grants, folder, file))
    }
}

fn check_not_written(component: &str, grants: &Grants, folder: &Path, file: &Path) -> Result<(), ConfigError> {
    let Some(granted) = grants.writes(folder) else { return Ok(()) };
    let message = format!(
        "components.{component}.grants.files: the folder {} holds {FILE_NAME} and all components; grant one below it for writing",
        granted.host.display()
    );
    Err(ConfigError::Invalid { file: file.to_owned(), location: None, message })
}

/// A URI of a relative file (`sqlite:data.db`) with the file put below `folder`; any other URI as it is.
fn below(folder: &Path, uri: &str) -> String {
    match uri.split_once(':') {
        Some((scheme @ ("sqlite" | "file"), path)) if !path.is_empty() && !path.starts_with(['/', ':']) => {
            let path = folder.join(path);
            let slashes = if path.is_absolute() { "//" } else { "" };
            format!("{scheme}:{slashes}{}", path.display())
        }
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("/srv/agents/hatchery.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn everything_is_optional() {
        assert_eq!(parse(""), Ok(Config::default()));
        assert_eq!(parse("# nothing\n"), Ok(Config::default()));
        assert_eq!(Config::load(Path::new("/nonexistent")).unwrap(), Config::default());
        assert_eq!(ServerConfig::default().body_limit, ByteSize(16 << 20));
    }

    #[test]
    fn a_full_file_is_read() {
        let config = parse(
            "session_service: postgres://db/x\n\
             memory_service: 'memory:'\n\
             models: {gemini_base_url: 'http://localhost:1'}\n\
             plugins:\n  - logging\n  - {name: kitchen/redact, args: {words: [oven]}}\n\
             app_defaults: {max_llm_calls: 9}\n\
             apps: {dice: {resumable: true}}\n\
             limits: {memory: 64 MiB}\n\
             components:\n  search: {config: {depth: 3}, limits: {memory: 1 MiB}}\n\
             server: {allowed_hosts: [agents.example], body_limit: 1 MiB, max_connections: 9, max_concurrent_runs: 3,\n    \
             cancel_on_disconnect: true, small_body_limit: 9 KiB, body_memory: 2 GiB, body_deadline: 1min,\n    \
             write_timeout: 5s, max_connections_per_peer: 7, allow_import: true, secret_file: ../host.key}\n",
        )
        .unwrap();
        assert_eq!(config.session_service.as_deref(), Some("postgres://db/x"));
        assert_eq!(config.models.gemini_base_url.as_deref(), Some("http://localhost:1"));
        assert_eq!(
            config.plugins.iter().map(|plugin| &*plugin.name).collect::<Vec<_>>(),
            ["logging", "kitchen/redact"]
        );
        assert_eq!(config.plugins[1].args["words"][0], "oven");
        assert_eq!((config.app_defaults.max_llm_calls, config.apps["dice"].resumable), (Some(9), Some(true)));
        assert_eq!(config.limits.memory, Some(64 << 20));
        assert_eq!(config.components["search"].config["depth"], 3);
        assert_eq!(config.components["search"].limits.memory, Some(1 << 20));
        assert_eq!(config.server.body_limit, ByteSize(1 << 20));
        assert_eq!(config.server.allowed_hosts, ["agents.example"]);
        assert_eq!(config.server.max_connections, 9);
        assert_eq!(config.server.max_concurrent_runs, 3);
        assert!(config.server.cancel_on_disconnect && config.server.allow_import);
        assert_eq!(config.server.secret_file.as_deref(), Some(Path::new("/srv/agents/../host.key")));
        assert_eq!((config.server.small_body_limit, config.server.body_memory), (ByteSize(9 << 10), ByteSize(2 << 30)));
        assert_eq!(config.server.body_deadline, Duration::from_secs(60));
        assert_eq!(config.server.write_timeout, Duration::from_secs(5));
        assert_eq!(config.server.max_connections_per_peer, 7);
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_place() {
        let error = parse("session_service: 'memory:'\nserver:\n  body_limits: 3\n").unwrap_err();
        assert_eq!(
            error,
            "/srv/agents/hatchery.yaml:3:3: server: unknown field `body_limits`, expected one of `allowed_hosts`, \
             `body_limit`, `small_body_limit`, `body_memory`, `body_deadline`, `write_timeout`, `max_connections`, \
             `max_connections_per_peer`, `max_concurrent_runs`, `cancel_on_disconnect`, `allow_import`, `secret_file`"
        );
    }

    #[test]
    fn a_wrong_value_is_an_error_with_its_place() {
        let error = parse("server:\n  body_limit: big\n").unwrap_err();
        assert!(error.starts_with("/srv/agents/hatchery.yaml:2:15: "), "{error}");
        assert!(error.contains("`big` is not a size"), "{error}");
    }

    #[test]
    fn an_unknown_limit_is_an_error_with_its_place() {
        let error = parse("limits:\n  cpu: 1s\n  ram: 3\n").unwrap_err();
        assert!(error.starts_with("/srv/agents/hatchery.yaml:3:3: limits: unknown field `ram`"), "{error}");
    }

    #[test]
    fn wrong_grants_are_an_error_with_their_place() {
        let error = |grant: &str| parse(&format!("components:\n  web:\n    grants:\n      {grant}\n")).unwrap_err();
        let unknown = error("model: [x]");
        let expected = "/srv/agents/hatchery.yaml:4:7: components.web.grants: unknown field `model`, expected one of ";
        assert!(unknown.starts_with(expected), "{unknown}");
        for (grant, expected) in [
            ("models: ['']", "a pattern is not empty; `*` stands for all names"),
            ("artifacts: all", "unknown variant `all`, expected `read` or `write`"),
            ("environment: {PORT: 8080}", "the value of a variable is a text, or `{from: VARIABLE OF THE HOST}`"),
            ("files: [{host: data, guest: data}]", "`data` is no absolute path in the component, as `/data` is"),
            ("files: [{guest: /data}]", "missing field `host`"),
            ("clock: noon", "`noon` is neither `real` nor a time such as `2026-01-01T00:00:00Z`"),
            ("random: 7", "random numbers are `real` or `{seed: NUMBER}`"),
        ] {
            let error = error(grant);
            assert!(error.starts_with("/srv/agents/hatchery.yaml:4:") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn what_the_documentation_shows_is_understood() {
        let shown = include_str!("../../../docs/security.md").split("```yaml\n").skip(1);
        let mut count = 0;
        for block in shown.filter_map(|rest| rest.split("```").next()) {
            parse(block).unwrap();
            count += 1;
        }
        assert!(count > 0);
    }

    #[test]
    fn how_instances_live_and_are_swapped_is_read_with_units() {
        let config = parse(
            "instances: {max: 10, queue_timeout: 50ms, memory: 1GiB}\nhot_reload: {drain_timeout: 1min, keep: 0}\n\
             components: {python: {warm: {size: 2, idle: 30}}, rust: {}}\n",
        )
        .unwrap();
        let instances = &config.instances;
        assert_eq!((instances.max.get(), instances.queue_timeout), (10, Duration::from_millis(50)));
        assert_eq!(instances.max_queued, InstanceSettings::default().max_queued);
        let options = instances.options();
        assert_eq!((options.memory, options.run_memory), (1 << 30, 256 << 20));
        assert_eq!(config.hot_reload, HotReload { drain_timeout: Duration::from_secs(60), keep: 0 });
        let warm = config.components["python"].warm.as_ref().unwrap();
        assert_eq!((warm.size.get(), warm.max_calls.get(), warm.idle), (2, 1000, Duration::from_secs(30)));
        assert_eq!(config.components["rust"].warm, None);
        let error = parse("components:\n  python:\n    warm: {size: 0}\n").unwrap_err();
        assert!(
            error.contains("components.python.warm.size: invalid value: integer `0`, expected a nonzero u32"),
            "{error}"
        );
        let error = parse("engine: {instances: 10}").unwrap_err();
        assert!(error.ends_with("; it is now `instances`, and its `compile` is a section of its own"), "{error}");
        let error = parse("instances: {busy_wait: 5s}").unwrap_err();
        assert!(
            error.contains("unknown field `busy_wait`") && error.ends_with("; it is now `queue_timeout`"),
            "{error}"
        );
        let error = parse("hot_reload: {drain_timeout: soon}").unwrap_err();
        assert!(error.contains("hot_reload: `soon` is not a time"), "{error}");
    }

    #[test]
    fn an_unknown_setting_of_an_app_is_an_error_with_its_place() {
        let error = parse("apps:\n  dice:\n    max_calls: 3\n").unwrap_err();
        assert_eq!(
            error,
            "/srv/agents/hatchery.yaml:3:5: apps.dice: unknown field `max_calls`, expected one of `resumable`, `max_llm_calls`, \
             `max_tokens`, `max_events`, `max_run_bytes`, `quotas`, `save_input_blobs_as_artifacts`, `tool_execution`, `compaction`"
        );
        let error = parse("app_defaults: {tool_execution: both}").unwrap_err();
        assert!(
            error.contains("app_defaults.tool_execution: unknown variant `both`, expected `parallel` or `sequential`"),
            "{error}"
        );
        let error = parse("app_defaults: {max_llm_calls: -1}").unwrap_err();
        assert!(error.contains("app_defaults.max_llm_calls: invalid type: integer `-1`, expected u32"), "{error}");
    }

    #[test]
    fn wrong_settings_of_compaction_are_an_error_with_their_place() {
        let error =
            |settings: &str| parse(&format!("apps:\n  dice:\n    compaction:\n      {settings}\n")).unwrap_err();
        assert_eq!(
            error("interval: 3"),
            "/srv/agents/hatchery.yaml:4:7: apps.dice.compaction: `interval` requires `overlap`"
        );
        assert_eq!(
            error("{interval: 0, overlap: 1}"),
            "/srv/agents/hatchery.yaml:4:7: apps.dice.compaction: `interval` is 0; it must be at least 1"
        );
        assert_eq!(
            error("summarizer: gemini-2.5-flash"),
            "/srv/agents/hatchery.yaml:4:7: apps.dice.compaction: no strategy is set; set `interval` and `overlap`, or \
             `token_threshold` and `retention`, or both"
        );
        let unknown = error("every: 3");
        assert!(
            unknown.starts_with("/srv/agents/hatchery.yaml:4:7: apps.dice.compaction: unknown field `every`"),
            "{unknown}"
        );
        let wrong = parse("app_defaults: {compaction: often}").unwrap_err();
        assert!(wrong.contains("app_defaults.compaction: ") && wrong.contains("a mapping that says when"), "{wrong}");
    }

    #[test]
    fn whose_signatures_count_is_read() {
        let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        let registry = parse(&format!("registry:\n  signatures: require\n  trusted_keys: [{key}]\n")).unwrap().registry;
        assert_eq!(registry.signatures, SignaturePolicy::Require);
        assert_eq!(registry.trusted_keys, [key.parse().unwrap()]);
        assert_eq!(parse("registry: {signatures: off}").unwrap().registry.signatures, SignaturePolicy::Off);
        assert_eq!(RegistryConfig::default().signatures, SignaturePolicy::Warn);
        let error = parse("registry: {signatures: require}").unwrap_err();
        assert!(
            error.starts_with("/srv/agents/hatchery.yaml: signatures are required, but no key is trusted"),
            "{error}"
        );
        let bound = parse("components: {dice: {signed_as: die, signed_by: '0000000000000001'}}").unwrap_err();
        assert_eq!(
            bound,
            "/srv/agents/hatchery.yaml: components.dice.signed_by: the key 0000000000000001 is not trusted; add its public key to \
             `registry.trusted_keys` of hatchery.yaml"
        );
        let error = parse("components: {dice: {sha256: c0ffee}}").unwrap_err();
        assert!(error.contains("components.dice: `c0ffee` is not a digest; a digest is `sha256:` and 64"), "{error}");
        let error = parse("registry:\n  trusted_keys: [nobody]\n").unwrap_err();
        assert!(error.starts_with("/srv/agents/hatchery.yaml:2:"), "{error}");
        assert!(error.contains("registry.trusted_keys: nobody: not a minisign public key"), "{error}");
    }

    #[test]
    fn the_audit_log_is_chosen_and_a_tiny_one_refused() {
        let audit = parse("audit: {file: logs/audit.log, max_size: 1 MiB, keep: 2}").unwrap().audit;
        assert_eq!(audit.file.as_deref(), Some(Path::new("/srv/agents/logs/audit.log")));
        assert_eq!((audit.max_size, audit.keep, audit.enabled), (ByteSize(1 << 20), 2, true));
        assert_eq!(
            parse("audit: {max_size: 10}").unwrap_err(),
            "/srv/agents/hatchery.yaml: audit.max_size is 10 bytes; it must be at least 4 KiB (4096 bytes)"
        );
    }

    #[test]
    fn no_file_can_say_that_it_is_trusted() {
        for text in ["authority: operator", "components: {a: {refusal: null}}"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("unknown field `"), "{error}");
        }
    }

    #[test]
    fn wrong_arguments_of_a_plugin_are_an_error_with_their_place() {
        let error = parse("plugins:\n  - logging\n  - name: context_filter\n    args: {turn: 3}\n").unwrap_err();
        assert_eq!(
            error,
            "/srv/agents/hatchery.yaml:3:5: plugins[1]: plugin `context_filter`: unknown field `turn`, expected `turns`"
        );
    }

    #[test]
    fn relative_files_start_at_the_file_s_folder() {
        let config = parse("session_service: sqlite:data/s.db\nartifact_service: file:///var/a\n").unwrap();
        assert_eq!(config.session_service.as_deref(), Some("sqlite:///srv/agents/data/s.db"));
        assert_eq!(config.artifact_service.as_deref(), Some("file:///var/a"));
        let plugins = "plugins: [{name: recorder, args: {folder: recorded}}, {name: replay, args: {folder: /var/b}}]";
        let folders: Vec<_> =
            parse(plugins).unwrap().plugins.iter().map(|plugin| plugin.args["folder"].clone()).collect();
        assert_eq!(folders, ["/srv/agents/recorded", "/var/b"]);
        let grants = "components: {a: {grants: {files: [{host: data, guest: /data}, {host: /var/b, guest: /b}]}}}";
        let hosts: Vec<_> =
            parse(grants).unwrap().components["a"].grants.files.iter().map(|folder| folder.host.clone()).collect();
        assert_eq!(hosts, [Path::new("/srv/agents/data"), Path::new("/var/b")]);
        assert_eq!(below(Path::new("here"), "sqlite:s.db"), "sqlite:here/s.db");
        assert_eq!(below(Path::new("/x"), "memory:"), "memory:");
    }
}
