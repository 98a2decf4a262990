//! The model registry and its providers, through their public doors. Fake servers speak the providers' wire format byte by byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod gemini;
mod http;
mod openai_answers;
mod openai_requests;
mod registry;
mod scripted;
mod scripted_file;
mod support;
