//! Turns and runs of several handles on one file.

use std::time::Duration;

use hatchery_core::{ExpiryRule, JsonMap, SessionService, StoreError, StoredRun, Turn, TurnStart};
use hatchery_stores::SqliteSessions;

use super::{error, execute, raw, user_event};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_lease_that_ends_too_late_is_the_result_of_a_clock_that_was_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let key = sessions.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    let run = StoredRun { is_background: true, ..StoredRun::new(key.clone(), "r1", 0) };
    sessions.runs().unwrap().add(&run).await.unwrap();
    assert!(matches!(sessions.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Begun(_)));
    let apps = ["app".to_owned()];
    let rule = ExpiryRule { user_sessions: Some(0), ..ExpiryRule::default() };
    for (shift, count) in [(0, 0), (3_600_000_000_i64, 1)] {
        execute(&raw(&file), &format!("UPDATE sessions SET leased_until = leased_until + {shift}"));
        assert_eq!(sessions.runs().unwrap().list_interrupted(&apps, 10).await.unwrap().len(), count);
        assert_eq!(sessions.list_expired("app", &rule, 10).await.unwrap().len(), count);
    }
    assert!(matches!(sessions.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Begun(_)));
    assert!(matches!(sessions.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Held { .. }));
}

#[tokio::test]
async fn a_turn_is_held_against_other_handles_on_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let (one, other) = (SqliteSessions::open(&file).await.unwrap(), SqliteSessions::open(&file).await.unwrap());
    let key = one.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    let TurnStart::Begun(turn) = one.begin_turn(&key, None, LEASE).await.unwrap() else { panic!("nobody holds it") };
    assert!(matches!(other.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Held { .. }));
    one.renew_turn(&key, turn.fence, Duration::ZERO).await.unwrap();
    assert!(matches!(other.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Begun(_)));
    let error = error(one.append_with(&key, &user_event("late"), Some(turn.fence)).await);
    assert!(matches!(error, StoreError::Fenced(_)), "{error}");
}

#[tokio::test]
async fn the_first_host_with_the_database_need_not_wait_for_hosts_that_have_died() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let dead = SqliteSessions::open(&file).await.unwrap();
    let key = dead.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    let TurnStart::Begun(turn) = dead.begin_turn(&key, None, LEASE).await.unwrap() else { panic!("it is held") };
    // While that host runs, no other one takes its turn.
    let other = SqliteSessions::open(&file).await.unwrap();
    assert!(matches!(other.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Held { .. }));
    drop(dead);
    assert!(matches!(other.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Held { .. }));
    drop(other);
    let next = SqliteSessions::open(&file).await.unwrap();
    let begun = next.begin_turn(&key, None, LEASE).await.unwrap();
    assert_eq!(begun, TurnStart::Begun(Turn { fence: turn.fence + 1, ..turn }));
}

#[tokio::test]
async fn a_run_of_an_earlier_process_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let first = SqliteSessions::open(&file).await.unwrap();
    let key = first.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    let run = StoredRun { is_background: true, request: Some("{}".into()), ..StoredRun::new(key.clone(), "r1", 3) };
    first.runs().unwrap().add(&run).await.unwrap();
    first.close().await;
    let second = SqliteSessions::open(&file).await.unwrap();
    assert_eq!(second.runs().unwrap().get(&key, "r1").await.unwrap(), Some(run.clone()));
    assert_eq!(
        second.runs().unwrap().list_interrupted(&["app".into()], 10).await.unwrap(),
        [StoredRun { request: None, ..run }]
    );
}
