//! Costs of the SQLite session service, beside the costs of bare SQLite:
//! `cargo bench --workspace --bench sqlite`.
//!
//! The columns are wall clock time and CPU time of all threads, per event, and their ratios to a row of bare SQLite.
//! Bare SQLite writes the same rows as the service, or one insert for each event: a table with the JSON, by as many
//! tasks, each insert committed by itself.

#![allow(clippy::expect_used, clippy::panic)]

mod shared;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hatchery_core::{JsonMap, SessionService, TurnStart};
use hatchery_stores::quotas::QuotaSessions;
use hatchery_stores::{Durability, SqliteSessions};
use rusqlite::{Connection, params};
use shared::{Cost, SESSIONS, append, create, events, measure, print, print_header, run_all, split};
use tokio::runtime::Runtime;

const EVENTS: usize = 20_000;
/// Fewer events, because each append waits for the disk.
const SYNCED_EVENTS: usize = 2_000;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = shared::runtime();
    for (durability, synchronous, events) in
        [(Durability::Process, "NORMAL", EVENTS), (Durability::Power, "FULL", SYNCED_EVENTS)]
    {
        let folder = folder.path().join(synchronous);
        print_header(&format!("per event, durability {durability:?}"));
        let single = bare(&runtime, &folder.join("single.db"), synchronous, events, 1);
        print("bare SQLite, the same rows, a transaction per event", single, single);
        let sessions = open(&runtime, &folder.join("one.db"), durability);
        print("one session", append(&runtime, &sessions, events, 1), single);
        let grouped = bare(&runtime, &folder.join("grouped.db"), synchronous, events, SESSIONS);
        print("bare SQLite, the same rows, 64 events per transaction", grouped, grouped);
        let sessions = open(&runtime, &folder.join("many.db"), durability);
        let many = append(&runtime, &sessions, events, SESSIONS);
        print("64 sessions", many, grouped);
        let sessions: Arc<dyn SessionService> =
            Arc::new(QuotaSessions::new(open(&runtime, &folder.join("quotas.db"), durability), Arc::default()));
        print("64 sessions of one user with quotas", append(&runtime, &sessions, events, SESSIONS), grouped);
        print("a turn of four events in 64 sessions, per event", turns(&runtime, &sessions, events), grouped);
        let inserts = inserts(&runtime, &folder.join("inserts.db"), synchronous, events);
        print("bare SQLite, 64 tasks, an insert each", inserts, inserts);
        print("64 sessions, as above, to these inserts", many, inserts);
    }
}

fn open(runtime: &Runtime, file: &Path, durability: Durability) -> Arc<dyn SessionService> {
    Arc::new(runtime.block_on(SqliteSessions::open_with(file, durability)).expect("a database"))
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

/// Inserts the JSON of events by concurrent tasks that share a connection, each insert in its own transaction.
fn inserts(runtime: &Runtime, file: &Path, synchronous: &str, count: usize) -> Cost {
    let connection = Connection::open(file).expect("a database");
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 16384; \
             CREATE TABLE events (session INTEGER, revision INTEGER, json TEXT, PRIMARY KEY (session, revision))"
        ))
        .expect("a table");
    let connection = Arc::new(Mutex::new(connection));
    let events = events(count);
    let work: Vec<_> = (1_i64..).zip(split(&events, SESSIONS)).collect();
    measure(count, || {
        run_all(
            runtime,
            work.into_iter().map(|(session, events)| {
                let connection = connection.clone();
                async move {
                    for (revision, event) in (1_i64..).zip(&events) {
                        let json = str::from_utf8(event.json()).expect("UTF-8");
                        let connection = connection.lock().expect("a connection");
                        let sql = "INSERT INTO events (session, revision, json) VALUES (?1, ?2, ?3)";
                        let mut insert = connection.prepare_cached(sql).expect("a statement");
                        insert.execute(params![session, revision, json]).expect("a row");
                    }
                }
            }),
        );
    })
}

/// Runs turns of four events in sessions concurrently.
fn turns(runtime: &Runtime, sessions: &Arc<dyn SessionService>, count: usize) -> Cost {
    const LEASE: Duration = Duration::from_secs(30);
    let keys = runtime.block_on(create(&**sessions, "ann", SESSIONS));
    let events = events(count);
    let work: Vec<_> = keys.into_iter().zip(split(&events, SESSIONS)).collect();
    measure(count, || {
        run_all(
            runtime,
            work.into_iter().map(|(key, events)| {
                let sessions = sessions.clone();
                async move {
                    let mut previous = None;
                    for turn in events.chunks(4) {
                        let turn_start = sessions.begin_turn(&key, previous, LEASE).await.expect("a turn");
                        let TurnStart::Begun(turn_start) = turn_start else { panic!("nobody else holds a turn") };
                        for event in turn {
                            sessions.append_with(&key, event, Some(turn_start.fence)).await.expect("a revision");
                        }
                        previous = Some(turn_start.fence);
                    }
                }
            }),
        );
    })
}
