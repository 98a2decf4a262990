//! Guarantees of single backends beyond those of all services of their kind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agreement;
mod crash;
mod directory;
mod sqlite;
mod uris;
