//! Memory services.

mod keyword;
mod sqlite;
pub(crate) mod tokenizer;

pub use keyword::KeywordMemory;
pub use sqlite::SqliteMemory;

/// Maximum number of entries that a search returns.
pub(crate) const MAX_RESULTS: usize = 100;
