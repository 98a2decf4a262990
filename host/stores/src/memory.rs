//! Memory services.

mod keyword;
mod tokenizer;

pub use keyword::KeywordMemory;
