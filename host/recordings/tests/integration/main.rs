//! Tests of record and replay with a runner on in-memory services and scripted models.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod files;
mod live;
mod locations;
mod mismatches;
mod recording;
mod replay;
mod session_tests;
mod support;
mod temporary_files;
