//! Tests of APIs, through toolsets that agents use, with real servers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used, reason = "tests")]

mod answers;
mod args;
mod bad_documents;
mod credentials;
mod integrations;
mod requests;
mod schemas;
mod support;
mod tokens;
mod user_credentials;
