//! All Rust examples of `docs/agents.md` as one component, which `build.rs` generates.

include!(concat!(env!("OUT_DIR"), "/guide.rs"));
