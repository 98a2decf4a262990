//! Settings of remote agents.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::ConfigValue;
use hatchery_egress::Egress;

/// An agent of another host.
#[derive(Clone)]
pub struct RemoteAgentConfig {
    /// Location of its card.
    pub card: CardSource,
    /// Headers of every request to it.
    pub headers: BTreeMap<String, ConfigValue>,
    /// Egress policy for its card and for the URL in the card.
    pub egress: Arc<dyn Egress>,
    /// Representation of the calls and results of other agents in its messages.
    pub aggregation: Aggregation,
    /// Limits of its answers.
    pub limits: ClientLimits,
}

/// Location of the card of a remote agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardSource {
    /// At a URL, such as `https://agents.example/.well-known/agent-card.json`.
    Url(String),
    File(PathBuf),
}

/// Representation of the calls and results of other agents of the session in messages to a remote agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// Calls and results as data parts.
    AsIs,
    /// Results as texts, and no calls.
    #[default]
    ExternalHandoff,
}

/// Limits of a remote agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// Timeout without received data.
    pub read_timeout: Duration,
    /// Timeout of a whole message.
    pub max_time: Duration,
    /// Maximum size in bytes of a card.
    pub max_card: usize,
    /// Maximum size in bytes of one response, or of one item of a stream.
    pub max_message: usize,
    /// Maximum total size in bytes of the answer to one message.
    pub max_answer: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(300),
            max_time: Duration::from_secs(3600),
            max_card: 1 << 20,
            max_message: 16 << 20,
            max_answer: 64 << 20,
        }
    }
}
