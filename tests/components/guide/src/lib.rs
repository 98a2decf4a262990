//! The Rust examples of `docs/agents.md`: each is a component by itself there, and `build.rs` makes one of them all.

include!(concat!(env!("OUT_DIR"), "/guide.rs"));
