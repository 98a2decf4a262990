//! Execution of guests: the Wasmtime engine, Wasmtime stores and instance pools, limits, the code cache, the compiler
//! process, and outgoing HTTP.

pub mod cache;
pub mod compile;
pub mod config;
pub(crate) mod crash;
pub(crate) mod credentials;
pub mod engine;
mod epoch_timer;
pub(crate) mod http;
pub(crate) mod instance_size;
pub mod limits;
pub mod program;
pub mod requirements;
pub(crate) mod store;
