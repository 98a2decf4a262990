//! Doors of the host through which bytes of strangers come, each as a function of bytes. A function must come back soon and must not panic;
//! what else must hold, it asserts.
//!
//! `cargo test -p hatchery-fuzz` plays the corpus in `corpus/TARGET` and a fixed number of mutations of it, the same each time. `cargo xtask
//! fuzz` looks for more with libFuzzer, and adds what it finds to the corpus.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used, reason = "a panic is how a find is reported")]

pub mod corpus;
pub mod mutation;
mod targets;

/// A door.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of the folder of its corpus.
    pub name: &'static str,
    /// Takes bytes through it.
    pub run: fn(&[u8]),
    /// Words that its format knows, for mutations.
    pub words: &'static [&'static str],
    /// How many mutations are tried in each test.
    pub mutations: usize,
}

/// All doors.
pub const TARGETS: [Target; 10] = [
    Target { name: "agent_yaml", run: targets::agent_yaml, words: YAML, mutations: 1000 },
    Target { name: "component", run: targets::component, words: &["\0asm", "hatchery:agent"], mutations: 2000 },
    Target { name: "config", run: targets::config, words: YAML, mutations: 3000 },
    Target { name: "event", run: targets::event, words: JSON, mutations: 10_000 },
    Target {
        name: "event_stream",
        run: targets::event_stream,
        words: &["data: ", "\n\n", "[DONE]", "{}"],
        mutations: 2000,
    },
    Target { name: "guest_event", run: targets::guest_event, words: JSON, mutations: 10_000 },
    Target { name: "http", run: targets::http, words: JSON, mutations: 500 },
    Target {
        name: "manifest",
        run: targets::manifest,
        words: &["\"layers\":", "\"size\":-1", "sha256:", "null", "[", "{"],
        mutations: 5000,
    },
    Target { name: "registry", run: targets::registry, words: YAML, mutations: 1000 },
    Target { name: "script", run: targets::script, words: YAML, mutations: 500 },
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

/// The door of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
