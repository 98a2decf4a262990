//! The cost of a turn in process, with a scripted model that answers at once: in a new session, at turn 8 and at turn
//! 800. Then the cost of fence, lease and journal, and of stored runs: services with and without them take turns, so that a
//! change of the machine's speed concerns all.
//!
//! `cargo bench --workspace --bench turns`. After the criterion report it prints each mean with its ratio to the first
//! line of its table, and the medians of the comparison.
#![allow(clippy::expect_used, missing_docs)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use criterion::{Criterion, criterion_group};
use hatchery_core::{
    Agent, AgentKind, CallContext, CallJournal, Content, Event, EventData, FunctionCall, FunctionDeclaration,
    FunctionResponse, Instruction, JsonMap, LlmAgent, ModelRef, PartData, RunService, Services, SessionKey,
    SessionService, StoreError, Tool, ToolError, Turn, TurnStart, WrapperSessionService,
};
use hatchery_engine::{App, RunRequest, Runner};
use hatchery_models::ModelProviders;
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::{KeywordMemory, MemoryArtifacts, MemoryCredentials, MemorySessions, SqliteSessions};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

const USER: &str = "ada";
/// Turns that are measured per session, so that "turn 800" stays turn 800.
const TURNS_PER_SESSION: usize = 32;
/// Turns that a prepared session runs before the measured ones.
const WARM_UP_TURNS: usize = 8;
/// Batches of turns of each service in a comparison.
const ROUNDS: usize = 60;

struct Add(Arc<FunctionDeclaration>);

#[async_trait]
impl Tool for Add {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, args: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        let number = |key: &str| args.get(key).and_then(Value::as_i64).unwrap_or(0);
        Ok(json!(number("a") + number("b")))
    }
}

/// Returns an app whose agent calls one native tool and then answers: two model calls.
fn app() -> Arc<App> {
    let model =
        Scripted::new().on_tool("add", "The sum is three.").default_reply(Reply::call("add", json!({"a": 1, "b": 2})));
    let declaration = FunctionDeclaration {
        name: "add".into(),
        description: "Adds two numbers.".into(),
        parameters: Some(json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})),
        response: None,
    };
    let llm = LlmAgent {
        model: Some(ModelRef::Object("scripted".into(), Arc::new(model))),
        instruction: Instruction::Template("You add numbers.".into()),
        tools: vec![Arc::new(Add(Arc::new(declaration)))],
        ..LlmAgent::default()
    };
    Arc::new(App::new("adder", Agent::new("adder", "Adds.", AgentKind::Llm(Box::new(llm)))).expect("a valid tree"))
}

fn runner(sessions: Arc<dyn SessionService>) -> Runner {
    Runner::new(Services {
        sessions,
        artifacts: Arc::new(MemoryArtifacts::new()),
        memory: Arc::new(KeywordMemory::new()),
        credentials: Arc::new(MemoryCredentials::default()),
        models: Arc::new(ModelProviders::new()),
    })
}

async fn run_turn(runner: &Runner, app: &Arc<App>, session: &str) {
    let request = RunRequest::new(USER, session, Content::user("What is one and two?"));
    let run = runner.run(app.clone(), request).await.expect("the session exists");
    let events = run.collect().await.expect("the run succeeds");
    assert_eq!(events.len(), 3);
}

/// A session service that stores no runs.
struct WithoutRuns(Arc<dyn SessionService>);

#[async_trait]
impl WrapperSessionService for WithoutRuns {
    fn inner(&self) -> &dyn SessionService {
        &*self.0
    }

    fn runs(&self) -> Option<&dyn RunService> {
        None
    }
}

/// A session service without fences, leases, journals and stored runs.
struct UnfencedSessions {
    inner: Arc<dyn SessionService>,
    revisions: Mutex<HashMap<SessionKey, u64>>,
}

impl UnfencedSessions {
    fn new(inner: Arc<dyn SessionService>) -> Self {
        Self { inner, revisions: Mutex::default() }
    }

    fn revisions(&self) -> MutexGuard<'_, HashMap<SessionKey, u64>> {
        self.revisions.lock().expect("no bench panics")
    }
}

#[async_trait]
impl WrapperSessionService for UnfencedSessions {
    fn inner(&self) -> &dyn SessionService {
        &*self.inner
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.revisions().remove(key);
        self.inner.delete(key).await
    }

    async fn begin_turn(&self, key: &SessionKey, _: Option<u64>, _: Duration) -> Result<TurnStart, StoreError> {
        let revision = self.revisions().get(key).copied().unwrap_or_default();
        Ok(TurnStart::Begun(Turn { fence: 1, revision }))
    }

    async fn renew_turn(&self, _: &SessionKey, _: u64, _: Duration) -> Result<(), StoreError> {
        Ok(())
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, _: Option<u64>) -> Result<u64, StoreError> {
        let revision = self.inner.append_with(key, event, None).await?;
        self.revisions().insert(key.clone(), revision);
        Ok(revision)
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        None
    }

    fn runs(&self) -> Option<&dyn RunService> {
        None
    }
}

/// Means in microseconds by label, for the table at the end.
static MEANS: Mutex<Vec<(String, f64)>> = Mutex::new(Vec::new());

fn record_mean(label: &str, total: Duration, count: u64) {
    let mut means = MEANS.lock().expect("no bench panics");
    means.retain(|(known, _)| known != label);
    means.push((label.into(), total.as_secs_f64() * 1e6 / count as f64));
}

/// Returns a runtime with one thread, so that waking up other threads is not measured.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn new_sessions(c: &mut Criterion) {
    let runtime = runtime();
    let (app, runner) = (app(), runner(Arc::new(MemorySessions::new())));
    c.bench_function("fresh session, one native tool, two model steps", |bencher| {
        bencher.iter_custom(|count| {
            let (app, runner) = (app.clone(), runner.clone());
            let total = runtime.block_on(async move {
                let work = async move {
                    let begin = Instant::now();
                    for _ in 0..count {
                        let session = runner
                            .services()
                            .sessions
                            .create("adder", USER, None, JsonMap::new())
                            .await
                            .expect("created");
                        run_turn(&runner, &app, &session.key.id).await;
                    }
                    begin.elapsed()
                };
                tokio::spawn(work).await.expect("the bench ends")
            });
            record_mean("fresh session, one native tool", total, count);
            total
        });
    });
}

/// Returns a session with `turns` turns. The last ones are run by the runner, so that its caches are warm.
async fn prepared_session(runner: &Runner, app: &Arc<App>, turns: usize) -> SessionKey {
    let sessions = &runner.services().sessions;
    let key = sessions.create("adder", USER, None, JsonMap::new()).await.expect("created").key;
    let warm = turns.min(WARM_UP_TURNS);
    for number in warm..turns {
        for event in old_turn(number) {
            sessions.append(&key, &event).await.expect("appended");
        }
    }
    for _ in 0..warm {
        run_turn(runner, app, &key.id).await;
    }
    key
}

fn old_turn(number: usize) -> [Arc<Event>; 4] {
    let id = Some(format!("call-{number}"));
    let call = FunctionCall { id: id.clone(), name: "add".into(), args: args(), ..FunctionCall::default() };
    let response = FunctionResponse { id, name: "add".into(), response: args(), ..FunctionResponse::default() };
    [
        ("user", Content::user("What is one and two?")),
        ("adder", Content::new("model", vec![PartData::FunctionCall(call).into()])),
        ("adder", Content::new("user", vec![PartData::FunctionResponse(response).into()])),
        ("adder", Content::model("The sum is three.")),
    ]
    .map(|(author, content)| {
        Event::new(EventData {
            author: author.into(),
            invocation_id: format!("e-{number}"),
            content: Some(Arc::new(content)),
            ..EventData::default()
        })
    })
}

fn args() -> JsonMap {
    JsonMap::from_iter([("a".into(), json!(1)), ("b".into(), json!(2))])
}

fn late_turns(c: &mut Criterion) {
    let runtime = runtime();
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = runtime.block_on(SqliteSessions::open(folder.path().join("bench.db"))).expect("a database");
    let sqlite: Arc<dyn SessionService> = Arc::new(sqlite);
    let stores: [(&str, Arc<dyn SessionService>); 2] =
        [("memory", Arc::new(MemorySessions::new())), ("sqlite", sqlite)];
    for (store, sessions) in stores {
        let (app, runner) = (app(), runner(sessions));
        let mut group = c.benchmark_group(format!("a turn with {store}"));
        group.sample_size(20);
        for turns in [8, 800] {
            group.bench_function(format!("turn {turns}"), |bencher| {
                bencher.iter_custom(|count| {
                    let (app, runner) = (app.clone(), runner.clone());
                    let work = async move {
                        let mut total = Duration::ZERO;
                        let mut remaining = count as usize;
                        while remaining > 0 {
                            let batch = remaining.min(TURNS_PER_SESSION);
                            total += run_batch(&runner, &app, turns, batch).await;
                            remaining -= batch;
                        }
                        total
                    };
                    let total = runtime.block_on(async { tokio::spawn(work).await.expect("the bench ends") });
                    record_mean(&format!("{store}, turn {turns}"), total, count);
                    total
                });
            });
        }
        group.finish();
    }
}

/// Runs `batch` turns after `turns` others in a session, and deletes it. Returns the time of the batch.
async fn run_batch(runner: &Runner, app: &Arc<App>, turns: usize, batch: usize) -> Duration {
    let key = prepared_session(runner, app, turns).await;
    let begin = Instant::now();
    for _ in 0..batch {
        run_turn(runner, app, &key.id).await;
    }
    let elapsed = begin.elapsed();
    runner.services().sessions.delete(&key).await.expect("deleted");
    elapsed
}

/// Prints the medians of turns with and without fence, lease and journal, and with stored runs.
fn compare() {
    let runtime = runtime();
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = runtime.block_on(SqliteSessions::open(folder.path().join("compare.db"))).expect("a database");
    let stores: [(&str, Arc<dyn SessionService>); 2] =
        [("memory", Arc::new(MemorySessions::new())), ("sqlite", Arc::new(sqlite))];
    println!("\n{:<18} {:>12} {:>22} {:>22}", "median in µs", "plain", "fence and journal", "and stored runs");
    for (store, sessions) in stores {
        let services: [Arc<dyn SessionService>; 3] = [
            Arc::new(UnfencedSessions::new(sessions.clone())),
            Arc::new(WithoutRuns(sessions.clone())),
            sessions.clone(),
        ];
        let runners = services.map(runner);
        for turns in [8, 800] {
            let (app, runners) = (app(), runners.clone());
            let work = async move {
                let mut times = [const { Vec::new() }; 3];
                for _ in 0..ROUNDS {
                    for (runner, times) in runners.iter().zip(&mut times) {
                        let elapsed = run_batch(runner, &app, turns, TURNS_PER_SESSION).await;
                        times.push(elapsed.as_secs_f64() * 1e6 / TURNS_PER_SESSION as f64);
                    }
                }
                times.map(median)
            };
            let [plain, fenced, full] =
                runtime.block_on(async { tokio::spawn(work).await.expect("the comparison ends") });
            let label = format!("{store}, turn {turns}");
            println!(
                "{label:<18} {plain:>12.1} {fenced:>12.1} ({:>5.3} x) {full:>12.1} ({:>5.3} x)",
                fenced / plain,
                full / fenced
            );
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn print_table() {
    let means = MEANS.lock().expect("no bench panics");
    let mean = |label: &str| means.iter().find(|(known, _)| known == label).map(|(_, mean)| *mean);
    println!("\n{:<34} {:>10} {:>8}", "mean of the last sample", "µs", "ratio");
    for (label, micros) in means.iter() {
        let base = label.strip_suffix("turn 800").and_then(|store| mean(&format!("{store}turn 8")));
        println!("{label:<34} {micros:>10.1} {:>8.2}", micros / base.unwrap_or(*micros));
    }
}

criterion_group!(benches, new_sessions, late_turns);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    print_table();
    compare();
}
