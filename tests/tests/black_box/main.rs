//! The host from outside: the real command, real components, real files, HTTP. One module per subject.

mod bad_input;
mod cli;
mod compile;
mod configuration;
mod crash;
mod doctor;
mod guide;
mod hostile;
mod hot_loading;
mod languages;
mod mcp;
mod misbehaviour;
mod models;
mod names;
mod network;
mod preemption;
mod recordings;
mod refused_files;
mod registry;
mod rehearsal;
mod rollback;
mod samples;
mod slow_clients;
mod trust;
mod two_hosts;
mod wire;
