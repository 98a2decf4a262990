//! Sessions in PostgreSQL: their slopes, and appends beside bare inserts over as many connections.

use std::sync::Arc;

use hatchery_core::SessionService;
use hatchery_stores::PostgresSessions;
use hatchery_test_services::postgres;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

use super::shared::{Cost, SESSIONS, append, events, measure, print, print_header, run_all, split};

const CONNECTIONS: usize = 8;
const EVENTS: usize = 5_000;
const INSERT: &str = "INSERT INTO events (session, revision, json) VALUES ($1, $2, $3)";

/// Prints the costs, or says that there is no server.
pub fn run(runtime: &Runtime) {
    let Some(server) = postgres() else { return };
    super::slopes(runtime, "PostgreSQL", &open(runtime, server));
    print_header("PostgreSQL, per event");
    let floor = inserts(runtime, server);
    print(&format!("bare tokio-postgres, 64 tasks over {CONNECTIONS} connections, an insert each"), floor, floor);
    print("64 sessions", append(runtime, &open(runtime, server), EVENTS, SESSIONS), floor);
}

fn new_schema() -> String {
    format!("bench_{}", uuid::Uuid::new_v4().simple())
}

fn open(runtime: &Runtime, server: &str) -> Arc<dyn SessionService> {
    let uri = format!("{server}?schema={}&max_connections={CONNECTIONS}", new_schema());
    Arc::new(runtime.block_on(PostgresSessions::open(&uri)).expect("a database"))
}

/// Inserts the JSON of events in concurrent tasks. Each task has its own connection while it inserts.
fn inserts(runtime: &Runtime, server: &str) -> Cost {
    let connections = runtime.block_on(connect(server, &new_schema()));
    let events = events(EVENTS);
    let work: Vec<_> = (1_i64..).zip(split(&events, SESSIONS)).collect();
    measure(EVENTS, || {
        run_all(
            runtime,
            work.into_iter().zip(connections.iter().cycle().cloned()).map(
                |((session, events), connection)| async move {
                    for (revision, event) in (1_i64..).zip(&events) {
                        let json = str::from_utf8(event.json()).expect("UTF-8");
                        let connection = connection.lock().await;
                        let (client, insert) = &*connection;
                        client.execute(insert, &[&session, &revision, &json]).await.expect("a row");
                    }
                },
            ),
        );
    })
}

async fn connect(server: &str, schema: &str) -> Vec<Arc<Mutex<(Client, tokio_postgres::Statement)>>> {
    let mut connections = Vec::new();
    for index in 0..CONNECTIONS {
        let (client, connection) = tokio_postgres::connect(server, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        if index == 0 {
            let create = format!(
                "CREATE SCHEMA {schema}; CREATE TABLE {schema}.events \
                 (session bigint, revision bigint, json text, PRIMARY KEY (session, revision))"
            );
            client.batch_execute(&create).await.expect("a table");
        }
        client.batch_execute(&format!("SET search_path TO {schema}")).await.expect("a setting");
        let insert = client.prepare(INSERT).await.expect("a statement");
        connections.push(Arc::new(Mutex::new((client, insert))));
    }
    connections
}
