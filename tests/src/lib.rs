//! What the black-box tests share: a folder to serve, the real `hatchery` process that serves it, and a client that checks what holds for
//! every answer. Nothing here links the host: the tests know what any client knows.
//!
//! `cargo xtask test` builds what they need, the `hatchery` command and the components; see [`paths`] for where they are looked for.

use std::io::Write;

pub mod answer;
pub mod blocks;
pub mod churn;
pub mod conversation;
pub mod event;
pub mod folder;
pub mod heavy;
pub mod host;
pub mod paths;
pub mod registry;
pub mod soak;
pub mod sse;
pub mod stage;
pub mod swapping;

/// Says that something is not tested here, past the test harness, which shows nothing of a test that passes.
pub fn skip(what: &str, reason: &str) {
    // Without a place to say it, nobody listens.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {reason}");
}

pub use answer::Answer;
pub use churn::Churn;
pub use conversation::{Conversation, Route};
pub use folder::Folder;
pub use host::Host;
pub use registry::Registry;
pub use stage::Stage;
