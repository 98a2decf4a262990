//! PostgreSQL: what only it promises, and what only it can do wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hatchery_core::{
    CallRecord, Content, Event, EventData, EventWindow, ExpiryRule, JsonMap, MemoryService, RunTransition, Session,
    SessionKey, SessionService, State, StoreError, StoredRun, Timestamp, TurnStart,
};
use hatchery_stores::{PostgresMemory, PostgresSessions};
use hatchery_test_services::PostgresServer;
use serde_json::json;

use crate::database::{in_schema, uri};
use crate::support::{LONG, append, create, delta, event, event_at, ids, map, state};

/// The statements of the crate.
#[allow(dead_code)]
#[path = "../../src/sessions/postgres/queries.rs"]
mod queries;

/// Two services, as of two hosts, of one new schema.
async fn two_hosts() -> Option<[PostgresSessions; 2]> {
    let uri = uri()?;
    let open = async || PostgresSessions::open(&uri).await.unwrap();
    Some([open().await, open().await])
}

/// Returns a connection to the server of a URI, whose first schema is the schema of the URI.
async fn raw(uri: &str) -> tokio_postgres::Client {
    let (server, query) = uri.split_once('?').unwrap();
    let schema = query.strip_prefix("schema=").unwrap().split('&').next().unwrap();
    let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path TO {schema}")).await.unwrap();
    client
}

async fn begin(host: &PostgresSessions, key: &SessionKey) -> Option<u64> {
    match host.begin_turn(key, None, LONG).await.unwrap() {
        TurnStart::Begun(turn) => Some(turn.fence),
        TurnStart::Held { .. } => None,
    }
}

#[tokio::test]
async fn two_hosts_that_append_at_once_lose_nothing() {
    let Some(hosts) = two_hosts().await else { return };
    let key = create(&hosts[0], "ann", "s1").await;
    let events: Vec<_> = (0..40)
        .map(|number| delta(json!({format!("k{number}"): number, "user:last": number, "app:a": number})))
        .collect();
    let appends = events.iter().enumerate().map(|(index, event)| hosts[index % 2].append(&key, event));
    let revisions: BTreeSet<u64> = join_all(appends).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(revisions, (1..=40).collect());
    for host in &hosts {
        let session = host.get(&key, EventWindow::All).await.unwrap().unwrap();
        assert_eq!((session.revision, session.events.len(), session.state.len()), (40, 40, 42));
    }
    let usage = hosts[1].usage(&key).await.unwrap();
    assert_eq!((usage.session.events, usage.session.state.keys, usage.user.state.keys), (40, 40, 41));
}

#[tokio::test]
async fn sessions_that_share_state_change_it_in_any_order_at_once() {
    let Some(hosts) = two_hosts().await else { return };
    let keys = [create(&hosts[0], "ann", "s1").await, create(&hosts[0], "ann", "s2").await];
    let deltas = [
        json!({"user:a": 1, "user:b": 1, "app:a": 1, "app:b": 1}),
        json!({"app:b": 2, "app:a": null, "user:b": null, "user:a": 2}),
    ];
    let events: Vec<_> = (0..40).map(|index| delta(deltas[index % 2].clone())).collect();
    let appends = events.iter().enumerate().map(|(index, event)| hosts[index / 2 % 2].append(&keys[index % 2], event));
    assert!(join_all(appends).await.into_iter().all(|revision| revision.is_ok()));
    let last = state(&hosts[0], &keys[0]).await;
    assert!(last == deltas[0] || last == json!({"app:b": 2, "user:a": 2}), "{last}");
}

#[tokio::test]
async fn one_event_that_two_hosts_append_is_stored_once() {
    let Some(hosts) = two_hosts().await else { return };
    let key = create(&hosts[0], "ann", "s1").await;
    let event = event("hello");
    let appends = (0..8).map(|index| hosts[index % 2].append(&key, &event));
    assert!(join_all(appends).await.into_iter().all(|revision| revision.unwrap() == 1));
    assert_eq!(ids(&hosts[0], &key, EventWindow::All).await, [event.id.as_str()]);
}

#[tokio::test]
async fn a_host_whose_turn_another_host_has_taken_writes_nothing() {
    let Some([first, second]) = two_hosts().await else { return };
    let key = create(&first, "ann", "s1").await;
    let fence = begin(&first, &key).await.unwrap();
    assert_eq!(begin(&second, &key).await, None, "the first host holds the session");
    let run = StoredRun::new(key.clone(), "r1", 0);
    first.runs().unwrap().start(&run, fence).await.unwrap();
    first.renew_turn(&key, fence, Duration::ZERO).await.unwrap();
    assert_eq!(begin(&second, &key).await, Some(fence + 1));
    let runs = first.runs().unwrap();
    let record = CallRecord { call: "c".into(), outcome: None };
    for error in [
        first.append_with(&key, &event("late"), Some(fence)).await.unwrap_err(),
        first.renew_turn(&key, fence, LONG).await.unwrap_err(),
        first.journal().unwrap().record(&key, "r1", fence, &record).await.unwrap_err(),
        runs.start(&StoredRun::new(key.clone(), "r2", 0), fence).await.unwrap_err(),
        runs.change(&key, "r1", Some(fence), &RunTransition::Finish).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Fenced(_)), "{error}");
    }
    assert!(ids(&second, &key, EventWindow::All).await.is_empty());
}

#[tokio::test]
async fn two_hosts_that_change_a_run_at_once_both_count() {
    let Some(hosts) = two_hosts().await else { return };
    let key = create(&hosts[0], "ann", "s1").await;
    let run = StoredRun::new(key.clone(), "r\0\"1\\", 0);
    let [one, other] = [hosts[0].runs().unwrap(), hosts[1].runs().unwrap()];
    let added = join_all([one.add(&run), other.add(&run)]).await;
    assert!(added.into_iter().all(|added| added.unwrap() == run));
    let starts = (0..6).map(|index| [one, other][index % 2].change(&key, &run.id, None, &RunTransition::Start));
    assert!(join_all(starts).await.into_iter().all(|run| run.unwrap().is_some()));
    assert_eq!(one.get(&key, &run.id).await.unwrap().unwrap().attempts, 6);
}

#[tokio::test]
async fn a_lease_that_ends_too_late_is_the_result_of_a_clock_that_was_set_back() {
    let Some(uri) = uri() else { return };
    let sessions = PostgresSessions::open(&uri).await.unwrap();
    let key = create(&sessions, "ann", "s1").await;
    let run = StoredRun { is_background: true, ..StoredRun::new(key.clone(), "r1", 0) };
    sessions.runs().unwrap().add(&run).await.unwrap();
    assert!(begin(&sessions, &key).await.is_some());
    let apps = ["app".to_owned()];
    let rule = ExpiryRule { user_sessions: Some(0), ..ExpiryRule::default() };
    for (shift, count) in [(0, 0), (3_600_000_000_i64, 1)] {
        let set_back = format!("UPDATE sessions SET leased_until = leased_until + {shift}");
        raw(&uri).await.batch_execute(&set_back).await.unwrap();
        assert_eq!(sessions.runs().unwrap().list_interrupted(&apps, 10).await.unwrap().len(), count);
        assert_eq!(sessions.list_expired("app", &rule, 10).await.unwrap().len(), count);
    }
    assert!(begin(&sessions, &key).await.is_some());
    assert!(begin(&sessions, &key).await.is_none());
}

#[tokio::test]
async fn names_with_u_0000_are_read_back_in_state_and_refused_in_keys_of_sessions() {
    let Some([sessions, _]) = two_hosts().await else { return };
    let initial = map(json!({"a\0b": "c\0d", "user:\"\\": {"\0": 1}}));
    let created = sessions.create("app", "ann", Some("s1"), initial.clone()).await.unwrap();
    assert_eq!(serde_json::to_value(&created.state).unwrap(), json!(initial));
    assert_eq!(state(&sessions, &created.key).await, json!(initial));
    append(&sessions, &created.key, [delta(json!({"a\0b": null}))]).await;
    assert_eq!(state(&sessions, &created.key).await, json!({"user:\"\\": {"\0": 1}}));
    let error = sessions.create("app", "a\0b", None, JsonMap::new()).await.unwrap_err();
    assert!(matches!(error, StoreError::InvalidRequest(_)), "{error}");
}

#[tokio::test]
async fn a_window_reads_only_the_rows_that_it_returns() {
    let Some(uri) = uri() else { return };
    let sessions = PostgresSessions::open(&uri).await.unwrap();
    let client = raw(&uri).await;
    let key = create(&sessions, "ann", "s1").await;
    append(&sessions, &key, (1..=400).map(event_at)).await;
    // The table is so small that reading all of it would cost as little.
    client.batch_execute("ANALYZE; SET enable_seqscan = off").await.unwrap();
    // Reads are counted per server process, so the query is explained on the test's own connection.
    let plan = async |condition: &str| {
        let explain =
            format!("EXPLAIN (ANALYZE, FORMAT JSON) SELECT json FROM events WHERE session = 1 AND {condition}");
        let row = client.query_one(explain.as_str(), &[]).await.unwrap();
        let plan: serde_json::Value = row.get(0);
        plan[0]["Plan"].clone()
    };
    for (condition, rows) in [("revision > 380", 20), ("time >= 391", 10)] {
        let plan = plan(condition).await;
        let text = plan.to_string();
        assert_eq!(plan["Actual Rows"].as_f64(), Some(f64::from(rows)), "{text}");
        assert!(!text.contains("Seq Scan") && !text.contains("Rows Removed by Filter"), "{text}");
    }
    let count = async |window| sessions.get(&key, window).await.unwrap().unwrap().events.len();
    let time = Timestamp::from_micros(395);
    assert_eq!(count(EventWindow::RecentSince { count: 20, time }).await, 6);
    assert_eq!(count(EventWindow::RecentSince { count: 3, time }).await, 3);
    assert_eq!(count(EventWindow::Since(time)).await, 6);
}

/// Returns the nodes of a plan, and those below them.
fn nodes(plan: &serde_json::Value) -> Vec<&serde_json::Value> {
    let below = plan["Plans"].as_array().into_iter().flatten();
    std::iter::once(plan).chain(below.flat_map(nodes)).collect()
}

#[tokio::test]
async fn a_page_of_a_list_reads_only_its_sessions() {
    let Some(uri) = uri() else { return };
    let sessions = PostgresSessions::open(&uri).await.unwrap();
    let client = raw(&uri).await;
    let create = "INSERT INTO sessions (app, user_id, id, created, updated, initial_state) \
                  SELECT 'app', 'ann', lpad((n * 7919 % 2000)::text, 6, '0'), n, n / 10, '{}' FROM generate_series(0, 1999) n";
    client.batch_execute(create).await.unwrap();
    client.batch_execute("ANALYZE").await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) {}", queries::LIST);
    for (updated, id) in [(i64::MAX, ""), (100, "000500")] {
        let row = client.query_one(explain.as_str(), &[&"app", &"ann", &updated, &id, &Some(21_i64)]).await.unwrap();
        let plan: serde_json::Value = row.get(0);
        let read: Vec<_> =
            nodes(&plan[0]["Plan"]).into_iter().filter(|node| node["Relation Name"] == json!("sessions")).collect();
        assert!(!read.is_empty() && read.iter().all(|node| node["Index Name"] == json!("sessions_by_time")), "{plan}");
        assert!(read.iter().all(|node| node.get("Rows Removed by Filter").is_none()), "{plan}");
        let rows: f64 = read.iter().map(|node| node["Actual Rows"].as_f64().unwrap()).sum();
        assert!((21.0..=42.0).contains(&rows), "{plan}");
    }
    let page = sessions.list_page("app", "ann", None, 20).await.unwrap();
    assert_eq!((page.sessions.len(), page.next.unwrap().updated.as_micros()), (20, 198));
}

#[tokio::test]
async fn a_page_of_a_list_reads_only_the_state_of_its_sessions_by_a_generic_plan() {
    let Some(uri) = uri() else { return };
    let _sessions = PostgresSessions::open(&uri).await.unwrap();
    let client = raw(&uri).await;
    let create = "INSERT INTO sessions (app, user_id, id, created, updated, initial_state) \
                  SELECT 'app', 'ann', n::text, n, n, '{}' FROM generate_series(1, 10000) n; \
                  INSERT INTO session_state (session, key, value, bytes) SELECT session, 'topic', '1', 6 FROM sessions; ANALYZE; \
                  SET plan_cache_mode = force_generic_plan";
    client.batch_execute(create).await.unwrap();
    client.batch_execute(&format!("PREPARE list AS {}", queries::LIST)).await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE list ('app', 'ann', {}, '', 21)", i64::MAX);
    let row = client.query_one(explain.as_str(), &[]).await.unwrap();
    let plan: serde_json::Value = row.get(0);
    let nodes = nodes(&plan[0]["Plan"]);
    let read = nodes.iter().filter(|node| node["Relation Name"] == json!("session_state"));
    let rows =
        |node: &&serde_json::Value| node["Actual Rows"].as_f64().unwrap() * node["Actual Loops"].as_f64().unwrap();
    assert_eq!(read.map(rows).sum::<f64>(), 21.0, "{plan}");
}

#[tokio::test]
async fn indexes_are_right_for_new_databases_without_statistics() {
    let Some(uri) = uri() else { return };
    let _sessions = PostgresSessions::open(&uri).await.unwrap();
    let client = raw(&uri).await;
    // Many changes of a few sessions make one index larger than the other, then many sessions are new.
    let fill = "ALTER TABLE sessions SET (autovacuum_enabled = false); \
                INSERT INTO sessions (app, user_id, id, created, updated, initial_state) \
                  SELECT 'app', 'bob', md5(n::text), n, n, '{}' FROM generate_series(1, 100) n; \
                DO $$ BEGIN FOR i IN 1..200 LOOP UPDATE sessions SET updated = updated + 100; END LOOP; END $$; \
                INSERT INTO sessions (app, user_id, id, created, updated, initial_state) \
                  SELECT 'app', 'ann', md5(n::text), n, n, '{}' FROM generate_series(1, 10000) n; \
                SET plan_cache_mode = force_generic_plan; \
                PREPARE find (TEXT, TEXT, TEXT) AS \
                  SELECT session FROM sessions WHERE app = $1 AND user_id = $2 AND id = $3 FOR NO KEY UPDATE";
    client.batch_execute(fill).await.unwrap();
    client.batch_execute(&format!("PREPARE list AS {}", queries::LIST)).await.unwrap();
    let list = format!("list ('app', 'ann', {}, '', 21)", i64::MAX);
    for (statement, index) in [("find ('app', 'ann', 'missing')", "sessions_key"), (list.as_str(), "sessions_by_time")]
    {
        let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {statement}");
        let row = client.query_one(explain.as_str(), &[]).await.unwrap();
        let plan: serde_json::Value = row.get(0);
        let nodes = nodes(&plan[0]["Plan"]);
        let read: Vec<_> = nodes.iter().filter(|node| node["Relation Name"] == json!("sessions")).collect();
        assert!(!read.is_empty() && read.iter().all(|node| node["Index Name"] == json!(index)), "{plan}");
        assert!(read.iter().all(|node| node.get("Rows Removed by Filter").is_none()), "{plan}");
    }
}

#[tokio::test]
async fn sessions_of_schema_1_are_listed_in_pages() {
    let Some(uri) = uri() else { return };
    let client = raw(&uri).await;
    let schema: String = {
        let row = client.query_one("SHOW search_path", &[]).await.unwrap();
        row.get(0)
    };
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    client.batch_execute(include_str!("../../src/sessions/postgres/migrations/0001_sessions.sql")).await.unwrap();
    let rows = "CREATE TABLE schema_versions (part TEXT PRIMARY KEY, version INTEGER NOT NULL); \
                INSERT INTO schema_versions VALUES ('sessions', 1); \
                INSERT INTO sessions (app, user_id, id, created, updated, initial_state) VALUES \
                  ('app', 'ann', 's1', 1, 1, '{}'), ('app', 'ann', 's2', 1, 3, '{}'), ('app', 'ann', 's3', 1, 2, '{}')";
    client.batch_execute(rows).await.unwrap();
    let sessions = PostgresSessions::open(&uri).await.unwrap();
    let mut after = None;
    for (id, has_more) in [("s2", true), ("s3", true), ("s1", false)] {
        let page = sessions.list_page("app", "ann", after.as_ref(), 1).await.unwrap();
        assert_eq!((&*page.sessions[0].key.id, page.next.is_some()), (id, has_more));
        after = page.next;
    }
    let version = "SELECT version, to_regclass('sessions_by_time') IS NOT NULL, to_regclass('sessions_key') IS NOT NULL \
                   FROM schema_versions WHERE part = 'sessions'";
    let row = client.query_one(version, &[]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, bool>(1), row.get::<_, bool>(2)), (4, true, true));
    let exists = sessions.create("app", "ann", Some("s1"), JsonMap::new()).await;
    assert!(matches!(exists, Err(StoreError::SessionExists(_))), "{exists:?}");
}

#[tokio::test]
async fn hosts_that_open_a_new_schema_at_once_create_it_once() {
    let Some(uri) = uri() else { return };
    let opened = join_all((0..4).map(|_| PostgresSessions::open(&uri))).await;
    let key = create(opened[0].as_ref().unwrap(), "ann", "s1").await;
    for sessions in &opened {
        assert!(sessions.as_ref().unwrap().get(&key, EventWindow::All).await.unwrap().is_some());
    }
    // Memory is another part of the same schema.
    PostgresMemory::open(&uri).await.unwrap();
}

#[tokio::test]
async fn a_newer_schema_and_tables_of_other_programs_are_refused() {
    let Some(uri) = uri() else { return };
    drop(PostgresSessions::open(&uri).await.unwrap());
    let client = raw(&uri).await;
    client.batch_execute("UPDATE schema_versions SET version = 99").await.unwrap();
    let error = PostgresSessions::open(&uri).await.err().unwrap();
    let expected = "has schema version 99, but this version of Hatchery knows only up to 4: use a newer Hatchery or another \
                    schema";
    assert!(matches!(&error, StoreError::InvalidRequest(message) if message.ends_with(expected)), "{error}");

    client.batch_execute("DROP TABLE schema_versions").await.unwrap();
    let error = PostgresSessions::open(&uri).await.err().unwrap();
    assert!(error.to_string().contains("has tables of another program: name another one with `?schema=`"), "{error}");
}

#[tokio::test]
async fn a_search_with_a_configuration_finds_other_forms_of_a_word() {
    let Some(uri) = uri() else { return };
    let memory = PostgresMemory::open(&format!("{uri}&text_search=english")).await.unwrap();
    let message =
        |text: &str| Event::new(EventData { content: Some(Arc::new(Content::user(text))), ..EventData::default() });
    let now = Timestamp::now();
    let session = Session {
        key: SessionKey::new("app", "ann", "s1"),
        state: State::default(),
        events: ["running shoes", "the runs", "walking"].map(message).into_iter().collect(),
        revision: 3,
        created: now,
        last_update_time: now,
    };
    memory.add_session(&session).await.unwrap();
    let search = async |query| memory.search("app", "ann", query).await.unwrap().len();
    assert_eq!((search("run").await, search("shoe").await, search("the").await, search("ran").await), (2, 1, 1, 0));

    let plain = PostgresMemory::open(&uri).await.unwrap();
    plain.add_events(&SessionKey::new("app", "ann", "s2"), &[message("jumping")]).await.unwrap();
    assert_eq!((search("jump").await, search("jumping").await), (0, 1), "it was added without a configuration");
    let error = PostgresMemory::open(&format!("{uri}&text_search=klingon")).await.err().unwrap();
    assert!(error.to_string().contains("has no configuration of text search `klingon`"), "{error}");
}

#[tokio::test]
async fn very_long_words_and_messages_are_remembered() {
    let Some(uri) = uri() else { return };
    let memory = PostgresMemory::open(&uri).await.unwrap();
    let long = "x".repeat(5000);
    let many: String = (0..200_000).map(|number| format!("w{number} ")).collect();
    let events = [long.clone(), many]
        .map(|text| Event::new(EventData { content: Some(Arc::new(Content::user(text))), ..EventData::default() }));
    memory.add_events(&SessionKey::new("app", "ann", "s1"), &events).await.unwrap();
    for query in [long.as_str(), "w100000"] {
        assert_eq!(memory.search("app", "ann", query).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn more_writers_than_connections_wait_for_each_other() {
    let Some(uri) = uri() else { return };
    let sessions =
        PostgresSessions::open(&uri.replace("max_connections=4", "max_connections=1&application_name=one-connection"))
            .await
            .unwrap();
    let key = create(&sessions, "ann", "s1").await;
    let events: Vec<_> = (0..20).map(|number| event(&number.to_string())).collect();
    assert!(join_all(events.iter().map(|event| sessions.append(&key, event))).await.into_iter().all(|it| it.is_ok()));
    let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let row = raw(&uri).await.query_one(query, &[&"one-connection"]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 1);
}

#[tokio::test]
async fn a_write_behind_the_lock_of_another_program_fails_as_busy() {
    let Some(uri) = uri() else { return };
    let sessions = PostgresSessions::open(&uri).await.unwrap();
    let key = create(&sessions, "ann", "s1").await;
    let client = raw(&uri).await;
    client.batch_execute("BEGIN; LOCK TABLE sessions").await.unwrap();
    let error = sessions.append(&key, &event("hello")).await.unwrap_err();
    assert_eq!(error.code(), "STORE_BUSY", "{error}");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(sessions.append(&key, &event("hello")).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_started_again_has_every_acknowledged_event() {
    let Some(mut server) = PostgresServer::start(&[]) else { return };
    let sessions = Arc::new(PostgresSessions::open(&in_schema(&server.uri())).await.unwrap());
    let key = create(&*sessions, "ann", "s1").await;
    let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let writer = tokio::spawn({
        let (sessions, key) = (sessions.clone(), key.clone());
        async move {
            let mut stored = Vec::new();
            // An append that has failed is repeated, as a client does.
            while stored.len() < 60 {
                let event = delta(json!({"count": stored.len()}));
                while let Err(error) = sessions.append(&key, &event).await {
                    assert!(matches!(error.code(), "STORE_BUSY" | "STORE_FAILED"), "{error}");
                }
                stored.push(event.id.clone());
                report.send(stored.len()).unwrap();
            }
            stored
        }
    });
    for killed_after in [7, 23, 41] {
        while reports.recv().await.unwrap() < killed_after {}
        server.kill();
        server.restart();
    }
    while reports.recv().await.is_some() {}
    assert_eq!(ids(&*sessions, &key, EventWindow::All).await, writer.await.unwrap(), "all are there, each once");
    assert_eq!(state(&*sessions, &key).await, json!({"count": 59}));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_or_refuses_the_password_is_named_without_it() {
    let uri = "postgres://ann:s3cret@127.0.0.1:1/agents";
    let error = PostgresSessions::open(uri).await.err().unwrap();
    assert_eq!(error.code(), "STORE_BUSY");
    assert!(error.to_string().contains("cannot be reached") && !error.to_string().contains("s3cret"), "{error}");

    let Some(server) = PostgresServer::start_with(&[], |data| {
        std::fs::write(data.join("pg_hba.conf"), "local all all trust\nhost all all all scram-sha-256\n").unwrap();
    }) else {
        return;
    };
    let socket = format!("postgres://postgres@/postgres?host={}&port={}", server.folder().display(), server.port());
    let client = {
        let (client, connection) = tokio_postgres::connect(&socket, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    client.batch_execute("CREATE ROLE ann LOGIN SUPERUSER PASSWORD 'p@ss'").await.unwrap();
    PostgresSessions::open(&socket).await.unwrap();
    let as_ann = |password: &str| format!("postgres://ann:{password}@127.0.0.1:{}/postgres", server.port());
    PostgresSessions::open(&as_ann("p%40ss")).await.unwrap();
    let error = PostgresSessions::open(&as_ann("s3cret")).await.err().unwrap().to_string();
    assert!(error.contains("password authentication failed") && !error.contains("s3cret"), "{error}");
}

#[tokio::test]
async fn the_certificate_of_the_server_is_checked() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (certificate, key) = (certificate.pem(), key.serialize_pem());
    let Some(server) = PostgresServer::start_with(&["ssl=on"], |data| {
        for (name, content) in [("server.crt", &certificate), ("server.key", &key)] {
            // The server reads no key that others can read, unless it belongs to root.
            hatchery_stores::permissions::create_file(&data.join(name)).unwrap();
            std::fs::write(data.join(name), content).unwrap();
            let owner = std::fs::metadata(data).unwrap();
            use std::os::unix::fs::MetadataExt;
            std::os::unix::fs::chown(data.join(name), Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        std::fs::write(data.join("pg_hba.conf"), "hostssl all all all trust\n").unwrap();
    }) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("ca.pem");
    std::fs::write(&root, certificate).unwrap();
    let uri = |host: &str, query: &str| format!("postgres://postgres@{host}:{}/postgres?{query}", server.port());
    let trusted = format!("sslmode=verify-full&sslrootcert={}", root.display());
    let sessions = PostgresSessions::open(&uri("localhost", &trusted)).await.unwrap();
    create(&sessions, "ann", "s1").await;
    for (host, query) in [("localhost", "sslmode=require"), ("127.0.0.1", trusted.as_str())] {
        let error = PostgresSessions::open(&uri(host, query)).await.err().unwrap().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
    let error = PostgresSessions::open(&uri("localhost", "sslmode=disable")).await.err().unwrap().to_string();
    assert!(error.contains("no pg_hba.conf entry"), "{error}");
    std::fs::write(&root, "").unwrap();
    let error = PostgresSessions::open(&uri("localhost", &trusted)).await.err().unwrap().to_string();
    assert!(error.contains("it has no certificate; name a PEM file with certificates"), "{error}");
}
