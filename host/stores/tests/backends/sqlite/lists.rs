//! The reads of a page of a list.

use hatchery_core::SessionService;
use hatchery_stores::SqliteSessions;
use rusqlite::{Connection, StatementStatus, params};

use super::{execute, raw};

/// The statements of the crate.
#[allow(dead_code)]
#[path = "../../../src/sessions/sqlite/queries.rs"]
mod queries;

/// Creates sessions with ids and times that have different orders. Ten have the same time.
fn create_sessions(connection: &Connection, user: &str, count: i64) {
    let create = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {count}) \
         INSERT INTO sessions (app, user, id, created, updated) \
         SELECT 'app', '{user}', printf('%06d', n * 7919 % {count}), n, n / 10 FROM numbers"
    );
    execute(connection, &create);
}

/// Returns the number of rows of a page, and of the instructions of SQLite's virtual machine that read them.
fn steps_of_page(connection: &Connection, user: &str, updated: i64, id: &str) -> (usize, i32) {
    let mut list = connection.prepare(queries::LIST_PAGE).unwrap();
    let rows = list.query_map(params!["app", user, updated, id, 21], |row| row.get::<_, String>("id")).unwrap();
    let rows = rows.count();
    assert_eq!(list.get_status(StatementStatus::FullscanStep), 0);
    assert_eq!(list.get_status(StatementStatus::Sort), 0);
    (rows, list.get_status(StatementStatus::VmStep))
}

#[tokio::test]
async fn a_page_costs_the_same_for_every_number_of_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let connection = raw(&file);
    create_sessions(&connection, "few", 60);
    create_sessions(&connection, "many", 5_000);
    for (few, many) in [((i64::MAX, ""), (i64::MAX, "")), ((4, "000020"), (300, "000020"))] {
        let (rows, steps) = steps_of_page(&connection, "few", few.0, few.1);
        assert_eq!(rows, 21);
        let (rows, steps_of_many) = steps_of_page(&connection, "many", many.0, many.1);
        assert_eq!(rows, 21);
        assert!(steps_of_many <= steps * 3 / 2, "{steps_of_many} steps instead of {steps}");
    }
    let page = sessions.list_page("app", "many", None, 20).await.unwrap();
    assert_eq!((page.sessions.len(), page.next.unwrap().updated.as_micros()), (20, 498));
}

#[tokio::test]
async fn lists_are_read_in_the_order_of_their_index() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    SqliteSessions::open(&file).await.unwrap().close().await;
    let connection = raw(&file);
    for (statement, searches) in [(queries::LIST, 1), (queries::LIST_PAGE, 2)] {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
        // Parameters that are not bound are NULL.
        let plan = explain.raw_query().mapped(|row| row.get("detail")).collect::<rusqlite::Result<Vec<String>>>();
        let plan = plan.unwrap();
        let by_time = plan
            .iter()
            .filter(|step| step.starts_with("SEARCH sessions USING INDEX sessions_by_time (app=? AND user=?"));
        assert_eq!(by_time.count(), searches, "{plan:?}");
        assert!(!plan.iter().any(|step| step.contains("SCAN") || step.contains("TEMP B-TREE")), "{plan:?}");
    }
}
