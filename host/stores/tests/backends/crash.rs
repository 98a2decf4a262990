//! A process that is killed while it appends, and a database server that is.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use hatchery_core::{
    Event, EventActions, EventData, EventWindow, JsonMap, SessionKey, SessionService, State, StoreError,
};
use hatchery_stores::open_sessions;
use tokio::runtime::Runtime;

/// The URI of the sessions in the process that is killed.
const CHILD: &str = "HATCHERY_STORES_CRASH_SERVICE";

/// How often a process is killed, unless it is the default.
const ROUNDS: &str = "HATCHERY_CRASH_ROUNDS";

const DEFAULT_ROUNDS: usize = 20;

const SESSIONS: usize = 8;

/// Session, event and revision of an append that was acknowledged.
type Stored = (String, String, u64);

fn rounds() -> usize {
    std::env::var(ROUNDS).map_or(DEFAULT_ROUNDS, |rounds| rounds.parse().unwrap())
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Appends to several sessions until the process is killed, and prints what was acknowledged. An append that has failed
/// is repeated, as a client does.
fn append_for_ever(uri: &str) {
    runtime().block_on(async {
        let sessions = open_sessions(uri).await.unwrap();
        for number in 0..SESSIONS {
            let sessions = sessions.clone();
            tokio::spawn(async move {
                let key = create(&*sessions).await;
                for count in 0_u64.. {
                    let state_delta = [("count".into(), count.into()), (format!("user:{number}"), count.into())];
                    let actions =
                        EventActions { state_delta: state_delta.into_iter().collect(), ..EventActions::default() };
                    let event = Event::new(EventData { actions, ..EventData::default() });
                    let revision = append(&*sessions, &key, &event).await;
                    let mut output = std::io::stdout().lock();
                    writeln!(output, "stored {} {} {revision}", key.id, event.id).unwrap();
                    output.flush().unwrap();
                }
            });
        }
        std::future::pending::<()>().await;
    });
}

/// Creates a session. One whose creation was not acknowledged is left empty.
async fn create(sessions: &dyn SessionService) -> SessionKey {
    loop {
        match sessions.create("app", "ann", None, JsonMap::new()).await {
            Ok(session) => return session.key,
            Err(error) => assert!(is_temporary(&error), "{error}"),
        }
    }
}

async fn append(sessions: &dyn SessionService, key: &SessionKey, event: &Arc<Event>) -> u64 {
    loop {
        match sessions.append(key, event).await {
            Ok(revision) => return revision,
            Err(error) => assert!(is_temporary(&error), "{error}"),
        }
    }
}

/// Returns true for errors of a server that is gone or starts again.
fn is_temporary(error: &StoreError) -> bool {
    matches!(error.code(), "STORE_BUSY" | "STORE_FAILED")
}

/// A process that appends.
struct Appender {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
    stored: Vec<Stored>,
}

impl Appender {
    /// Starts a process that runs a test of this file as [`append_for_ever`].
    fn start(test: &str, uri: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([&format!("crash::{test}"), "--exact", "--nocapture"])
            .env(CHILD, uri)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        Self { child, lines: Box::new(lines), stored: Vec::new() }
    }

    /// Waits for this many acknowledged events.
    fn wait_for(&mut self, count: usize) {
        while self.stored.len() < count {
            let line = self.lines.next().expect("the process has ended by itself");
            self.stored.extend(parse(&line));
        }
    }

    /// Kills the process, and returns all acknowledged events.
    fn kill(mut self) -> Vec<Stored> {
        self.child.kill().unwrap();
        self.stored.extend(self.lines.filter_map(|line| parse(&line)));
        self.child.wait().unwrap();
        self.stored
    }
}

/// Parses a line of the process. The last one may be cut off.
fn parse(line: &str) -> Option<Stored> {
    let words: Vec<&str> = line.strip_prefix("stored ")?.split(' ').collect();
    let [session, event, revision]: [&str; 3] = words.try_into().ok()?;
    let revision = revision.parse().ok().filter(|_| event.len() == 36)?;
    Some((session.to_owned(), event.to_owned(), revision))
}

async fn check(uri: &str, stored: &[Stored]) {
    let sessions = open_sessions(uri).await.unwrap();
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
        for (key, value) in replay.iter() {
            assert_eq!(session.state.get(key), Some(value), "the events have set the state");
        }
    }
}

#[test]
fn acknowledged_events_survive_the_kill_of_their_process() {
    if let Ok(uri) = std::env::var(CHILD) {
        return append_for_ever(&uri);
    }
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("sqlite://{}/sessions.db", folder.path().display());
    let runtime = runtime();
    for round in 0..rounds() {
        let mut appender = Appender::start("acknowledged_events_survive_the_kill_of_their_process", &uri);
        appender.wait_for(moment(round));
        runtime.block_on(check(&uri, &appender.kill()));
    }
}

#[cfg(feature = "postgres")]
#[test]
fn acknowledged_events_survive_the_kill_of_their_process_and_of_the_database_server() {
    if let Ok(uri) = std::env::var(CHILD) {
        return append_for_ever(&uri);
    }
    let Some(mut server) = hatchery_test_services::PostgresServer::start(&[]) else { return };
    let uri = server.uri();
    let runtime = runtime();
    for round in 0..rounds() {
        let test = "acknowledged_events_survive_the_kill_of_their_process_and_of_the_database_server";
        let mut appender = Appender::start(test, &uri);
        appender.wait_for(moment(round));
        if round % 2 == 1 {
            server.kill();
            server.restart();
            appender.wait_for(moment(round) + 100);
        }
        runtime.block_on(check(&uri, &appender.kill()));
    }
}

/// Returns different moments, from the first events to some hundreds later.
fn moment(round: usize) -> usize {
    1 + (round * 37) % 300
}
