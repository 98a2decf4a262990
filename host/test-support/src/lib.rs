//! Test support: a harness of an app with one session, builders of agents and tools, a short form of events, and a
//! capture of the audit log. A dev-dependency only.
#![allow(clippy::unwrap_used, clippy::panic, reason = "only tests use it")]

mod agents;
mod audit;
mod events;
mod harness;

pub use agents::{declaration, llm, llm_on, llm_with, long_running, tool, tool_with_confirmation, workflow};
pub use audit::AuditCapture;
pub use events::{brief, briefs, map};
pub use harness::{Harness, SESSION, USER, services};
