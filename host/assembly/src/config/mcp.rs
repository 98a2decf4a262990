//! Settings of MCP servers and clients: `mcp`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{CredentialId, CredentialService};
use hatchery_mcp::{
    Confirmation, Handshake, HeaderProvider, HttpServer, Limits, McpServers, OAuthConfig, OAuthGrant, Sampling,
    ServerConfig, StateHeaders, StdioServer, StoredTokens, Transport,
};
use hatchery_wasm::limits::units;
use hatchery_wasm::policy::{HostPattern, OutboundPolicy, PrivateEntry, entries_for};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::mcp_expose::{McpPromptConfig, McpResourceConfig};
use super::value::{ValueConfig, settings};
use crate::byte_size::ByteSize;
use crate::egress::HostEgress;
/// Maximum number of tokens of a message that a model writes for a server, unless the file says otherwise.
const DEFAULT_SAMPLING_TOKENS: u32 = 4096;

/// The Model Context Protocol: MCP servers whose tools agents use, and the exposure of this host to MCP clients.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    /// Servers by name. Agents refer to them by these names.
    pub servers: BTreeMap<String, McpServerConfig>,
    /// The apps, tools and prompts that this host exposes to MCP clients.
    pub expose: McpExposeConfig,
}

/// The apps, tools and prompts for MCP clients. In a pattern, `*` is a wildcard.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpExposeConfig {
    /// Patterns of the names of apps. Default: all.
    pub apps: Vec<String>,
    /// Patterns of the names of tools, as in `dice/*`. Default: none.
    pub tools: Vec<String>,
    /// Prompts by name. Default: none.
    pub prompts: BTreeMap<String, McpPromptConfig>,
    /// Files as resources, by their URIs. Default: none.
    pub resources: BTreeMap<String, McpResourceConfig>,
}

impl Default for McpExposeConfig {
    fn default() -> Self {
        Self { apps: vec!["*".into()], tools: Vec::new(), prompts: BTreeMap::new(), resources: BTreeMap::new() }
    }
}

/// A server: a `command` or a `url`, and limits.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpServerConfig {
    /// The program to start: a name on the `PATH`, or a path.
    pub command: Option<PathBuf>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, in addition to `PATH`.
    pub env: BTreeMap<String, ValueConfig>,
    /// Its working directory. Default: the folder of the configuration.
    pub cwd: Option<PathBuf>,
    /// The endpoint of a server over HTTP.
    pub url: Option<String>,
    /// Transport of a server at a `url`. Default: streamable HTTP.
    pub transport: McpHttpTransport,
    /// Headers of every request to it.
    pub headers: BTreeMap<String, ValueConfig>,
    /// Headers whose values are in the state of the session, with the keys of the state. Default: none.
    pub session_headers: BTreeMap<String, String>,
    /// True if the server may ask a person during a call. Default: false.
    pub elicitation: bool,
    /// The model that the server may use during a call. Default: none.
    pub sampling: Option<McpSamplingConfig>,
    /// Access tokens for a server at a `url`. Default: none.
    pub oauth: Option<McpOAuthConfig>,
    /// The handshake of the connection. Default: `initialize`.
    pub handshake: McpHandshake,
    /// The tools that agents may use. Default: all.
    pub tools: Option<BTreeSet<String>>,
    /// The tools whose calls a person must confirm: `true`, or their names.
    pub require_confirmation: McpConfirmation,
    /// Timeout of connecting. Default: 30 s.
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub connect_timeout: Option<Duration>,
    /// Timeout of a call without progress. Default: 60 s.
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub call_timeout: Option<Duration>,
    /// Timeout of a call. Default: 10 min.
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub max_call_time: Option<Duration>,
    /// Maximum size of a message. Default: 8 MiB.
    pub max_message: Option<ByteSize>,
    /// Maximum number of tools. Default: 256.
    pub max_tools: Option<usize>,
    /// Maximum number of notifications per second. Default: 1000.
    pub max_notifications: Option<u32>,
    /// The reason why the server is not used. It cannot be set in the file.
    #[serde(skip)]
    pub refusal: Option<String>,
}

/// Permission for a server to request messages of a model during a call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpSamplingConfig {
    /// The name of the model, as in agents.
    pub model: String,
    /// Maximum number of tokens of a message. Default: 4096.
    pub max_tokens: Option<u32>,
}

/// The way in which the host gets access tokens for a server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpOAuthConfig {
    /// The OAuth grant. Default: the login of a person, by `hatchery login`.
    pub grant: McpOAuthGrant,
    /// The host's id at the authorization server. Default: the host registers itself.
    pub client_id: Option<ValueConfig>,
    /// The secret that belongs to it.
    pub client_secret: Option<ValueConfig>,
    /// The URL of a document that describes the host, which some authorization servers accept instead of an id.
    pub client_metadata_url: Option<String>,
    /// The scopes to request. Default: those that the server demands.
    pub scopes: Vec<String>,
    /// The authorization server, if it is not the host of the `url`, as in the grant `network`.
    pub network: Vec<HostPattern>,
    /// Hosts and addresses outside of the public internet, as in the grant `private_network`.
    pub private_network: Vec<PrivateEntry>,
}

/// The OAuth grant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpOAuthGrant {
    /// A person, who logs in once.
    #[default]
    AuthorizationCode,
    /// The host, by `client_id` and `client_secret`.
    ClientCredentials,
}

impl McpOAuthConfig {
    /// Returns the values that come from variables, by their keys.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let values = [("client_id", &self.client_id), ("client_secret", &self.client_secret)];
        values.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?.variable()?)))
    }

    fn check(&self) -> Result<(), String> {
        let is_complete = self.client_id.is_some() && self.client_secret.is_some();
        if self.grant == McpOAuthGrant::ClientCredentials && !is_complete {
            return Err("`oauth`: the grant `client_credentials` needs `client_id` and `client_secret`".into());
        }
        if self.client_secret.is_some() && self.client_id.is_none() {
            return Err("`oauth`: a `client_secret` belongs to a `client_id`".into());
        }
        Ok(())
    }

    /// Returns the settings for a server. Tokens are bound to its URL.
    fn settings(&self, name: &str, url: &str, credentials: &Arc<dyn CredentialService>) -> Result<OAuthConfig, String> {
        let (own, private) = entries_for(url)?;
        let network = self.network.iter().cloned().chain([own]).collect();
        let private_network = self.private_network.iter().cloned().chain(private).collect();
        let policy = OutboundPolicy { network, private_network };
        let mut settings = OAuthConfig::new(HostEgress::new(policy, format!("mcp.servers.{name}.oauth")));
        settings.grant = match self.grant {
            McpOAuthGrant::AuthorizationCode => OAuthGrant::AuthorizationCode,
            McpOAuthGrant::ClientCredentials => OAuthGrant::ClientCredentials,
        };
        settings.client_id = self.client_id.as_ref().map(Into::into);
        settings.client_secret = self.client_secret.as_ref().map(Into::into);
        settings.client_metadata_url = self.client_metadata_url.clone();
        settings.scopes = self.scopes.clone();
        settings.tokens = (settings.grant == OAuthGrant::AuthorizationCode).then(|| {
            let hash = Sha256::digest(url.as_bytes());
            let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            StoredTokens { service: credentials.clone(), id: CredentialId::for_host(format!("mcp:{name}:{hash}")) }
        });
        Ok(settings)
    }
}

/// The transport to a server at a URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpHttpTransport {
    #[default]
    StreamableHttp,
    /// HTTP+SSE, the transport of revision 2024-11-05.
    Sse,
}

/// The handshake of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpHandshake {
    /// With `initialize`, in revisions up to 2025-11-25.
    #[default]
    Initialize,
    /// With `server/discover`, in revision 2026-07-28.
    Discover,
    /// With `server/discover` if the server knows it.
    Auto,
}

impl From<McpHandshake> for Handshake {
    fn from(config: McpHandshake) -> Self {
        match config {
            McpHandshake::Initialize => Self::Initialize,
            McpHandshake::Discover => Self::Discover,
            McpHandshake::Auto => Self::Auto,
        }
    }
}

/// All tools, none, or the tools of these names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum McpConfirmation {
    All(bool),
    Tools(BTreeSet<String>),
}

impl Default for McpConfirmation {
    fn default() -> Self {
        Self::All(false)
    }
}

impl From<&McpConfirmation> for Confirmation {
    fn from(config: &McpConfirmation) -> Self {
        match config {
            McpConfirmation::All(false) => Self::None,
            McpConfirmation::All(true) => Self::All,
            McpConfirmation::Tools(names) => Self::Tools(names.clone()),
        }
    }
}

impl McpConfig {
    /// Checks the names and transports of servers, the prompts and the resources.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(super) fn check(&self) -> Result<(), String> {
        for (name, prompt) in &self.expose.prompts {
            prompt.prompt().map_err(|reason| format!("mcp.expose.prompts.{name}: {reason}"))?;
        }
        for (uri, resource) in &self.expose.resources {
            resource.check(uri).map_err(|reason| format!("mcp.expose.resources: `{uri}`: {reason}"))?;
        }
        self.servers.iter().try_for_each(|(name, server)| {
            let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
            if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
                return Err(format!(
                    "mcp.servers: `{}` is not a valid server name; use up to 64 letters, digits, `-` and `_`",
                    name.escape_debug()
                ));
            }
            server.transport().map(drop).map_err(|reason| format!("mcp.servers.{name}: {reason}"))
        })
    }

    /// Resolves the paths of files and programs against `folder`, which is the default working directory of programs.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        for resource in self.expose.resources.values_mut() {
            resource.file = folder.join(&resource.file);
            resource.root = folder.to_owned();
        }
        for server in self.servers.values_mut().filter(|server| server.command.is_some()) {
            let cwd = folder.join(server.cwd.take().unwrap_or_default());
            // The path of a file in the current folder may have no folder.
            server.cwd = Some(if cwd.as_os_str().is_empty() { Path::new(".").into() } else { cwd });
            if let Some(command) = server.command.as_mut().filter(|command| command.components().nth(1).is_some()) {
                *command = folder.join(&*command);
            }
        }
    }

    /// Returns the servers, with the reasons why some of them are not used. Tokens of logins are kept by `credentials`.
    pub fn servers(&self, credentials: &Arc<dyn CredentialService>) -> McpServers {
        let used = self.servers.iter().filter(|(_, server)| server.refusal.is_none());
        let used = used.filter_map(|(name, server)| Some((name.clone(), server.settings(name, credentials)?)));
        let refused = self.servers.iter().filter_map(|(name, server)| Some((name.clone(), server.refusal.clone()?)));
        McpServers::new(used).with_refused(refused)
    }
}

impl McpServerConfig {
    /// Returns the settings of the server. `None` if they are invalid: reading the file reports that error.
    pub(super) fn settings(&self, name: &str, credentials: &Arc<dyn CredentialService>) -> Option<ServerConfig> {
        let default = Limits::default();
        let oauth = self.oauth.as_ref().zip(self.url.as_ref());
        Some(ServerConfig {
            transport: self.transport().ok()?,
            header_provider: (!self.session_headers.is_empty())
                .then(|| Arc::new(StateHeaders(self.session_headers.clone())) as Arc<dyn HeaderProvider>),
            oauth: oauth.map(|(oauth, url)| oauth.settings(name, url, credentials)).transpose().ok()?,
            tools: self.tools.clone(),
            confirmation: (&self.require_confirmation).into(),
            elicitation: self.elicitation,
            sampling: self.sampling.as_ref().map(|sampling| Sampling {
                model: sampling.model.clone(),
                max_tokens: sampling.max_tokens.unwrap_or(DEFAULT_SAMPLING_TOKENS),
            }),
            handshake: self.handshake.into(),
            limits: Limits {
                connect_timeout: self.connect_timeout.unwrap_or(default.connect_timeout),
                call_timeout: self.call_timeout.unwrap_or(default.call_timeout),
                max_call_time: self.max_call_time.unwrap_or(default.max_call_time),
                max_message: self.max_message.map_or(default.max_message, ByteSize::bytes),
                max_tools: self.max_tools.unwrap_or(default.max_tools),
                max_notifications: self.max_notifications.unwrap_or(default.max_notifications),
            },
        })
    }

    fn transport(&self) -> Result<Transport, String> {
        if let Some(oauth) = &self.oauth {
            oauth.check()?;
            if self.url.is_none() || self.transport != McpHttpTransport::StreamableHttp {
                return Err("`oauth` belongs to a `url` over streamable HTTP".into());
            }
        }
        match (&self.command, &self.url) {
            (Some(command), None) => {
                if self.headers.is_empty() && self.session_headers.is_empty() {
                    Ok(Transport::Stdio(StdioServer {
                        command: absolute_program(command)?,
                        args: self.args.clone(),
                        env: settings(&self.env),
                        cwd: self.cwd.clone(),
                    }))
                } else {
                    Err("`headers` belong to a `url`; give variables to a command by `env`".into())
                }
            }
            (None, Some(url)) => {
                if !self.args.is_empty() || !self.env.is_empty() || self.cwd.is_some() {
                    return Err("`args`, `env` and `cwd` belong to a `command`; remove them, or the `url`".into());
                }
                if !url.starts_with("http://") && !url.starts_with("https://") {
                    return Err("`url` must begin with http:// or https://".into());
                }
                let server = HttpServer { url: url.clone(), headers: settings(&self.headers) };
                Ok(match self.transport {
                    McpHttpTransport::StreamableHttp => Transport::Http(server),
                    McpHttpTransport::Sse => Transport::Sse(server),
                })
            }
            (None, None) => Err("a server needs either a `command` to start or a `url`".into()),
            (Some(_), Some(_)) => Err("a server has either a `command` or a `url`; remove one of them".into()),
        }
    }
}

/// Returns a program that is given by a path with its absolute path: a relative one would begin at the working
/// directory of the program. Returns names on the `PATH` unchanged.
fn absolute_program(command: &Path) -> Result<PathBuf, String> {
    if command.components().nth(1).is_none() {
        return Ok(command.to_owned());
    }
    std::path::absolute(command).map_err(|error| format!("`command`: {error}"))
}
