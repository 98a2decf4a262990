//! Runs agents.

pub mod app;

pub use app::App;
