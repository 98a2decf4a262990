//! Traces: spans of runs, agents, and calls of models, tools and guests. A span is exported when it ends. Names and
//! attributes follow OpenTelemetry's GenAI conventions, with further ones that ADK's clients read.
//!
//! Recording is cheap: nothing is serialized, and requests of models are shared with the run. Only the arguments and
//! results of tools are copied. Exporters serialize data on demand. Without an exporter nothing is recorded.

mod content;
mod data;
mod log;
mod model_call;
mod parent;

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::error::RunError;
use crate::event::{Event, UsageMetadata};
use crate::id::SessionKey;
use crate::json::JsonMap;
use crate::model::LlmRequest;
use crate::sync::MutexExt;

pub use content::{BoundedValue, SpanContent};
pub use data::{AttributeValue, SpanData, SpanError, SpanOperation};
pub use log::SpanLog;
use log::SpanLogs;
pub use model_call::{ModelAttempt, ModelCallProgress};
pub use parent::{InvalidTraceParent, TraceParent};

/// Maximum number of event ids of a span.
const MAX_EVENT_IDS: usize = 1000;

/// Receives the spans that have ended.
pub trait SpanExporter: Send + Sync {
    /// Receives a span. Called where the span ends, so it must not block.
    fn export(&self, span: &Arc<SpanData>);

    /// Returns true if spans should include their [`SpanContent`].
    fn captures_content(&self) -> bool;

    /// Returns true if the exporter samples this trace. Requests to other services carry the decision.
    fn is_sampled(&self, trace_id: u128, parent: Option<&TraceParent>) -> bool;
}

/// Exports each span to several exporters.
impl SpanExporter for Vec<Arc<dyn SpanExporter>> {
    fn export(&self, span: &Arc<SpanData>) {
        self.iter().for_each(|exporter| exporter.export(span));
    }

    fn captures_content(&self) -> bool {
        self.iter().any(|exporter| exporter.captures_content())
    }

    fn is_sampled(&self, trace_id: u128, parent: Option<&TraceParent>) -> bool {
        self.iter().any(|exporter| exporter.is_sampled(trace_id, parent))
    }
}

/// Data that all spans of a run share.
#[derive(Debug)]
pub struct Trace {
    /// The same for all attempts of a run, on any host. The caller's trace id if there is one.
    pub id: u128,
    /// The span outside of the run that it is part of.
    pub parent: Option<TraceParent>,
    /// True if an exporter sampled it when it began.
    pub is_sampled: bool,
    /// The session of the run.
    pub session: SessionKey,
    /// The id of the run.
    pub invocation_id: String,
    captures_content: bool,
    started: StartTime,
    times: RunTimes,
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy)]
struct StartTime {
    wall: SystemTime,
    monotonic: Instant,
}

impl Trace {
    fn time_since(&self, instant: Instant) -> SystemTime {
        let StartTime { wall, monotonic } = self.started;
        match instant.checked_duration_since(monotonic) {
            Some(later) => wall + later,
            None => wall - monotonic.duration_since(instant),
        }
    }
}

/// Durations within a run, by kind. The durations of concurrent calls are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeKind {
    /// Waiting for earlier turns of the session.
    Queue,
    /// Waiting for models.
    Model,
    /// Calls of tools, with everything that they call.
    Tool,
    /// Calls of guests, with everything that they call.
    Guest,
    /// Computing in guests, and in imports that they call.
    GuestCpu,
    /// Storing events.
    Store,
}

impl TimeKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Queue, Self::Model, Self::Tool, Self::Guest, Self::GuestCpu, Self::Store];

    /// Returns the name, such as `guest_cpu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Guest => "guest",
            Self::GuestCpu => "guest_cpu",
            Self::Store => "store",
        }
    }

    /// Returns the attribute of the span of a run with this time in nanoseconds.
    pub fn attribute(self) -> &'static str {
        match self {
            Self::Queue => "hatchery.time.queue_ns",
            Self::Model => "hatchery.time.model_ns",
            Self::Tool => "hatchery.time.tool_ns",
            Self::Guest => "hatchery.time.guest_ns",
            Self::GuestCpu => "hatchery.time.guest_cpu_ns",
            Self::Store => "hatchery.time.store_ns",
        }
    }
}

#[derive(Debug, Default)]
struct RunTimes {
    queue: AtomicU64,
    model: AtomicU64,
    tool: AtomicU64,
    guest: AtomicU64,
    guest_cpu: AtomicU64,
    store: AtomicU64,
}

impl RunTimes {
    fn counter(&self, kind: TimeKind) -> &AtomicU64 {
        match kind {
            TimeKind::Queue => &self.queue,
            TimeKind::Model => &self.model,
            TimeKind::Tool => &self.tool,
            TimeKind::Guest => &self.guest,
            TimeKind::GuestCpu => &self.guest_cpu,
            TimeKind::Store => &self.store,
        }
    }

    fn add(&self, kind: TimeKind, time: Duration) {
        self.counter(kind).fetch_add(nanoseconds(time), Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The position in a trace at which new spans begin. Cheap to clone. The default records nothing.
#[derive(Clone, Default)]
pub struct SpanContext(Option<Arc<SpanPosition>>);

struct SpanPosition {
    exporter: Arc<dyn SpanExporter>,
    trace: Arc<Trace>,
    /// `None` outside of all spans.
    span_id: Option<u64>,
    event_ids: Mutex<Vec<String>>,
    logs: Mutex<SpanLogs>,
}

impl SpanPosition {
    fn new(exporter: Arc<dyn SpanExporter>, trace: Arc<Trace>, span_id: Option<u64>) -> Self {
        Self { exporter, trace, span_id, event_ids: Mutex::default(), logs: Mutex::default() }
    }
}

/// A span in progress. It is exported when it is dropped; one that is dropped before its end was cancelled.
#[must_use]
pub struct Span {
    context: SpanContext,
    data: Option<Box<SpanData>>,
    started: Option<Instant>,
    ended: Option<Instant>,
}

impl SpanContext {
    /// Begins the trace of a run, or continues the trace of `parent` if there is one.
    pub fn new(
        exporter: Arc<dyn SpanExporter>,
        session: SessionKey,
        invocation_id: &str,
        parent: Option<TraceParent>,
    ) -> Self {
        let id = parent.map_or_else(|| parent::trace_id(&session, invocation_id), |parent| parent.trace_id);
        let trace = Trace {
            id,
            parent,
            is_sampled: exporter.is_sampled(id, parent.as_ref()),
            session,
            invocation_id: invocation_id.into(),
            captures_content: exporter.captures_content(),
            started: StartTime { wall: SystemTime::now(), monotonic: Instant::now() },
            times: RunTimes::default(),
        };
        Self(Some(Arc::new(SpanPosition::new(exporter, Arc::new(trace), None))))
    }

    /// Returns true if spans are recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the current span as the parent for other services; `None` outside of spans.
    pub fn parent(&self) -> Option<TraceParent> {
        let SpanPosition { trace, span_id, .. } = self.0.as_deref()?;
        Some(TraceParent { trace_id: trace.id, span_id: (*span_id)?, is_sampled: trace.is_sampled })
    }

    /// Returns the header `traceparent` for requests to other services. `None` if no exporter samples the trace.
    pub fn header(&self) -> Option<String> {
        self.parent().filter(|parent| parent.is_sampled).map(|parent| parent.to_string())
    }

    /// Begins a span. Its name is the operation, followed by `subject`.
    pub fn start(&self, operation: SpanOperation, subject: impl Display) -> Span {
        self.start_at(operation, subject, None)
    }

    /// Begins a span that has begun at `started`, or now.
    pub fn start_at(&self, operation: SpanOperation, subject: impl Display, started: Option<Instant>) -> Span {
        let Some(position) = &self.0 else { return Span::none() };
        let started = started.unwrap_or_else(Instant::now);
        let span_id = parent::new_span_id();
        let data = SpanData {
            name: operation.span_name(subject),
            operation,
            trace: position.trace.clone(),
            span_id,
            parent_span_id: position.span_id,
            start: position.trace.time_since(started),
            duration: Duration::ZERO,
            error: None,
            event_ids: Vec::new(),
            logs: Vec::new(),
            attributes: Vec::with_capacity(operation.usual_attributes()),
            content: None,
            size: 0,
        };
        let inside = SpanPosition::new(position.exporter.clone(), position.trace.clone(), Some(span_id));
        Span { context: Self(Some(Arc::new(inside))), data: Some(Box::new(data)), started: Some(started), ended: None }
    }

    /// Starts to record the progress of a model call that begins at this position.
    pub fn begin_model_call(&self) -> ModelCallProgress {
        ModelCallProgress::begin(self)
    }

    /// Records that an event is the result of the current span.
    pub fn add_event(&self, id: &str) {
        if let Some(position) = &self.0 {
            let mut ids = position.event_ids.lock_unpoisoned();
            if ids.len() < MAX_EVENT_IDS {
                ids.push(id.to_owned());
            }
        }
    }

    /// Records a line that a guest logs in the current span, if content is captured.
    pub fn add_log(&self, level: &'static str, text: &str) {
        if let Some(position) = self.0.as_ref().filter(|position| position.trace.captures_content) {
            position.logs.lock_unpoisoned().add(level, text);
        }
    }

    /// Adds time of the run that no span measures.
    pub fn add_time(&self, kind: TimeKind, time: Duration) {
        if let Some(position) = &self.0 {
            position.trace.times.add(kind, time);
        }
    }
}

impl Span {
    fn none() -> Self {
        Self { context: SpanContext::default(), data: None, started: None, ended: None }
    }

    /// Returns the context inside of the span.
    pub fn context(&self) -> &SpanContext {
        &self.context
    }

    /// Returns true if the span is recorded.
    pub fn is_recorded(&self) -> bool {
        self.data.is_some()
    }

    /// Ends the time of the span before it is exported.
    pub fn end(&mut self) {
        self.ended = self.is_recorded().then(Instant::now);
    }

    /// Returns true if the time of the span has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Ends the span, unless it has ended, and exports it.
    pub fn finish(mut self) {
        if self.ended.is_none() {
            self.end();
        }
    }

    /// Sets attributes of the span. Not called if it is not recorded.
    pub fn record(&mut self, set: impl FnOnce(&mut SpanData)) {
        if let Some(data) = &mut self.data {
            set(data);
        }
    }

    /// Sets the failure with which the span ends. Being stopped because the run has ended is none.
    pub fn set_error(&mut self, error: &RunError) {
        if !matches!(error, RunError::Stopped) {
            self.fail(error.code(), || error.client_message());
        }
    }

    /// Sets the failure with which the span ends, by its stable code.
    pub fn fail(&mut self, code: &str, message: impl FnOnce() -> String) {
        self.record(|data| data.error = Some(SpanError::new(code, &message())));
    }

    /// Starts to record the progress of a model call, which is part of its request.
    pub fn begin_model_call(&self) -> ModelCallProgress {
        self.context.begin_model_call()
    }

    /// Sets the provider of a turn of a live model from the progress of its connection.
    pub fn set_provider(&mut self, connection: &ModelCallProgress) {
        self.record(|data| data.set_some(data::PROVIDER_NAME, connection.provider()));
    }

    /// Sets attributes of a model call from its progress.
    pub fn set_progress(&mut self, progress: &ModelCallProgress) {
        self.record(|data| {
            data.set_some(data::PROVIDER_NAME, progress.provider());
            data.set_some("gen_ai.response.time_to_first_chunk", progress.first_chunk().map(|time| time.as_secs_f64()));
            data.set_some("hatchery.model.retries", Some(progress.retries()).filter(|retries| *retries > 0));
        });
    }

    /// Sets attributes of the request to a model, and keeps the request if content is captured.
    pub fn set_request(&mut self, request: &Arc<LlmRequest>) {
        self.record(|data| {
            data.set("gen_ai.request.model", request.model.clone());
            data.set_some("gen_ai.request.temperature", request.config.temperature);
            data.set_some("gen_ai.request.top_p", request.config.top_p);
            data.set_some("gen_ai.request.max_tokens", request.config.max_output_tokens);
            if data.trace.captures_content {
                data.content = Some(SpanContent::Model { request: request.clone(), omitted: 0, response: None });
            }
        });
    }

    /// Sets attributes of a model's response, and keeps the response if content is captured.
    pub fn set_response(&mut self, response: &Arc<Event>) {
        self.record(|data| {
            data.set_some("gen_ai.response.model", response.model_version.clone());
            data.set_some(
                "gen_ai.response.finish_reasons",
                response.finish_reason.as_ref().map(|reason| vec![reason.to_lowercase()]),
            );
            data.set_usage(response.usage_metadata.as_deref());
            if let (Some(code), None) = (&response.error_code, &data.error) {
                data.error = Some(SpanError::new(code, response.error_message.as_deref().unwrap_or_default()));
            }
            if let Some(SpanContent::Model { response: slot, .. }) = &mut data.content {
                *slot = Some(BoundedValue::Value(response.clone()));
            }
        });
    }

    /// Sets the tokens that a model call has used.
    pub fn set_usage(&mut self, usage: &UsageMetadata) {
        self.record(|data| data.set_usage(Some(usage)));
    }

    /// Keeps the arguments of a tool call if content is captured.
    pub fn set_arguments(&mut self, arguments: &JsonMap) {
        self.record(|data| {
            if data.trace.captures_content {
                data.content = Some(SpanContent::tool(arguments));
            }
        });
    }

    /// Keeps the result of a tool call if content is captured.
    pub fn set_result(&mut self, result: &Value) {
        self.record(|data| {
            if let Some(content) = &mut data.content {
                content.set_tool_result(result);
            }
        });
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let (Some(mut data), Some(position)) = (self.data.take(), &self.context.0) else { return };
        let (started, now) = (self.started.unwrap_or_else(Instant::now), Instant::now());
        data.duration = self.ended.unwrap_or(now).duration_since(started);
        if self.ended.is_none() && data.error.is_none() {
            let error = RunError::Cancelled;
            data.error = Some(SpanError::new(error.code(), &error.client_message()));
        }
        if let Some(kind) = data.operation.time_kind() {
            position.trace.times.add(kind, data.duration);
        }
        if data.operation == SpanOperation::Run {
            for kind in TimeKind::ALL {
                data.set(kind.attribute(), position.trace.times.counter(kind).load(Ordering::Relaxed));
            }
        }
        data.event_ids = std::mem::take(&mut *position.event_ids.lock_unpoisoned());
        let (logs, dropped_logs) = position.logs.lock_unpoisoned().take();
        data.logs = logs;
        data.set_some("hatchery.logs.dropped", Some(dropped_logs).filter(|dropped| *dropped > 0));
        data.content = data.content.take().map(SpanContent::trim);
        data.size = data.measure();
        position.exporter.export(&Arc::from(data));
    }
}

#[cfg(test)]
mod tests;
