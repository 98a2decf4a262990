//! The server as a client sees it: a real port, native agents, services in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod artifacts;
mod errors;
mod pages;
mod runs;
mod sessions;
mod shutdown;
mod support;
