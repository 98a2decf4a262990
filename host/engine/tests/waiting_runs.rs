//! Memory and tasks of runs that wait for a person. The only test of this file, because it counts the memory and tasks
//! of the whole process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use futures::{StreamExt, stream};
use hatchery_core::{Content, RunState, Services, SessionKey};
use hatchery_engine::{App, AppSettings, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::{AppQuotas, SqliteSessions};
use hatchery_test_support::{CountingAllocator, llm_with, services, tool_with_confirmation};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs until the caches of sessions are full.
const WARM_UP: usize = 2_048;
const WAITING: usize = 10_000;
const CONCURRENT: usize = 16;

/// Starts run number `number` in its own session, which waits for a person's consent.
async fn wait_for_consent(runner: &Runner, app: &Arc<App>, number: usize) {
    let (user, session) = (format!("u{}", number % 100), format!("s{number}"));
    let request = RunRequest { run_id: Some("r1".into()), ..RunRequest::new(user, session, Content::user("pay")) };
    let key = SessionKey::new("app", request.user.as_str(), request.session.as_str());
    let sessions = &runner.services().sessions;
    sessions.create("app", &key.user, Some(&key.id), Default::default()).await.unwrap();
    runner.run(app.clone(), request).await.unwrap().collect().await.unwrap();
    let run = sessions.runs().unwrap().get(&key, "r1").await.unwrap().unwrap();
    assert_eq!(run.state, RunState::Waiting);
}

async fn wait_for_consents(runner: &Runner, app: &Arc<App>, numbers: std::ops::Range<usize>) {
    stream::iter(numbers).for_each_concurrent(CONCURRENT, |number| wait_for_consent(runner, app, number)).await;
    runner.drain().await;
}

#[tokio::test]
async fn ten_thousand_runs_that_wait_for_a_person_hold_no_task_and_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
    let services = AppQuotas::default().enforce(Services { sessions: Arc::new(sessions), ..services() });
    let pay = tool_with_confirmation("pay", |_, _| Ok(json!("paid")));
    let model = Scripted::new().default_reply(Reply::call("pay", json!({"amount": 1})));
    let app = App::new("app", llm_with("root", model, |llm| llm.tools = vec![pay])).unwrap();
    let app = Arc::new(app.with_settings(AppSettings { resumable: true, ..AppSettings::default() }));
    let runner = Runner::new(services);

    wait_for_consents(&runner, &app, 0..WARM_UP).await;
    let (bytes, tasks) = (CountingAllocator::allocated(), alive_tasks());
    wait_for_consents(&runner, &app, WARM_UP..WARM_UP + WAITING).await;
    assert_eq!((runner.active_runs(), alive_tasks()), (0, tasks));
    let per_run = (CountingAllocator::allocated() - bytes) / WAITING as isize;
    println!("{per_run} bytes per waiting run");
    assert!(per_run <= 1024, "{per_run} bytes per waiting run");
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
