//! Spans: parents, attributes, and bounds of their content.

use serde_json::json;

use super::*;
use crate::content::{Blob, Content, Part, PartData};
use crate::event::EventData;
use crate::model::FunctionDeclaration;

/// Keeps all spans, with content.
#[derive(Default)]
struct Collector {
    spans: Mutex<Vec<Arc<SpanData>>>,
    has_no_content: bool,
}

impl SpanExporter for Collector {
    fn export(&self, span: &Arc<SpanData>) {
        self.spans.lock_unpoisoned().push(span.clone());
    }

    fn captures_content(&self) -> bool {
        !self.has_no_content
    }

    fn is_sampled(&self, trace_id: u128, _: Option<&TraceParent>) -> bool {
        trace_id == 7
    }
}

fn trace_of(collector: Collector, parent: Option<TraceParent>) -> (Arc<Collector>, SpanContext) {
    let collector = Arc::new(collector);
    let context = SpanContext::new(collector.clone(), SessionKey::new("app", "ada", "s"), "e-1", parent);
    (collector, context)
}

fn trace() -> (Arc<Collector>, SpanContext) {
    trace_of(Collector::default(), None)
}

/// Returns an attribute, also of the content, of the only span.
fn attribute(collector: &Collector, key: &str) -> Option<Value> {
    let spans = collector.spans.lock_unpoisoned();
    let [span] = &spans[..] else { panic!("{spans:?}") };
    let content = span.content.iter().flat_map(SpanContent::attributes);
    let value = span.attributes().into_iter().chain(content).find(|(name, _)| *name == key);
    value.map(|(_, value)| serde_json::to_value(value).unwrap())
}

/// Returns an attribute whose text is JSON.
fn json_attribute(collector: &Collector, key: &str) -> Value {
    let value = attribute(collector, key).unwrap_or_else(|| panic!("{key} is not set"));
    serde_json::from_str(value.as_str().unwrap()).unwrap()
}

#[test]
fn spans_are_exported_at_their_end_with_their_parent_and_their_own_events() {
    let (collector, context) = trace();
    let outer = context.start(SpanOperation::Agent, "a");
    let inner = outer.context().start(SpanOperation::Tool, "t");
    outer.context().add_event("1");
    drop(inner);
    drop(outer);
    let spans = collector.spans.lock_unpoisoned();
    let [inner, outer] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&*outer.name, &*inner.name), ("invoke_agent a", "execute_tool t"));
    assert_eq!((inner.parent_span_id, outer.parent_span_id), (Some(outer.span_id), None));
    assert!(Arc::ptr_eq(&inner.trace, &outer.trace));
    assert!(outer.start <= inner.start && inner.end() <= outer.end());
    assert_eq!((&outer.event_ids[..], inner.event_ids.len()), (&["1".to_owned()][..], 0));
    let attributes = serde_json::to_value(inner.attributes()).unwrap();
    for pair in [
        json!(["gen_ai.operation.name", "execute_tool"]),
        json!(["gen_ai.conversation.id", "s"]),
        json!(["gcp.vertex.agent.invocation_id", "e-1"]),
    ] {
        assert!(attributes.as_array().unwrap().contains(&pair), "{pair} in {attributes}");
    }
}

#[test]
fn a_span_that_is_dropped_before_its_end_was_cancelled() {
    let (collector, context) = trace();
    context.start(SpanOperation::Tool, "finished").finish();
    let mut ended = context.start(SpanOperation::Tool, "ended");
    ended.end();
    drop(ended);
    drop(context.start(SpanOperation::Tool, "dropped"));
    let mut failed = context.start(SpanOperation::Tool, "failed");
    failed.fail("CODE", || "it failed".into());
    drop(failed);
    let spans = collector.spans.lock_unpoisoned();
    let codes: Vec<_> = spans.iter().map(|span| span.error.as_ref().map(|error| &*error.code)).collect();
    assert_eq!(codes, [None, None, Some("CANCELLED"), Some("CODE")]);
}

#[test]
fn the_code_and_the_message_of_a_failure_are_cut() {
    let (collector, context) = trace();
    let long = || "x".repeat(1 << 20);
    context.start(SpanOperation::Tool, "failed").fail(&long(), long);
    let response = EventData { error_code: Some(long()), error_message: Some(long()), ..EventData::default() };
    context.start(SpanOperation::Model, "").set_response(&Event::new(response));
    let spans = collector.spans.lock_unpoisoned();
    let sizes =
        spans.iter().filter_map(|span| span.error.as_ref()).map(|error| (error.code.len(), error.message.len()));
    let cut = |max: usize| max + "…".len();
    assert!(sizes.eq([(cut(256), cut(16 << 10)); 2]));
}

#[test]
fn without_an_exporter_nothing_is_recorded() {
    let context = SpanContext::default();
    let mut span = context.start_at(SpanOperation::Tool, "t", None);
    span.record(|_| panic!("set"));
    span.fail("CODE", || panic!("a message"));
    span.context().add_event("1");
    assert!(!context.is_recorded() && !span.is_recorded() && !span.context().is_recorded());
    assert_eq!((span.context().parent(), span.context().header()), (None, None));
}

#[test]
fn a_trace_continues_the_trace_of_the_caller_and_is_sent_to_services_if_it_is_sampled() {
    let parent = TraceParent { trace_id: 7, span_id: 9, is_sampled: false };
    let (_, context) = trace_of(Collector::default(), Some(parent));
    let span = context.start(SpanOperation::Run, "");
    let inside = span.context().parent().unwrap();
    assert_eq!((inside.trace_id, inside.is_sampled), (7, true), "the exporter decides");
    assert_eq!(span.context().header(), Some(inside.to_string()));
    assert_eq!(context.parent(), None, "outside of spans");

    let (_, unsampled) = trace();
    assert_eq!(unsampled.start(SpanOperation::Run, "").context().header(), None);
}

#[test]
fn the_span_of_a_run_says_where_its_time_went() {
    let (collector, context) = trace();
    let run = context.start(SpanOperation::Run, "");
    run.context().add_time(TimeKind::Store, Duration::from_nanos(5));
    run.context().start(SpanOperation::Model, "").context().add_time(TimeKind::Store, Duration::from_nanos(2));
    drop(run);
    let spans = collector.spans.lock_unpoisoned();
    let time = |kind: &str| spans[1].get(&format!("hatchery.time.{kind}_ns")).unwrap().as_u64().unwrap();
    assert_eq!((time("store"), time("tool"), time("queue"), time("guest_cpu")), (7, 0, 0, 0));
    assert_eq!(u128::from(time("model")), spans[0].duration.as_nanos());
    assert_eq!(spans[0].get("hatchery.time.model_ns"), None);
}

#[test]
fn a_failure_has_its_code_and_being_stopped_is_none() {
    let (collector, context) = trace();
    let mut span = context.start(SpanOperation::Agent, "a");
    span.set_error(&RunError::Stopped);
    assert_eq!(span.data.as_ref().unwrap().error, None);
    span.set_error(&RunError::Cancelled);
    drop(span);
    assert_eq!(attribute(&collector, "error.type"), Some(json!("CANCELLED")));
    assert_eq!(attribute(&collector, "error.message"), Some(json!(RunError::Cancelled.client_message())));
}

#[test]
fn without_capture_a_span_has_no_content() {
    let (collector, context) = trace_of(Collector { has_no_content: true, ..Collector::default() }, None);
    let mut span = context.start(SpanOperation::Model, "");
    span.set_request(&Arc::new(LlmRequest { model: "m".into(), ..LlmRequest::default() }));
    span.set_response(&Event::new(EventData::default()));
    span.set_arguments(&JsonMap::new());
    span.set_result(&json!(1));
    drop(span);
    assert_eq!(attribute(&collector, "gen_ai.request.model"), Some(json!("m")));
    assert!(collector.spans.lock_unpoisoned()[0].content.is_none());
}

#[test]
fn a_request_is_shown_as_clients_expect_it() {
    let (collector, context) = trace();
    let mut span = context.start(SpanOperation::Model, "");
    let tool = FunctionDeclaration { name: "roll_die".into(), ..FunctionDeclaration::default() };
    let mut request = LlmRequest { model: "m".into(), tools: vec![Arc::new(tool)], ..LlmRequest::default() };
    request.system_instructions = vec!["Be short.".into(), "Be kind.".into()];
    request.contents.push_back(Arc::new(Content::user("Hi")));
    request.config.temperature = Some(0.5);
    request.model_tools = vec![json!({"googleSearch": {}})];
    span.set_request(&Arc::new(request));
    drop(span);
    assert_eq!(
        json_attribute(&collector, "gcp.vertex.agent.llm_request"),
        json!({
            "model": "m",
            "config": {
                "temperature": 0.5,
                "system_instruction": "Be short.\n\nBe kind.",
                "tools": [
                    {"function_declarations": [{"name": "roll_die", "description": ""}]},
                    {"googleSearch": {}},
                ],
            },
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        })
    );
    assert_eq!(attribute(&collector, "gen_ai.request.temperature"), Some(json!(0.5)));
}

#[test]
fn a_request_keeps_its_newest_contents_up_to_64_kib_and_100() {
    let (collector, context) = trace();
    let text = "x".repeat(30_000);
    for (contents, instruction) in [
        ((0..5).map(|number| Content::user(format!("{number} {text}"))).collect::<Vec<_>>(), "y".repeat(70_000)),
        ((0..102).map(|number| Content::user(number.to_string())).collect(), String::new()),
    ] {
        let mut span = context.start(SpanOperation::Model, "");
        let contents = contents.into_iter().map(Arc::new).collect();
        let request = LlmRequest { contents, system_instructions: vec![instruction], ..LlmRequest::default() };
        span.set_request(&Arc::new(request));
    }
    let spans = collector.spans.lock_unpoisoned();
    let request = |span: &SpanData| -> Value {
        let [(_, request)] = &span.content.as_ref().unwrap().attributes()[..] else { panic!("{span:?}") };
        serde_json::from_str(request.as_str().unwrap()).unwrap()
    };
    let long = request(&spans[0]);
    assert_eq!((&long["omittedContents"], long["contents"].as_array().unwrap().len()), (&json!(3), 2));
    assert!(long["contents"][1]["parts"][0]["text"].as_str().unwrap().starts_with("4 "));
    assert_eq!(long["config"]["system_instruction"], json!({"omittedBytes": 70_002}));
    let many = request(&spans[1]);
    assert_eq!((&many["omittedContents"], &many["contents"][0]["parts"][0]["text"]), (&json!(2), &json!("2")));
    assert!(spans[0].size() > 130_000 && spans[0].size() < 140_000, "{}", spans[0].size());
}

#[test]
fn a_response_has_its_tokens_and_its_reason() {
    let (collector, context) = trace();
    let mut span = context.start(SpanOperation::Model, "");
    let usage = UsageMetadata {
        prompt_token_count: Some(7),
        candidates_token_count: Some(2),
        thoughts_token_count: Some(3),
        cached_content_token_count: Some(4),
        extra: JsonMap::from_iter([("toolUsePromptTokenCount".to_owned(), json!(20))]).into(),
        ..UsageMetadata::default()
    };
    assert_eq!(usage.total(), 32);
    span.set_request(&Arc::default());
    span.set_response(&Event::new(EventData {
        content: Some(Arc::new(Content::new("model", vec![Part::text("Hi")]))),
        finish_reason: Some("STOP".into()),
        usage_metadata: Some(Box::new(usage)),
        ..EventData::default()
    }));
    span.finish();
    for (key, value) in [
        ("gen_ai.response.finish_reasons", json!(["stop"])),
        ("gen_ai.usage.input_tokens", json!(27)),
        ("gen_ai.usage.output_tokens", json!(5)),
        ("gen_ai.usage.reasoning.output_tokens", json!(3)),
        ("gen_ai.usage.cache_read.input_tokens", json!(4)),
    ] {
        assert_eq!(attribute(&collector, key), Some(value), "{key}");
    }
    assert_eq!(attribute(&collector, "error.type"), None);
    let response = json_attribute(&collector, "gcp.vertex.agent.llm_response");
    assert_eq!((&response["content"]["parts"][0]["text"], &response["finishReason"]), (&json!("Hi"), &json!("STOP")));
    assert_eq!(response["usageMetadata"]["promptTokenCount"], 7);
}

#[test]
fn a_large_response_and_large_arguments_become_their_size() {
    let (collector, context) = trace();
    let mut span = context.start(SpanOperation::Model, "");
    span.set_request(&Arc::default());
    let blob = Blob { data: vec![0; 100_000].into(), ..Blob::default() };
    let content = Content::new("model", vec![PartData::InlineData(blob).into()]);
    span.set_response(&Event::new(EventData { content: Some(Arc::new(content)), ..EventData::default() }));
    drop(span);
    let size = json_attribute(&collector, "gcp.vertex.agent.llm_response")["omittedBytes"].as_u64().unwrap();
    assert!((100_000..102_000).contains(&size), "{size}");
    assert!(collector.spans.lock_unpoisoned().pop().unwrap().size() < 5_000);

    let mut span = context.start(SpanOperation::Tool, "t");
    span.set_arguments(&JsonMap::from_iter([("text".to_owned(), json!("x".repeat(70_000)))]));
    span.set_result(&json!({"rolled": 4}));
    drop(span);
    assert!(json_attribute(&collector, "gen_ai.tool.call.arguments")["omittedBytes"].as_u64().unwrap() > 70_000);
    assert_eq!(json_attribute(&collector, "gen_ai.tool.call.result"), json!({"rolled": 4}));
}

#[test]
fn the_size_of_a_span_has_all_that_its_event_keeps_in_memory() {
    let (collector, context) = trace();
    let metadata = Some(Box::new(json!({"key": "x".repeat(30_000)})));
    let event = Event::new(EventData { custom_metadata: metadata, ..EventData::default() });
    assert!(event.json().len() > 30_000);
    let mut span = context.start(SpanOperation::Model, "");
    span.set_request(&Arc::default());
    span.set_response(&event);
    span.finish();
    let size = collector.spans.lock_unpoisoned()[0].size();
    assert!((60_000..70_000).contains(&size), "{size}");
}
