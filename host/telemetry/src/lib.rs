//! Telemetry of a host: traces in memory and over OTLP, and metrics. All are [`SpanExporter`]s.
//!
//! [`SpanExporter`]: hatchery_core::SpanExporter

mod host_events;
mod metrics;
mod otlp;
mod trace_store;

pub use host_events::{HostEvent, HostEventBatch, HostEventKind, HostEvents};
pub use metrics::{GaugeValue, Metrics};
pub use otlp::{OtlpError, OtlpExporter};
pub use trace_store::TraceStore;
