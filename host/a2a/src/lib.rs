//! The Agent2Agent protocol (A2A), in the versions 0.3 and 1.0. As a server it offers the apps of a host to A2A
//! clients; as a client it makes agents of other hosts agents of this one.
//!
//! Both sides share one internal [`model`]; one module per version converts it to the wire format. Servers:
//! [`A2aService`] answers requests, and [`A2aEndpoint`] is its routes. Clients: [`A2aAgents`] holds the configured
//! agents, and [`RemoteAgent`] is one of them for agents in code.

mod card;
mod client;
mod codec;
mod error;
pub mod model;
mod parts;
mod server;

pub use card::{AgentCard, Interface, Skill};
pub use client::{
    A2aAgents, Aggregation, CardSource, ClientError, ClientLimits, RemoteAgent, RemoteAgentConfig, RemoteAgentStatus,
};
pub use codec::Version;
pub use error::{A2aError, ErrorKind};
pub use hatchery_egress::{Egress, Url};
pub use server::{A2aEndpoint, A2aService, Body, PushLimits, ServerSettings, is_reserved_user};
