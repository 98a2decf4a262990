//! Guarantees of single backends beyond the guarantees of all services of their kind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod adk_sessions;
#[cfg(feature = "agent-engine")]
mod agent_engine;
mod agreement;
mod crash;
mod directory;
#[cfg(target_os = "linux")]
mod disk;
mod encryption;
#[cfg(feature = "agent-engine")]
#[allow(dead_code)]
#[path = "../servers/agent_engine.rs"]
mod fake_engine;
#[cfg(feature = "object-store")]
#[allow(dead_code)]
#[path = "../servers/object_stores.rs"]
mod object_stores;
#[cfg(feature = "object-store")]
mod objects;
mod retrieval;
mod sqlite;
#[cfg(feature = "object-store")]
mod uploads;
mod uris;
