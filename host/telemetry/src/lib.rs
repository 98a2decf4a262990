//! What a host reports about its runs: traces, in memory and over OTLP, and metrics. All are [`SpanExporter`]s.
//!
//! [`SpanExporter`]: hatchery_core::SpanExporter

mod happenings;
mod metrics;
mod otlp;
mod trace_store;

pub use happenings::{Happening, HappeningKind, Happenings, Update};
pub use metrics::{GaugeValue, Metrics};
pub use otlp::{OtlpError, OtlpExporter};
pub use trace_store::TraceStore;
