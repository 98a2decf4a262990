//! Prompt history: which events of a session a model is sent, and how summaries replace the older ones.

pub mod compaction;
pub mod contents;
mod rewind;
