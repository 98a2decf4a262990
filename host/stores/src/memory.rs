//! Memory services.

mod keyword;
mod words;

pub use keyword::KeywordMemory;
