//! Tests of the server over HTTP: a real port, native agents, services in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod api_document;
mod artifacts;
mod auth;
mod base_path;
mod bodies;
mod builder;
mod cors;
mod dev_ui;
mod errors;
mod evaluation;
mod frames;
mod fuzz;
mod graph;
mod host_events;
mod http2;
mod http2_websockets;
mod live;
mod metrics;
mod quotas;
mod retention;
mod runs;
mod session_deletion;
mod session_history;
mod sessions;
mod shutdown;
mod slow_clients;
mod status;
mod stored_runs;
mod support;
mod tls;
mod tokens;
mod tool_calls;
mod traces;
mod triggers;
mod ws;
