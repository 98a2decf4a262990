//! Memory services.

#[cfg(feature = "agent-engine")]
mod agent_engine;
mod keyword;
#[cfg(feature = "postgres")]
mod postgres;
pub(crate) mod similarity;
mod sqlite;
pub(crate) mod tokenizer;

#[cfg(feature = "agent-engine")]
pub use agent_engine::AgentEngineMemory;
pub use keyword::KeywordMemory;
#[cfg(feature = "postgres")]
pub use postgres::PostgresMemory;
pub use similarity::SimilaritySearch;
pub use sqlite::SqliteMemory;

/// Maximum number of entries that a search returns.
pub(crate) const MAX_RESULTS: usize = 100;
