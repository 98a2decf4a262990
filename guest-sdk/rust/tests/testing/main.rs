//! The host for unit tests, as authors of components use it.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "these are tests, also outside the test functions"
)]

mod agents;
mod apps;
mod calls;
mod hooks;
mod http;
mod services;
mod steering;
