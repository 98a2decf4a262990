//! The size of stored events on disk, and of idle sessions in memory: `cargo bench --workspace --bench sizes`.

#![allow(clippy::expect_used, clippy::panic)]

mod shared;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{Event, EventWindow, JsonMap, SessionService};
use hatchery_stores::{MemorySessions, SqliteSessions};
use hatchery_test_support::{CountingAllocator, short_event};
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const EVENTS: usize = 10_000;
const IDLE_SESSIONS: usize = 1_000;
const IDLE_EVENTS: usize = 10;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = shared::runtime();
    println!("bytes of the closed SQLite file per event");
    for sessions in [1, 50] {
        let file = folder.path().join(format!("{sessions}.db"));
        on_disk(&runtime, &file, sessions);
    }
    println!("bytes per idle session of {IDLE_EVENTS} events in memory (target: at most 8192)");
    in_memory(&runtime);
}

fn on_disk(runtime: &Runtime, file: &Path, sessions: usize) {
    let events = shared::events(EVENTS);
    let json: usize = events.iter().map(|event| event.json().len()).sum();
    let empty = runtime.block_on(async {
        let service = SqliteSessions::open(file).await.expect("a database");
        let keys = shared::create(&service, "ann", sessions).await;
        service.close().await;
        let empty = size_of_file(file);
        let service = SqliteSessions::open(file).await.expect("a database");
        for (key, event) in keys.iter().cycle().zip(&events) {
            service.append(key, event).await.expect("a revision");
        }
        service.close().await;
        empty
    });
    let stored = size_of_file(file) - empty;
    let ratio = stored as f64 / json as f64;
    println!(
        "{:<58} {:>8} {:>8} of JSON {ratio:>8.2}",
        format!("{EVENTS} events in {sessions} sessions"),
        stored / EVENTS as u64,
        json / EVENTS
    );
}

fn size_of_file(file: &Path) -> u64 {
    std::fs::metadata(file).expect("a file").len()
}

/// Prints the allocated bytes of sessions in memory, without their events, with them, and once a client has read them.
fn in_memory(runtime: &Runtime) {
    let allocated = || CountingAllocator::allocated() / IDLE_SESSIONS as isize;
    let empty = allocated();
    let events: Vec<Vec<Arc<Event>>> =
        (0..IDLE_SESSIONS).map(|_| (0..IDLE_EVENTS).map(short_event).collect()).collect();
    let with_events = allocated();
    let sessions = MemorySessions::new();
    let keys = runtime.block_on(async {
        let mut keys = Vec::new();
        for events in &events {
            let key = sessions.create("dice", "ann", None, JsonMap::new()).await.expect("a session").key;
            for event in events {
                sessions.append(&key, event).await.expect("a revision");
            }
            keys.push(key);
        }
        keys
    });
    drop(events);
    let with_sessions = allocated();
    runtime.block_on(async {
        for key in &keys {
            let session = sessions.get(key, EventWindow::All).await.expect("a session").expect("a session");
            session.events.iter().for_each(|event| drop(event.json().clone()));
        }
    });
    println!("{:<58} {:>8}", "the session, without its events", with_sessions - with_events);
    println!("{:<58} {:>8}", "with its events", with_sessions - empty);
    println!("{:<58} {:>8}", "with its events, after a client has read them", allocated() - empty);
    drop((sessions, keys));
    println!("{:<58} {:>8}", "with its events, once it is idle", idle(runtime));
}

/// Returns the allocated bytes of a session that was not used for the time after which it is packed.
fn idle(runtime: &Runtime) -> isize {
    let empty = CountingAllocator::allocated();
    let sessions = MemorySessions::new().with_idle_time(Duration::ZERO);
    runtime.block_on(async {
        // One more, whose use packs the others.
        for _ in 0..=IDLE_SESSIONS {
            let key = sessions.create("dice", "ann", None, JsonMap::new()).await.expect("a session").key;
            for event in (0..IDLE_EVENTS).map(short_event) {
                sessions.append(&key, &event).await.expect("a revision");
            }
        }
    });
    (CountingAllocator::allocated() - empty) / IDLE_SESSIONS as isize
}
