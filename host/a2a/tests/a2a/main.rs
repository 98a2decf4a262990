//! The server in this process, on sessions in memory, with agents that the tests stop and release.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod answers;
mod busy;
mod cancel;
mod card;
mod list;
mod messages;
mod push;
mod remote;
mod repeated;
mod subscribe;
mod support;
