//! Turns of one session on several hosts: they do not interleave, and a host that lost its turn stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    Agent, CallContext, Callback, Content, Event, EventData, EventWindow, HookPoint, JsonMap, LlmRequest, LlmResponse,
    ModelErrorKind, RunError, Services, SessionKey, SessionService, StoreError, TurnLease, TurnStart, UptimeInstant,
    WrapperSessionService,
};
use hatchery_engine::{App, Run, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::{MemorySessions, SqliteSessions};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// Lets the test wait until a run is at one place, and holds it there.
struct Gate {
    at: HookPoint,
    entered: Notify,
    opened: Semaphore,
}

impl Gate {
    fn at(at: HookPoint) -> Arc<Self> {
        Arc::new(Self { at, entered: Notify::new(), opened: Semaphore::new(0) })
    }

    fn open(&self) {
        self.opened.add_permits(1000);
    }

    async fn pass(&self, at: HookPoint) {
        if self.at == at {
            self.entered.notify_one();
            self.opened.acquire().await.unwrap().forget();
        }
    }
}

#[async_trait]
impl Callback for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    async fn before_model(&self, _: &CallContext, _: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        self.pass(HookPoint::BeforeModel).await;
        Ok(None)
    }

    async fn before_tool(&self, _: &CallContext, _: &str, _: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        self.pass(HookPoint::BeforeTool).await;
        Ok(None)
    }
}

/// One of the hosts that serve the same sessions.
struct TestHost {
    runner: Runner,
    app: Arc<App>,
}

impl TestHost {
    fn new(services: &Services, root: Agent) -> Self {
        Self { runner: Runner::new(services.clone()), app: Arc::new(App::new("app", root).unwrap()) }
    }

    /// Holds its turns for no time at all, so that others may take them over at once.
    fn without_leases(self) -> Self {
        Self { runner: self.runner.with_turn_lease(Duration::ZERO), ..self }
    }

    /// Holds its turns for longer than a test may take, so that a pause of the machine ends none of them.
    fn with_long_leases(self) -> Self {
        Self { runner: self.runner.with_turn_lease(Duration::from_secs(60)), ..self }
    }

    async fn start(&self, text: &str) -> Run {
        self.runner.run(self.app.clone(), RunRequest::new(USER, SESSION, Content::user(text))).await.unwrap()
    }
}

fn key() -> SessionKey {
    SessionKey::new("app", USER, SESSION)
}

async fn services_on(sessions: Arc<dyn SessionService>) -> Services {
    sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    Services { sessions, ..services() }
}

async fn transcript(services: &Services) -> Vec<String> {
    let session = services.sessions.get(&key(), EventWindow::All).await.unwrap().unwrap();
    session.events.iter().map(|event| brief(event)).collect()
}

fn gated(gate: &Arc<Gate>, model: Scripted) -> Agent {
    llm_with("root", model, |llm| llm.callbacks.push(gate.at, gate.clone()))
}

fn echo() -> Scripted {
    Scripted::new().default_reply("{user}")
}

/// Two hosts, each with its own services on the same sessions.
async fn assert_no_interleaving(sessions: [Arc<dyn SessionService>; 2]) {
    let [first, second] = sessions;
    let services = services_on(first).await;
    let gate = Gate::at(HookPoint::BeforeModel);
    let one = TestHost::new(&services, gated(&gate, Scripted::new().default_reply("first"))).with_long_leases();
    let two = TestHost::new(
        &Services { sessions: second, ..services.clone() },
        llm("root", Scripted::new().default_reply("second")),
    );
    let run = one.start("ONE").await;
    gate.entered.notified().await;
    let later = tokio::spawn(two.start("TWO").await.collect());
    // Appends of others that are not part of a turn do not disturb it.
    let delta = Event::new(EventData { author: "user".into(), ..EventData::default() });
    services.sessions.append(&key(), &delta).await.unwrap();
    gate.open();
    run.collect().await.unwrap();
    let answers = later.await.unwrap().unwrap();
    assert_eq!(briefs(&answers), ["root: second"]);
    let expected = ["user: ONE", "user: ", "root: first", "user: TWO", "root: second"];
    assert_eq!(transcript(&services).await, expected);
    // The first host catches up with the other one's turn.
    one.start("THREE").await.collect().await.unwrap();
    assert_eq!(transcript(&services).await[5..], ["user: THREE", "root: first"]);
}

#[tokio::test]
async fn turns_of_two_hosts_on_one_service_do_not_interleave() {
    let sessions: Arc<dyn SessionService> = Arc::new(MemorySessions::new());
    assert_no_interleaving([sessions.clone(), sessions]).await;
}

#[tokio::test]
async fn turns_of_two_hosts_on_one_database_do_not_interleave() {
    let folder = tempfile::tempdir().unwrap();
    let open = async || Arc::new(SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap()) as Arc<_>;
    assert_no_interleaving([open().await, open().await]).await;
}

#[tokio::test]
async fn a_run_whose_turn_was_taken_over_stops_with_an_error() {
    let services = services_on(Arc::new(MemorySessions::new())).await;
    let gate = Gate::at(HookPoint::BeforeModel);
    let slow = TestHost::new(&services, gated(&gate, Scripted::new().default_reply("late"))).without_leases();
    let mut run = slow.start("ONE").await;
    gate.entered.notified().await;
    let other = TestHost::new(&services, llm("root", echo()));
    other.start("TWO").await.collect().await.unwrap();
    gate.open();
    let error = run.next().await.unwrap().unwrap_err();
    assert_eq!(error.code(), "TURN_TAKEN_OVER");
    assert!(error.client_message().starts_with("another host has taken over this session"), "{error}");
    assert!(run.next().await.is_none());
    assert_eq!(transcript(&services).await, ["user: ONE", "user: TWO", "root: TWO"], "nothing was stored late");
}

#[tokio::test]
async fn a_tool_is_not_begun_after_the_turn_was_taken_over() {
    let services = services_on(Arc::new(MemorySessions::new())).await;
    let gate = Gate::at(HookPoint::BeforeTool);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let charge = tool("charge", move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(json!(null))
    });
    let model = Scripted::new().on_tool("charge", "done").default_reply(Reply::call("charge", json!({})));
    let root = llm_with("root", model, |llm| {
        llm.tools = vec![charge];
        llm.callbacks.push(gate.at, gate.clone());
    });
    let slow = TestHost::new(&services, root).without_leases();
    let run = slow.start("ONE").await;
    gate.entered.notified().await;
    let other = TestHost::new(&services, llm("root", echo()));
    other.start("TWO").await.collect().await.unwrap();
    gate.open();
    assert_eq!(run.collect().await.unwrap_err().code(), "TURN_TAKEN_OVER");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_turn_without_a_lease_goes_on_while_nobody_takes_it_over() {
    let services = services_on(Arc::new(MemorySessions::new())).await;
    let model = Scripted::new().on_tool("now", "done").default_reply(Reply::call("now", json!({})));
    let root = llm_with("root", model, |llm| llm.tools = vec![tool("now", |_, _| Ok(json!("noon")))]);
    let host = TestHost::new(&services, root).without_leases();
    assert_eq!(host.start("ONE").await.collect().await.unwrap().len(), 3);
}

#[tokio::test]
async fn the_turn_of_an_ended_run_delays_no_other() {
    let services = services_on(Arc::new(MemorySessions::new())).await;
    let failing = Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "no"));
    for model in [echo(), failing] {
        let host = TestHost::new(&services, llm("root", model));
        let _ = host.start("ONE").await.collect().await;
        host.runner.drain().await;
        let turn_start = services.sessions.begin_turn(&key(), None, Duration::ZERO).await.unwrap();
        assert!(matches!(turn_start, TurnStart::Begun(_)), "{turn_start:?}");
    }
}

#[tokio::test]
async fn a_run_that_waits_for_another_host_can_be_cancelled() {
    let services = services_on(Arc::new(MemorySessions::new())).await;
    let held = services.sessions.begin_turn(&key(), None, Duration::from_secs(60)).await.unwrap();
    let TurnStart::Begun(turn) = held else { panic!("nobody holds it") };
    let host = TestHost::new(&services, llm("root", echo()));
    let request = RunRequest::new(USER, SESSION, Content::user("ONE"));
    let cancel = request.cancel.clone();
    let run = host.runner.run(host.app.clone(), request).await.unwrap();
    cancel.cancel();
    assert_eq!(run.collect().await.unwrap_err().code(), "CANCELLED");
    services.sessions.renew_turn(&key(), turn.fence, Duration::ZERO).await.unwrap();
    host.start("TWO").await.collect().await.unwrap();
    assert_eq!(transcript(&services).await, ["user: TWO", "root: TWO"]);
}

#[tokio::test]
async fn a_request_that_is_refused_delays_no_other_host() {
    let services = services_on(Arc::new(MemorySessions::new())).await;
    let host = TestHost::new(&services, llm("root", echo()));
    let unknown = RunRequest::resume(USER, SESSION, "unknown");
    assert_eq!(host.runner.run(host.app.clone(), unknown).await.unwrap_err().code(), "NOT_FOUND");
    host.runner.drain().await;
    let turn_start = services.sessions.begin_turn(&key(), None, Duration::ZERO).await.unwrap();
    assert!(matches!(turn_start, TurnStart::Begun(_)), "{turn_start:?}");
}

#[tokio::test]
async fn a_session_that_was_created_anew_gets_a_turn_of_its_own() {
    let services = services_on(Arc::new(MemorySessions::new())).await;
    let host = TestHost::new(&services, llm("root", echo()));
    for text in ["ONE", "TWO"] {
        host.start(text).await.collect().await.unwrap();
        assert_eq!(transcript(&services).await, [format!("user: {text}"), format!("root: {text}")]);
        services.sessions.delete(&key()).await.unwrap();
        services.sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    }
}

/// Holds the first turn that begins, after it is stored.
#[derive(Default)]
struct SlowBegin {
    sessions: MemorySessions,
    begins: AtomicUsize,
    begun: Notify,
    release: Notify,
}

#[async_trait]
impl WrapperSessionService for SlowBegin {
    fn inner(&self) -> &dyn SessionService {
        &self.sessions
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        let begun = self.sessions.begin_turn(key, previous, lease).await;
        if self.begins.fetch_add(1, Ordering::SeqCst) == 0 {
            self.begun.notify_one();
            self.release.notified().await;
        }
        begun
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_while_its_turn_begins_delays_no_other_host() {
    let sessions = Arc::new(SlowBegin::default());
    let services = services_on(sessions.clone()).await;
    let app = TestHost::new(&services, llm("root", echo()));
    // Longer than a test may take.
    let runner = app.runner.with_turn_lease(Duration::from_secs(60));
    tokio::select! {
        biased;
        _ = runner.run(app.app.clone(), RunRequest::new(USER, SESSION, Content::user("ONE"))) => panic!("it is held"),
        () = sessions.begun.notified() => {}
    }
    sessions.release.notify_one();
    app.start("TWO").await.collect().await.unwrap();
    assert_eq!(transcript(&services).await, ["user: TWO", "root: TWO"]);
}

/// Counts the writes of turns.
#[derive(Default)]
struct TurnWrites {
    sessions: MemorySessions,
    begins: AtomicUsize,
    renewals: AtomicUsize,
}

#[async_trait]
impl WrapperSessionService for TurnWrites {
    fn inner(&self) -> &dyn SessionService {
        &self.sessions
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        self.begins.fetch_add(1, Ordering::SeqCst);
        self.sessions.begin_turn(key, previous, lease).await
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        if !lease.is_zero() {
            self.renewals.fetch_add(1, Ordering::SeqCst);
        }
        self.sessions.renew_turn(key, fence, lease).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_long_turn_is_renewed() {
    let sessions = Arc::new(TurnWrites::default());
    let services = services_on(sessions.clone()).await;
    let model = Scripted::new().default_reply(Reply::text("late").delay(Duration::from_secs(60)));
    let host = TestHost::new(&services, llm("root", model));
    host.start("ONE").await.collect().await.unwrap();
    // Three times during each lease of three seconds.
    let renewals = sessions.renewals.load(Ordering::SeqCst);
    assert!((55..=60).contains(&renewals), "{renewals}");
}

// Paused, because the lease of a turn is ended a moment later if no other turn begins.
#[tokio::test(start_paused = true)]
async fn successive_turns_of_one_host_share_a_lease_and_store_no_turn() {
    let sessions = Arc::new(TurnWrites::default());
    let services = services_on(sessions.clone()).await;
    let host = TestHost::new(&services, llm("root", echo())).with_long_leases();
    for text in ["ONE", "TWO", "THREE"] {
        host.start(text).await.collect().await.unwrap();
    }
    assert_eq!(sessions.begins.load(Ordering::SeqCst), 1);
    host.runner.drain().await;
    host.start("FOUR").await.collect().await.unwrap();
    assert_eq!(sessions.begins.load(Ordering::SeqCst), 2, "the turns had ended for other hosts too");
    assert_eq!(transcript(&services).await.len(), 8);
}

/// A store that never ends the lease of the session [`SESSION`].
#[derive(Default)]
struct StuckLease {
    sessions: MemorySessions,
    stuck: Notify,
    ended: Notify,
}

#[async_trait]
impl WrapperSessionService for StuckLease {
    fn inner(&self) -> &dyn SessionService {
        &self.sessions
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        if lease.is_zero() && *key.id == *SESSION {
            self.stuck.notify_one();
            std::future::pending::<()>().await;
        }
        self.sessions.renew_turn(key, fence, lease).await?;
        if lease.is_zero() {
            self.ended.notify_one();
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_the_store_does_not_end_delays_no_other() {
    let sessions = Arc::new(StuckLease::default());
    let services = services_on(sessions.clone()).await;
    services.sessions.create("app", USER, Some("other"), JsonMap::new()).await.unwrap();
    let host = TestHost::new(&services, llm("root", echo()));
    host.start("ONE").await.collect().await.unwrap();
    sessions.stuck.notified().await;
    let request = RunRequest::new(USER, "other", Content::user("TWO"));
    host.runner.run(host.app.clone(), request).await.unwrap().collect().await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), sessions.ended.notified()).await.expect("the lease is still held");
}

#[tokio::test]
async fn a_lease_is_passed_on_once_and_not_when_it_is_old_ended_or_lost() {
    let sessions: Arc<dyn SessionService> = Arc::new(MemorySessions::new());
    let services = services_on(sessions.clone()).await;
    let begin = async |previous| {
        let acquired = UptimeInstant::now();
        match services.sessions.begin_turn(&key(), previous, Duration::from_secs(60)).await.unwrap() {
            TurnStart::Begun(turn) => Some((turn.fence, acquired)),
            TurnStart::Held { .. } => None,
        }
    };
    let lease = |(fence, acquired): (u64, UptimeInstant), duration| {
        TurnLease::new(sessions.clone(), key(), fence, acquired, duration, CancellationToken::new())
    };
    let (long, none) = (Duration::from_secs(60), CancellationToken::new);
    let begun = begin(None).await.unwrap();
    let first = lease(begun, long);
    let second = first.pass_on(none()).unwrap();
    assert_eq!(second.fence(), first.fence());
    assert!(first.pass_on(none()).is_none());
    first.end().await.unwrap();
    assert!(begin(None).await.is_none(), "the first turn cannot end what the second one holds");
    assert!(lease(begun, Duration::ZERO).pass_on(none()).is_none(), "it is old");
    second.end().await.unwrap();
    assert!(second.pass_on(none()).is_none(), "it has ended");
    let third = lease(begin(None).await.unwrap(), long);
    begin(Some(third.fence())).await.unwrap();
    assert!(third.renew().await.is_err());
    assert!(third.pass_on(none()).is_none(), "it is lost");
}
