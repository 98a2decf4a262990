//! Memory services.

#[cfg(feature = "agent-engine")]
mod agent_engine;
mod keyword;
mod sqlite;
pub(crate) mod tokenizer;

#[cfg(feature = "agent-engine")]
pub use agent_engine::AgentEngineMemory;
pub use keyword::KeywordMemory;
pub use sqlite::SqliteMemory;

/// Maximum number of entries that a search returns.
pub(crate) const MAX_RESULTS: usize = 100;
