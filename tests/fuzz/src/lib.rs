//! Fuzz targets: entry points of the host for untrusted bytes, each as a function of bytes. A function must return
//! quickly and must not panic; it asserts all other invariants.
//!
//! `cargo test -p hatchery-fuzz` replays the corpus in `corpus/TARGET` and a fixed number of deterministic mutations.
//! `cargo xtask fuzz` searches for failures with libFuzzer, and adds them to the corpus.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used, reason = "a panic reports a failure")]

pub mod corpus;
pub mod mutation;
mod targets;

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name, also of the folder of its corpus.
    pub name: &'static str,
    /// Runs the target with one input.
    pub run: fn(&[u8]),
    /// Tokens of the input format that mutations insert.
    pub tokens: &'static [&'static str],
    /// Number of mutations in each test run.
    pub mutations: usize,
}

/// All targets.
pub const TARGETS: [Target; 10] = [
    Target { name: "agent_yaml", run: targets::agent_yaml, tokens: YAML, mutations: 1000 },
    Target { name: "component", run: targets::component, tokens: &["\0asm", "hatchery:agent"], mutations: 2000 },
    Target { name: "config", run: targets::config, tokens: YAML, mutations: 3000 },
    Target { name: "event", run: targets::event, tokens: JSON, mutations: 10_000 },
    Target {
        name: "event_stream",
        run: targets::event_stream,
        tokens: &["data: ", "\n\n", "[DONE]", "{}"],
        mutations: 2000,
    },
    Target { name: "guest_event", run: targets::guest_event, tokens: JSON, mutations: 10_000 },
    Target { name: "http", run: targets::http, tokens: JSON, mutations: 500 },
    Target {
        name: "manifest",
        run: targets::manifest,
        tokens: &["\"layers\":", "\"size\":-1", "sha256:", "null", "[", "{"],
        mutations: 5000,
    },
    Target { name: "registry", run: targets::registry, tokens: YAML, mutations: 1000 },
    Target { name: "script", run: targets::script, tokens: YAML, mutations: 500 },
];

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "1e999",
    "-0.0",
    "18446744073709551616",
    "\\ud800",
    "\"text\":",
    "\"functionCall\":",
    "\"function_call\":",
    "\"stateDelta\":",
    "\"state_delta\":",
    "\"id\":",
    "\"timestamp\":",
    "\"parts\":",
    "\"compaction\":",
];

const YAML: &[&str] = &[
    "- ", ": ", "\n", "  ", "{", "}", "[", "]", "&a", "*a", "<<: *a", "!!str ", "|", ">", "'", "\"", "~", "0x7f",
    "1e999", "name:", "..", "\u{0}",
];

/// Returns the target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
