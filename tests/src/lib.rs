//! Support of the black-box tests: a folder to serve, the real `hatchery` process, and a client that checks every
//! answer. The host is not linked: the tests know what any client knows.
//!
//! `cargo xtask test` builds the `hatchery` command and the components; [`paths`] finds them.

use std::io::Write;

pub mod answer;
pub mod code_blocks;
pub mod conversation;
pub mod debian;
pub mod effects;
pub mod event;
pub mod folder;
pub mod generated_tree;
pub mod held_effects;
pub mod host;
pub mod live;
pub mod load;
pub mod paths;
pub mod registry;
pub mod slow_components;
pub mod soak;
pub mod socket;
pub mod sse;
pub mod stage;
pub mod stuck_engine;
pub mod swap_load;
pub mod swapper;
mod threads;

/// Reports on stderr that something is not tested. Bypasses the test harness, which captures the output of passing
/// tests.
pub fn skip(what: &str, reason: &str) {
    // If stderr is closed, nobody reads it.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {reason}");
}

pub use answer::Answer;
pub use conversation::{Conversation, Route};
pub use folder::Folder;
pub use host::Host;
pub use live::Live;
pub use registry::Registry;
pub use socket::{Frame, Socket};
pub use stage::Stage;
pub use stuck_engine::StuckEngine;
pub use swap_load::SwapLoad;
