//! Tests of the server over HTTP: a real port, native agents, services in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod artifacts;
mod bodies;
mod cors;
mod dev_ui;
mod errors;
mod evaluation;
mod graph;
mod live;
mod metrics;
mod quotas;
mod runs;
mod sessions;
mod shutdown;
mod slow_clients;
mod status;
mod stored_runs;
mod support;
mod traces;
