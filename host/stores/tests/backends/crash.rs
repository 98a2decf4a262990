//! A process that is killed while it appends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use hatchery_core::{Event, EventActions, EventData, EventWindow, JsonMap, SessionKey, SessionService, State};
use hatchery_stores::SqliteSessions;
use tokio::runtime::Runtime;

/// Names the database in the process that is killed.
const CHILD: &str = "HATCHERY_STORES_CRASH_DATABASE";

const ROUNDS: u32 = 20;
const SESSIONS: usize = 8;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Appends to several sessions until the process is killed, and prints what was acknowledged.
fn append_for_ever(file: PathBuf) {
    runtime().block_on(async {
        let sessions = Arc::new(SqliteSessions::open(&file).await.unwrap());
        for number in 0..SESSIONS {
            let sessions = sessions.clone();
            tokio::spawn(async move {
                let key = sessions.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
                for count in 0_u64.. {
                    let state_delta = [("count".into(), count.into()), (format!("user:{number}"), count.into())];
                    let actions =
                        EventActions { state_delta: state_delta.into_iter().collect(), ..EventActions::default() };
                    let event = Event::new(EventData { actions, ..EventData::default() });
                    let revision = sessions.append(&key, &event).await.unwrap();
                    let mut output = std::io::stdout().lock();
                    writeln!(output, "stored {} {} {revision}", key.id, event.id).unwrap();
                    output.flush().unwrap();
                }
            });
        }
        std::future::pending::<()>().await;
    });
}

/// Starts a process that appends, kills it after `count` acknowledged events, and returns all acknowledged ones.
fn kill_after(count: usize, file: &Path) -> Vec<(String, String, u64)> {
    let test = "crash::acknowledged_events_survive_the_kill_of_their_process";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut stored = Vec::new();
    for line in lines {
        // The last line may be cut off.
        if let Some([session, event, revision]) = line.strip_prefix("stored ").and_then(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            <[&str; 3]>::try_from(words).ok()
        }) && let Ok(revision) = revision.parse()
            && event.len() == 36
        {
            stored.push((session.to_owned(), event.to_owned(), revision));
        }
        if stored.len() == count {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(stored.len() >= count, "the process has ended by itself");
    stored
}

async fn check(file: &Path, stored: &[(String, String, u64)]) {
    let sessions = SqliteSessions::open(file).await.unwrap();
    let mut by_session: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for (session, event, revision) in stored {
        by_session.entry(session).or_default().push((event, *revision));
    }
    for (id, acknowledged) in by_session {
        let session = sessions.get(&SessionKey::new("app", "ann", id), EventWindow::All).await.unwrap().unwrap();
        let ids: Vec<&str> = session.events.iter().map(|event| event.id.as_str()).collect();
        assert_eq!(session.revision, ids.len() as u64);
        for (event, revision) in acknowledged {
            assert_eq!(ids.iter().filter(|id| **id == event).count(), 1, "each acknowledged event is stored once");
            assert_eq!(ids[revision as usize - 1], event);
        }
        let mut replay = State::default();
        session.events.iter().for_each(|event| replay.apply(&event.actions.state_delta));
        assert_eq!(session.state.get("count"), replay.get("count"), "the state is that of the events");
    }
}

#[test]
fn acknowledged_events_survive_the_kill_of_their_process() {
    if let Some(file) = std::env::var_os(CHILD) {
        return append_for_ever(file.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let runtime = runtime();
    for round in 0..ROUNDS {
        let stored = kill_after(moment(round), &file);
        runtime.block_on(check(&file, &stored));
    }
}

/// Returns different moments, from the first events to some hundreds later.
fn moment(round: u32) -> usize {
    1 + (round as usize * 37) % 300
}
