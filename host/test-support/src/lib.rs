//! Test support: a harness of an app with one session, builders of agents, tools and events, a capture of the audit
//! log, support for thread-local subscribers, and an allocator that counts. A dev-dependency only.
#![allow(clippy::unwrap_used, clippy::panic, reason = "only tests use it")]

mod agents;
mod allocation;
mod audit;
mod events;
mod harness;
mod subscribers;

pub use agents::{declaration, llm, llm_on, llm_with, long_running, tool, tool_with_confirmation, workflow};
pub use allocation::CountingAllocator;
pub use audit::AuditCapture;
pub use events::{brief, briefs, map, short_event, typical_event};
pub use harness::{Harness, SESSION, USER, delete_expired, services};
pub use subscribers::keep_events_enabled;
