//! Export of spans over OTLP/HTTP (protobuf), as OpenTelemetry's environment variables configure it.

mod client;
mod queue;
mod sampler;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{
    AttributeValue, SpanContent, SpanData, SpanError, SpanExporter, SpanLog, SpanOperation, TraceParent,
};
use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanEvents, SpanExporter as _, SpanLinks};
use thiserror::Error;
use tokio::runtime::Handle;

use client::Client;
use queue::{BatchSettings, ExportQueue};
use sampler::Sampling;

/// The variables that switch the export on. The variable of traces takes precedence.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

const EXPORTER: &str = "OTEL_TRACES_EXPORTER";

/// The only protocol that is built in.
const PROTOCOL: &str = "http/protobuf";

/// Variable that enables the export of content, which is private: `true`, or unset for no content.
const CAPTURE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// Maximum time that the end of the host waits for the export of the last spans.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// An environment variable of OpenTelemetry that cannot be used.
#[derive(Debug, Error)]
pub enum OtlpError {
    /// A value that is not supported.
    #[error("{variable}={value} is not supported: {next_step}")]
    Unsupported { variable: &'static str, value: String, next_step: &'static str },
    /// The exporter refuses the configuration.
    #[error("the export of traces cannot start: {0}; check the variables OTEL_EXPORTER_OTLP_*")]
    Exporter(String),
}

/// Sends the spans of sampled runs to a collector, in batches and from its own thread. Spans are dropped if the
/// collector is slower than the runs.
pub struct OtlpExporter {
    queue: ExportQueue,
    sampling: Sampling,
    captures_content: bool,
}

impl fmt::Debug for OtlpExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpExporter").finish_non_exhaustive()
    }
}

impl OtlpExporter {
    /// Returns an exporter as the environment configures it; `None` if no endpoint is set or the export is switched
    /// off. `runtime` sends the requests.
    ///
    /// # Errors
    /// If a variable has a value that is not supported.
    pub fn from_environment(runtime: Handle) -> Result<Option<Self>, OtlpError> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let is_off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if is_off || ENDPOINTS.iter().all(|name| set(name).is_none()) || !is_chosen(&set)? {
            return Ok(None);
        }
        if let Some((variable, value)) = first(&set, PROTOCOLS)
            && value != PROTOCOL
        {
            let next_step = "set it to http/protobuf, and the endpoint to the collector's port for HTTP, usually 4318";
            return Err(OtlpError::Unsupported { variable, value, next_step });
        }
        let settings = BatchSettings::from_environment(&set)?;
        let sampling = Sampling::from_environment(&set)?;
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = Client::new(&set, runtime.clone())?;
        let mut exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_http_client(client)
            .build()
            .map_err(|error| OtlpError::Exporter(error.to_string()))?;
        exporter.set_resource(&resource(&set));
        let captures_content = set(CAPTURE).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let queue = ExportQueue::start(exporter, Converter::new(captures_content), settings, runtime)
            .map_err(|error| OtlpError::Exporter(error.to_string()))?;
        Ok(Some(Self { queue, sampling, captures_content }))
    }

    /// Sends the spans that have ended. Blocks for at most five seconds. Later spans are dropped.
    pub fn shut_down(&self) {
        if let Err(error) = self.queue.close(SHUTDOWN_TIMEOUT) {
            tracing::warn!("the last spans were not exported: {error}");
        }
    }
}

/// Converts spans to spans of OpenTelemetry.
#[derive(Debug, Clone)]
struct Converter {
    scope: InstrumentationScope,
    captures_content: bool,
}

impl Converter {
    fn new(captures_content: bool) -> Self {
        let scope = InstrumentationScope::builder("hatchery").with_version(hatchery_core::VERSION).build();
        Self { scope, captures_content }
    }

    /// Returns about how many bytes of a span are exported.
    fn size(&self, span: &SpanData) -> usize {
        if self.captures_content {
            return span.size();
        }
        let logs: usize = span.logs.iter().map(SpanLog::size).sum();
        span.size().saturating_sub(span.content.as_ref().map_or(0, SpanContent::size) + logs)
    }

    fn convert(&self, span: &SpanData) -> opentelemetry_sdk::trace::SpanData {
        let trace = &span.trace;
        let trace_id = TraceId::from(trace.id);
        let remote = trace.parent.filter(|_| span.parent_span_id.is_none()).map(|parent| parent.span_id);
        let parent = span.parent_span_id.or(remote);
        let content = span.content.iter().filter(|_| self.captures_content).flat_map(|content| content.attributes());
        // Error messages may repeat content, except for messages of HTTP requests, which the host writes.
        let has_message = self.captures_content || span.operation == SpanOperation::Http;
        let own = span.attributes().into_iter().filter(|(key, _)| has_message || *key != "error.message");
        let attributes = own.chain(content);
        let message = |error: &SpanError| if has_message { error.message.clone() } else { String::new() };
        let status = span.error.as_ref().map_or(Status::Unset, |error| Status::error(message(error)));
        opentelemetry_sdk::trace::SpanData {
            span_context: SpanContext::new(
                trace_id,
                SpanId::from(span.span_id),
                TraceFlags::SAMPLED,
                false,
                TraceState::default(),
            ),
            parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
            parent_span_is_remote: remote.is_some(),
            span_kind: kind(span.operation),
            name: span.name.clone(),
            start_time: span.start,
            end_time: span.end(),
            attributes: attributes.map(|(key, value)| KeyValue::new(key, convert_value(value))).collect(),
            dropped_attributes_count: 0,
            events: self.convert_logs(&span.logs),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        }
    }

    /// Returns the log records of guests as events, if content is exported.
    fn convert_logs(&self, logs: &[SpanLog]) -> SpanEvents {
        let attributes = |log: &SpanLog| {
            vec![KeyValue::new("log.severity", log.level), KeyValue::new("log.message", log.text.clone())]
        };
        let logs = logs.iter().filter(|_| self.captures_content);
        let mut events = SpanEvents::default();
        events.events = logs.map(|log| Event::new("log", log.time, attributes(log), 0)).collect();
        events
    }
}

impl SpanExporter for OtlpExporter {
    fn export(&self, span: &Arc<SpanData>) {
        // Another exporter may still need the trace.
        if self.sampling.is_sampled(span.trace.id, span.trace.parent.as_ref()) {
            self.queue.add(span);
        }
    }

    fn captures_content(&self) -> bool {
        self.captures_content
    }

    fn is_sampled(&self, trace_id: u128, parent: Option<&TraceParent>) -> bool {
        self.sampling.is_sampled(trace_id, parent)
    }
}

/// Returns the first of these variables that is set.
fn first<const N: usize>(
    set: &impl Fn(&str) -> Option<String>,
    variables: [&'static str; N],
) -> Option<(&'static str, String)> {
    variables.into_iter().find_map(|variable| Some((variable, set(variable)?)))
}

/// Returns the number of a variable; `None` if it is not set.
fn number(set: &impl Fn(&str) -> Option<String>, variable: &'static str) -> Result<Option<u64>, OtlpError> {
    let Some(value) = set(variable) else { return Ok(None) };
    match value.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => {
            let next_step = "set it to a whole number, or leave it out";
            Err(OtlpError::Unsupported { variable, value, next_step })
        }
    }
}

/// Returns true if OTEL_TRACES_EXPORTER, a list, has OTLP or is not set.
fn is_chosen(set: &impl Fn(&str) -> Option<String>) -> Result<bool, OtlpError> {
    let Some(value) = set(EXPORTER) else { return Ok(true) };
    let names: Vec<_> = value.split(',').map(str::trim).collect();
    if names.iter().all(|name| ["otlp", "none"].contains(name)) {
        return Ok(names.contains(&"otlp"));
    }
    let next_step = "set it to otlp, or to none to export nothing";
    Err(OtlpError::Unsupported { variable: EXPORTER, value, next_step })
}

/// Returns the service that the spans belong to: `hatchery`, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES name
/// it.
fn resource(set: &impl Fn(&str) -> Option<String>) -> Resource {
    let is_named = set("OTEL_SERVICE_NAME").is_some()
        || set("OTEL_RESOURCE_ATTRIBUTES")
            .is_some_and(|attributes| attributes.split(',').any(|pair| pair.trim().starts_with("service.name=")));
    let builder = Resource::builder();
    let builder = if is_named { builder } else { builder.with_service_name("hatchery") };
    builder.with_attribute(KeyValue::new("service.version", hatchery_core::VERSION)).build()
}

fn kind(operation: SpanOperation) -> SpanKind {
    match operation {
        SpanOperation::Run => SpanKind::Server,
        SpanOperation::Model | SpanOperation::CodeModel | SpanOperation::ModelAttempt | SpanOperation::Http => {
            SpanKind::Client
        }
        SpanOperation::Agent | SpanOperation::Tool | SpanOperation::Guest => SpanKind::Internal,
    }
}

fn convert_value(value: AttributeValue) -> Value {
    match value {
        AttributeValue::Text(text) => Value::String(text.into()),
        AttributeValue::Shared(text) => Value::String(text.into()),
        AttributeValue::Integer(number) => Value::I64(i64::try_from(number).unwrap_or(i64::MAX)),
        AttributeValue::Number(number) => Value::F64(number),
        AttributeValue::Boolean(is_true) => Value::Bool(is_true),
        AttributeValue::Texts(texts) => Value::Array(Array::String(texts.into_iter().map(StringValue::from).collect())),
    }
}
