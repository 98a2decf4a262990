//! Traces: the spans of a session, and the spans of an event.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hatchery_core::{JsonMap, SpanData, SpanLog};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::api_document::ApiRouter;
use crate::error::ApiError;
use crate::extract::Params;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .routes(routes!(session))
        .routes(routes!(event))
        .routes(routes!(session_of_app))
        .routes(routes!(event_of_app))
}

/// Maximum size of the spans in a response, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// The event name of each log line. ADK's web client rejects all spans of a session if one has a log of an unknown name,
/// and ignores a log of this name without attributes.
const LOG_EVENT: &str = "gen_ai.client.inference.operation.details";

/// A span. Absent values are left out, because clients reject responses with `null`.
#[derive(Serialize, ToSchema)]
pub(crate) struct SpanView {
    name: String,
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    /// Nanoseconds since 1970.
    start_time: u64,
    end_time: u64,
    #[schema(value_type = Object)]
    attributes: JsonMap,
    /// The log lines of the component during the call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logs: Vec<LogView>,
}

/// A line of a log.
#[derive(ToSchema)]
struct LogView {
    /// Nanoseconds since 1970.
    time: u64,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    level: &'static str,
    text: String,
}

impl From<&SpanData> for SpanView {
    fn from(span: &SpanData) -> Self {
        // Numbers of this size would lose digits in JavaScript.
        let hex = |id: u64| format!("{id:016x}");
        Self {
            name: span.name.to_string(),
            trace_id: format!("{:032x}", span.trace.id),
            span_id: hex(span.span_id),
            parent_span_id: span.parent_span_id.map(hex),
            start_time: nanoseconds(span.start),
            end_time: nanoseconds(span.end()),
            attributes: attributes(span),
            logs: span.logs.iter().map(LogView::from).collect(),
        }
    }
}

impl From<&SpanLog> for LogView {
    fn from(log: &SpanLog) -> Self {
        Self { time: nanoseconds(log.time), level: log.level, text: log.text.clone() }
    }
}

impl Serialize for LogView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serializer.serialize_struct("LogView", 4)?;
        json.serialize_field("event_name", LOG_EVENT)?;
        json.serialize_field("time", &self.time)?;
        json.serialize_field("level", self.level)?;
        json.serialize_field("text", &self.text)?;
        json.end()
    }
}

/// Returns the attributes, with requests and responses serialised as JSON.
fn attributes(span: &SpanData) -> JsonMap {
    let content = span.content.iter().flat_map(|content| content.attributes());
    // A number that JSON cannot represent is left out.
    let to_json = |value| serde_json::to_value(value).ok().filter(|value| !value.is_null());
    let all = span.attributes().into_iter().chain(content);
    all.filter_map(|(key, value)| Some((key.to_owned(), to_json(value)?))).collect()
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the response with the newest of these spans. Requests and responses are serialised on a blocking thread.
async fn views(spans: Vec<Arc<SpanData>>) -> Result<Response, ApiError> {
    let serialize = move || {
        let views: Vec<_> = newest(&spans, MAX_BYTES).iter().map(|span| SpanView::from(&**span)).collect();
        serde_json::to_vec(&views)
    };
    let json = tokio::task::spawn_blocking(serialize).await.map_err(|_| ApiError::internal())?;
    let json = json.map_err(|_| ApiError::internal())?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

/// Returns the last spans with a total size of at most `limit` bytes, but at least one.
fn newest(spans: &[Arc<SpanData>], limit: usize) -> &[Arc<SpanData>] {
    let mut bytes = 0_usize;
    let kept = spans.iter().rev().take_while(|span| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(span.size());
        is_first || bytes <= limit
    });
    spans.get(spans.len().saturating_sub(kept.count())..).unwrap_or_default()
}

/// Returns the spans of the sessions with this id, of all apps. Empty if there are none.
#[utoipa::path(
    get,
    path = "/debug/trace/session/{session}",
    tag = "traces",
    responses((status = 200, description = "The spans", body = [SpanView]))
)]
async fn session(State(state): State<AppState>, Params(session): Params<String>) -> Result<Response, ApiError> {
    views(state.traces().session(None, &session)).await
}

/// Returns the spans of a session of an app. Empty if there are none.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/debug/trace/session/{session}",
    tag = "traces",
    responses((status = 200, description = "The spans", body = [SpanView]))
)]
async fn session_of_app(
    State(state): State<AppState>,
    Params((app, session)): Params<(String, String)>,
) -> Result<Response, ApiError> {
    state.app(&app)?;
    views(state.traces().session(Some(&app), &session)).await
}

/// Returns the attributes of the span that created an event.
#[utoipa::path(
    get,
    path = "/debug/trace/{event}",
    tag = "traces",
    responses((status = 200, description = "The attributes", body = Object))
)]
async fn event(State(state): State<AppState>, Params(event): Params<String>) -> Result<Json<JsonMap>, ApiError> {
    attributes_of(state.traces().event(None, &event), &event)
}

/// Returns the attributes of the span that created an event of an app.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/debug/trace/{event}",
    tag = "traces",
    responses((status = 200, description = "The attributes", body = Object))
)]
async fn event_of_app(
    State(state): State<AppState>,
    Params((app, event)): Params<(String, String)>,
) -> Result<Json<JsonMap>, ApiError> {
    state.app(&app)?;
    attributes_of(state.traces().event(Some(&app), &event), &event)
}

fn attributes_of(span: Option<Arc<SpanData>>, event: &str) -> Result<Json<JsonMap>, ApiError> {
    let not_found = || {
        let message = format!("Trace not found: no span of event `{event}` is kept");
        ApiError::new(StatusCode::NOT_FOUND, "TRACE_NOT_FOUND", message)
    };
    Ok(Json(attributes(&*span.ok_or_else(not_found)?)))
}

#[cfg(test)]
mod tests {
    use hatchery_core::{SessionKey, SpanContext, SpanOperation};
    use hatchery_telemetry::TraceStore;

    use super::*;

    #[test]
    fn an_answer_has_the_newest_spans_that_fit_and_at_least_one() {
        let store = TraceStore::default();
        let trace = SpanContext::new(Arc::new(store.clone()), SessionKey::new("app", "ada", "s"), "e-1", None);
        for number in 0..3 {
            trace.start(SpanOperation::Tool, number).finish();
        }
        let spans = store.session(None, "s");
        let size = spans[0].size();
        for (limit, expected) in [(3 * size, 3), (3 * size - 1, 2), (size, 1), (0, 1)] {
            let kept = newest(&spans, limit);
            assert_eq!(kept.len(), expected, "{limit}");
            assert!(Arc::ptr_eq(&kept[kept.len() - 1], &spans[2]));
        }
        assert!(newest(&[], 0).is_empty());
    }
}
