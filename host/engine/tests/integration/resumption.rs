//! Resuming runs: after a crash, a pause, a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    AgentContext, AgentKind, CallJournal, CallRecord, Content, CustomAgent, CustomAgentSpec, Event, EventData,
    EventWindow, HookPoint, JsonMap, ModelErrorKind, RunError, Session, SessionKey, SessionService, StoreError, Tool,
    TurnStart,
};
use hatchery_engine::{App, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use crate::support::*;

/// A session service that fails after so many events, as if the process had been killed there.
pub struct CrashingSessions {
    inner: Arc<dyn SessionService>,
    left: AtomicUsize,
}

impl CrashingSessions {
    pub fn new(inner: Arc<dyn SessionService>, survive: usize) -> Self {
        Self { inner, left: AtomicUsize::new(survive) }
    }
}

#[async_trait]
impl SessionService for CrashingSessions {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        self.inner.create(app, user, id, state).await
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.inner.get(key, window).await
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        self.inner.list(app, user).await
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.inner.delete(key).await
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        self.inner.begin_turn(key, previous, lease).await
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        self.inner.renew_turn(key, fence, lease).await
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        let decrement = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_err() {
            return Err(StoreError::backend("append", "the plug was pulled"));
        }
        self.inner.append_with(key, event, fence).await
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        Some(self)
    }
}

#[async_trait]
impl CallJournal for CrashingSessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        if self.left.load(Ordering::SeqCst) == 0 {
            return Err(StoreError::backend("record", "the plug was pulled"));
        }
        self.inner.journal().unwrap().record(session, run, fence, record).await
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        self.inner.journal().unwrap().read(session, run).await
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        self.inner.journal().unwrap().finish(session, run).await
    }
}

/// Says `hi` to a new session of `app`, on services that fail after `survive` events, and resumes the run with a new
/// runner. Returns the session at the interruption and at the end.
pub async fn interrupted(app: &Arc<App>, survive: usize) -> (Session, Session) {
    let services = services();
    let key = services.sessions.create(&app.name, USER, Some(SESSION), JsonMap::new()).await.unwrap().key;
    let crashing = CrashingSessions::new(services.sessions.clone(), survive);
    let first = Runner::new(hatchery_core::Services { sessions: Arc::new(crashing), ..services.clone() });
    let request = RunRequest::new(USER, SESSION, Content::user("hi"));
    // Fails, unless it ends before the crash.
    let _ = first.run(app.clone(), request).await.unwrap().collect().await;
    first.drain().await;
    let stored = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    let invocation = stored.events.front().unwrap().invocation_id.clone();
    let second = Runner::new(services.clone());
    second.run(app.clone(), RunRequest::resume(USER, SESSION, invocation)).await.unwrap().collect().await.unwrap();
    let session = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert!(session.events.iter().all(|event| event.invocation_id == stored.events[0].invocation_id));
    (stored, session)
}

/// Returns the events of a session in short form, grouped by branch, because branches have no order between them.
pub fn branch_transcripts(session: &Session) -> Vec<(String, Vec<String>)> {
    let mut branches: Vec<(String, Vec<String>)> = Vec::new();
    for event in &session.events {
        let branch = event.branch.clone().unwrap_or_default();
        let line = brief(event);
        match branches.iter_mut().find(|(name, _)| *name == branch) {
            Some((_, lines)) => lines.push(line),
            None => branches.push((branch, vec![line])),
        }
    }
    branches.sort();
    branches
}

/// Asserts that a run that is interrupted after any of its events ends with the same session as one that is not.
pub async fn assert_resumable(make: impl Fn() -> hatchery_core::Agent) -> Session {
    let app = || Arc::new(App::new("app", make()).unwrap());
    let (_, uninterrupted) = interrupted(&app(), usize::MAX).await;
    for survive in 1..uninterrupted.events.len() {
        let (_, resumed) = interrupted(&app(), survive).await;
        assert_eq!(
            branch_transcripts(&resumed),
            branch_transcripts(&uninterrupted),
            "interrupted after {survive} events"
        );
        assert_eq!(resumed.state, uninterrupted.state, "interrupted after {survive} events");
    }
    uninterrupted
}

/// Returns a model that answers by the content of the request, so that it answers the same however often it is called.
pub fn calls_then_answers(calls: &[&str], text: &str) -> Scripted {
    let mut model = Scripted::new();
    let mut names = calls.iter();
    let Some(first) = names.next() else { return model.default_reply(text) };
    let mut before = *first;
    for name in names {
        model = model.on_tool(before, Reply::call(*name, json!({})));
        before = name;
    }
    model.on_tool(before, text).default_reply(Reply::call(*first, json!({})))
}

fn counts(name: &str, runs: &Arc<AtomicUsize>) -> Arc<dyn Tool> {
    let runs = runs.clone();
    tool(name, move |_, cx| {
        runs.fetch_add(1, Ordering::Relaxed);
        let so_far = cx.state("count").and_then(|count| count.as_u64()).unwrap_or_default();
        cx.set_state("count", json!(so_far + 1));
        Ok(json!(so_far + 1))
    })
}

pub fn counter(name: &str, calls: &'static [&'static str], text: &str) -> hatchery_core::Agent {
    let runs = Arc::default();
    llm_with(name, calls_then_answers(calls, text), |llm| {
        llm.tools = calls.iter().map(|call| counts(call, &runs)).collect();
        llm.output_key = Some(format!("answer_of_{name}"));
    })
}

#[tokio::test]
async fn an_llm_agent_resumes_where_it_was() {
    let session = assert_resumable(|| counter("root", &["one", "two"], "three")).await;
    assert_eq!(session.events.len(), 6);
    assert_eq!(session.state.get("count"), Some(&json!(2)));
}

#[tokio::test]
async fn a_tool_whose_answer_is_stored_does_not_run_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let root = llm_with("root", calls_then_answers(&["one", "two"], "three"), |llm| {
        llm.tools = vec![counts("one", &runs), counts("two", &runs)];
    });
    // The user's message, the first call and its answer are stored.
    interrupted(&Arc::new(App::new("app", root).unwrap()), 3).await;
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn sequences_loops_and_branches_resume_where_they_were() {
    let session = assert_resumable(|| {
        let both = workflow("both", AgentKind::Parallel, vec![counter("p", &["x"], "p!"), counter("q", &[], "q!")]);
        let round =
            workflow("round", AgentKind::Loop { max_iterations: Some(2) }, vec![counter("l", &["y"], "l!"), both]);
        workflow("all", AgentKind::Sequential, vec![counter("a", &["z"], "a!"), round, counter("b", &[], "b!")])
    })
    .await;
    assert_eq!(session.events.len(), 1 + 3 + 2 * (3 + 3 + 1) + 1);
}

#[tokio::test]
async fn a_loop_that_was_left_is_not_entered_again() {
    let session = assert_resumable(|| {
        let model = calls_then_answers(&["exit_loop"], "not emitted");
        let leaves =
            llm_with("leaves", model, |llm| llm.tools = vec![hatchery_engine::builtin::tool("exit_loop").unwrap()]);
        let round =
            workflow("round", AgentKind::Loop { max_iterations: None }, vec![counter("l", &["y"], "l!"), leaves]);
        workflow("all", AgentKind::Sequential, vec![round, counter("after", &[], "after!")])
    })
    .await;
    assert_eq!(brief(session.events.last().unwrap()), "after: after!");
}

#[tokio::test]
async fn a_branch_that_was_ended_by_another_does_not_run_again() {
    let leave = || hatchery_engine::builtin::tool("exit_loop").unwrap();
    let leaves = llm_with("leaves", calls_then_answers(&["exit_loop"], "not emitted"), |llm| llm.tools = vec![leave()]);
    let waits = workflow_code("waits", Arc::new(PausingAgent::default()));
    let both = workflow("both", AgentKind::Parallel, vec![waits, leaves]);
    let all = workflow("all", AgentKind::Sequential, vec![both, counter("after", &[], "after!")]);
    // The user's message, the call of exit_loop and its answer are stored.
    let (_, session) = interrupted(&Arc::new(App::new("app", all).unwrap()), 3).await;
    let events: Vec<_> = session.events.iter().map(|event| brief(event)).collect();
    assert_eq!(events[2..], [r"leaves: answer exit_loop{}", "after: after!"]);
}

/// Waits until it is stopped; emits an event when it is run again.
#[derive(Default)]
struct PausingAgent(AtomicUsize);

#[async_trait]
impl CustomAgent for PausingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => std::future::pending().await,
            _ => cx.say("here I am again").await.map(|_| ()),
        }
    }
}

pub fn workflow_code(name: &str, code: Arc<dyn CustomAgent>) -> hatchery_core::Agent {
    let kind = AgentKind::Custom(CustomAgentSpec { code, model: None, tools: Vec::new() });
    hatchery_core::Agent::new(name, "", kind)
}

#[tokio::test]
async fn a_transfer_is_not_made_twice() {
    let session = assert_resumable(|| {
        let model = Scripted::new().default_reply(Reply::call("transfer_to_agent", json!({"agent_name": "sub"})));
        llm("root", model).with_sub_agents(vec![counter("sub", &["one"], "done")])
    })
    .await;
    assert_eq!(brief(session.events.last().unwrap()), "sub: done");
}

#[tokio::test]
async fn callbacks_around_agents_are_not_called_twice() {
    let session = assert_resumable(|| {
        let says = |name: &'static str, agent| {
            FixedCallback { name, agent, state: Some(name), ..FixedCallback::default() }.arc()
        };
        let mut a = counter("a", &["x"], "a!");
        a.callbacks.push(HookPoint::BeforeAgent, says("before_a", None));
        a.callbacks.push(HookPoint::AfterAgent, says("after_a", Some("after a")));
        let mut b = counter("b", &["x"], "not emitted");
        b.callbacks.push(HookPoint::BeforeAgent, says("before_b", Some("instead of b")));
        let mut round = workflow("round", AgentKind::Loop { max_iterations: Some(2) }, vec![a, b]);
        round.callbacks.push(HookPoint::BeforeAgent, says("before_round", None));
        round.callbacks.push(HookPoint::AfterAgent, says("after_round", None));
        round
    })
    .await;
    assert_eq!(session.events.len(), 1 + 1 + 2 * (1 + 3 + 1 + 1) + 1);
}

/// Emits an event before and after its sub agent.
struct WrappingAgent;

#[async_trait]
impl CustomAgent for WrappingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("before").await?;
        cx.call.set_state("around", json!(true));
        cx.run_sub_agent("inner").await?;
        cx.say("after").await.map(|_| ())
    }
}

#[tokio::test]
async fn code_is_run_again_and_its_events_are_not_stored_again() {
    let session = assert_resumable(|| {
        let around =
            workflow_code("around", Arc::new(WrappingAgent)).with_sub_agents(vec![counter("inner", &["x"], "inner!")]);
        workflow("all", AgentKind::Sequential, vec![around, counter("last", &[], "last!")])
    })
    .await;
    assert_eq!(session.events.len(), 1 + 1 + 1 + 3 + 1 + 1);
}

#[tokio::test]
async fn a_failed_model_call_is_tried_again() {
    let model = Arc::new(Scripted::sequence([
        Reply::call("one", json!({})),
        Reply::error(ModelErrorKind::Server, "out of order"),
        Reply::text("done"),
    ]));
    let runs = Arc::new(AtomicUsize::new(0));
    let app = Harness::new(llm_on("root", &model, |llm| llm.tools = vec![counts("one", &runs)])).await;
    app.expect_error("hi").await;
    let invocation = app.session().await.events[0].invocation_id.clone();
    let run = app.runner.run(app.app.clone(), RunRequest::resume(USER, SESSION, invocation)).await.unwrap();
    assert_eq!(briefs(&run.collect().await.unwrap()), ["root: done"]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn resuming_a_run_that_has_ended_does_nothing() {
    let app = Harness::new(counter("root", &["one"], "done")).await;
    let invocation = app.run("hi").await[0].invocation_id.clone();
    let run = app.runner.run(app.app.clone(), RunRequest::resume(USER, SESSION, invocation)).await.unwrap();
    assert!(run.collect().await.unwrap().is_empty());
    assert_eq!(app.session().await.events.len(), 4);
}

#[tokio::test]
async fn an_unknown_run_cannot_be_resumed() {
    let app = Harness::new(counter("root", &[], "done")).await;
    let error = app.runner.run(app.app.clone(), RunRequest::resume(USER, SESSION, "e-1")).await.unwrap_err();
    assert_eq!(error.to_string(), "Invocation not found: e-1; the session has no user message that began it");
}

#[tokio::test]
async fn a_run_is_resumed_by_function_responses_only() {
    let app = Harness::new(counter("root", &[], "done")).await;
    let invocation = app.run("hi").await[0].invocation_id.clone();
    let request = RunRequest { invocation_id: Some(invocation.clone()), ..app.request(Content::user("and now?")) };
    let error = app.runner.run(app.app.clone(), request).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "a message that resumes invocation `{invocation}` must contain function responses; omit the invocation's id to begin a new run"
        )
    );
}

#[tokio::test]
async fn a_response_to_a_run_that_did_not_wait_begins_a_new_one() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = Harness::new(orders(&runs, json!({"status": "pending"}), &["wait", "done"])).await;
    let first = app.run("hi").await;
    let message = tool_response(&call_id(&first), "order", json!({"status": "done"}));
    let request = RunRequest { invocation_id: Some(first[0].invocation_id.clone()), ..app.request(message) };
    let events = app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    assert_eq!(briefs(&events), ["orders: done"]);
    assert_ne!(events[0].invocation_id, first[0].invocation_id);
}

/// Returns a long-running tool, which counts its calls in `runs`.
pub fn later(runs: &Arc<AtomicUsize>, first: Value) -> Arc<dyn Tool> {
    let runs = runs.clone();
    long_running("order", move |_, _| {
        runs.fetch_add(1, Ordering::Relaxed);
        Ok(first.clone())
    })
}

fn orders(runs: &Arc<AtomicUsize>, first: Value, texts: &[&str]) -> hatchery_core::Agent {
    let texts = texts.iter().map(|text| Reply::text(*text));
    let model = Scripted::sequence(std::iter::once(Reply::call("order", json!({}))).chain(texts));
    llm_with("orders", model, |llm| llm.tools = vec![later(runs, first)])
}

fn call_id(events: &[Arc<Event>]) -> String {
    events[0].long_running_tool_ids[0].clone()
}

#[tokio::test]
async fn a_pending_result_is_sent_to_the_model_and_each_later_one_begins_a_run() {
    let runs = Arc::new(AtomicUsize::new(0));
    let root = orders(&runs, json!({"status": "pending"}), &["wait", "half", "done", "done again"]);
    let app = Harness::new(root).await;
    let events = app.run("hi").await;
    assert_eq!(briefs(&events)[1..], [r#"orders: answer order{"status":"pending"}"#, "orders: wait"]);
    for text in ["half", "done", "done again"] {
        let events = app.send(tool_response(&call_id(&events), "order", json!({"status": text}))).await;
        assert_eq!(briefs(&events), [format!("orders: {text}")]);
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn without_a_first_result_the_run_ends_at_the_call() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = Harness::new(orders(&runs, Value::Null, &["done"])).await;
    let events = app.run("hi").await;
    assert_eq!(briefs(&events), ["orders: call order{}"]);
}

#[tokio::test]
async fn a_resumable_run_pauses_and_continues_as_the_same_invocation() {
    let runs = Arc::new(AtomicUsize::new(0));
    let [a, c] = ["a", "c"].map(|name| counter(name, &[], "!"));
    let orders = orders(&runs, json!({"status": "pending"}), &["done"]);
    let mut app = Harness::new(workflow("all", AgentKind::Sequential, vec![a, orders, c])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(briefs(&first), ["a: !", "orders: call order{}", r#"orders: answer order{"status":"pending"}"#]);
    let events = app.send(tool_response(&call_id(&first[1..]), "order", json!({"status": "done"}))).await;
    assert_eq!(briefs(&events), ["orders: done", "c: !"]);
    assert!(events.iter().all(|event| event.invocation_id == first[0].invocation_id));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_paused_run_that_is_resumed_without_a_response_stays_paused() {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut app = Harness::new(orders(&runs, Value::Null, &["done"])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(
        first[1].long_running_tool_ids, first[0].long_running_tool_ids,
        "the event of a tool that has not responded"
    );
    let request = RunRequest::resume(USER, SESSION, first[0].invocation_id.clone());
    let run = app.runner.run(app.app.clone(), request).await.unwrap();
    assert!(run.collect().await.unwrap().is_empty());
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_loop_stops_at_a_call_whose_result_comes_later() {
    let runs = Arc::new(AtomicUsize::new(0));
    let model = Scripted::sequence([
        Reply::call("order", json!({})),
        Reply::text("got it"),
        Reply::call("order", json!({})),
        Reply::text("got it again"),
    ]);
    let orders = llm_with("orders", model, |llm| llm.tools = vec![later(&runs, Value::Null)]);
    let mut app = Harness::new(workflow("round", AgentKind::Loop { max_iterations: Some(2) }, vec![orders])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(briefs(&first), ["orders: call order{}", "orders: "]);
    let second = app.send(tool_response(&call_id(&first), "order", json!({}))).await;
    assert_eq!(briefs(&second), ["orders: got it", "orders: call order{}", "orders: "]);
    let third = app.send(tool_response(&second[1].long_running_tool_ids[0], "order", json!({}))).await;
    assert_eq!(briefs(&third), ["orders: got it again"]);
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_other_branches_of_a_paused_one_end_and_do_not_run_again() {
    let (runs, others) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let other =
        llm_with("other", calls_then_answers(&["one"], "other!"), |llm| llm.tools = vec![counts("one", &others)]);
    let both = workflow("both", AgentKind::Parallel, vec![orders(&runs, Value::Null, &["done"]), other]);
    let mut app = Harness::new(workflow("all", AgentKind::Sequential, vec![both, counter("after", &[], "!")])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(first.len(), 5);
    let call = first.iter().find(|event| event.author == "orders").unwrap();
    let second = app.send(tool_response(&call.long_running_tool_ids[0], "order", json!({}))).await;
    assert_eq!(briefs(&second), ["orders: done", "after: !"]);
    assert_eq!((runs.load(Ordering::Relaxed), others.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test]
async fn code_around_a_paused_agent_pauses_with_it() {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut inner = orders(&runs, Value::Null, &["done"]);
    inner.name = "inner".into();
    let mut app = Harness::new(workflow_code("around", Arc::new(WrappingAgent)).with_sub_agents(vec![inner])).await;
    app.resumable();
    let first = app.run("hi").await;
    assert_eq!(briefs(&first), ["around: before", "around: ", "inner: call order{}", "inner: "]);
    let second = app.send(tool_response(&first[2].long_running_tool_ids[0], "order", json!({}))).await;
    assert_eq!(briefs(&second), ["inner: done", "around: after"]);
}

#[tokio::test]
async fn a_response_to_no_call_is_rejected() {
    let mut app = Harness::new(counter("root", &[], "what?")).await;
    app.resumable();
    let unknown = app.request(tool_response("adk-unknown", "order", json!({})));
    let error = app.runner.run(app.app.clone(), unknown).await.unwrap_err();
    assert_eq!(error.code(), "INVALID_MESSAGE");
    assert!(app.session().await.events.is_empty());
}

#[tokio::test]
async fn a_paused_run_survives_a_restart() {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut app = Harness::new(orders(&runs, Value::Null, &["done"])).await;
    app.resumable();
    let first = app.run("hi").await;
    app.runner = Runner::new(app.runner.services().clone());
    let second = app.send(tool_response(&call_id(&first), "order", json!({}))).await;
    assert_eq!(briefs(&second), ["orders: done"]);
    assert_eq!(second[0].invocation_id, first[0].invocation_id);
}

fn with_id(id: &str, text: &str) -> RunRequest {
    RunRequest { run_id: Some(id.into()), ..RunRequest::new(USER, SESSION, Content::user(text)) }
}

#[tokio::test]
async fn a_repeated_request_with_a_run_id_attaches_to_the_run() {
    let runs = Arc::new(AtomicUsize::new(0));
    let root = llm_with("root", calls_then_answers(&["one"], "done"), |llm| llm.tools = vec![counts("one", &runs)]);
    let app = Harness::new(root).await;
    let first = app.runner.run(app.app.clone(), with_id("my/run", "hi")).await.unwrap();
    // The same while it is in progress, and after it has ended.
    let second = app.runner.run(app.app.clone(), with_id("my/run", "hi")).await.unwrap();
    let first = first.collect().await.unwrap();
    assert!(first.iter().all(|event| event.invocation_id == "my/run"));
    assert_eq!(briefs(&second.collect().await.unwrap()), briefs(&first));
    let third = app.runner.run(app.app.clone(), with_id("my/run", "something else")).await.unwrap();
    assert_eq!(briefs(&third.collect().await.unwrap()), briefs(&first));
    assert_eq!((app.session().await.events.len(), runs.load(Ordering::Relaxed)), (4, 1));
    let other = app.runner.run(app.app.clone(), with_id("another", "hi")).await.unwrap();
    other.collect().await.unwrap();
    assert_eq!(app.session().await.events.len(), 8);
}

#[tokio::test]
async fn a_repeated_request_continues_an_interrupted_run() {
    let app = Arc::new(App::new("app", counter("root", &["one", "two"], "done")).unwrap());
    let services = services();
    services.sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    let crashing = CrashingSessions::new(services.sessions.clone(), 3);
    let first = Runner::new(hatchery_core::Services { sessions: Arc::new(crashing), ..services.clone() });
    assert!(first.run(app.clone(), with_id("r1", "hi")).await.unwrap().collect().await.is_err());
    first.drain().await;
    let second = Runner::new(services).run(app, with_id("r1", "hi")).await.unwrap().collect().await.unwrap();
    assert_eq!(
        briefs(&second),
        [
            "root: call one{}",
            r#"root: answer one{"result":1}"#,
            "root: call two{}",
            r#"root: answer two{"result":2}"#,
            "root: done"
        ]
    );
}

#[tokio::test]
async fn a_repeated_request_returns_the_failure_of_its_run() {
    let model = Scripted::sequence([Reply::error(ModelErrorKind::Server, "no"), Reply::text("not now")]);
    let app = Harness::new(llm("root", model)).await;
    for _ in 0..2 {
        let mut run = app.runner.run(app.app.clone(), with_id("r1", "hi")).await.unwrap();
        let event = run.next().await.unwrap().unwrap();
        assert!(brief(&event).starts_with("root: error MODEL_SERVER_ERROR"), "{}", brief(&event));
        assert_eq!(run.next().await.unwrap().unwrap_err().code(), "MODEL_SERVER_ERROR");
    }
    assert_eq!(app.session().await.events.len(), 2);
}

#[tokio::test]
async fn an_id_of_a_run_has_a_form() {
    let app = Harness::new(counter("root", &[], "done")).await;
    for id in ["", " ", "a\nb", &"x".repeat(257)] {
        let error = app.runner.run(app.app.clone(), with_id(id, "hi")).await.unwrap_err();
        assert_eq!(error.to_string(), "the id of a run has 1 to 256 bytes and no control characters");
    }
    let both = RunRequest { invocation_id: Some("e-1".into()), ..with_id("r1", "hi") };
    let error = app.runner.run(app.app.clone(), both).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the request has an id for a new run and an invocation to resume; leave one of them out"
    );
    let forged = EventData { invocation_id: "r1".into(), author: "user".into(), ..EventData::default() };
    let key = SessionKey::new("app", USER, SESSION);
    app.runner.services().sessions.append(&key, &Event::new(forged)).await.unwrap();
    let error = app.runner.run(app.app.clone(), with_id("r1", "hi")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the session has events of a run `r1` that this host did not record; use another id for a new run"
    );
}
