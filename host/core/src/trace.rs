//! Traces: spans of runs, agents, and calls of models, tools and guests. A span is exported when it ends. Names and
//! attributes are those of OpenTelemetry's GenAI conventions, and those that ADK's clients read.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Value, json};

use crate::content::Content;
use crate::error::RunError;
use crate::id::SessionKey;
use crate::json::{JsonMap, json_len};
use crate::model::{LlmRequest, LlmResponse};
use crate::sync::MutexExt;

/// The attribute with the id of the event that a model call led to.
pub const SPAN_EVENT_ID: &str = "gcp.vertex.agent.event_id";

/// The attribute with the ids of the events of an agent.
pub const SPAN_EVENT_IDS: &str = "gcp.vertex.agent.associated_event_ids";

/// Maximum length of the JSON of an attribute in bytes, such as of a request to a model.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// Most event ids of a span.
const MAX_EVENT_IDS: usize = 1000;

/// Receives the spans that have ended.
pub trait SpanExporter: Send + Sync {
    /// Receives a span. Called where the span ends, so it must not block.
    fn export(&self, span: SpanData);
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanData {
    /// The operation, such as `execute_tool roll_die`.
    pub name: String,
    /// The same for all spans of a run.
    pub trace_id: u128,
    /// Identifies the span.
    pub span_id: u64,
    /// The span that this one is part of; `None` for that of the run.
    pub parent_span_id: Option<u64>,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// The session of the run.
    pub session: SessionKey,
    /// Texts, numbers and arrays by name; no `null`.
    pub attributes: JsonMap,
}

impl SpanData {
    /// Returns about how many bytes of memory the span takes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.name.len() + json_len(&self.attributes)
    }
}

/// The place in a trace at which new spans begin. Cheap to clone. The default records nothing.
#[derive(Clone, Default)]
pub struct SpanContext(Option<Arc<Place>>);

struct Place {
    exporter: Arc<dyn SpanExporter>,
    session: SessionKey,
    invocation_id: String,
    trace_id: u128,
    /// `None` outside of all spans.
    span_id: Option<u64>,
    event_ids: Mutex<Vec<String>>,
}

/// A span in progress. It ends when it is dropped.
pub struct Span {
    context: SpanContext,
    data: Option<Box<SpanData>>,
}

impl SpanContext {
    /// Begins the trace of a run.
    pub fn new(exporter: Arc<dyn SpanExporter>, session: SessionKey, invocation_id: &str) -> Self {
        Self(Some(Arc::new(Place {
            exporter,
            session,
            invocation_id: invocation_id.into(),
            trace_id: uuid::Uuid::new_v4().as_u128(),
            span_id: None,
            event_ids: Mutex::default(),
        })))
    }

    /// Returns true if spans are recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a span for an operation of OpenTelemetry's conventions.
    pub fn start(&self, operation: &'static str, name: impl FnOnce() -> String) -> Span {
        let Some(place) = &self.0 else { return Span { context: Self::default(), data: None } };
        let span_id = uuid::Uuid::new_v4().as_u64_pair().0;
        let attributes = [
            ("gen_ai.operation.name", operation),
            ("gen_ai.system", "hatchery"),
            ("gen_ai.conversation.id", &*place.session.id),
            ("gcp.vertex.agent.session_id", &*place.session.id),
            ("gcp.vertex.agent.invocation_id", place.invocation_id.as_str()),
        ];
        let data = SpanData {
            name: name(),
            trace_id: place.trace_id,
            span_id,
            parent_span_id: place.span_id,
            start: SystemTime::now(),
            end: SystemTime::UNIX_EPOCH,
            session: place.session.clone(),
            attributes: attributes.into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect(),
        };
        let inside = Place {
            exporter: place.exporter.clone(),
            session: place.session.clone(),
            invocation_id: place.invocation_id.clone(),
            trace_id: place.trace_id,
            span_id: Some(span_id),
            event_ids: Mutex::default(),
        };
        Span { context: Self(Some(Arc::new(inside))), data: Some(Box::new(data)) }
    }

    /// Records that an event is the result of the span around this place.
    pub fn add_event(&self, id: &str) {
        if let Some(place) = &self.0 {
            let mut ids = place.event_ids.lock_unpoisoned();
            if ids.len() < MAX_EVENT_IDS {
                ids.push(id.to_owned());
            }
        }
    }
}

impl Span {
    /// Returns the place inside of the span.
    pub fn context(&self) -> SpanContext {
        self.context.clone()
    }

    /// Sets an attribute. The value is not computed if nothing is recorded. `null` is left out.
    pub fn set<V: Into<Value>>(&mut self, key: &'static str, value: impl FnOnce() -> V) {
        if let Some(data) = &mut self.data {
            let value = value().into();
            if !value.is_null() {
                data.attributes.insert(key.to_owned(), value);
            }
        }
    }

    /// Sets an attribute to the JSON of a value, or to its size if that is more than 64 KiB.
    pub fn set_json(&mut self, key: &'static str, value: &impl Serialize) {
        self.set(key, || match json_len(value) {
            length if length > MAX_ATTRIBUTE_BYTES => json!({"omittedBytes": length}).to_string(),
            // It has a length, so it can be written.
            _ => serde_json::to_string(value).unwrap_or_default(),
        });
    }

    /// Sets the attributes of a failure.
    pub fn set_error(&mut self, error: &RunError) {
        self.set("error.type", || error.code().to_owned());
        self.set("error.message", || error.client_message());
    }

    /// Sets the attributes of a request to a model. Of a long history, the newest contents are kept.
    pub fn set_request(&mut self, request: &LlmRequest) {
        self.set("gen_ai.request.model", || request.model.clone());
        self.set("gen_ai.request.temperature", || request.config.temperature);
        self.set("gen_ai.request.top_p", || request.config.top_p);
        self.set("gen_ai.request.max_tokens", || request.config.max_output_tokens);
        self.set("gcp.vertex.agent.llm_request", || bounded_request(request).to_string());
    }

    /// Sets the attributes of a model's response.
    pub fn set_response(&mut self, response: &LlmResponse) {
        self.set_json("gcp.vertex.agent.llm_response", response);
        self.set("gen_ai.response.model", || response.model_version.clone());
        self.set("gen_ai.response.finish_reasons", || {
            response.finish_reason.as_ref().map(|reason| vec![reason.to_lowercase()])
        });
        self.set("error.type", || response.error_code.clone());
        let Some(usage) = &response.usage_metadata else { return };
        let output = usage.candidates_token_count.map(|tokens| tokens + usage.thoughts_token_count.unwrap_or_default());
        self.set("gen_ai.usage.input_tokens", || usage.prompt_token_count);
        self.set("gen_ai.usage.output_tokens", || output);
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let (Some(mut data), Some(place)) = (self.data.take(), &self.context.0) else { return };
        let event_ids = std::mem::take(&mut *place.event_ids.lock_unpoisoned());
        if !event_ids.is_empty() {
            data.attributes.insert(SPAN_EVENT_IDS.to_owned(), event_ids.into());
        }
        data.end = SystemTime::now();
        place.exporter.export(*data);
    }
}

/// Returns a request as clients show it, with at most about 64 KiB of each of its parts.
fn bounded_request(request: &LlmRequest) -> Value {
    let mut rest = MAX_ATTRIBUTE_BYTES;
    let mut fits = |content: &&Content| {
        rest = rest.saturating_sub(json_len(content));
        rest > 0
    };
    let mut contents: Vec<&Content> =
        request.contents.iter().rev().map(|content| &**content).take_while(|content| fits(content)).collect();
    contents.reverse();
    let omitted = request.contents.len() - contents.len();
    let mut config = bounded(&request.config);
    if let Value::Object(config) = &mut config {
        config.insert("system_instruction".into(), bounded(&request.system_instructions.join("\n\n")));
        config.insert("tools".into(), json!([{"function_declarations": bounded(&request.tools)}]));
    }
    let mut json = json!({"model": request.model, "config": config, "contents": contents});
    if let (Value::Object(json), 1..) = (&mut json, omitted) {
        json.insert("omittedContents".into(), omitted.into());
    }
    json
}

fn bounded(value: &impl Serialize) -> Value {
    match json_len(value) {
        length if length > MAX_ATTRIBUTE_BYTES => json!({"omittedBytes": length}),
        // It has a length, so it can be converted.
        _ => serde_json::to_value(value).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use crate::content::Part;
    use crate::event::UsageMetadata;

    use super::*;

    #[derive(Default)]
    struct Collector(Mutex<Vec<SpanData>>);

    impl SpanExporter for Collector {
        fn export(&self, span: SpanData) {
            self.0.lock_unpoisoned().push(span);
        }
    }

    fn trace() -> (Arc<Collector>, SpanContext) {
        let collector = Arc::new(Collector::default());
        let context = SpanContext::new(collector.clone(), SessionKey::new("app", "ada", "s"), "e-1");
        (collector, context)
    }

    #[test]
    fn spans_are_exported_when_they_end_with_their_parent_and_the_events_of_their_inside() {
        let (collector, context) = trace();
        let outer = context.start("invoke_agent", || "invoke_agent a".into());
        let inner = outer.context().start("execute_tool", || "execute_tool t".into());
        outer.context().add_event("1");
        drop(inner);
        drop(outer);
        let spans = collector.0.lock_unpoisoned();
        let [inner, outer] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((&*outer.name, &*inner.name), ("invoke_agent a", "execute_tool t"));
        assert_eq!((inner.parent_span_id, outer.parent_span_id), (Some(outer.span_id), None));
        assert_eq!(inner.trace_id, outer.trace_id);
        assert!(outer.start <= inner.start && inner.end <= outer.end);
        assert_eq!(outer.attributes[SPAN_EVENT_IDS], json!(["1"]));
        assert_eq!(inner.attributes["gcp.vertex.agent.invocation_id"], "e-1");
        assert_eq!(inner.attributes["gen_ai.conversation.id"], "s");
        assert_eq!(inner.attributes.get(SPAN_EVENT_IDS), None);
    }

    #[test]
    fn without_an_exporter_nothing_is_computed() {
        let context = SpanContext::default();
        let mut span = context.start("execute_tool", || panic!("a name"));
        span.set("key", || -> Value { panic!("a value") });
        span.context().add_event("1");
        assert!(!context.is_recorded() && !span.context().is_recorded());
    }

    #[test]
    fn a_long_request_keeps_its_newest_contents() {
        let (collector, context) = trace();
        let mut span = context.start("generate_content", || "call_llm".into());
        let text = "x".repeat(30_000);
        let contents = (0..5).map(|number| Arc::new(Content::user(format!("{number} {text}")))).collect();
        let system_instructions = vec!["y".repeat(70_000)];
        span.set_request(&LlmRequest { model: "m".into(), contents, system_instructions, ..LlmRequest::default() });
        drop(span);
        let spans = collector.0.lock_unpoisoned();
        let request: Value =
            serde_json::from_str(spans[0].attributes["gcp.vertex.agent.llm_request"].as_str().unwrap()).unwrap();
        assert_eq!(request["omittedContents"], 3);
        assert!(request["contents"][1]["parts"][0]["text"].as_str().unwrap().starts_with("4 "));
        assert_eq!(request["config"]["system_instruction"], json!({"omittedBytes": 70_002}));
    }

    #[test]
    fn a_response_has_its_tokens_and_its_reason() {
        let (collector, context) = trace();
        let mut span = context.start("generate_content", || "call_llm".into());
        let usage = UsageMetadata {
            prompt_token_count: Some(7),
            candidates_token_count: Some(2),
            thoughts_token_count: Some(3),
            ..UsageMetadata::default()
        };
        span.set_response(&LlmResponse {
            content: Some(Content::new("model", vec![Part::text("Hi")])),
            finish_reason: Some("STOP".into()),
            usage_metadata: Some(usage),
            ..LlmResponse::default()
        });
        drop(span);
        let attributes = &collector.0.lock_unpoisoned()[0].attributes;
        assert_eq!(attributes["gen_ai.response.finish_reasons"], json!(["stop"]));
        assert_eq!(
            (&attributes["gen_ai.usage.input_tokens"], &attributes["gen_ai.usage.output_tokens"]),
            (&json!(7), &json!(5))
        );
        assert_eq!(attributes.get("error.type"), None);
        let response: Value =
            serde_json::from_str(attributes["gcp.vertex.agent.llm_response"].as_str().unwrap()).unwrap();
        assert_eq!(response["content"]["parts"][0]["text"], "Hi");
    }
}
