//! The receivers of the spans of a server: metrics, and OTLP if the environment names a receiver.

use std::sync::Arc;

use hatchery::HostBuilder;
use hatchery_telemetry::{Metrics, OtlpExporter};
use tokio::runtime::Handle;

/// The receivers of spans.
pub(super) struct Telemetry {
    pub(super) metrics: Metrics,
    /// `None` if the environment names no receiver.
    otlp: Option<Arc<OtlpExporter>>,
}

impl Telemetry {
    pub(super) fn from_environment() -> anyhow::Result<Self> {
        let otlp = OtlpExporter::from_environment(Handle::current())?.map(Arc::new);
        Ok(Self { metrics: Metrics::default(), otlp })
    }

    pub(super) fn export_from(&self, builder: HostBuilder) -> HostBuilder {
        let builder = builder.export_spans(Arc::new(self.metrics.clone()));
        self.otlp.iter().fold(builder, |builder, otlp| builder.export_spans(otlp.clone()))
    }

    /// Sends the last spans.
    pub(super) async fn shut_down(self) -> anyhow::Result<()> {
        if let Some(otlp) = self.otlp {
            tokio::task::spawn_blocking(move || otlp.shut_down()).await?;
        }
        Ok(())
    }
}
