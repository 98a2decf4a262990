//! Generated agent trees on a SQLite database, whose host dies or freezes before or after any of its writes: another
//! host ends the run with the same session, and no completed call is made twice. The effects are counted by the tests'
//! tool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, CallJournal, CallRecord, Content, CustomAgent, CustomAgentSpec, Event,
    EventWindow, FunctionDeclaration, JsonMap, REQUEST_CONFIRMATION, RunError, RunService, RunState, RunTransition,
    Services, Session, SessionKey, SessionService, StoreError, StoredRun, Tool, ToolError, TurnStart,
    WrapperRunService,
};
use hatchery_engine::{AgentTool, App, AppSettings, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::SqliteSessions;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::support::*;

const TREES: usize = 14;

/// The effects of the tools of all hosts: how often each has begun.
#[derive(Default)]
struct Effects(Mutex<BTreeMap<String, usize>>);

impl Effects {
    fn counts(&self) -> BTreeMap<String, usize> {
        self.0.lock().unwrap().clone()
    }
}

/// Returns a tool's answer for an effect, by which the test finds the effect in stored events.
fn answer(name: &str) -> String {
    format!("effect {name};")
}

struct EffectTool {
    declaration: Arc<FunctionDeclaration>,
    requires_confirmation: bool,
    effects: Arc<Effects>,
}

#[async_trait]
impl Tool for EffectTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn requires_confirmation(&self) -> bool {
        self.requires_confirmation
    }

    async fn call(&self, args: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        let name = args["name"].as_str().unwrap();
        *self.effects.0.lock().unwrap().entry(name.into()).or_default() += 1;
        tokio::task::yield_now().await;
        Ok(json!(answer(name)))
    }
}

/// When a host stops: at its `number`th write, before or after it was made.
#[derive(Debug, Clone, Copy)]
struct Stop {
    number: usize,
    is_before: bool,
}

/// The sessions of a host that stops, as a process does that is killed or frozen.
struct StoppingSessions {
    inner: SqliteSessions,
    stop: Option<Stop>,
    writes: AtomicUsize,
    has_stopped: watch::Sender<bool>,
    /// Opened when a frozen host wakes up.
    thawed: Semaphore,
    /// The effects whose answers were stored.
    stored: Mutex<BTreeSet<String>>,
}

impl StoppingSessions {
    async fn open(file: &Path, stop: Option<Stop>) -> Arc<Self> {
        Arc::new(Self {
            inner: SqliteSessions::open(file).await.unwrap(),
            stop,
            writes: AtomicUsize::new(0),
            has_stopped: watch::Sender::new(false),
            thawed: Semaphore::new(0),
            stored: Mutex::default(),
        })
    }

    /// Waits forever, or until the host wakes up, once it has stopped.
    async fn pass(&self) {
        if *self.has_stopped.borrow() {
            drop(self.thawed.acquire().await.unwrap());
        }
    }

    async fn stop(&self) {
        self.has_stopped.send_replace(true);
        self.pass().await;
    }

    async fn write<T>(&self, text: &str, write: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.pass().await;
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        let stop = self.stop.filter(|stop| stop.number == number);
        if stop.is_some_and(|stop| stop.is_before) {
            self.stop().await;
        }
        let result = write.await;
        if result.is_ok() && !*self.has_stopped.borrow() {
            let names = text.split("effect ").skip(1).filter_map(|rest| Some(rest.split_once(';')?.0.to_owned()));
            self.stored.lock().unwrap().extend(names);
        }
        if stop.is_some_and(|stop| !stop.is_before) {
            self.stop().await;
        }
        // A write that was in progress when another one stopped the host has no answer either.
        self.pass().await;
        result
    }
}

#[async_trait]
impl SessionService for StoppingSessions {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        self.inner.create(app, user, id, state).await
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.pass().await;
        SessionService::get(&self.inner, key, window).await
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        SessionService::list(&self.inner, app, user).await
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.inner.delete(key).await
    }

    async fn begin_turn(&self, key: &SessionKey, last: Option<u64>, lease: Duration) -> Result<TurnStart, StoreError> {
        let turn_start = self.write("", self.inner.begin_turn(key, last, lease)).await;
        // The client of a host that wakes up has given up: only turns that have begun go on.
        let is_late = *self.has_stopped.borrow();
        if is_late { Err(StoreError::backend("begin a turn", "the host was frozen")) } else { turn_start }
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        self.pass().await;
        self.inner.renew_turn(key, fence, lease).await
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        let text = String::from_utf8_lossy(event.json()).into_owned();
        self.write(&text, self.inner.append_with(key, event, fence)).await
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        Some(self)
    }

    fn runs(&self) -> Option<&dyn RunService> {
        Some(self)
    }
}

#[async_trait]
impl CallJournal for StoppingSessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        let text = record.outcome.clone().unwrap_or_default();
        self.write(&text, self.inner.journal().unwrap().record(session, run, fence, record)).await
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        self.pass().await;
        self.inner.journal().unwrap().read(session, run).await
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        self.pass().await;
        self.inner.journal().unwrap().finish(session, run).await
    }
}

/// Writes are never made later, so that the host can stop at each.
#[async_trait]
impl WrapperRunService for StoppingSessions {
    fn inner(&self) -> &dyn RunService {
        self.inner.runs().unwrap()
    }

    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        self.write("", self.inner().add(run)).await
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        self.write("", self.inner().start(run, fence)).await
    }

    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        self.write("", self.inner().change(session, run, fence, transition)).await
    }

    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        WrapperRunService::start(self, run, fence).await.map(drop)
    }

    async fn change_later(
        &self,
        session: &SessionKey,
        run: &str,
        fence: u64,
        transition: &RunTransition,
    ) -> Result<(), StoreError> {
        WrapperRunService::change(self, session, run, Some(fence), transition).await.map(drop)
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        self.pass().await;
        self.inner().get(session, run).await
    }
}

/// A node of a generated tree. Its effects have their own names.
#[derive(Debug, Clone)]
enum Node {
    /// A model that makes this many calls at once, some after a person has agreed.
    Calls {
        count: usize,
        is_confirmed: bool,
    },
    /// Code that makes this many calls, in sequence.
    Code(usize),
    /// A model that calls an agent as a tool, which makes this many calls at once.
    Delegates(usize),
    Sequential(Vec<Node>),
    Parallel(Vec<Node>),
}

fn nodes() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        (1..4_usize, prop::bool::weighted(0.3)).prop_map(|(count, is_confirmed)| Node::Calls { count, is_confirmed }),
        (1..4_usize).prop_map(Node::Code),
        (1..3_usize).prop_map(Node::Delegates),
    ];
    leaf.prop_recursive(2, 5, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(Node::Sequential),
            prop::collection::vec(inner, 2..3).prop_map(Node::Parallel),
        ]
    })
}

/// Makes its calls, and says when it is done.
struct MakesCalls(Vec<String>);

#[async_trait]
impl CustomAgent for MakesCalls {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        for name in &self.0 {
            cx.call.host()?.call_tool(&cx.call, "effect", map(json!({"name": name}))).await?;
        }
        cx.say("done").await.map(|_| ())
    }
}

/// Builds the agents of a tree.
struct Builder<'a> {
    effects: &'a Arc<Effects>,
    count: usize,
}

impl Builder<'_> {
    fn build(&mut self, node: &Node) -> Agent {
        self.count += 1;
        let name = format!("a{}", self.count);
        let names = |count: usize| (0..count).map(|call| format!("{name}-{call}")).collect::<Vec<_>>();
        match node {
            Node::Calls { count, is_confirmed } => self.caller(&name, &names(*count), *is_confirmed),
            Node::Code(count) => {
                let code = Arc::new(MakesCalls(names(*count)));
                let spec = CustomAgentSpec { code, model: None, tools: vec![self.tool(false)] };
                Agent::new(&name, "", AgentKind::Custom(spec))
            }
            Node::Delegates(count) => {
                let helper = self.caller("helper", &names(*count), false);
                let helper: Arc<dyn Tool> = Arc::new(AgentTool::new(helper).unwrap());
                let call = Reply::call("helper", json!({"request": "go"}));
                let model = Scripted::new().on_tool("helper", "done").default_reply(call);
                llm_with(&name, model, |llm| llm.tools = vec![helper])
            }
            Node::Sequential(nodes) => self.workflow(&name, AgentKind::Sequential, nodes),
            Node::Parallel(nodes) => self.workflow(&name, AgentKind::Parallel, nodes),
        }
    }

    fn workflow(&mut self, name: &str, kind: AgentKind, nodes: &[Node]) -> Agent {
        let agents = nodes.iter().map(|node| self.build(node)).collect();
        workflow(name, kind, agents)
    }

    fn caller(&self, agent: &str, names: &[String], is_confirmed: bool) -> Agent {
        let calls = names.iter().fold(Reply::new(), |reply, name| reply.and_call("effect", json!({"name": name})));
        let model = Scripted::new().on_tool("effect", "done").default_reply(calls);
        let tool = self.tool(is_confirmed);
        llm_with(agent, model, |llm| llm.tools = vec![tool])
    }

    fn tool(&self, requires_confirmation: bool) -> Arc<dyn Tool> {
        let declaration = declaration("effect");
        Arc::new(EffectTool { declaration, requires_confirmation, effects: self.effects.clone() })
    }
}

fn key() -> SessionKey {
    SessionKey::new("app", USER, SESSION)
}

struct TestHost {
    runner: Runner,
    app: Arc<App>,
    sessions: Arc<StoppingSessions>,
}

impl TestHost {
    async fn open(file: &Path, tree: &Node, effects: &Arc<Effects>, stop: Option<Stop>) -> Self {
        let sessions = StoppingSessions::open(file, stop).await;
        let runner = Runner::new(Services { sessions: sessions.clone(), ..services() });
        let app = App::new("app", Builder { effects, count: 0 }.build(tree)).unwrap();
        let app = Arc::new(app.with_settings(AppSettings { resumable: true, ..AppSettings::default() }));
        // Without leases, so that the next host need not wait.
        Self { runner: runner.with_turn_lease(Duration::ZERO), app, sessions }
    }

    async fn session(&self) -> Session {
        SessionService::get(&self.sessions.inner, &key(), EventWindow::All).await.unwrap().unwrap()
    }

    async fn run(&self, request: RunRequest) -> Result<(), RunError> {
        self.runner.run(self.app.clone(), request).await?.collect().await.map(drop)
    }

    /// Behaves as a client: sends the message, repeats the request if the run was interrupted, and agrees to all calls,
    /// until the run is done.
    async fn drive(&self) -> Result<(), RunError> {
        let first = RunRequest { run_id: Some("r1".into()), ..RunRequest::new(USER, SESSION, Content::user("go")) };
        loop {
            let run = RunService::get(&*self.sessions, &key(), "r1").await?;
            match run.map(|run| run.state) {
                None | Some(RunState::Accepted | RunState::Running) => self.run(first.clone()).await?,
                Some(RunState::Waiting) => {
                    let session = SessionService::get(&*self.sessions, &key(), EventWindow::All).await?.unwrap();
                    let request = open_request(&session).expect("it waits for a person");
                    let approval = tool_response(&request, REQUEST_CONFIRMATION, json!({"confirmed": true}));
                    self.run(RunRequest::new(USER, SESSION, approval)).await?;
                }
                Some(RunState::Done) => return Ok(()),
                Some(state @ (RunState::Failed | RunState::Cancelled)) => panic!("{state:?}"),
            }
        }
    }
}

/// Returns the first request for confirmation without an answer; if all are answered, the last one, whose answer is
/// sent again.
fn open_request(session: &Session) -> Option<String> {
    let messages = session.events.iter().filter(|event| event.author == "user");
    let answers = messages.flat_map(|event| event.function_responses().filter_map(|response| response.id.clone()));
    let answered: BTreeSet<_> = answers.collect();
    let calls = session.events.iter().flat_map(|event| event.function_calls());
    let requests: Vec<_> =
        calls.filter(|call| call.name == REQUEST_CONFIRMATION).filter_map(|call| call.id.clone()).collect();
    requests.iter().find(|id| !answered.contains(*id)).or(requests.last()).cloned()
}

fn ids(session: &Session) -> Vec<String> {
    session.events.iter().map(|event| event.id.clone()).collect()
}

/// Returns the events of each branch in short form, without the ids of requests.
fn transcript(session: &Session) -> Vec<(String, Vec<String>)> {
    let mut branches = branch_transcripts(session);
    for (_, lines) in &mut branches {
        lines.retain(|line| !line.contains(REQUEST_CONFIRMATION) && !line.ends_with(": "));
    }
    branches
}

/// Runs a tree on a host that stops, and then on another one. Returns the writes of the first host; fewer than the
/// number of the stop if it did not stop.
async fn assert_survives(tree: &Node, stop: Option<Stop>, expected: &mut Option<Vec<(String, Vec<String>)>>) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let effects = Arc::new(Effects::default());
    let first = TestHost::open(&file, tree, &effects, stop).await;
    first.sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    let mut has_stopped = first.sessions.has_stopped.subscribe();
    let mut driving = Box::pin(first.drive());
    let is_interrupted = tokio::select! {
        driven = &mut driving => { driven.unwrap(); false }
        _ = has_stopped.wait_for(|stopped| *stopped) => true,
    };
    if !is_interrupted {
        let session = first.session().await;
        let result = transcript(&session);
        assert_eq!(&result, expected.get_or_insert_with(|| result.clone()), "{tree:?}");
        assert!(effects.counts().values().all(|count| *count == 1), "{tree:?}: {:?}", effects.counts());
        return first.sessions.writes.load(Ordering::SeqCst);
    }
    let completed = first.sessions.stored.lock().unwrap().clone();
    let second = TestHost::open(&file, tree, &effects, None).await;
    let drive = tokio::time::timeout(Duration::from_secs(60), second.drive());
    drive.await.unwrap_or_else(|_| panic!("{tree:?} with {stop:?} does not end")).unwrap();
    let (session, counts) = (second.session().await, effects.counts());
    assert_eq!(Some(transcript(&session)), *expected, "{tree:?} with {stop:?}");
    for (name, count) in &counts {
        let most = if completed.contains(name) { 1 } else { 2 };
        assert!((1..=most).contains(count), "{tree:?} with {stop:?}: {name} has happened {count} times");
    }
    let runs = second.sessions.runs().unwrap();
    assert_eq!(runs.get(&key(), "r1").await.unwrap().unwrap().state, RunState::Done);

    // The first host was frozen only: its actions have no effect now.
    first.sessions.thawed.add_permits(Semaphore::MAX_PERMITS);
    let late = tokio::time::timeout(Duration::from_secs(60), driving).await;
    late.unwrap_or_else(|_| panic!("{tree:?} with {stop:?} hangs")).ok();
    assert_eq!(ids(&second.session().await), ids(&session), "{tree:?} with {stop:?}");
    assert_eq!(effects.counts(), counts, "{tree:?} with {stop:?}");
    first.sessions.writes.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_a_generated_tree_ends_the_same_wherever_its_host_dies_or_freezes() {
    let mut generator = TestRunner::deterministic();
    let mut stops = 0;
    for _ in 0..TREES {
        let tree = nodes().new_tree(&mut generator).unwrap().current();
        let mut expected = None;
        let writes = assert_survives(&tree, None, &mut expected).await;
        for number in 0..writes {
            for is_before in [true, false] {
                assert_survives(&tree, Some(Stop { number, is_before }), &mut expected).await;
                stops += 1;
            }
        }
    }
    println!("{stops} stops");
    assert!(stops > 200, "{stops}");
}
