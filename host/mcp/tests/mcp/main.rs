//! Tests with real peers of `rmcp` and with servers that break the rules.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod args;
mod client;
mod elicitation;
mod erratic;
mod http;
mod input;
mod library;
mod oauth;
mod prompts;
mod resources;
mod server;
mod support;
