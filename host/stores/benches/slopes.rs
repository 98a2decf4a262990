//! How the costs of session services grow with the length of a session and the number of sessions, and what 64 sessions
//! cost that append to PostgreSQL: `cargo bench --workspace --bench slopes`.
//!
//! Ratios are those to the first row of their kind. The same costs for every length are the best result.

#![allow(clippy::expect_used, clippy::panic)]

#[cfg(feature = "postgres")]
mod postgres;
mod shared;

use std::sync::Arc;

use hatchery_core::{EventWindow, SessionKey, SessionService};
use hatchery_stores::{MemorySessions, SqliteSessions};
use shared::{Cost, SESSIONS, create, events, measure, print, print_header, run_all, split};
use tokio::runtime::Runtime;

/// The events of a long session, and the sessions of a user who has many.
const MANY: usize = 10_000;
const FEW: usize = 10;
/// The newest events that a reader asks for, and the sessions of a page.
const WINDOW: usize = 20;
/// Operations per measurement.
const OPERATIONS: usize = 1_000;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = shared::runtime();
    let memory: Arc<dyn SessionService> = Arc::new(MemorySessions::new());
    slopes(&runtime, "in memory", &memory);
    let sqlite = runtime.block_on(SqliteSessions::open(folder.path().join("slopes.db"))).expect("a database");
    let sqlite: Arc<dyn SessionService> = Arc::new(sqlite);
    slopes(&runtime, "SQLite", &sqlite);
    #[cfg(feature = "postgres")]
    postgres::run(&runtime);
}

/// Prints the costs of a service.
fn slopes(runtime: &Runtime, name: &str, sessions: &Arc<dyn SessionService>) {
    print_header(&format!("{name}, per operation"));
    let few = runtime.block_on(create(&**sessions, "short", OPERATIONS / FEW));
    fill(runtime, sessions, &few, FEW);
    let first = append_to(runtime, sessions, &few);
    print(&format!("append after {FEW} events"), first, first);
    let long = runtime.block_on(create(&**sessions, "long", 1));
    fill(runtime, sessions, &long, MANY);
    print(&format!("append after {MANY} events"), append_to(runtime, sessions, &long), first);

    let first = read_newest(runtime, sessions, &few);
    print(&format!("open a session of {WINDOW} events with the last {WINDOW}"), first, first);
    print(&format!("open one of {MANY} with the last {WINDOW}"), read_newest(runtime, sessions, &long), first);

    create_many(runtime, sessions, "few", WINDOW);
    create_many(runtime, sessions, "many", MANY);
    let first = list_page(runtime, sessions, "few");
    print(&format!("list the first {WINDOW} of {WINDOW} sessions"), first, first);
    print(&format!("list the first {WINDOW} of {MANY}"), list_page(runtime, sessions, "many"), first);
    let all = measure(1, || {
        let listed = runtime.block_on(sessions.list("app", "many")).expect("sessions");
        assert_eq!(listed.len(), MANY);
    });
    print(&format!("list all {MANY}"), all, first);
}

/// Appends `count` events to each session.
fn fill(runtime: &Runtime, sessions: &Arc<dyn SessionService>, keys: &[SessionKey], count: usize) {
    for key in keys {
        let events = events(count);
        runtime.block_on(async {
            for event in &events {
                sessions.append(key, event).await.expect("a revision");
            }
        });
    }
}

/// Measures appends, the same number to each session. A short session gets as many events as it has.
fn append_to(runtime: &Runtime, sessions: &Arc<dyn SessionService>, keys: &[SessionKey]) -> Cost {
    let events = events(OPERATIONS);
    let work: Vec<_> = keys.iter().zip(split(&events, keys.len())).collect();
    measure(OPERATIONS, || {
        runtime.block_on(async {
            for (key, events) in &work {
                for event in events {
                    sessions.append(key, event).await.expect("a revision");
                }
            }
        });
    })
}

fn read_newest(runtime: &Runtime, sessions: &Arc<dyn SessionService>, keys: &[SessionKey]) -> Cost {
    measure(OPERATIONS, || {
        runtime.block_on(async {
            for key in keys.iter().cycle().take(OPERATIONS) {
                let session = sessions.get(key, EventWindow::Recent(WINDOW)).await.expect("a session");
                assert_eq!(session.expect("a session").events.len(), WINDOW);
            }
        });
    })
}

/// Creates sessions of a user, by concurrent tasks.
fn create_many(runtime: &Runtime, sessions: &Arc<dyn SessionService>, user: &'static str, count: usize) {
    let tasks = (0..SESSIONS).map(|task| {
        let sessions = sessions.clone();
        // Some of the tasks create one more.
        let count = count / SESSIONS + usize::from(task < count % SESSIONS);
        async move { drop(create(&*sessions, user, count).await) }
    });
    run_all(runtime, tasks);
}

fn list_page(runtime: &Runtime, sessions: &Arc<dyn SessionService>, user: &str) -> Cost {
    measure(OPERATIONS, || {
        runtime.block_on(async {
            for _ in 0..OPERATIONS {
                let page = sessions.list_page("app", user, None, WINDOW).await.expect("sessions");
                assert_eq!(page.sessions.len(), WINDOW);
            }
        });
    })
}
