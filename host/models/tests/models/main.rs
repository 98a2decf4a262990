//! The model registry and its providers, tested through the public API. Mock servers speak the wire format of each
//! provider.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod anthropic;
mod anthropic_settings;
mod conformance;
mod embeddings;
mod fallback;
mod gemini;
mod gemini_requests;
mod google_credentials;
mod http;
mod live;
mod openai_answers;
mod openai_requests;
mod openai_servers;
mod registry;
mod responses;
mod retry;
mod scripted;
mod scripted_file;
mod scripted_live;
mod secrets;
mod support;
