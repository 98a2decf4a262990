//! What a host reports about its runs: traces, and metrics.

mod metrics;
mod otlp;
mod trace_store;

pub use metrics::{GaugeValue, Metrics};
pub use otlp::{OtlpError, OtlpExporter};
pub use trace_store::TraceStore;
