//! Tests with real components, built from `tests/components` and `sample-agents`, and with small ones in text format.

// Helpers of tests may panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

mod agents;
mod apps;
mod cache;
mod callbacks;
mod calls;
mod compiling;
mod confirmations;
mod continuation;
mod contracts;
mod descriptions;
mod development;
mod file_grants;
mod functions;
mod grants;
mod hot_loading;
mod imports;
mod inspection;
mod instances;
mod items;
mod languages;
mod limits;
mod live;
mod models;
mod names;
mod network;
mod plugins;
mod preemption;
mod refusals;
mod services;
mod streams;
mod web;
