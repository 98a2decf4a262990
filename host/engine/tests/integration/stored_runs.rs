//! Stored runs: their states, repeated requests after a restart, following, cancelling, and runs in the background.

mod background;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::{
    Agent, CallContext, Content, Event, FunctionDeclaration, JsonMap, ModelErrorKind, RunError, RunService, RunState,
    Services, SessionKey, StoredRun, Tool, ToolError,
};
use hatchery_engine::{App, AppSettings, RunRequest, RunUpdate, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::{AppQuotas, Quota, Quotas};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

use crate::support::*;

/// A tool that holds its run until the test opens it.
struct HeldTool {
    declaration: Arc<FunctionDeclaration>,
    entered: Notify,
    opened: Semaphore,
    calls: AtomicUsize,
}

impl HeldTool {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            declaration: declaration("held"),
            entered: Notify::new(),
            opened: Semaphore::new(0),
            calls: AtomicUsize::new(0),
        })
    }
}

#[async_trait]
impl Tool for HeldTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn call(&self, _: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.entered.notify_one();
        self.opened.acquire().await.unwrap().forget();
        Ok(json!("let go"))
    }
}

/// An app whose model calls the tool, and then says `done`.
async fn held_app() -> (Harness, Arc<HeldTool>) {
    let tool = HeldTool::new();
    let model = Scripted::new().on_tool("held", "done").default_reply(Reply::call("held", json!({})));
    let held = tool.clone();
    (Harness::new(llm_with("root", model, |llm| llm.tools = vec![held])).await, tool)
}

fn key() -> SessionKey {
    SessionKey::new("app", USER, SESSION)
}

fn runs(app: &Harness) -> &dyn RunService {
    app.runner.services().sessions.runs().unwrap()
}

async fn stored(app: &Harness, id: &str) -> StoredRun {
    runs(app).get(&key(), id).await.unwrap().unwrap()
}

fn with_id(id: &str) -> RunRequest {
    RunRequest { run_id: Some(id.into()), ..RunRequest::new(USER, SESSION, Content::user("hi")) }
}

/// Runs a request to the end.
async fn collect(app: &Harness, request: RunRequest) -> Result<Vec<Arc<Event>>, RunError> {
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await
}

/// Follows a run to the end.
async fn follow(app: &Harness, id: &str, after: u64) -> (Vec<String>, Vec<u64>, StoredRun) {
    let mut updates = app.runner.follow(&key(), id, after).await.unwrap().unwrap();
    let (mut events, mut revisions) = (Vec::new(), Vec::new());
    while let Some(update) = updates.next().await {
        match update.unwrap() {
            RunUpdate::Event { revision, event } => {
                events.push(brief(&event));
                revisions.extend(revision);
            }
            RunUpdate::End(run) => {
                assert!(updates.next().await.is_none());
                return (events, revisions, *run);
            }
        }
    }
    panic!("the run has no end: {events:?}");
}

/// Replaces the runner, as a restart of the host does. The stores are kept.
async fn restart(app: &mut Harness) {
    app.runner.drain().await;
    app.runner = Runner::new(app.runner.services().clone());
}

#[tokio::test]
async fn a_run_is_stored_with_its_state() {
    let (app, tool) = held_app().await;
    let mut run = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    assert_eq!(run.id(), Some("r1"));
    tool.entered.notified().await;
    let running = stored(&app, "r1").await;
    assert_eq!((running.state, running.attempts, running.first_revision), (RunState::Running, 1, 0));
    tool.opened.add_permits(1);
    while run.next().await.is_some() {}
    assert_eq!(stored(&app, "r1").await.state, RunState::Done);
    let second = app.start("again").await;
    let id = second.id().unwrap().to_owned();
    tool.opened.add_permits(1);
    assert!(second.collect().await.unwrap().iter().all(|event| event.invocation_id == id));
    let listed = runs(&app).list(&key(), None, 10).await.unwrap().runs;
    assert_eq!(listed.iter().map(|run| &*run.id).collect::<Vec<_>>(), [&*id, "r1"]);
    assert_eq!(listed[0].first_revision, 4);
}

#[tokio::test]
async fn a_failed_run_is_stored_with_its_error_and_may_be_tried_again() {
    let model = Scripted::sequence([Reply::error(ModelErrorKind::Server, "no"), Reply::text("now")]);
    let mut app = Harness::new(llm("root", model)).await;
    assert_eq!(collect(&app, with_id("r1")).await.unwrap_err().code(), "MODEL_SERVER_ERROR");
    restart(&mut app).await;
    let failed = stored(&app, "r1").await;
    let failure = failed.failure.unwrap();
    assert_eq!((failed.state, &*failure.code), (RunState::Failed, "MODEL_SERVER_ERROR"));
    assert_eq!(collect(&app, with_id("r1")).await.unwrap_err().to_string(), failure.message);
    let events = collect(&app, RunRequest::resume(USER, SESSION, "r1")).await.unwrap();
    assert_eq!(briefs(&events), ["root: now"]);
    let run = stored(&app, "r1").await;
    assert_eq!((run.state, run.attempts, run.failure), (RunState::Done, 2, None));
}

#[tokio::test]
async fn a_run_whose_failure_fits_into_no_quota_has_failed() {
    let mut app = Harness::new(llm("root", Scripted::new().default_reply("hello"))).await;
    // The message of the user is the only event.
    let quotas = AppQuotas::from(Quotas::default().with(Quota::SessionEvents, 1));
    app.runner = Runner::new(quotas.enforce(app.runner.services().clone()));
    assert_eq!(collect(&app, with_id("r1")).await.unwrap_err().code(), "QUOTA_EXCEEDED");
    let (events, _, run) = follow(&app, "r1", 0).await;
    assert_eq!((events, run.state, run.failure.unwrap().code), (Vec::new(), RunState::Failed, "QUOTA_EXCEEDED".into()));
}

#[tokio::test]
async fn a_repeated_request_after_a_restart_is_answered_from_the_store() {
    let (mut app, tool) = held_app().await;
    tool.opened.add_permits(1);
    let first = collect(&app, with_id("r1")).await.unwrap();
    restart(&mut app).await;
    assert_eq!(briefs(&collect(&app, with_id("r1")).await.unwrap()), briefs(&first));
    assert_eq!((tool.calls.load(Ordering::SeqCst), app.session().await.events.len()), (1, 4));
    assert_eq!(stored(&app, "r1").await.attempts, 1, "it did not even start");
}

#[tokio::test]
async fn a_repeated_request_gets_the_events_of_a_running_run_as_they_come() {
    let (app, tool) = held_app().await;
    let mut first = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    let mut second = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    let call = second.next().await.unwrap().unwrap();
    assert_eq!(brief(&call), "root: call held{}", "it does not wait for the end");
    tool.opened.add_permits(1);
    let rest = second.collect().await.unwrap();
    assert_eq!(briefs(&rest), [r#"root: answer held{"result":"let go"}"#, "root: done"]);
    while first.next().await.is_some() {}
    assert_eq!((stored(&app, "r1").await.attempts, tool.calls.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn a_repeated_request_whose_client_is_gone_leaves_no_task() {
    let (app, tool) = held_app().await;
    let run = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..3 {
        let mut repeated = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
        repeated.next().await.unwrap().unwrap();
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tasks(), before);
    tool.opened.add_permits(1);
    run.collect().await.unwrap();
}

#[tokio::test]
async fn a_follower_misses_nothing_and_gets_nothing_twice() {
    let (app, tool) = held_app().await;
    let sessions = app.runner.services().sessions.clone();
    let run = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    // A change of state that is not part of the run has its own revision.
    let patch = hatchery_core::EventData { author: "user".into(), invocation_id: "p".into(), ..Default::default() };
    sessions.append(&key(), &Event::new(patch)).await.unwrap();
    let open = async {
        tokio::task::yield_now().await;
        tool.opened.add_permits(1);
    };
    let (all, late, ()) = tokio::join!(follow(&app, "r1", 0), follow(&app, "r1", 2), open);
    run.collect().await.unwrap();
    let expected = ["root: call held{}", r#"root: answer held{"result":"let go"}"#, "root: done"];
    assert_eq!((all.0.as_slice(), all.1.as_slice()), (expected.map(String::from).as_slice(), [2, 4, 5].as_slice()));
    assert_eq!((&late.0[..], &late.1[..]), (&all.0[1..], &all.1[1..]));
    assert_eq!(all.2.state, RunState::Done);
    for after in 0..=5 {
        let (_, revisions, _) = follow(&app, "r1", after).await;
        assert_eq!(revisions, [2, 4, 5].into_iter().filter(|revision| *revision > after).collect::<Vec<_>>());
    }
    assert!(app.runner.follow(&key(), "unknown", 0).await.unwrap().is_none());
}

#[tokio::test]
async fn a_follower_gets_the_chunks_of_a_streamed_answer() {
    let answer = Reply::chunks(["Hel", "lo ", "there"]);
    let model = Scripted::new().on_tool("held", answer).default_reply(Reply::call("held", json!({})));
    let tool = HeldTool::new();
    let held = tool.clone();
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![held])).await.streaming();
    let request = RunRequest { config: app.config.clone(), ..with_id("r1") };
    let run = app.runner.run(app.app.clone(), request).await.unwrap();
    tool.entered.notified().await;
    let mut updates = app.runner.follow(&key(), "r1", 0).await.unwrap().unwrap();
    let first = updates.next().await.unwrap().unwrap();
    assert!(matches!(first, RunUpdate::Event { revision: Some(2), .. }), "{first:?}");
    tool.opened.add_permits(1);
    let rest: Vec<_> = updates.map(|update| update.unwrap()).collect().await;
    let partial = |update: &&RunUpdate| matches!(update, RunUpdate::Event { revision: None, event } if event.partial);
    assert!(rest.iter().filter(partial).count() > 1, "{rest:?}");
    run.collect().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_run_stays_cancelled() {
    let (mut app, tool) = held_app().await;
    let run = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    let cancelled = app.runner.cancel_run(&key(), "r1").await.unwrap().unwrap();
    assert_eq!(cancelled.state, RunState::Cancelled);
    assert!(matches!(run.collect().await, Err(RunError::Cancelled)));
    restart(&mut app).await;
    assert!(matches!(collect(&app, with_id("r1")).await, Err(RunError::Cancelled)));
    let error = collect(&app, RunRequest::resume(USER, SESSION, "r1")).await.unwrap_err();
    assert_eq!(error.to_string(), "run `r1` was cancelled; send the message again as a new one");
    assert_eq!(tool.calls.load(Ordering::SeqCst), 1);
    assert_eq!(app.runner.cancel_run(&key(), "r1").await.unwrap().unwrap(), stored(&app, "r1").await);
    assert_eq!(app.runner.cancel_run(&key(), "unknown").await.unwrap(), None);
}

#[tokio::test]
async fn a_run_whose_caller_cancels_it_is_cancelled_for_good() {
    let (app, tool) = held_app().await;
    let request = with_id("r1");
    let cancel = request.cancel.clone();
    let run = app.runner.run(app.app.clone(), request).await.unwrap();
    tool.entered.notified().await;
    cancel.cancel();
    assert!(matches!(run.collect().await, Err(RunError::Cancelled)));
    assert_eq!(stored(&app, "r1").await.state, RunState::Cancelled);
}

#[tokio::test]
async fn a_run_that_is_cancelled_in_the_queue_never_begins() {
    let (app, tool) = held_app().await;
    let first = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    let second = app.runner.run(app.app.clone(), with_id("r2")).await.unwrap();
    assert_eq!(stored(&app, "r2").await.state, RunState::Accepted);
    assert_eq!(app.runner.cancel_run(&key(), "r2").await.unwrap().unwrap().state, RunState::Cancelled);
    assert!(matches!(second.collect().await, Err(RunError::Cancelled)));
    tool.opened.add_permits(1);
    first.collect().await.unwrap();
    assert_eq!(app.session().await.events.len(), 4, "nothing of it is in the session");
}

#[tokio::test]
async fn a_run_whose_caller_cancels_it_in_the_queue_is_cancelled_for_good() {
    let (app, tool) = held_app().await;
    let first = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    let request = with_id("r2");
    let cancel = request.cancel.clone();
    let second = app.runner.run(app.app.clone(), request).await.unwrap();
    cancel.cancel();
    assert!(matches!(second.collect().await, Err(RunError::Cancelled)));
    assert_eq!(stored(&app, "r2").await.state, RunState::Cancelled);
    assert_eq!(follow(&app, "r2", 0).await.2.state, RunState::Cancelled);
    tool.opened.add_permits(1);
    first.collect().await.unwrap();
}

#[tokio::test]
async fn a_run_that_a_stopped_host_has_in_its_queue_stays_accepted() {
    let (app, tool) = held_app().await;
    let first = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    let second = app.runner.run(app.app.clone(), with_id("r2")).await.unwrap();
    app.runner.stop_runs();
    assert!(matches!(first.collect().await, Err(RunError::Cancelled)));
    assert!(matches!(second.collect().await, Err(RunError::Cancelled)));
    assert_eq!(stored(&app, "r2").await.state, RunState::Accepted, "nobody has cancelled it");
}

#[tokio::test]
async fn another_host_can_cancel_a_run() {
    let (app, tool) = held_app().await;
    let run = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    let other = Runner::new(app.runner.services().clone());
    let cancelled = other.cancel_run(&key(), "r1").await.unwrap().unwrap();
    assert_eq!(cancelled.state, RunState::Cancelled);
    assert!(matches!(run.collect().await, Err(RunError::Cancelled)));
}

#[tokio::test]
async fn a_run_of_a_stopped_host_continues_where_it_was() {
    let (mut app, tool) = held_app().await;
    let run = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    app.runner.stop_runs();
    assert!(matches!(run.collect().await, Err(RunError::Cancelled)));
    assert_eq!(stored(&app, "r1").await.state, RunState::Running, "nobody has cancelled it");
    restart(&mut app).await;
    tool.opened.add_permits(1);
    let events = collect(&app, with_id("r1")).await.unwrap();
    assert_eq!(brief(events.last().unwrap()), "root: done");
    let run = stored(&app, "r1").await;
    assert_eq!((run.state, run.attempts), (RunState::Done, 2));
}

#[tokio::test]
async fn the_run_of_a_dead_host_can_be_cancelled() {
    let (mut app, tool) = held_app().await;
    let run = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    app.runner.stop_runs();
    assert!(run.collect().await.is_err());
    restart(&mut app).await;
    let cancelled = app.runner.cancel_run(&key(), "r1").await.unwrap().unwrap();
    assert_eq!(cancelled.state, RunState::Cancelled);
}

#[tokio::test]
async fn a_run_is_interrupted_if_no_host_has_it_in_progress() {
    let (mut app, tool) = held_app().await;
    let run = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    let running = [stored(&app, "r1").await];
    let other_host = Runner::new(app.runner.services().clone());
    for host in [&app.runner, &other_host] {
        assert!(host.find_interrupted(&key(), &running).await.unwrap().is_empty());
    }
    app.runner.stop_runs();
    assert!(run.collect().await.is_err());
    restart(&mut app).await;
    for host in [&app.runner, &other_host] {
        let interrupted = host.find_interrupted(&key(), &running).await.unwrap();
        assert!(interrupted.into_iter().eq(["r1"]));
    }
    tool.opened.add_permits(1);
    collect(&app, with_id("r1")).await.unwrap();
    // Its state was read before it was continued.
    assert!(app.runner.find_interrupted(&key(), &running).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_run_that_a_dead_host_had_in_its_queue_is_interrupted_unless_any_host_begins_it() {
    let (mut app, tool) = held_app().await;
    let first = app.runner.run(app.app.clone(), with_id("r1")).await.unwrap();
    tool.entered.notified().await;
    let second = app.runner.run(app.app.clone(), with_id("r2")).await.unwrap();
    runs(&app).add(&StoredRun { is_background: true, ..StoredRun::new(key(), "r3", 0) }).await.unwrap();
    let queued = [stored(&app, "r2").await, stored(&app, "r3").await];
    assert!(queued.iter().all(|run| run.state == RunState::Accepted));
    let other_host = Runner::new(app.runner.services().clone());
    for host in [&app.runner, &other_host] {
        let interrupted = host.find_interrupted(&key(), &queued).await.unwrap();
        assert!(interrupted.is_empty(), "the host of the turn may have it in its queue");
    }
    app.runner.stop_runs();
    assert!(first.collect().await.is_err() && second.collect().await.is_err());
    restart(&mut app).await;
    for host in [&app.runner, &other_host] {
        // The request of the run in the background is stored.
        assert!(host.find_interrupted(&key(), &queued).await.unwrap().into_iter().eq(["r2"]));
    }
    tool.opened.add_permits(1);
    let events = collect(&app, with_id("r2")).await.unwrap();
    assert_eq!(brief(events.last().unwrap()), "root: done");
    assert_eq!(stored(&app, "r2").await.state, RunState::Done);
    assert!(app.runner.find_interrupted(&key(), &queued).await.unwrap().is_empty());
}

/// An app that pauses until an order arrives.
fn order_app(calls: &Arc<AtomicUsize>) -> Agent {
    let calls = calls.clone();
    let order = long_running("order", move |_, _| {
        calls.fetch_add(1, Ordering::SeqCst);
        Ok(Value::Null)
    });
    let model = Scripted::new().on_tool("order", "arrived").default_reply(Reply::call("order", json!({})));
    llm_with("root", model, |llm| llm.tools = vec![order])
}

#[tokio::test]
async fn a_run_that_waits_for_an_answer_can_be_answered_or_cancelled() {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut app = Harness::new(order_app(&calls)).await;
    app.resumable();
    let events = collect(&app, with_id("r1")).await.unwrap();
    let waiting = stored(&app, "r1").await;
    assert_eq!((waiting.state, waiting.attempts), (RunState::Waiting, 1));
    assert_eq!(briefs(&collect(&app, with_id("r1")).await.unwrap()), briefs(&events), "a repeated request waits too");
    assert_eq!(follow(&app, "r1", 0).await.2.state, RunState::Waiting);
    restart(&mut app).await;
    let call = events[0].function_calls().next().unwrap().id.clone().unwrap();
    let answered = app.send(tool_response(&call, "order", json!({"ok": true}))).await;
    assert_eq!(briefs(&answered), ["root: arrived"]);
    assert_eq!(stored(&app, "r1").await.state, RunState::Done);

    let events = collect(&app, with_id("r2")).await.unwrap();
    assert_eq!(app.runner.cancel_run(&key(), "r2").await.unwrap().unwrap().state, RunState::Cancelled);
    let call = events[0].function_calls().next().unwrap().id.clone().unwrap();
    let answer = app.request(tool_response(&call, "order", json!({"ok": true})));
    let error = collect(&app, answer).await.unwrap_err();
    assert_eq!(error.to_string(), "run `r2` was cancelled; send the message again as a new one");
}

#[tokio::test]
async fn a_service_without_runs_still_runs_agents() {
    let services = services();
    services.sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    let sessions = Arc::new(CrashingSessions::new(services.sessions.clone(), 100));
    let runner = Runner::new(Services { sessions, ..services });
    let settings = AppSettings { resumable: true, ..AppSettings::default() };
    let app =
        Arc::new(App::new("app", llm("root", Scripted::new().default_reply("hello"))).unwrap().with_settings(settings));
    for _ in 0..2 {
        let events = runner.run(app.clone(), with_id("r1")).await.unwrap().collect().await.unwrap();
        assert_eq!(briefs(&events), ["root: hello"]);
    }
    let refusal = "the session service of this host stores no runs";
    for error in [
        runner.cancel_run(&key(), "r1").await.unwrap_err(),
        runner.follow(&key(), "r1", 0).await.map(|_| ()).unwrap_err(),
        runner.run_in_background(app, with_id("r2")).await.unwrap_err(),
    ] {
        assert_eq!(error.to_string(), refusal);
    }
}
