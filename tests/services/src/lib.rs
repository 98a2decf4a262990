//! Services that tests start on this machine: container engines, PostgreSQL servers, the Firestore emulator and HTTP
//! servers. Missing programs are installed where that is possible. A dev-dependency only.
#![allow(clippy::unwrap_used, clippy::panic, reason = "only tests use it")]

mod container_engine;
mod firestore_emulator;
mod http_server;
mod packages;
mod postgres_server;

use std::io::Write;

pub use container_engine::{ContainerEngine, EngineKind, PYTHON_IMAGE};
pub use firestore_emulator::firestore_emulator;
pub use http_server::serve_http;
pub use postgres_server::{PostgresServer, postgres, postgres_with_vectors};

/// Reports on the terminal that tests are skipped, also if the output of tests is captured.
#[allow(clippy::explicit_write, reason = "`eprintln` is captured in tests")]
fn skip(reason: &str) {
    // If stderr is closed, nobody reads it.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}
