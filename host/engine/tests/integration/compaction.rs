//! Compaction: when summaries are created, and that turns do not wait for them.

mod settings;
mod summaries;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Content, CustomAgent, CustomAgentSpec, Event, EventData, EventWindow,
    FunctionDeclaration, FunctionResponse, ItemKind, ItemResolver, JsonMap, LlmRequest, Model, ModelError,
    ModelErrorKind, ModelRef, ModelResolver, Part, PartData, ResolveError, RunError, Services, SessionKey,
    SessionService, StoreError, StreamingMode, Summarizer, Tool, ToolError, WrapperSessionService,
};
use hatchery_engine::compaction::{
    CompactionConfig, CompactionSettings, LlmSummarizer, SlidingWindow, SummarizerRef, TailRetention,
};
use hatchery_engine::{App, AppSettings, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::MemorySessions;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::logs::{capture_log, text_of};
use crate::support::*;

/// An app with compaction.
async fn app_with_compaction(root: Agent, config: CompactionConfig) -> Harness {
    let mut app = Harness::new(root.clone()).await;
    let settings = AppSettings { compaction: Some(config), ..AppSettings::default() };
    app.app = Arc::new(App::new("app", root).unwrap().with_settings(settings));
    app
}

/// Compacts after this many runs.
fn every(runs: u32, summarizer: SummarizerRef) -> CompactionConfig {
    let sliding = SlidingWindow { interval: NonZeroU32::new(runs).unwrap(), overlap: 0 };
    CompactionConfig { sliding: Some(sliding), tail: None, summarizer }
}

/// Compacts when a prompt has more than this many tokens.
fn above(token_threshold: u64, retention: usize, summarizer: SummarizerRef) -> CompactionConfig {
    CompactionConfig { sliding: None, tail: Some(TailRetention { token_threshold, retention }), summarizer }
}

fn summarizer(model: &Arc<Scripted>) -> SummarizerRef {
    SummarizerRef::Model(ModelRef::Object("summaries".into(), model.clone()))
}

fn texts(request: &LlmRequest) -> Vec<String> {
    request.contents.iter().map(|content| content.text()).collect()
}

#[tokio::test]
async fn after_enough_runs_a_summary_replaces_them_in_prompts() {
    let (model, summaries) =
        (Arc::new(Scripted::sequence(["one", "two", "three"])), Arc::new(Scripted::sequence(["sum"])));
    let app = app_with_compaction(llm_on("root", &model, |_| {}), every(2, summarizer(&summaries))).await;
    app.run_and_drain("a").await;
    assert!(app.compactions().await.is_empty(), "one run is not enough");
    app.run_and_drain("b").await;
    let events = app.run("c").await;
    assert_eq!(texts(&model.requests()[2]), ["sum", "c"]);
    assert_eq!(model.requests()[2].contents[0].role.as_deref(), Some("model"));
    assert_eq!(events.len(), 1, "a compaction is not yielded");
}

#[tokio::test]
async fn a_compaction_is_an_event_of_a_new_invocation_and_covers_the_summarized_events() {
    let summaries = Arc::new(Scripted::sequence(["sum"]));
    let app =
        app_with_compaction(llm("root", Scripted::new().default_reply("ok")), every(1, summarizer(&summaries))).await;
    app.run_and_drain("a").await;
    let events = app.session().await.events;
    let compaction = events.last().unwrap();
    assert_eq!((compaction.author.as_str(), events.len()), ("user", 3));
    assert!(compaction.invocation_id.starts_with("e-") && compaction.invocation_id != events[0].invocation_id);
    let range = compaction.actions.compaction.as_ref().unwrap();
    assert_eq!((range.start_timestamp, range.end_timestamp), (events[0].timestamp, events[1].timestamp));
    assert_eq!(range.compacted_content, Content::model("sum"));
}

#[tokio::test]
async fn windows_overlap_by_invocations() {
    let summaries = Arc::new(Scripted::sequence(["first", "second"]));
    let mut config = every(2, summarizer(&summaries));
    config.sliding.as_mut().unwrap().overlap = 1;
    let app = app_with_compaction(llm("root", Scripted::new().default_reply("ok")), config).await;
    for text in ["a", "b", "c", "d"] {
        app.run_and_drain(text).await;
    }
    let conversation = |request: &LlmRequest| {
        let text = request.contents[0].text();
        let (_, rest) = text.split_once("<conversation>\n").unwrap();
        rest.strip_suffix("\n</conversation>").unwrap().to_owned()
    };
    let prompts: Vec<_> = summaries.requests().iter().map(conversation).collect();
    assert_eq!(
        prompts,
        ["user: a\nmodel: ok\nuser: b\nmodel: ok", "user: b\nmodel: ok\nuser: c\nmodel: ok\nuser: d\nmodel: ok"]
    );
}

/// Creates an app without compaction, and the same app with a compaction of every two runs.
async fn app_without_and_with_compaction(summaries: Scripted) -> (Harness, Arc<App>) {
    let root = llm("root", Scripted::new().default_reply("ok"));
    let compaction = Some(every(2, summarizer(&Arc::new(summaries))));
    let settings = AppSettings { compaction, ..AppSettings::default() };
    let with = App::new("app", root.clone()).unwrap().with_settings(settings);
    (Harness::new(root).await, Arc::new(with))
}

#[tokio::test]
async fn a_session_is_compacted_on_request_once_a_compaction_is_due() {
    let (app, with) = app_without_and_with_compaction(Scripted::sequence(["sum"])).await;
    let compact = |app_of_request: &Arc<App>| app.runner.compact_session(app_of_request.clone(), USER, SESSION);
    app.run("a").await;
    assert!(!compact(&with).await.unwrap(), "one run is not enough");
    app.run("b").await;
    assert!(!compact(&app.app).await.unwrap(), "this app has no compaction");
    assert!(compact(&with).await.unwrap());
    assert!(!compact(&with).await.unwrap(), "nothing is new");
    let compactions = app.compactions().await;
    assert_eq!(compactions.len(), 1);
    assert_eq!(compactions[0].actions.compaction.as_ref().unwrap().compacted_content, Content::model("sum"));
    let missing = app.runner.compact_session(with, USER, "none").await.unwrap_err();
    assert_eq!(missing.code(), "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn a_compaction_on_request_returns_the_failure_of_the_summarizer_and_can_be_repeated() {
    let replies = [Reply::error(ModelErrorKind::Server, "out of order"), Reply::text("sum")];
    let (app, with) = app_without_and_with_compaction(Scripted::sequence(replies)).await;
    app.run("a").await;
    app.run("b").await;
    let error = app.runner.compact_session(with.clone(), USER, SESSION).await.unwrap_err();
    assert_eq!(error.to_string(), "model `summaries`: out of order");
    assert!(app.runner.compact_session(with, USER, SESSION).await.unwrap());
}

#[tokio::test]
async fn a_failed_run_leads_to_a_compaction_too() {
    let summaries = Arc::new(Scripted::sequence(["sum"]));
    let failing = Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "down"));
    let app = app_with_compaction(llm("root", failing), every(1, summarizer(&summaries))).await;
    app.expect_error("a").await;
    app.runner.drain().await;
    assert_eq!(app.compactions().await.len(), 1);
}

#[tokio::test]
async fn a_failed_compaction_is_logged_with_the_name_of_the_app_and_retried() {
    let (log, _guard) = capture_log();
    let model = Arc::new(Scripted::sequence(["one", "two", "three"]));
    let summaries =
        Arc::new(Scripted::sequence([Reply::error(ModelErrorKind::Server, "out of order"), Reply::text("sum")]));
    let app = app_with_compaction(llm_on("root", &model, |_| {}), every(1, summarizer(&summaries))).await;
    app.run_and_drain("a").await;
    assert!(app.compactions().await.is_empty());
    let text = text_of(&log);
    assert!(text.contains("compaction failed: model `summaries`: out of order"), "{text}");
    assert!(text.contains("app=app") && text.contains("MODEL_SERVER_ERROR"), "{text}");
    app.run_and_drain("b").await;
    app.run("c").await;
    assert_eq!(texts(&model.requests()[1]), ["a", "one", "b"]);
    assert_eq!(texts(&model.requests()[2]), ["sum", "c"]);
}

/// A summarizer that waits for a permit and records its events.
#[derive(Default)]
struct BlockingSummarizer {
    permits: Option<Semaphore>,
    calls: AtomicUsize,
    events: Mutex<Vec<Vec<String>>>,
}

impl BlockingSummarizer {
    fn new() -> Arc<Self> {
        Arc::new(Self { permits: Some(Semaphore::new(0)), ..Self::default() })
    }

    fn allow(&self, count: usize) {
        self.permits.as_ref().unwrap().add_permits(count);
    }

    /// Returns an app that compacts after each run with this summarizer.
    async fn app(self: &Arc<Self>) -> Harness {
        let root = llm("root", Scripted::new().default_reply("ok"));
        app_with_compaction(root, every(1, SummarizerRef::Custom(self.clone()))).await
    }
}

#[async_trait]
impl Summarizer for BlockingSummarizer {
    async fn summarize(&self, events: &[Arc<Event>], _: &CallContext) -> Result<Option<Content>, RunError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.events.lock().unwrap().push(events.iter().map(|event| brief(event)).collect());
        self.permits.as_ref().unwrap().acquire().await.unwrap().forget();
        Ok(Some(Content::user("sum")))
    }
}

#[tokio::test]
async fn turns_continue_during_a_compaction_and_a_session_has_one_at_a_time() {
    let summarizer = BlockingSummarizer::new();
    let app = summarizer.app().await;
    app.run("a").await;
    app.run("b").await;
    app.run("c").await;
    summarizer.allow(2);
    app.runner.drain().await;
    assert_eq!((summarizer.calls.load(Ordering::SeqCst), app.compactions().await.len()), (1, 1));
    app.run_and_drain("d").await;
    let events = summarizer.events.lock().unwrap().clone();
    assert_eq!(events[0], ["user: a", "root: ok"]);
    assert_eq!(events[1], ["user: b", "root: ok", "user: c", "root: ok", "user: d", "root: ok"]);
}

#[tokio::test]
async fn different_sessions_are_compacted_concurrently() {
    let summarizer = BlockingSummarizer::new();
    let app = summarizer.app().await;
    app.runner.services().sessions.create("app", USER, Some("s2"), map(json!({}))).await.unwrap();
    app.run("a").await;
    let request = RunRequest::new(USER, "s2", Content::user("a"));
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    while summarizer.calls.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    summarizer.allow(2);
    app.runner.drain().await;
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_compactions_until_a_timeout() {
    let summarizer = BlockingSummarizer::new();
    let app = summarizer.app().await;
    app.run("a").await;
    let start = tokio::time::Instant::now();
    app.runner.drain().await;
    assert_eq!(start.elapsed().as_secs(), 10);
    assert!(app.compactions().await.is_empty(), "it was cancelled");
    summarizer.allow(1);
    app.run_and_drain("b").await;
    assert_eq!(app.compactions().await.len(), 1, "later ones are not cancelled");
}

#[tokio::test]
async fn errors_of_models_are_one_line_of_the_log() {
    let (log, _guard) = capture_log();
    let failing = || Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "no\nINFO all is well"));
    let app = app_with_compaction(llm("root", failing()), every(1, summarizer(&Arc::new(failing())))).await;
    app.expect_error("a").await;
    app.runner.drain().await;
    let text = text_of(&log);
    for line in [r"run failed: model `scripted`: no\nINFO", r"compaction failed: model `summaries`: no\nINFO"] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.lines().any(|line| line.starts_with("INFO")), "{text}");
}

#[tokio::test]
async fn a_panic_of_the_summarizer_is_a_failed_compaction() {
    struct PanickingSummarizer;
    #[async_trait]
    impl Summarizer for PanickingSummarizer {
        async fn summarize(&self, _: &[Arc<Event>], _: &CallContext) -> Result<Option<Content>, RunError> {
            panic!("no")
        }
    }
    let (log, _guard) = capture_log();
    let config = every(1, SummarizerRef::Custom(Arc::new(PanickingSummarizer)));
    let app = app_with_compaction(llm("root", Scripted::new().default_reply("ok")), config).await;
    app.run_and_drain("a").await;
    assert!(text_of(&log).contains("compaction failed: internal error: the summarizer panicked"), "{}", text_of(&log));
    app.run_and_drain("b").await;
}

#[tokio::test]
async fn an_event_that_arrives_in_the_time_range_of_the_summary_is_not_hidden() {
    let summarizer = BlockingSummarizer::new();
    let app = summarizer.app().await;
    app.run("a").await;
    let first = app.session().await.events[0].timestamp;
    let content = Some(Arc::new(Content::user("from a host whose clock is slow")));
    let late = EventData { author: "user".into(), content, timestamp: first, ..EventData::default() };
    let key = SessionKey::new("app", USER, SESSION);
    app.runner.services().sessions.append(&key, &Event::new(late)).await.unwrap();
    summarizer.allow(1);
    app.runner.drain().await;
    assert!(app.compactions().await.is_empty());
}

#[tokio::test]
async fn a_session_that_was_deleted_or_recreated_is_not_compacted() {
    for is_recreated in [false, true] {
        let (log, _guard) = capture_log();
        let summarizer = BlockingSummarizer::new();
        let config = every(1, SummarizerRef::Custom(summarizer.clone()));
        let app = app_with_compaction(llm("root", Scripted::new().default_reply("ok")), config).await;
        app.run("a").await;
        let key = SessionKey::new("app", USER, SESSION);
        let sessions = app.runner.services().sessions.clone();
        sessions.delete(&key).await.unwrap();
        if is_recreated {
            sessions.create("app", USER, Some(SESSION), map(json!({}))).await.unwrap();
        }
        summarizer.allow(1);
        app.runner.drain().await;
        let now = sessions.get(&key, EventWindow::All).await.unwrap();
        assert_eq!(now.map(|session| session.events.len()), is_recreated.then_some(0));
        assert_eq!(text_of(&log), "");
    }
}

#[tokio::test]
async fn a_large_prompt_is_summarized_except_for_its_tail() {
    let model = Arc::new(Scripted::sequence(["one", "two", "three", "four"]));
    let summaries = Arc::new(Scripted::sequence(["sum", "sum of sums"]));
    let app = app_with_compaction(llm_on("root", &model, |_| {}), above(100, 1, summarizer(&summaries))).await;
    app.run_and_drain("short").await;
    assert!(app.compactions().await.is_empty());
    let long = "long ".repeat(100);
    for text in [long.as_str(), "next", &long] {
        app.run_and_drain(text).await;
    }
    assert_eq!(texts(&model.requests()[2]), ["sum", "two", "next"]);
    let prompt = summaries.requests()[1].contents[0].text();
    assert!(
        prompt.contains("<conversation>\nmodel: sum\nmodel: two\nuser: next\nmodel: three\nuser: long long"),
        "{prompt}"
    );
    let compactions: Vec<_> = app.compactions().await;
    let start = |event: &Arc<Event>| event.actions.compaction.as_ref().unwrap().start_timestamp;
    assert_eq!(start(&compactions[0]), start(&compactions[1]), "the second replaces the first");
}

#[tokio::test]
async fn a_run_uses_a_compaction_that_it_has_started() {
    let model = Arc::new(Scripted::sequence([
        Reply::call("first", json!({})),
        Reply::call("second", json!({})),
        Reply::text("done"),
    ]));
    let summaries = Arc::new(Scripted::sequence(["sum", "unused", "unused"]));
    let services: Arc<Mutex<Option<Services>>> = Arc::default();
    let second = Arc::new(WaitingTool(declaration("second"), services.clone()));
    let root = llm_on("root", &model, |llm| llm.tools = vec![tool("first", |_, _| Ok(json!(1))), second]);
    let app = app_with_compaction(root, above(100, 1, summarizer(&summaries))).await;
    *services.lock().unwrap() = Some(app.runner.services().clone());
    let long = "long ".repeat(100);
    app.run_and_drain(&long).await;
    assert_eq!(texts(&model.requests()[1])[0], long, "the call that starts it does not wait for it");
    let contents = &model.requests()[2].contents;
    assert_eq!(contents[0].text(), "sum");
    assert_eq!(contents.iter().flat_map(|content| content.function_calls()).count(), 2);
}

/// A tool that returns after the compaction.
struct WaitingTool(Arc<FunctionDeclaration>, Arc<Mutex<Option<Services>>>);

#[async_trait]
impl Tool for WaitingTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let sessions = self.1.lock().unwrap().as_ref().unwrap().sessions.clone();
        let key = &cx.invocation.session_key;
        loop {
            let session = sessions.get(key, EventWindow::All).await.unwrap().unwrap();
            if session.events.iter().any(|event| event.actions.compaction.is_some()) {
                return Ok(json!(2));
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_pending_call_is_kept_by_compactions() {
    let order = long_running("order", |_, _| Ok(json!({"status": "ordered"})));
    let model = Arc::new(Scripted::sequence([
        Reply::call("order", json!({})).with_id("c1"),
        Reply::text("wait"),
        Reply::text("still waiting"),
        Reply::text("it is there"),
    ]));
    let root = llm_on("root", &model, |llm| llm.tools = vec![order]);
    let summaries = Arc::new(Scripted::new().default_reply("sum"));
    let app = app_with_compaction(root, every(1, summarizer(&summaries))).await;
    app.run_and_drain("order it").await;
    app.run_and_drain("is it there?").await;
    let response = map(json!({"status": "delivered"}));
    let answer =
        FunctionResponse { id: Some("c1".into()), name: "order".into(), response, ..FunctionResponse::default() };
    let message = Content::new("user", vec![PartData::FunctionResponse(answer).into()]);
    app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap();
    let requests = model.requests();
    let last = &requests.last().unwrap().contents;
    let answers: Vec<_> = last.iter().flat_map(|content| content.function_responses()).collect();
    assert_eq!(last.iter().flat_map(|content| content.function_calls()).count(), 1);
    assert_eq!(answers[0].response["status"], "delivered");
}

#[tokio::test]
async fn a_paused_run_resumes_from_the_users_message() {
    let order = long_running("order", |_, _| Ok(json!(null)));
    let model = Arc::new(Scripted::sequence([
        Reply::call("order", json!({})).with_id("c1"),
        Reply::text("hello"),
        Reply::text("it is there"),
    ]));
    let root = llm_on("root", &model, |llm| llm.tools = vec![order]);
    let summaries = Arc::new(Scripted::new().default_reply("sum"));
    let mut app = app_with_compaction(root.clone(), every(1, summarizer(&summaries))).await;
    let settings = AppSettings { resumable: true, ..app.app.settings.clone() };
    app.app = Arc::new(App::new("app", root).unwrap().with_settings(settings));
    app.run_and_drain("order it").await;
    app.run_and_drain("hi").await;
    assert_eq!(app.compactions().await.len(), 1, "of the run that has finished");
    let answer = FunctionResponse { id: Some("c1".into()), name: "order".into(), ..FunctionResponse::default() };
    let message = Content::new("user", vec![PartData::FunctionResponse(answer).into()]);
    app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap();
    let requests = model.requests();
    assert_eq!(texts(requests.last().unwrap()), ["order it", "", ""], "a call and its response follow");
}

/// Sessions with events of other clients right before and after the response to a call.
struct BusySessions(MemorySessions);

#[async_trait]
impl WrapperSessionService for BusySessions {
    fn inner(&self) -> &dyn SessionService {
        &self.0
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        let is_answer = event.author == "user" && event.function_responses().next().is_some();
        if !is_answer {
            return self.0.append_with(key, event, fence).await;
        }
        let mut compaction = EventData { author: "user".into(), ..EventData::default() };
        compaction.actions.compaction = Some(Box::default());
        self.0.append(key, &Event::new(EventData { author: "user".into(), ..EventData::default() })).await?;
        let revision = self.0.append_with(key, event, fence).await?;
        self.0.append(key, &Event::new(compaction)).await?;
        Ok(revision)
    }
}

#[tokio::test]
async fn a_compaction_after_a_response_does_not_change_the_resumed_agent() {
    let order = long_running("order", |_, _| Ok(json!(null)));
    let model = Scripted::sequence([Reply::call("order", json!({})).with_id("c1"), Reply::text("arrived")]);
    let asks = llm_with("asks", model, |llm| llm.tools = vec![order]);
    let root = workflow("all", AgentKind::Sequential, vec![asks, llm("talks", Scripted::new().default_reply("hello"))]);
    let mut app = Harness::new(root).await;
    let sessions = Arc::new(BusySessions(MemorySessions::new()));
    app.runner = Runner::new(Services { sessions, ..services() });
    app.runner.services().sessions.create("app", USER, Some(SESSION), map(json!({}))).await.unwrap();
    app.run("order it").await;
    let answer = FunctionResponse { id: Some("c1".into()), name: "order".into(), ..FunctionResponse::default() };
    let message = Content::new("user", vec![PartData::FunctionResponse(answer).into()]);
    let events = app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap();
    assert_eq!(events.iter().map(|event| brief(event)).collect::<Vec<_>>(), ["asks: arrived"]);
}
