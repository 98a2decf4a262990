//! Settings of MCP servers that agents use: connections, permissions and limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{CallContext, ConfigValue, CredentialId, CredentialService};
use hatchery_egress::Egress;
use rmcp::transport::auth::InMemoryCredentialStore;
use serde_json::Value;

/// An MCP server whose tools agents use.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The transport to the server.
    pub transport: Transport,
    /// The tools that agents may use. `None` means all.
    pub tools: Option<BTreeSet<String>>,
    /// The tools whose calls a person must confirm.
    pub confirmation: Confirmation,
    /// Limits of its answers.
    pub limits: Limits,
    /// Whether the server may ask a person during a call. Up to revision 2025-11-25 its calls are then made one at a
    /// time.
    pub elicitation: bool,
    /// The model that the server may use during a call, with the same effect on calls. `None` means none.
    pub sampling: Option<Sampling>,
    /// The handshake of the connection.
    pub handshake: Handshake,
    /// OAuth settings, for a server over streamable HTTP. `None` if it needs no token, or has one in a header.
    pub oauth: Option<OAuthConfig>,
    /// Headers that depend on the session of a call, for a server over HTTP. Each set of headers has a connection.
    pub header_provider: Option<Arc<dyn HeaderProvider>>,
}

/// Headers that depend on the session of a call, such as the credentials of its user.
#[async_trait]
pub trait HeaderProvider: fmt::Debug + Send + Sync {
    /// Returns the headers for the session of a call, in addition to the server's headers.
    ///
    /// # Errors
    /// The reason why there are none, for the operator.
    async fn headers(&self, cx: &CallContext) -> Result<BTreeMap<String, String>, String>;
}

/// Headers whose values are in the state of the session, with the keys of the state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StateHeaders(pub BTreeMap<String, String>);

#[async_trait]
impl HeaderProvider for StateHeaders {
    async fn headers(&self, cx: &CallContext) -> Result<BTreeMap<String, String>, String> {
        let header = |(name, key): (&String, &String)| match cx.state(key) {
            Some(Value::String(value)) => Ok((name.clone(), value)),
            Some(Value::Null) | None => Err(format!("the state of the session has no `{key}` for the header `{name}`")),
            Some(_) => Err(format!("`{key}` in the state of the session must be a string for the header `{name}`")),
        };
        self.0.iter().map(header).collect()
    }
}

impl ServerConfig {
    /// Creates the settings of a server with all of its tools, without confirmation, with default limits.
    pub fn new(transport: Transport) -> Self {
        let (confirmation, limits, handshake) = (Confirmation::None, Limits::default(), Handshake::default());
        let (tools, sampling, oauth, header_provider) = (None, None, None, None);
        Self { transport, tools, confirmation, limits, elicitation: false, sampling, handshake, oauth, header_provider }
    }

    /// Returns the settings for a session with these headers.
    pub(crate) fn with_session_headers(&self, headers: BTreeMap<String, String>) -> Self {
        let mut config = Self { header_provider: None, ..self.clone() };
        if let Transport::Http(server) | Transport::Sse(server) = &mut config.transport {
            server.headers.extend(headers.into_iter().map(|(name, value)| (name, ConfigValue::Text(value))));
        }
        config
    }
}

/// Permission for a server to let a model of the host write messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampling {
    /// The name of the model, as in agents. The server's preferences are ignored.
    pub model: String,
    /// Maximum number of tokens of a message.
    pub max_tokens: u32,
}

/// Handshake of a connection, which also selects the revision of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Handshake {
    /// With `initialize`, in revisions up to 2025-11-25. All servers of today accept it.
    #[default]
    Initialize,
    /// With `server/discover`, in revision 2026-07-28.
    Discover,
    /// With `server/discover`, or `initialize` if the server does not know it or does not answer for ten seconds.
    Auto,
}

/// The transport to a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    /// A process of the host that talks over its standard input and output.
    Stdio(StdioServer),
    /// Streamable HTTP.
    Http(HttpServer),
    /// HTTP+SSE, the transport of revision 2024-11-05. The URL is the URL of the event stream.
    Sse(HttpServer),
}

/// A server that the host starts. Its environment has `PATH` and the variables of [`StdioServer::env`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StdioServer {
    /// The program: a path, or a name that is searched in the host's `PATH`.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment variables.
    pub env: BTreeMap<String, ConfigValue>,
    /// Its working directory. `None` means the host's.
    pub cwd: Option<PathBuf>,
}

/// A server at a URL.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HttpServer {
    /// The endpoint, such as `https://tools.example/mcp`.
    pub url: String,
    /// Headers of every request.
    pub headers: BTreeMap<String, ConfigValue>,
}

/// OAuth settings for access tokens of a server.
#[derive(Clone)]
pub struct OAuthConfig {
    pub grant: OAuthGrant,
    /// The host's id at the authorization server. `None` means that the host registers itself.
    pub client_id: Option<ConfigValue>,
    pub client_secret: Option<ConfigValue>,
    /// The URL of a document that describes the host, which some authorization servers accept instead of an id.
    pub client_metadata_url: Option<String>,
    /// The scopes to request. Empty means those that the server demands.
    pub scopes: Vec<String>,
    /// The egress policy for requests to the authorization server, which the MCP server names.
    pub egress: Arc<dyn Egress>,
    /// Storage of the tokens of a login. `None` keeps them in memory.
    pub tokens: Option<StoredTokens>,
    /// The tokens, if they are kept nowhere else.
    pub(crate) memory: InMemoryCredentialStore,
}

impl OAuthConfig {
    /// Creates the settings of a host that registers itself, and keeps the tokens of a person's login in memory.
    pub fn new(egress: Arc<dyn Egress>) -> Self {
        Self {
            grant: OAuthGrant::default(),
            client_id: None,
            client_secret: None,
            client_metadata_url: None,
            scopes: Vec::new(),
            egress,
            tokens: None,
            memory: InMemoryCredentialStore::new(),
        }
    }
}

impl fmt::Debug for OAuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grant, client_id, scopes, .. } = self;
        let mut debug = f.debug_struct("OAuthConfig");
        debug.field("grant", grant).field("client_id", client_id).field("scopes", scopes);
        debug.finish_non_exhaustive()
    }
}

/// Storage of the tokens of one server.
#[derive(Clone)]
pub struct StoredTokens {
    pub service: Arc<dyn CredentialService>,
    pub id: CredentialId,
}

/// The party that grants access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OAuthGrant {
    /// A person, who logs in once.
    #[default]
    AuthorizationCode,
    /// The host, with a client id and its own secret.
    ClientCredentials,
}

/// The tools whose calls a person must confirm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Confirmation {
    /// None of them.
    #[default]
    None,
    /// All of them.
    All,
    /// Tools of these names.
    Tools(BTreeSet<String>),
}

impl Confirmation {
    /// Returns true if the calls of this tool must be confirmed.
    pub fn is_required(&self, tool: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Tools(names) => names.contains(tool),
        }
    }
}

/// Limits of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Timeout of a connection, from the start of the process to the end of the handshake.
    pub connect_timeout: Duration,
    /// Timeout of a call without an answer or progress.
    pub call_timeout: Duration,
    /// Timeout of a whole call.
    pub max_call_time: Duration,
    /// Maximum size of one message in bytes.
    pub max_message: usize,
    /// Maximum number of tools.
    pub max_tools: usize,
    /// Maximum number of notifications and requests per second, over some ten seconds.
    pub max_notifications: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(60),
            max_call_time: Duration::from_secs(600),
            max_message: 8 << 20,
            max_tools: 256,
            max_notifications: 1000,
        }
    }
}
