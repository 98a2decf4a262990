//! What guests run in: the Wasmtime engine and its limits, stores and instance pools, the code cache and the compiler process, and
//! outgoing HTTP.

pub mod cache;
pub mod compile;
pub mod engine;
pub(crate) mod http;
pub mod limits;
pub mod requirements;
pub(crate) mod store;
