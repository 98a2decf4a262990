//! What a host reports about its runs: traces.

mod trace_store;

pub use trace_store::TraceStore;
