//! The host from outside: the real command, real components, real files, HTTP. One module per subject.

mod bad_input;
mod cli;
mod configuration;
mod crash;
mod guide;
mod hot_loading;
mod languages;
mod misbehaviour;
mod recordings;
mod refused_files;
mod samples;
mod wire;
