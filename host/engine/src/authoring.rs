//! Ways to define agents: builders for Rust code, and YAML files.

pub mod build;
pub mod tools;
pub mod yaml;
