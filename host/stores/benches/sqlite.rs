//! Costs of the SQLite session service, beside those of bare SQLite with the same rows:
//! `cargo bench -p hatchery-stores --bench sqlite`.
//!
//! The columns are wall clock time and CPU time of all threads, per event. The schema and the rows are the same for
//! all.

#![allow(clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hatchery_core::{Event, EventWindow, JsonMap, SessionKey, SessionService, TurnStart};
use hatchery_stores::quotas::QuotaSessions;
use hatchery_stores::{Durability, SqliteSessions};
use hatchery_test_support::typical_event;
use rusqlite::{Connection, params};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

const EVENTS: usize = 20_000;
const SESSIONS: usize = 64;
/// Appends that each wait for the disk are fewer.
const SYNCED_EVENTS: usize = 2_000;

/// The cost of one event.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    println!("{:<58} {:>9} {:>9} {:>7}", "per event", "wall", "CPU", "ratio");
    for (durability, synchronous, events) in
        [(Durability::Process, "NORMAL", EVENTS), (Durability::Power, "FULL", SYNCED_EVENTS)]
    {
        let folder = folder.path().join(synchronous);
        println!("durability {durability:?}");
        let single = bare(&runtime, &folder.join("single.db"), synchronous, events, 1);
        print("bare SQLite, a transaction per event", single, single);
        let sessions = open(&runtime, &folder.join("one.db"), durability);
        print("one session", append(&runtime, &sessions, events, 1), single);
        let grouped = bare(&runtime, &folder.join("grouped.db"), synchronous, events, SESSIONS);
        print("bare SQLite, 64 events per transaction", grouped, grouped);
        let sessions = open(&runtime, &folder.join("many.db"), durability);
        print("64 sessions", append(&runtime, &sessions, events, SESSIONS), grouped);
        let sessions: Arc<dyn SessionService> =
            Arc::new(QuotaSessions::new(open(&runtime, &folder.join("quotas.db"), durability), Arc::default()));
        print("64 sessions of one user with quotas", append(&runtime, &sessions, events, SESSIONS), grouped);
        print("a turn of four events in 64 sessions, per event", turns(&runtime, &sessions, events), grouped);
    }
    reads(&runtime, &folder.path().join("reads.db"));
}

fn print(name: &str, cost: Cost, floor: Cost) {
    let micros = |duration: Duration| format!("{:.1} µs", duration.as_secs_f64() * 1e6);
    let ratio = cost.cpu.as_secs_f64() / floor.cpu.as_secs_f64();
    println!("{name:<58} {:>9} {:>9} {ratio:>7.2}", micros(cost.wall), micros(cost.cpu));
}

fn open(runtime: &Runtime, file: &Path, durability: Durability) -> Arc<dyn SessionService> {
    Arc::new(runtime.block_on(SqliteSessions::open_with(file, durability)).expect("a database"))
}

/// Returns events whose JSON exists already.
fn events(count: usize) -> Vec<Arc<Event>> {
    let events: Vec<_> = (0..count).map(typical_event).collect();
    events.iter().for_each(|event| drop(event.json().clone()));
    events
}

/// Measures what `work` costs for each of `count` events.
fn measure(count: usize, work: impl FnOnce()) -> Cost {
    let cpu = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let (started, before) = (Instant::now(), cpu());
    work();
    let count = count as u32;
    Cost { wall: started.elapsed() / count, cpu: (cpu() - before) / count }
}

/// Writes the rows of events in a loop, `group` events per transaction.
fn bare(runtime: &Runtime, file: &Path, synchronous: &str, count: usize, group: usize) -> Cost {
    runtime.block_on(async {
        let sessions = SqliteSessions::open(file).await.expect("a database");
        for number in 0..group {
            sessions.create("app", "ann", Some(&number.to_string()), JsonMap::new()).await.expect("a session");
        }
        sessions.close().await;
    });
    let connection = Connection::open(file).expect("a database");
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = {synchronous}; PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 16384; \
             PRAGMA temp_store = MEMORY"
        ))
        .expect("settings");
    let events = events(count);
    let prepare = |sql| connection.prepare(sql).expect("a statement");
    let [mut begin, mut commit] = ["BEGIN IMMEDIATE", "COMMIT"].map(prepare);
    let mut insert_id = prepare("INSERT INTO event_ids (session, hash, revision) VALUES (?1, ?2, ?3)");
    let mut insert = prepare("INSERT INTO events (session, revision, time, json) VALUES (?1, ?2, ?3, ?4)");
    let mut count_event =
        prepare("UPDATE sessions SET revision = ?2, updated = ?3, event_bytes = event_bytes + ?4 WHERE session = ?1");
    let mut count_user = prepare("UPDATE users SET event_bytes = event_bytes + ?3 WHERE app = ?1 AND user = ?2");
    measure(count, || {
        for (revision, events) in (1_i64..).zip(events.chunks(group)) {
            begin.execute([]).expect("a transaction");
            for (session, event) in (1_i64..).zip(events) {
                let json = str::from_utf8(event.json()).expect("UTF-8");
                let (time, bytes) = (event.timestamp.as_micros(), json.len() as i64);
                // Scattered like hashes.
                let hash = revision.wrapping_mul(0x5851_F42D_4C95_7F2D);
                insert_id.execute(params![session, hash, revision]).expect("a row");
                insert.execute(params![session, revision, time, json]).expect("a row");
                count_event.execute(params![session, revision, time, bytes]).expect("a row");
                count_user.execute(params!["app", "ann", bytes]).expect("a row");
            }
            commit.execute([]).expect("a commit");
        }
    })
}

async fn create(sessions: &dyn SessionService, count: usize) -> Vec<SessionKey> {
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(sessions.create("app", "ann", None, JsonMap::new()).await.expect("a session").key);
    }
    keys
}

/// Appends events to sessions concurrently, in each of them one after the other.
fn append(runtime: &Runtime, sessions: &Arc<dyn SessionService>, count: usize, concurrency: usize) -> Cost {
    let keys = runtime.block_on(create(&**sessions, concurrency));
    let events = events(count);
    let work: Vec<_> = keys.into_iter().zip(events.chunks(count.div_ceil(concurrency)).map(<[_]>::to_vec)).collect();
    measure(count, || {
        runtime.block_on(async {
            let tasks: Vec<_> = work
                .into_iter()
                .map(|(key, events)| {
                    let sessions = sessions.clone();
                    tokio::spawn(async move {
                        for event in &events {
                            sessions.append(&key, event).await.expect("a revision");
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("a task");
            }
        });
    })
}

/// Runs turns of four events in sessions concurrently.
fn turns(runtime: &Runtime, sessions: &Arc<dyn SessionService>, count: usize) -> Cost {
    const LEASE: Duration = Duration::from_secs(30);
    let keys = runtime.block_on(create(&**sessions, SESSIONS));
    let events = events(count);
    let work: Vec<_> = keys.into_iter().zip(events.chunks(count.div_ceil(SESSIONS)).map(<[_]>::to_vec)).collect();
    measure(count, || {
        runtime.block_on(async {
            let tasks: Vec<_> = work
                .into_iter()
                .map(|(key, events)| {
                    let sessions = sessions.clone();
                    tokio::spawn(async move {
                        let mut previous = None;
                        for turn in events.chunks(4) {
                            let turn_start = sessions.begin_turn(&key, previous, LEASE).await.expect("a turn");
                            let TurnStart::Begun(turn_start) = turn_start else { panic!("nobody else holds a turn") };
                            for event in turn {
                                sessions.append_with(&key, event, Some(turn_start.fence)).await.expect("a revision");
                            }
                            previous = Some(turn_start.fence);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("a task");
            }
        });
    })
}

/// Prints how the costs of a session grow with its length.
fn reads(runtime: &Runtime, file: &Path) {
    const LENGTHS: [usize; 2] = [10, 10_000];
    let sessions = open(runtime, file, Durability::Process);
    println!("slopes, the same for every length at best");
    let mut floor = None;
    for length in LENGTHS {
        let key = runtime.block_on(create(&*sessions, 1)).remove(0);
        let work = events(length + 1_000);
        let (before, measured) = work.split_at(length);
        runtime.block_on(async {
            for event in before {
                sessions.append(&key, event).await.expect("a revision");
            }
        });
        let read = measure(1_000, || {
            runtime.block_on(async {
                for _ in 0..1_000 {
                    sessions.get(&key, EventWindow::Recent(10)).await.expect("a session");
                }
            });
        });
        let appended = measure(measured.len(), || {
            runtime.block_on(async {
                for event in measured {
                    sessions.append(&key, event).await.expect("a revision");
                }
            });
        });
        let (first_read, first_append) = *floor.get_or_insert((read, appended));
        print(&format!("reading the newest 10 of {length} events"), read, first_read);
        print(&format!("appending after {length} events"), appended, first_append);
    }
}
