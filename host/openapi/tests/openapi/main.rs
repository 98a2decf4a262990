//! Tests of APIs, through toolsets that agents use, with real servers.

mod answers;
mod args;
mod bad_documents;
mod credentials;
mod integrations;
mod requests;
mod schemas;
mod support;
mod tokens;
