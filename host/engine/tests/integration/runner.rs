//! The runner: sessions, turns, cancellation, and the cost of a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, Content, CustomAgent, CustomAgentSpec, Event, EventData, JsonMap, RunError,
    Services, Session, SessionKey, SessionService, StoreError, WrapperSessionService,
};
use hatchery_engine::{RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::MemorySessions;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::*;

#[tokio::test]
async fn an_unknown_session_is_an_error_unless_it_is_to_be_created() {
    let app = Harness::new(llm("root", Scripted::new().default_reply("ok"))).await;
    let mut request = RunRequest::new(USER, "unknown", Content::user("hi"));
    let error = app.runner.run(app.app.clone(), request.clone()).await.unwrap_err();
    assert_eq!(error.to_string(), "Session not found: appName=app, userId=ada, sessionId=unknown");
    assert_eq!(error.code(), "SESSION_NOT_FOUND");
    request.config.auto_create_session = true;
    let events = app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    assert_eq!(brief(&events[0]), "root: ok");
}

#[tokio::test]
async fn a_message_without_parts_is_rejected() {
    let app = Harness::new(llm("root", Scripted::new())).await;
    let error = app.runner.run(app.app.clone(), app.request(Content::default())).await.unwrap_err();
    assert_eq!(error.code(), "INVALID_MESSAGE");
    assert_eq!(error.to_string(), "newMessage has no parts; send at least one, such as {\"text\": \"hello\"}");
    assert!(app.session().await.events.is_empty());
}

#[tokio::test]
async fn a_state_delta_is_stored_with_the_message() {
    let app = Harness::new(llm("root", Scripted::new().default_reply("ok"))).await;
    let request = RunRequest { state_delta: map(json!({"a": 1, "temp:b": 2})), ..app.request(Content::user("hi")) };
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    let session = app.session().await;
    assert_eq!(session.events[0].actions.state_delta, map(json!({"a": 1})));
    assert_eq!(app.state().await, json!({"a": 1}));
}

#[tokio::test]
async fn yielded_events_are_the_stored_ones() {
    let model = Scripted::sequence([Reply::call("t", json!({})), Reply::chunks(["a", "b"])]);
    let agent = llm_with("root", model, |llm| llm.tools = vec![tool("t", |_, _| Ok(json!(1)))]);
    let app = Harness::new(agent).await.streaming();
    let yielded: Vec<_> = app.run("hi").await.into_iter().filter(|event| !event.partial).collect();
    let stored: Vec<_> = app.session().await.events.iter().skip(1).cloned().collect();
    assert_eq!(yielded.len(), 3);
    for (yielded, stored) in yielded.iter().zip(&stored) {
        assert!(Arc::ptr_eq(yielded, stored), "the same object");
    }
}

/// Signals when it runs, waits for a permit to leave, and counts how many run at the same time.
struct GatedAgent {
    entered: Arc<Semaphore>,
    leave: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[async_trait]
impl CustomAgent for GatedAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.entered.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
        self.running.fetch_sub(1, Ordering::SeqCst);
        cx.say(cx.call.invocation.user_content().text()).await.map(|_| ())
    }
}

fn gate() -> (Agent, Arc<Semaphore>, Arc<Semaphore>, Arc<AtomicUsize>) {
    let (entered, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let most = Arc::new(AtomicUsize::new(0));
    let code = Arc::new(GatedAgent {
        entered: entered.clone(),
        leave: leave.clone(),
        running: Arc::default(),
        most: most.clone(),
    });
    let agent = Agent::new("root", "", AgentKind::Custom(CustomAgentSpec { code, model: None, tools: vec![] }));
    (agent, entered, leave, most)
}

#[tokio::test]
async fn turns_of_a_session_follow_each_other_in_order() {
    let (agent, entered, leave, most) = gate();
    let app = Harness::new(agent).await;
    let mut runs = Vec::new();
    for text in ["1", "2", "3"] {
        runs.push(app.start(text).await);
    }
    entered.acquire().await.unwrap().forget();
    leave.add_permits(3);
    for run in runs {
        run.collect().await.unwrap();
    }
    let transcript: Vec<_> = app.session().await.events.iter().map(|event| brief(event)).collect();
    assert_eq!(transcript, ["user: 1", "root: 1", "user: 2", "root: 2", "user: 3", "root: 3"]);
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn sessions_do_not_wait_for_each_other() {
    let (agent, entered, leave, most) = gate();
    let app = Harness::new(agent).await;
    app.runner.services().sessions.create("app", USER, Some("s2"), map(json!({}))).await.unwrap();
    let first = app.start("1").await;
    let second = app.runner.run(app.app.clone(), RunRequest::new(USER, "s2", Content::user("2"))).await.unwrap();
    entered.acquire_many(2).await.unwrap().forget();
    leave.add_permits(2);
    first.collect().await.unwrap();
    second.collect().await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_failed_turn_does_not_hold_up_the_next() {
    let app = Harness::new(llm("root", Scripted::sequence([Reply::status(500, "down"), Reply::text("up")]))).await;
    app.expect_error("hi").await;
    assert_eq!(app.transcript("hi").await, ["root: up"]);
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_stop_the_run() {
    let (agent, entered, leave, _) = gate();
    let app = Harness::new(agent).await;
    drop(app.start("hi").await);
    entered.acquire().await.unwrap().forget();
    assert_eq!(app.runner.active_runs(), 1);
    leave.add_permits(1);
    app.runner.drain().await;
    assert_eq!(app.session().await.events.len(), 2);
}

#[tokio::test]
async fn a_cancelled_run_ends_with_an_event_that_reports_it() {
    let (agent, entered, _leave, _) = gate();
    let app = Harness::new(agent).await;
    let request = app.request(Content::user("hi"));
    let cancel = request.cancel.clone();
    let mut run = app.runner.run(app.app.clone(), request).await.unwrap();
    entered.acquire().await.unwrap().forget();
    cancel.cancel();
    let event = run.next().await.unwrap().unwrap();
    assert_eq!(event.error_code.as_deref(), Some("CANCELLED"));
    assert!(matches!(run.next().await, Some(Err(RunError::Cancelled))));
    assert!(run.next().await.is_none());
}

#[tokio::test]
async fn cancelling_ends_a_model_call_that_never_answers() {
    let never = Reply::text("x").delay(Duration::MAX);
    let app = Harness::new(llm("root", Scripted::new().default_reply(never))).await;
    let request = app.request(Content::user("hi"));
    let cancel = request.cancel.clone();
    let run = app.runner.run(app.app.clone(), request).await.unwrap();
    cancel.cancel();
    assert!(matches!(run.collect().await, Ok(_) | Err(RunError::Cancelled)));
    app.runner.drain().await;
}

#[tokio::test]
async fn a_session_deleted_between_turns_is_not_restored() {
    let app = Harness::new(llm("root", Scripted::new().default_reply("ok"))).await;
    app.run("hi").await;
    let key = SessionKey::new("app", USER, SESSION);
    app.runner.services().sessions.delete(&key).await.unwrap();
    let error = app.runner.run(app.app.clone(), app.request(Content::user("hi"))).await.unwrap_err();
    assert!(matches!(error, RunError::Store(StoreError::SessionNotFound(_))));
    app.runner.services().sessions.create("app", USER, Some(SESSION), map(json!({"fresh": true}))).await.unwrap();
    app.run("hello").await;
    assert_eq!(app.session().await.events.len(), 2);
    assert_eq!(app.state().await, json!({"fresh": true}));
}

#[tokio::test]
async fn events_appended_by_others_between_turns_are_seen() {
    let model = Arc::new(Scripted::sequence(["one", "two"]));
    let app = Harness::new(llm_on("root", &model, |_| {})).await;
    app.run("a").await;
    let content = Some(Arc::new(Content::user("from elsewhere")));
    let event = Event::new(EventData { author: "user".into(), content, ..EventData::default() });
    let key = SessionKey::new("app", USER, SESSION);
    app.runner.services().sessions.append(&key, &event).await.unwrap();
    app.run("b").await;
    let texts: Vec<_> = model.requests()[1].contents.iter().map(|content| content.text()).collect();
    assert_eq!(texts, ["a", "one", "from elsewhere", "b"]);
}

/// Events cannot be cloned (`Event` is not `Clone`); this shows that a turn writes JSON only for its own.
#[tokio::test]
async fn a_turn_at_history_800_serializes_only_its_own_events() {
    let agent = llm("root", Scripted::new().default_reply("ok"));
    let app = Harness::new(agent).await;
    for _ in 0..400 {
        app.run("hi").await;
    }
    let old: Vec<_> = app.session().await.events.iter().cloned().collect();
    assert_eq!(old.len(), 800);
    // The JSON of agents' events was made when they were counted; the JSON of the user's events was not.
    let is_made: Vec<bool> = old.iter().map(|event| event.has_json()).collect();
    assert_eq!(is_made.iter().filter(|is_made| !**is_made).count(), 400);
    let new = app.run("hi").await;
    let now = app.session().await.events;
    assert!(old.iter().zip(now.iter()).all(|(old, now)| Arc::ptr_eq(old, now)), "old events are the same objects");
    let json: Vec<_> = new.iter().map(|event| event.json().as_ptr()).collect();
    let again: Vec<_> = new.iter().map(|event| event.json().as_ptr()).collect();
    assert_eq!(json, again, "an event's JSON is made once");
    assert!(old.iter().map(|event| event.has_json()).eq(is_made), "no old event has been serialized");
}

/// A session service whose disk is full.
struct FullSessions(MemorySessions);

#[async_trait]
impl WrapperSessionService for FullSessions {
    fn inner(&self) -> &dyn SessionService {
        &self.0
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        if event.error_code.is_none() && event.author != "user" {
            return Err(StoreError::backend("/var/secret/path.db", "disk full"));
        }
        self.0.append_with(key, event, fence).await
    }
}

#[tokio::test]
async fn a_failing_store_ends_the_run_and_its_message_does_not_reach_the_client() {
    let mut app = Harness::new(llm("root", Scripted::new().default_reply("ok"))).await;
    let sessions = Arc::new(FullSessions(MemorySessions::new()));
    app.runner = Runner::new(Services { sessions, ..services() });
    app.runner.services().sessions.create("app", USER, Some(SESSION), map(json!({}))).await.unwrap();
    let (events, error) = app.expect_error("hi").await;
    assert_eq!(error.code(), "STORE_FAILED");
    assert_eq!(events, ["root: error STORE_FAILED: the storage failed; the server's log holds the cause"]);
}

/// A session service that creates its first session when `leave` has a permit.
struct SlowSessions {
    inner: MemorySessions,
    entered: Semaphore,
    leave: Semaphore,
    creations: AtomicUsize,
}

#[async_trait]
impl WrapperSessionService for SlowSessions {
    fn inner(&self) -> &dyn SessionService {
        &self.inner
    }

    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        if self.creations.fetch_add(1, Ordering::SeqCst) == 0 {
            self.entered.add_permits(1);
            self.leave.acquire().await.unwrap().forget();
        }
        self.inner.create(app, user, id, state).await
    }
}

#[tokio::test]
async fn a_second_message_to_a_session_that_is_being_created_follows_the_first() {
    let mut app = Harness::new(llm("root", Scripted::new().default_reply("ok"))).await;
    let (entered, leave) = (Semaphore::new(0), Semaphore::new(0));
    let sessions =
        Arc::new(SlowSessions { inner: MemorySessions::new(), entered, leave, creations: AtomicUsize::new(0) });
    app.runner = Runner::new(Services { sessions: sessions.clone(), ..services() });
    app.config.auto_create_session = true;
    let second = async {
        sessions.entered.acquire().await.unwrap().forget();
        let run = app.start("2").await;
        sessions.leave.add_permits(1);
        run
    };
    let (first, second) = tokio::join!(app.start("1"), second);
    for run in [first, second] {
        run.collect().await.unwrap();
    }
    assert_eq!(app.session_transcript().await, ["user: 1", "root: ok", "user: 2", "root: ok"]);
}

/// Emits `count` events, in sequence.
struct EmittingAgent(usize);

#[async_trait]
impl CustomAgent for EmittingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        for number in 0..self.0 {
            cx.say(number.to_string()).await?;
        }
        Ok(())
    }
}

fn emits(count: usize) -> Agent {
    let code = Arc::new(EmittingAgent(count));
    Agent::new("root", "", AgentKind::Custom(CustomAgentSpec { code, model: None, tools: vec![] }))
}

#[tokio::test]
async fn a_cancelled_run_stops_and_its_client_gets_the_report_without_a_gap() {
    let app = Harness::new(emits(1000)).await;
    let request = app.request(Content::user("hi"));
    let cancel = request.cancel.clone();
    let mut run = app.runner.run(app.app.clone(), request).await.unwrap();
    assert_eq!(brief(&run.next().await.unwrap().unwrap()), "root: 0");
    // The client's queue fills up, as nothing is read meanwhile.
    while app.session().await.events.len() < 60 {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    let mut next = 1;
    let error = loop {
        match run.next().await.unwrap() {
            Ok(event) if event.error_code.is_some() => assert_eq!(event.error_code.as_deref(), Some("CANCELLED")),
            Ok(event) => {
                assert_eq!(brief(&event), format!("root: {next}"), "no event is left out before a later one");
                next += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RunError::Cancelled));
    let stored = app.session().await.events;
    assert_eq!(stored.last().unwrap().error_code.as_deref(), Some("CANCELLED"));
    assert!(stored.len() < 200, "the agent was stopped: {}", stored.len());
}

/// Changes the session in the middle of the turn, as another client would.
struct InterruptedAgent(Services);

#[async_trait]
impl CustomAgent for InterruptedAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        if cx.call.invocation.user_content().text() == "go" {
            let content = Some(Arc::new(Content::user("from elsewhere")));
            let mut data = EventData { author: "user".into(), content, ..EventData::default() };
            data.actions.state_delta = map(json!({"patched": true}));
            self.0.sessions.append(&cx.call.invocation.session_key, &Event::new(data)).await?;
        }
        cx.say("done").await?;
        let texts: Vec<_> = cx.call.invocation.events().iter().map(|event| brief(event)).collect();
        cx.say(format!("{} {:?}", texts.join(", "), cx.call.state("patched"))).await.map(|_| ())
    }
}

#[tokio::test]
async fn events_appended_by_others_during_a_turn_are_seen_by_it_and_by_the_next() {
    let mut app = Harness::new(emits(0)).await;
    let code = Arc::new(InterruptedAgent(app.runner.services().clone()));
    let root = Agent::new("root", "", AgentKind::Custom(CustomAgentSpec { code, model: None, tools: vec![] }));
    app.app = Arc::new(hatchery_engine::App::new("app", root).unwrap());
    let first = app.transcript("go").await;
    assert_eq!(first[1], "root: user: go, user: from elsewhere, root: done Some(Bool(true))");
    let second = app.transcript("again").await;
    assert!(second[1].starts_with("root: user: go, user: from elsewhere, root: done, "), "{second:?}");
}

#[tokio::test]
async fn a_model_that_answers_with_nothing_fails() {
    struct SilentAgent;
    #[async_trait]
    impl hatchery_core::Model for SilentAgent {
        async fn generate(
            &self,
            _: hatchery_core::LlmRequest,
            _: hatchery_core::StreamingMode,
        ) -> Result<hatchery_core::ResponseStream, hatchery_core::ModelError> {
            Ok(Box::pin(futures::stream::empty()))
        }
    }
    let root = llm_with("root", Scripted::new(), |llm| {
        llm.model = Some(hatchery_core::ModelRef::Object("silent".into(), Arc::new(SilentAgent)));
    });
    let (_, error) = Harness::new(root).await.expect_error("hi").await;
    assert_eq!(error.to_string(), "model `silent`: its response is empty");
}

#[tokio::test]
async fn a_late_response_continues_in_the_branch_of_its_call() {
    let order = long_running("order", |_, _| Ok(json!(null)));
    let model = Scripted::sequence([Reply::call("order", json!({})).with_id("c1"), Reply::text("arrived")]);
    let asks = llm_with("asks", model, |llm| llm.tools = vec![order]);
    let root = workflow("all", AgentKind::Parallel, vec![asks, llm("talks", Scripted::new().default_reply("hello"))]);
    let app = Harness::new(root).await;
    app.run("order it").await;
    let answer = hatchery_core::FunctionResponse {
        id: Some("c1".into()),
        name: "order".into(),
        response: map(json!({"status": "done"})),
        ..Default::default()
    };
    let message = Content::new("user", vec![hatchery_core::PartData::FunctionResponse(answer).into()]);
    let events = app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap();
    assert_eq!((brief(&events[0]).as_str(), events[0].branch.as_deref()), ("asks: arrived", Some("all.asks")));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_id_of_its_last_event_and_all_events_are_stored() {
    let app = Harness::new(emits(200)).await;
    let mut run = app.start("hi").await;
    let first = run.next().await.unwrap().unwrap();
    // The run waits for its reader once, and continues.
    app.runner.drain().await;
    let (mut read, mut last) = (1, first.id.clone());
    let error = loop {
        match run.next().await.unwrap() {
            Ok(event) => (read, last) = (read + 1, event.id.clone()),
            Err(error) => break error,
        }
    };
    assert!(read < 200, "{read}");
    assert_eq!(error.code(), "READER_TOO_SLOW");
    assert!(error.to_string().contains(&format!("the last that was sent is `{last}`")), "{error}");
    assert!(run.next().await.is_none());
    assert_eq!(app.session().await.events.len(), 201);
}

#[tokio::test]
async fn permits_and_active_runs_share_one_maximum() {
    let app = Harness::new(llm("echo", Scripted::new().default_reply("hi"))).await;
    let permit = app.runner.try_acquire(1);
    assert!(permit.is_some() && app.runner.try_acquire(1).is_none());
    assert!(app.runner.try_acquire(2).is_some());
    drop(permit);
    let run = app.start("hello").await;
    assert!(app.runner.try_acquire(1).is_none());
    run.collect().await.unwrap();
    app.runner.drain().await;
    assert!(app.runner.try_acquire(1).is_some());
}

#[tokio::test]
async fn an_inline_run_that_waits_for_nothing_has_ended_when_it_is_returned() {
    let app = Harness::new(llm("echo", Scripted::new().default_reply("hi"))).await;
    let permit = app.runner.try_acquire(1).unwrap();
    let request = app.request(Content::user("hello"));
    let run = app.runner.run_inline(app.app.clone(), request, permit).await.unwrap();
    assert_eq!(app.runner.active_runs(), 0);
    assert_eq!(brief(&run.collect().await.unwrap()[0]), "echo: hi");
}

#[tokio::test]
async fn an_inline_run_that_waits_continues_without_its_caller_and_its_permit() {
    let (agent, entered, leave, _) = gate();
    let app = Harness::new(agent).await;
    let permit = app.runner.try_acquire(2).unwrap();
    let request = app.request(Content::user("hello"));
    let run = app.runner.run_inline(app.app.clone(), request, permit).await.unwrap();
    assert_eq!(app.runner.active_runs(), 1);
    // The run has no permit any more, so there is one for a second run.
    assert!(app.runner.try_acquire(2).is_some());
    drop(run);
    entered.acquire().await.unwrap().forget();
    leave.add_permits(1);
    app.runner.drain().await;
    assert_eq!(app.session().await.events.len(), 2);
}
