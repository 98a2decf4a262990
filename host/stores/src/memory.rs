//! Memory services.

mod keyword;
mod sqlite;
mod tokenizer;

pub use keyword::KeywordMemory;
pub use sqlite::SqliteMemory;

/// Maximum number of entries that a search returns.
const MAX_RESULTS: usize = 100;
