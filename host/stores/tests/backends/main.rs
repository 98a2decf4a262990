//! What single backends promise beyond what all services of their kind do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agreement;
mod crash;
mod directory;
mod sqlite;
mod uris;
