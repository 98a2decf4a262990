//! Settings of the HTTP server: `server`.

mod auth;
mod base_path;
mod cors;
mod tls;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hatchery_core::{MAX_TURN_LEASE, one_or_many};
use hatchery_wasm::limits::units;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::byte_size::ByteSize;

pub use auth::{ClientKeyConfig, OidcConfig, Role, ServerAuthConfig, TokenAlgorithm};
pub use base_path::BasePath;
pub use cors::CorsConfig;
pub use tls::TlsConfig;

/// Limits and timeouts of the HTTP server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Accepted `Host` headers in addition to `localhost` and `127.0.0.1`, with or without a port. `*` accepts all.
    pub allowed_hosts: Vec<String>,
    /// The path below which the routes are. Default: the root.
    pub base_path: Option<BasePath>,
    /// The pages of other origins that may send requests. Default: none.
    #[serde(deserialize_with = "one_or_many")]
    pub cors: Vec<CorsConfig>,
    /// The clients that may use the server. Default: all.
    pub auth: Option<ServerAuthConfig>,
    /// The certificate with which the server speaks HTTPS. Default: none, and it speaks HTTP.
    pub tls: Option<TlsConfig>,
    /// Maximum size of the body of a run, an artifact or an imported session.
    pub body_limit: ByteSize,
    /// Maximum size of the body of any other request.
    pub small_body_limit: ByteSize,
    /// Maximum size of an artifact that is sent as the body of a request, which is never in memory as a whole.
    pub upload_limit: ByteSize,
    /// Maximum memory of all request bodies together, received and parsed, and of large responses.
    pub body_memory: ByteSize,
    /// Timeout for receiving a whole request body.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub body_timeout: Duration,
    /// Timeout of a client that reads nothing of its response.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub write_timeout: Duration,
    /// Maximum number of open connections. Further connections wait. Also the maximum number of HTTP/2 requests in
    /// progress; further ones are refused.
    pub max_connections: usize,
    /// Maximum number of connections per peer, and of its HTTP/2 requests in progress: of an IPv4 address or an IPv6
    /// /64 network. Further ones are refused. Behind a proxy all clients are one peer.
    pub max_connections_per_peer: usize,
    /// Maximum number of active runs, including those that wait for another turn of their session.
    pub max_concurrent_runs: usize,
    /// Duration of a turn's lease without a renewal: other hosts on the same sessions wait this long for the turns of a
    /// host that has died. At least 100 ms, at most a minute.
    #[serde(deserialize_with = "turn_lease")]
    pub turn_lease: Duration,
    /// Idle timeout of a live run without requests and responses.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub live_idle_timeout: Duration,
    /// True if a run is cancelled when its client disconnects. A request can override it. Default: false,
    /// unless another UI is served.
    pub cancel_on_disconnect: Option<bool>,
    /// True if clients may create sessions with given events.
    pub allow_import: bool,
    /// The services whose events start runs, each in a session of its own. Default: none.
    #[serde(deserialize_with = "one_or_many")]
    pub triggers: Vec<TriggerSource>,
    /// Maximum number of runs of events at a time; further ones wait.
    pub max_concurrent_triggers: NonZeroUsize,
    /// The file with the key that signs events, for hosts that share sessions. Default: `host.key` in the data folder.
    /// `HATCHERY_SECRET_FILE` takes precedence.
    pub secret_file: Option<PathBuf>,
    /// The functions of the developer UI at `/dev-ui`. The default of `hatchery serve` is [`DevUi::Full`] on loopback
    /// addresses and with `auth`, and [`DevUi::Read`] otherwise.
    pub dev_ui: Option<DevUi>,
    /// A folder with another UI to serve at `/dev-ui`.
    #[serde(skip)]
    pub dev_ui_folder: Option<PathBuf>,
    /// Timeout for the head of a request and for an idle connection between two requests.
    #[serde(skip)]
    pub head_timeout: Duration,
    /// Timeout between two chunks of a request body.
    #[serde(skip)]
    pub body_idle_timeout: Duration,
    /// Minimum average rate of a request body in bytes per second.
    #[serde(skip)]
    pub min_body_rate: ByteSize,
    /// Interval of keep-alive comments in an idle event stream, and of pings in a live run.
    #[serde(skip)]
    pub keep_alive: Duration,
    /// Delay of the first retry of an event whose run was refused because of too many requests. It doubles each time.
    #[serde(skip)]
    pub trigger_retry_delay: Duration,
    /// Time for active runs to end when the server stops.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub drain_timeout: Duration,
}

/// The functions of the developer UI at `/dev-ui`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DevUi {
    /// None: there is no page.
    Off,
    /// Pages that show apps, sessions, runs and components.
    Read,
    /// Pages that also send messages and change sessions and components.
    Full,
}

/// A service whose events start runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TriggerSource {
    /// Push subscriptions of Google Cloud Pub/Sub.
    Pubsub,
    /// Eventarc, and everything else that sends CloudEvents over HTTP.
    Eventarc,
}

impl TriggerSource {
    /// Returns the word of the configuration, which is the end of the route too.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pubsub => "pubsub",
            Self::Eventarc => "eventarc",
        }
    }
}

impl ServerConfig {
    /// Checks settings that depend on each other.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(super) fn check(&self) -> Result<(), String> {
        for (index, cors) in self.cors.iter().enumerate() {
            cors.check().map_err(|problem| format!("server.cors[{index}]: {problem}"))?;
        }
        self.auth.as_ref().map_or(Ok(()), ServerAuthConfig::check)
    }

    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        if let Some(file) = &mut self.secret_file {
            *file = folder.join(&*file);
        }
        if let Some(auth) = &mut self.auth {
            auth.resolve_paths(folder);
        }
        if let Some(tls) = &mut self.tls {
            tls.resolve_paths(folder);
        }
    }

    /// Returns the path of a route, with the base path.
    pub fn path_of(&self, route: &str) -> String {
        format!("{}{route}", self.base_path.as_ref().map_or("", BasePath::as_str))
    }

    /// Returns the functions of the developer UI; [`DevUi::Read`] if they are not set.
    pub fn dev_ui(&self) -> DevUi {
        self.dev_ui.unwrap_or(DevUi::Read)
    }

    /// Returns true if a run of `/run` or `/run_sse` is cancelled when its client disconnects. If it is not set, true if
    /// another UI is served at `/dev-ui`: ADK's web client stops a run by closing the connection.
    pub fn cancel_on_disconnect(&self) -> bool {
        let has_other_ui = self.dev_ui_folder.is_some() && self.dev_ui() != DevUi::Off;
        self.cancel_on_disconnect.unwrap_or(has_other_ui)
    }
}

impl DevUi {
    /// Returns the word of the configuration.
    pub fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Read => "read",
            Self::Full => "full",
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            base_path: None,
            cors: Vec::new(),
            auth: None,
            tls: None,
            body_limit: ByteSize(16 << 20),
            small_body_limit: ByteSize(1 << 20),
            upload_limit: ByteSize(1 << 30),
            body_memory: ByteSize(512 << 20),
            body_timeout: Duration::from_secs(300),
            write_timeout: Duration::from_secs(30),
            max_connections: 4096,
            max_connections_per_peer: 256,
            max_concurrent_runs: 512,
            turn_lease: Duration::from_secs(3),
            live_idle_timeout: Duration::from_secs(600),
            cancel_on_disconnect: None,
            allow_import: false,
            triggers: Vec::new(),
            max_concurrent_triggers: NonZeroUsize::MIN.saturating_add(9),
            secret_file: None,
            dev_ui: None,
            dev_ui_folder: None,
            head_timeout: Duration::from_secs(30),
            body_idle_timeout: Duration::from_secs(30),
            min_body_rate: ByteSize(1 << 10),
            keep_alive: Duration::from_secs(15),
            trigger_retry_delay: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

const MIN_TURN_LEASE: Duration = Duration::from_millis(100);

fn turn_lease<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let lease = units::deserialize_duration(deserializer)?;
    if (MIN_TURN_LEASE..=MAX_TURN_LEASE).contains(&lease) {
        return Ok(lease);
    }
    Err(D::Error::custom("a turn is held for 100 ms to 1 min; write a time in between"))
}
