//! Live runs: the limits of messages, reservations, early answers, the end of the queue, and traces.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Blob, CallContext, Callback, Content, Event, HookPoint, JsonMap, LiveRequest, LiveResponse, Plugin, QueuedRequest,
    Reservation, RunError, SpanData, SpanExporter, SpanOperation, Tool, TraceParent,
};
use hatchery_engine::build::function_tool;
use hatchery_engine::{LiveRunRequest, Plugins, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::live::*;
use crate::support::*;

fn part(text: &str, state: Value, partial: bool) -> LiveRequest {
    LiveRequest::Content { content: Content::user(text), partial, state_delta: map(state) }
}

/// Sends parts of a message until the run fails.
async fn send_endlessly(mut live: Live, text: &str) -> RunError {
    loop {
        tokio::select! {
            event = live.run.next() => match event.expect("an error") {
                Ok(_) => {}
                Err(error) => return error,
            },
            sent = live.queue.send(part(text, json!({}), true)) => sent.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_message_that_never_ends_is_refused() {
    let request = || LiveRunRequest { max_message_bytes: 1000, ..LiveRunRequest::new(USER, SESSION) };
    let too_large = "the parts of a message have at most 1000 bytes together; send it as several";
    let app = Harness::new(llm("root", Scripted::new())).await;
    let error = send_endlessly(Live::start_with(&app, request()).await, &"x".repeat(300)).await;
    assert_eq!((error.code(), &*error.to_string()), ("BAD_INPUT", too_large));
    let error = send_endlessly(Live::start(&app).await, "x").await;
    assert_eq!(error.to_string(), "a message has at most 1000 parts; send it as several");

    let model = LiveModel::new([vec![complete()]]);
    let app = Harness::new(model.agent("root", |_| {})).await;
    let mut live = Live::start_with(&app, request()).await;
    live.ask("hi").await;
    let error = send_endlessly(live, &"x".repeat(300)).await;
    assert_eq!((error.code(), &*error.to_string()), ("BAD_INPUT", too_large));
}

#[tokio::test]
async fn what_is_reserved_for_a_request_is_kept_until_its_message_is_answered() {
    let app = Harness::new(llm("root", Scripted::sequence(["one"]))).await;
    let mut live = Live::start(&app).await;
    let memory: Reservation = Arc::new(());
    for (text, partial) in [("half ", true), ("whole", false)] {
        let request = part(text, json!({}), partial);
        live.queue.ready().await.unwrap();
        let queued = QueuedRequest { request, reservations: vec![memory.clone()] };
        assert!(live.queue.try_send(queued).unwrap().is_none());
        if partial {
            assert_eq!(Arc::strong_count(&memory), 2);
        }
    }
    assert_eq!(live.turn().await, ["root: one"]);
    live.finish().await;
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[tokio::test]
async fn changes_of_state_are_stored_with_messages_to_a_live_model() {
    let model = LiveModel::new([vec![
        complete(),
        Step::Expect(LiveRequest::content(Content { parts: two_parts(), ..Content::user("") })),
        complete(),
    ]]);
    let app = Harness::new(model.agent("root", |_| {})).await;
    let mut live = Live::start(&app).await;
    live.ask("hi").await;
    live.queue.send(part("one", json!({"a": 1}), true)).await.unwrap();
    live.queue.send(part("two", json!({"b": 2}), false)).await.unwrap();
    live.turn().await;
    live.finish().await;
    assert_eq!(app.state().await, json!({"a": 1, "b": 2}));
}

fn two_parts() -> Vec<hatchery_core::Part> {
    ["one", "two"].into_iter().flat_map(|text| Content::user(text).parts).collect()
}

#[tokio::test]
async fn an_answer_to_a_call_keeps_its_changes_of_state() {
    let waits = json!({"error": "This tool call requires confirmation, please approve or reject."});
    let model = LiveModel::new([
        vec![call("c1", "echo", json!({})), result("c1", "echo", waits), transcription("please decide"), complete()],
        vec![transcription("done"), complete()],
    ]);
    let root =
        model.agent("root", |llm| llm.tools = vec![tool_with_confirmation("echo", |_, _| Ok(json!({"ran": 1})))]);
    let app = Harness::new(root).await;
    let mut live = Live::start(&app).await;
    live.ask("hi").await;
    let session = app.session().await;
    let calls = session.events.iter().flat_map(|event| event.function_calls());
    let question = hatchery_core::REQUEST_CONFIRMATION;
    let id = calls.filter(|call| call.name == question).find_map(|call| call.id.clone()).unwrap();
    let content = tool_response(&id, question, json!({"confirmed": true}));
    let state_delta = map(json!({"approved": true}));
    live.queue.send(LiveRequest::Content { content, partial: false, state_delta }).await.unwrap();
    assert_eq!(live.turn().await, [r#"root: answer echo{"ran":1}"#, "root: “done”"]);
    live.finish().await;
    assert_eq!(app.state().await, json!({"approved": true}));
}

#[tokio::test]
async fn what_a_live_model_cannot_take_is_wrong_input() {
    let model = || LiveModel::new([vec![complete()]]);
    let blob = Blob { mime_type: "application/pdf".into(), data: vec![1].into(), display_name: None };
    let deep = (0..=hatchery_core::MAX_JSON_DEPTH).fold(json!(1), |inner, _| json!([inner]));
    for (request, expected) in [
        (LiveRequest::Blob(blob), "no documents"),
        (part("x", json!({"deep": deep}), false), "the value of the state key `deep` is nested more than"),
    ] {
        let app = Harness::new(model().agent("root", |_| {})).await;
        let mut live = Live::start(&app).await;
        live.ask("hi").await;
        live.queue.send(request).await.unwrap();
        let error = live.end().await.unwrap();
        assert_eq!(error.code(), "BAD_INPUT", "{error}");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

/// Answers in place of every run.
struct Bouncer;

#[async_trait]
impl Callback for Bouncer {
    fn name(&self) -> &str {
        "bouncer"
    }
}

#[async_trait]
impl Plugin for Bouncer {
    async fn before_run(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        Ok(Some(Content::model("closed")))
    }
}

#[tokio::test]
async fn an_answer_in_place_of_an_agent_that_would_hear_ends_the_conversation() {
    let before_agent = FixedCallback { name: "guard", agent: Some("closed"), ..FixedCallback::default() };
    for is_plugin in [false, true] {
        let agent = LiveModel::new([]).agent("root", |_| {});
        let mut app = if is_plugin {
            Harness::new(agent).await
        } else {
            let mut agent = agent;
            agent.callbacks.push(HookPoint::BeforeAgent, before_agent.clone().arc());
            Harness::new(agent).await
        };
        if is_plugin {
            let plugins = Plugins::new(vec![Arc::new(Bouncer)]).unwrap();
            app.runner = Runner::with_plugins(app.runner.services().clone(), plugins);
        }
        let mut live = Live::start(&app).await;
        for _ in 0..4 {
            // The queue may be closed by now.
            let _ = live.queue.send(audio()).await;
        }
        assert_eq!(live.turn().await.len(), 1);
        assert!(live.run.next().await.is_none(), "one run is enough");
        let session = app.session().await;
        let runs: HashSet<_> = session.events.iter().map(|event| &event.invocation_id).collect();
        assert_eq!(runs.len(), 1, "{runs:?}");
    }
}

/// A tool that reports its call, and then waits for a permit.
fn waiting_tool(called: &Arc<Semaphore>, go_on: &Arc<Semaphore>) -> Arc<dyn Tool> {
    let (called, go_on) = (called.clone(), go_on.clone());
    Arc::new(function_tool("wait", "Waits.", move |_: JsonMap, _| {
        let (called, go_on) = (called.clone(), go_on.clone());
        async move {
            called.add_permits(1);
            go_on.acquire().await.unwrap().forget();
            Ok(json!({"waited": true}))
        }
    }))
}

#[tokio::test]
async fn a_stopped_queue_ends_after_the_current_turn_which_counts_as_no_further_run() {
    let (called, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let live_model = LiveModel::new([vec![
        call("c1", "wait", json!({})),
        result("c1", "wait", json!({"waited": true})),
        transcription("done"),
        complete(),
    ]]);
    let text_model = Scripted::sequence([Reply::call("wait", json!({})), Reply::text("done")]);
    for root in [
        live_model.agent("root", |llm| llm.tools = vec![waiting_tool(&called, &go_on)]),
        llm_with("root", text_model, |llm| llm.tools = vec![waiting_tool(&called, &go_on)]),
    ] {
        let app = Harness::new(root).await;
        let mut live = Live::start(&app).await;
        live.queue.send(part("one", json!({}), false)).await.unwrap();
        called.acquire().await.unwrap().forget();
        assert_eq!(app.runner.active_runs(), 1);
        live.queue.send(part("two", json!({}), true)).await.unwrap();
        live.queue.stop();
        go_on.add_permits(1);
        let turn = live.turn().await;
        assert!(turn.last().unwrap().contains("done"), "{turn:?}");
        assert!(live.run.next().await.is_none());
        app.runner.drain().await;
        assert_eq!(app.runner.active_runs(), 0);
        let users = app.session().await.events.iter().filter(|event| event.author == "user").count();
        assert_eq!(users, 1, "{turn:?}");
    }
}

#[tokio::test]
async fn a_call_that_a_callback_removes_is_answered_with_an_error() {
    let error = json!({"error": "the call was not allowed, and has not happened"});
    let model = LiveModel::new([vec![call("c1", "echo", json!({})), result("c1", "echo", error), complete()]]);
    let guard = FixedCallback { name: "guard", model: Some("no"), ..FixedCallback::default() };
    let root = model.agent("root", |llm| llm.callbacks.push(HookPoint::AfterModel, guard.arc()));
    let app = Harness::new(root).await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await, ["root: no"]);
    live.finish().await;
}

/// Keeps the spans of runs.
#[derive(Default)]
struct Collector(Mutex<Vec<Arc<SpanData>>>);

impl SpanExporter for Collector {
    fn export(&self, span: &Arc<SpanData>) {
        self.0.lock().unwrap().push(span.clone());
    }

    fn captures_content(&self) -> bool {
        true
    }

    fn is_sampled(&self, _: u128, _: Option<&TraceParent>) -> bool {
        true
    }
}

fn tokens(event: &Event) -> Option<u64> {
    event.usage_metadata.as_ref().and_then(|usage| usage.prompt_token_count)
}

#[tokio::test]
async fn what_a_live_model_does_has_spans_with_its_tokens_in_the_trace_of_the_caller() {
    let model = LiveModel::new([vec![
        used(3),
        used(4),
        call("c1", "echo", json!({})),
        result("c1", "echo", json!({})),
        text_reply("one"),
        used(5),
        complete(),
        Step::Expect(LiveRequest::content(Content::user("more"))),
        transcription("two"),
        complete(),
    ]]);
    let root = model.agent("root", |llm| llm.tools = vec![tool("echo", |_, _| Ok(json!({})))]);
    let mut app = Harness::new(root).await;
    let collector = Arc::new(Collector::default());
    app.runner = app.runner.with_span_exporter(collector.clone());
    let trace_parent = Some(TraceParent { trace_id: 7, span_id: 9, is_sampled: true });
    let mut live = Live::start_with(&app, LiveRunRequest { trace_parent, ..LiveRunRequest::new(USER, SESSION) }).await;
    live.ask("hi").await;
    live.ask("more").await;
    live.finish().await;
    app.runner.drain().await;
    let spans = collector.0.lock().unwrap().clone();
    assert!(spans.iter().all(|span| span.trace.id == 7 && span.error.is_none()), "{spans:?}");
    let calls: Vec<_> = spans.iter().filter(|span| span.operation == SpanOperation::Model).collect();
    let tokens_of = |span: &&Arc<SpanData>| span.get("gen_ai.usage.input_tokens").and_then(|tokens| tokens.as_u64());
    assert_eq!(calls.iter().map(tokens_of).collect::<Vec<_>>(), [Some(7), Some(5), None]);
    assert!(calls.iter().all(|call| call.get("gen_ai.request.model").is_some()));
    let provider = |span: &&Arc<SpanData>| span.get("gen_ai.provider.name")?.as_str().map(str::to_owned);
    assert!(calls.iter().all(|call| provider(call).as_deref() == Some("test.live")), "{calls:?}");
    let session = app.session().await;
    assert_eq!(session.events.iter().filter_map(|event| tokens(event)).collect::<Vec<_>>(), [7, 5]);
    let answer = session.events.iter().find(|event| tokens(event) == Some(5)).unwrap();
    assert_eq!(calls[1].get("gcp.vertex.agent.event_id").and_then(|id| id.as_str()), Some(&*answer.id));
}

#[tokio::test]
async fn of_several_reports_of_usage_the_last_has_the_unknown_keys() {
    let report = |key: &str| {
        let usage = json!({"promptTokenCount": 1, key: [1]});
        Step::Send(LiveResponse::Usage(serde_json::from_value(usage).unwrap()))
    };
    let model = LiveModel::new([vec![report("first"), report("second"), used(1), text_reply("one"), complete()]]);
    let app = Harness::new(model.agent("root", |_| {})).await;
    let mut live = Live::start(&app).await;
    live.ask("hi").await;
    live.finish().await;
    let session = app.session().await;
    let usage = session.events.iter().find_map(|event| event.usage_metadata.clone()).unwrap();
    assert_eq!(usage.prompt_token_count, Some(3));
    assert!(usage.extra.keys().eq(["second"]), "{usage:?}");
}

#[tokio::test]
async fn a_live_model_that_fails_has_a_failed_span() {
    let error = hatchery_core::ModelError::new(hatchery_core::ModelErrorKind::Server, "live", "it is away");
    let model = LiveModel::new([vec![transcription("one"), Step::Fail(error)]]);
    let mut app = Harness::new(model.agent("root", |_| {})).await;
    let collector = Arc::new(Collector::default());
    app.runner = app.runner.with_span_exporter(collector.clone());
    let live = Live::start(&app).await;
    live.queue.send_content(Content::user("hi")).await.unwrap();
    let error = send_endlessly(live, "more").await;
    app.runner.drain().await;
    let spans = collector.0.lock().unwrap().clone();
    let call = spans.iter().find(|span| span.operation == SpanOperation::Model).unwrap();
    assert_eq!((&*call.error.as_ref().unwrap().code, error.code()), ("MODEL_SERVER_ERROR", "MODEL_SERVER_ERROR"));
}

#[tokio::test]
async fn code_of_a_live_run_adds_requests_which_a_text_model_answers_after_its_turn() {
    let come_back = function_tool("come_back", "Comes back to it.", |_: JsonMap, cx: CallContext| async move {
        let Some(requests) = &cx.invocation.live_requests else { return Ok("this run is not live") };
        let request = LiveRequest::content(Content::user("again"));
        assert!(requests.try_send(request.into()).unwrap().is_none());
        Ok("later")
    });
    let call = || Reply::call("come_back", json!({}));
    let model = Scripted::sequence([call(), Reply::text("noted"), Reply::text("heard"), call(), Reply::text("done")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![Arc::new(come_back)])).await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await.last().unwrap(), "root: noted");
    assert_eq!(live.turn().await, ["root: heard"]);
    live.finish().await;
    let transcript = app.session_transcript().await;
    assert!(transcript.contains(&"user: again".to_owned()), "{transcript:?}");
    assert_eq!(app.transcript("hi").await[1], "root: answer come_back{\"result\":\"this run is not live\"}");
}
