//! The engine through its public door: a runner on in-memory services and scripted models.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agent_errors;
mod arguments;
mod blobs;
mod build;
mod builtin;
mod callbacks;
mod code;
mod compaction;
mod confirmation;
mod contents;
mod custom;
mod embed;
mod examples;
mod limits;
mod llm;
mod logs;
mod machine;
mod output_schema;
mod planning;
mod plugin_config;
mod plugins;
mod recording_files;
mod recording_places;
mod recordings;
mod registry;
mod resumption;
mod runner;
mod support;
mod tools;
mod toolsets;
mod transfer;
mod tree;
mod trees;
mod workflow;
mod yaml;
