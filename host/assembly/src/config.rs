//! `hatchery.yaml`: services, models, plugins, limits, trusted keys and settings of apps and components. Every key is
//! optional and unknown keys are errors. An error names the file, the line and the column.

mod a2a;
mod app;
mod audit;
mod code_executors;
mod component;
mod encryption;
mod error;
mod integrations;
mod mcp;
mod mcp_expose;
mod memory;
mod openapi;
mod price;
mod quotas;
mod reference;
mod retention;
mod retrieval;
mod server;
mod value;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use hatchery_core::suggestion::{explain_syntax_error, suggestion};
use hatchery_core::type_schema::json_schema;
use hatchery_core::{quoted_list, without_byte_order_mark};
use hatchery_engine::plugins::PluginConfig;
use hatchery_models::Service;
use hatchery_registry::{ExpectedIdentity, SignaturePolicy, SignatureVerifier, TrustedKey};
use hatchery_stores::{ARTIFACT_SCHEMES, SESSION_SCHEMES};
use hatchery_wasm::limits::LimitOverrides;
use hatchery_wasm::{CompileLimits, Grants, HotReload, InstanceSettings};
use serde::Deserialize;
use serde_json::Value;

pub use a2a::{A2aAgentConfig, A2aAggregation, A2aConfig, A2aExposeConfig, A2aPushConfig, A2aVersion};
pub use app::{AppConfig, ToolExecutionConfig};
pub use audit::AuditConfig;
pub use code_executors::{CodeExecutorConfig, ContainerConfig, VertexConfig, VertexOperation};
pub use component::ComponentConfig;
pub use encryption::{EncryptionConfig, EncryptionKeyConfig, PlainDataConfig};
pub use error::ConfigError;
pub use integrations::{IntegrationConfig, IntegrationOperation};
pub use mcp::{
    McpConfig, McpConfirmation, McpExposeConfig, McpHandshake, McpHttpTransport, McpOAuthConfig, McpOAuthGrant,
    McpSamplingConfig, McpServerConfig,
};
pub use mcp_expose::{
    McpPromptArgumentConfig, McpPromptConfig, McpPromptMessageConfig, McpPromptRole, McpResourceConfig,
};
pub use memory::MemorySearchConfig;
pub use openapi::{
    ApiConfig, ApiConfirmation, ApiConfirmationKind, ApiKeyConfig, ApiKeyLocation, AuthConfig, BasicConfig,
    OAuth2ClientPlacement, OAuth2Config, OpenApiConfig, OpenIdConnectConfig, ServiceAccountConfig, UserApiKeyConfig,
    UserAuthConfig, UserHttpScheme, UserOAuth2Config,
};
pub use price::{ModelPrice, PricesConfig};
pub use quotas::{DurabilityConfig, QuotaOverrides};
pub use retention::RetentionConfig;
pub use retrieval::RetrievalConfig;
pub use server::{
    BasePath, ClientKeyConfig, CorsConfig, DevUi, OidcConfig, Role, ServerAuthConfig, ServerConfig, TlsConfig,
    TokenAlgorithm, TriggerSource,
};
pub use value::ValueConfig;

use crate::plugins;

/// The name of the configuration file in the served folder.
pub const FILE_NAME: &str = "hatchery.yaml";

/// Keys of earlier versions, and the keys that replace them.
const RENAMED_KEYS: [(&str, &str); 5] = [
    ("engine", "it is now `instances`, and its `compile` is a separate section"),
    ("busy_wait", "it is now `queue_timeout`"),
    ("busy_queue", "it is now `max_queued`"),
    ("swapping", "it is now `hot_reload`"),
    ("body_deadline", "it is now `body_timeout`"),
];

/// Settings that a command line has instead, and the flags for them.
const FLAGS: [(&str, &str); 2] =
    [("server: unknown field `host`", "--host"), ("server: unknown field `port`", "--port")];

/// The author of a configuration, who is responsible for its content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Authority {
    /// The author of the folder.
    #[default]
    Folder,
    /// The operator of the host.
    Operator,
}

/// The content of `hatchery.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// URI of the session service. Default: SQLite in the data folder.
    pub session_service: Option<String>,
    /// URI of the artifact service. Default: files in the data folder.
    pub artifact_service: Option<String>,
    /// URI of the memory service. Default: SQLite in the data folder.
    pub memory_service: Option<String>,
    /// Search in the memory: by words only, or also by meaning.
    pub memory: MemorySearchConfig,
    pub models: ModelsConfig,
    /// Plugins of every run, in this order.
    #[serde(deserialize_with = "plugins::deserialize")]
    pub plugins: Vec<PluginConfig>,
    /// Defaults for the settings of all apps.
    pub app_defaults: AppConfig,
    /// Settings by app name. Settings that an app leaves out come from `app_defaults`.
    pub apps: BTreeMap<String, AppConfig>,
    /// Limits of every component.
    pub limits: LimitOverrides,
    /// Limits of the data of sessions, users and apps.
    pub quotas: QuotaOverrides,
    /// The kind of crash that sessions in SQLite survive.
    pub durability: DurabilityConfig,
    /// The keys with which sessions, artifacts and memory are encrypted. Default: none.
    pub encryption: EncryptionConfig,
    /// Rules for the deletion of old sessions.
    pub retention: RetentionConfig,
    /// Prices of tokens.
    pub prices: PricesConfig,
    /// Limits that all components share.
    pub instances: InstanceSettings,
    /// Limits of compiling a component.
    pub compile: CompileLimits,
    /// Hot reload of components.
    pub hot_reload: HotReload,
    /// Settings by component name.
    pub components: BTreeMap<String, ComponentConfig>,
    pub mcp: McpConfig,
    pub a2a: A2aConfig,
    pub openapi: OpenApiConfig,
    /// Integrations and connections of Google Cloud by name. Agents refer to them by these names.
    pub integrations: BTreeMap<String, IntegrationConfig>,
    /// Folders and artifacts that agents search by `FilesRetrieval`, by name.
    pub retrieval: BTreeMap<String, RetrievalConfig>,
    /// Executors of the code that models write, by name. Agents refer to them by these names.
    pub code_executors: BTreeMap<String, CodeExecutorConfig>,
    pub registry: RegistryConfig,
    pub server: ServerConfig,
    pub audit: AuditConfig,
    /// The author who is responsible for access outside of the folder. It cannot be set in the file.
    #[serde(skip)]
    pub authority: Authority,
}

/// Settings of models. Environment variables take precedence over base URLs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelsConfig {
    /// Base URL of the Gemini API, as in `GOOGLE_GEMINI_BASE_URL`.
    pub gemini_base_url: Option<String>,
    /// Base URL of Vertex AI, as in `GOOGLE_VERTEX_BASE_URL`.
    pub vertex_base_url: Option<String>,
    /// Base URL of OpenAI or a compatible server, as in `OPENAI_BASE_URL`.
    pub openai_base_url: Option<String>,
    /// Base URL of the Anthropic API, as in `ANTHROPIC_BASE_URL`.
    pub anthropic_base_url: Option<String>,
    /// Base URL of Ollama, as in `OLLAMA_BASE_URL`.
    pub ollama_base_url: Option<String>,
    /// Base URL of vLLM, as in `VLLM_BASE_URL`.
    pub vllm_base_url: Option<String>,
    /// Base URL of the server of llama.cpp, as in `LLAMACPP_BASE_URL`.
    pub llamacpp_base_url: Option<String>,
    /// Base URL of OpenRouter, as in `OPENROUTER_BASE_URL`.
    pub openrouter_base_url: Option<String>,
    /// URL of an Apigee gateway, as in `APIGEE_PROXY_URL`.
    pub apigee_base_url: Option<String>,
    /// Fallback models by name, in order, for calls that fail before the model has answered.
    pub fallback: BTreeMap<String, Vec<String>>,
}

impl ModelsConfig {
    /// Returns the base URLs that are set, with their services and keys.
    pub fn base_urls(&self) -> impl Iterator<Item = (Service, &'static str, &str)> {
        self.base_url_keys().filter_map(|(service, key, url)| Some((service, key, url?)))
    }

    /// Returns the services and keys of all base URLs, with those that are set.
    pub(crate) fn base_url_keys(&self) -> impl Iterator<Item = (Service, &'static str, Option<&str>)> {
        let urls = [
            (Service::Gemini, "gemini_base_url", &self.gemini_base_url),
            (Service::Vertex, "vertex_base_url", &self.vertex_base_url),
            (Service::OpenAi, "openai_base_url", &self.openai_base_url),
            (Service::Anthropic, "anthropic_base_url", &self.anthropic_base_url),
            (Service::Ollama, "ollama_base_url", &self.ollama_base_url),
            (Service::Vllm, "vllm_base_url", &self.vllm_base_url),
            (Service::LlamaCpp, "llamacpp_base_url", &self.llamacpp_base_url),
            (Service::OpenRouter, "openrouter_base_url", &self.openrouter_base_url),
            (Service::Apigee, "apigee_base_url", &self.apigee_base_url),
        ];
        urls.into_iter().map(|(service, key, url)| (service, key, url.as_deref()))
    }
}

/// Signatures of components: which ones `hatchery pull` accepts and, if signatures are required, which ones the host
/// loads.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryConfig {
    /// Policy for components without a trusted signature.
    pub signatures: SignaturePolicy,
    /// Public keys whose signatures are trusted.
    pub trusted_keys: Vec<TrustedKey>,
}

impl Config {
    /// Returns the verifier of component signatures.
    pub fn signature_verifier(&self) -> SignatureVerifier {
        self.signature_verifier_with(self.registry.signatures, self.registry.trusted_keys.clone())
    }

    /// Like [`Config::signature_verifier`], with another policy and other keys.
    pub fn signature_verifier_with(&self, policy: SignaturePolicy, keys: Vec<TrustedKey>) -> SignatureVerifier {
        SignatureVerifier::new(policy, keys).with_identities(self.expected_identities())
    }

    /// Returns the components that must have a certain name, key or digest.
    pub fn expected_identities(&self) -> BTreeMap<String, ExpectedIdentity> {
        let identities = self.components.iter().map(|(name, component)| (name.clone(), component.expected_identity()));
        identities.filter(|(_, identity)| *identity != ExpectedIdentity::default()).collect()
    }

    /// Returns the JSON Schema of the file, for editors.
    pub fn json_schema() -> Value {
        let mut schema = json_schema::<Self>(FILE_NAME);
        reference::describe(&mut schema);
        schema
    }

    /// Reads `hatchery.yaml` in a folder. Returns the defaults if there is no such file. This does not check trust;
    /// [`ConfigSource`](crate::trust::ConfigSource) does.
    pub fn load(folder: &Path) -> Result<Self, ConfigError> {
        let file = folder.join(FILE_NAME);
        match std::fs::read_to_string(&file) {
            Ok(text) => Self::parse(&text, &file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read { file, source }),
        }
    }

    /// Parses a configuration. `file` is named in errors, and relative paths in service URIs, grants and plugin
    /// arguments are resolved against its folder.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let invalid = |location, message| ConfigError::Invalid { file: file.to_owned(), location, message };
        // `None` for a file that is empty or has only comments.
        let config: Option<Self> = serde_yaml::from_str(without_byte_order_mark(text)).map_err(|error| {
            let location = error.location().map(|location| (location.line(), location.column()));
            let mut message = error.to_string();
            if let Some((line, column)) = location {
                message = message.replace(&format!(" at line {line} column {column}"), "");
            }
            message = explain_syntax_error(&message);
            let renamed = |(key, _): &&(&str, &str)| message.contains(&format!("unknown field `{key}`"));
            if let Some((_, hint)) = RENAMED_KEYS.iter().find(renamed) {
                message = format!("{message}; {hint}");
            }
            if let Some((problem, flag)) = FLAGS.iter().find(|(problem, _)| message.starts_with(problem)) {
                message = format!("{problem}; `hatchery serve` has the flag `{flag}` for it");
            }
            invalid(location, message)
        })?;
        let mut config = config.unwrap_or_default();
        config.signature_verifier().check().map_err(|error| invalid(None, error.to_string()))?;
        config.check_services().map_err(|message| invalid(None, message))?;
        config.audit.check().map_err(|message| invalid(None, message))?;
        config.prices.check().map_err(|message| invalid(None, message))?;
        config.mcp.check().map_err(|message| invalid(None, message))?;
        config.a2a.check().map_err(|message| invalid(None, message))?;
        config.openapi.check().map_err(|message| invalid(None, message))?;
        integrations::check(&config.integrations).map_err(|message| invalid(None, message))?;
        code_executors::check(&config.code_executors).map_err(|message| invalid(None, message))?;
        for (name, retrieval) in &config.retrieval {
            retrieval.check(name, !config.encryption.keys.is_empty()).map_err(|message| invalid(None, message))?;
        }
        config.server.check().map_err(|message| invalid(None, message))?;
        config.encryption.check().map_err(|message| invalid(None, message))?;
        config.memory.check().map_err(|message| invalid(None, message))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        config.resolve_paths(folder);
        config.check_not_writable(folder, file)?;
        Ok(config)
    }

    /// Checks the schemes of services: a misspelt one would be taken for a service elsewhere, which needs trust.
    fn check_services(&self) -> Result<(), String> {
        let services = [
            ("session_service", &self.session_service, SESSION_SCHEMES.as_slice()),
            ("artifact_service", &self.artifact_service, ARTIFACT_SCHEMES.as_slice()),
            ("memory_service", &self.memory_service, SESSION_SCHEMES.as_slice()),
        ];
        for (key, uri, known) in services {
            let Some(scheme) = uri.as_deref().and_then(|uri| uri.split(':').next()) else { continue };
            if !known.contains(&scheme) {
                let suggested = suggestion(scheme, known.iter().copied());
                let known = quoted_list(known);
                return Err(format!("{key}: no service has the scheme `{scheme}`; available: {known}{suggested}"));
            }
        }
        Ok(())
    }

    fn resolve_paths(&mut self, folder: &Path) {
        let services = [&mut self.session_service, &mut self.artifact_service, &mut self.memory_service];
        for uri in services.into_iter().flatten() {
            *uri = resolve_uri(folder, uri);
        }
        for component in self.components.values_mut() {
            component.grants.resolve_paths(folder);
        }
        for plugin in &mut self.plugins {
            plugins::resolve_folder(plugin, folder);
        }
        self.mcp.resolve_paths(folder);
        self.a2a.resolve_paths(folder);
        self.openapi.resolve_paths(folder);
        self.server.resolve_paths(folder);
        self.encryption.resolve_paths(folder);
        integrations::resolve_paths(&mut self.integrations, folder);
        code_executors::resolve_paths(&mut self.code_executors, folder);
        for retrieval in self.retrieval.values_mut() {
            if let Some(searched) = &mut retrieval.folder {
                *searched = folder.join(&*searched);
                retrieval.root = Some(folder.to_owned());
            }
        }
        if let Some(file) = &mut self.audit.file {
            *file = folder.join(&*file);
        }
    }

    /// Checks that no component may write to `folder`: the folder of the configuration `file`, or the served folder.
    pub(crate) fn check_not_writable(&self, folder: &Path, file: &Path) -> Result<(), ConfigError> {
        let mut components = self.components.iter();
        components.try_for_each(|(name, component)| check_not_writable_by(name, &component.grants, folder, file))
    }
}

fn check_not_writable_by(component: &str, grants: &Grants, folder: &Path, file: &Path) -> Result<(), ConfigError> {
    let Some(granted) = grants.writable_folder(folder) else { return Ok(()) };
    let message = format!(
        "components.{component}.grants.files: the folder {} contains {FILE_NAME} and all components; grant write access to \
         a folder below it instead",
        granted.host.display()
    );
    Err(ConfigError::Invalid { file: file.to_owned(), location: None, message })
}

/// Resolves the path of a `sqlite:` or `file:` URI, of the properties file of a `firestore:` URI, and of the
/// certificates of a `postgres:` URI against `folder`. Returns other URIs and absolute paths unchanged. `memory` is
/// `memory:`, which YAML only accepts in quotes.
fn resolve_uri(folder: &Path, uri: &str) -> String {
    match uri.split_once(':') {
        Some((scheme @ ("sqlite" | "file"), path)) if !path.is_empty() && !path.starts_with(['/', ':']) => {
            let path = folder.join(path);
            let slashes = if path.is_absolute() { "//" } else { "" };
            format!("{scheme}:{slashes}{}", path.display())
        }
        Some(("firestore", _)) => resolve_parameter(folder, uri, "properties="),
        Some(("postgres" | "postgresql", _)) => resolve_parameter(folder, uri, "sslrootcert="),
        None if uri == "memory" => "memory:".to_owned(),
        _ => uri.to_owned(),
    }
}

/// Resolves the path in the parameter of a URI that begins so.
fn resolve_parameter(folder: &Path, uri: &str, start: &str) -> String {
    let Some((location, query)) = uri.split_once('?') else { return uri.to_owned() };
    let parameters = query.split('&').map(|parameter| match parameter.strip_prefix(start) {
        Some(file) => format!("{start}{}", folder.join(file).display()),
        None => parameter.to_owned(),
    });
    format!("{location}?{}", parameters.collect::<Vec<_>>().join("&"))
}

/// Returns the path of a `sqlite:` or `file:` URI. `None` for services without files.
pub(crate) fn path_of_uri(uri: &str) -> Option<PathBuf> {
    match uri.split_once(':')? {
        ("sqlite" | "file", path) if !path.is_empty() => Some(path.strip_prefix("//").unwrap_or(path).into()),
        _ => None,
    }
}

/// Returns the properties file of a `firestore:` URI.
pub(crate) fn properties_of_uri(uri: &str) -> Option<PathBuf> {
    let (_, query) = uri.strip_prefix("firestore:")?.split_once('?')?;
    let file = query.split('&').find_map(|parameter| parameter.strip_prefix("properties="))?;
    (!file.is_empty()).then(|| file.into())
}

/// Replaces the credentials in `scheme://user:password@host/…` by `…`, and the value of a parameter `password`.
pub(crate) fn without_credentials(uri: &str) -> String {
    if let Some((location, query)) = uri.split_once('?') {
        let is_password = |parameter: &str| parameter.starts_with("password=");
        let hide = |parameter| if is_password(parameter) { "password=…" } else { parameter };
        let parameters: Vec<_> = query.split('&').map(hide).collect();
        return format!("{}?{}", without_credentials(location), parameters.join("&"));
    }
    match (uri.split_once("://"), uri.rfind('@')) {
        (Some((scheme, _)), Some(at)) => format!("{scheme}://…{}", uri.get(at..).unwrap_or_default()),
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests;
