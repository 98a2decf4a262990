//! The client: agents of other hosts as agents of this one.

mod agent;
mod agents;
mod config;
mod connection;
mod error;
mod inbound;
mod outbound;
mod peer;

pub use agent::RemoteAgent;
pub use agents::{A2aAgents, RemoteAgentStatus};
pub use config::{Aggregation, CardSource, ClientLimits, RemoteAgentConfig};
pub use error::ClientError;
pub(crate) use outbound::METADATA_PREFIX;
