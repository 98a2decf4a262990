//! Reads of sessions, lists and usage.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    EventWindow, ExpiredSession, ExpiryRule, HOST_USER, MAX_TURN_LEASE, Session, SessionCursor, SessionKey,
    SessionPage, SessionUsage, State, StateUsage, StoreError, Timestamp, Usage, UserUsage,
};
use imbl::Vector;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{micros, queries, state};
use crate::postgres::{Database, Failure, Repeat, SessionOperation, UserOperation};
use crate::sessions::parse_event;

/// The kinds of rows of [`queries::GET`].
const SESSION: i32 = 0;
const STATE: i32 = 1;

/// The kinds of rows of [`queries::LIST`].
const LISTED: i32 = 0;
const OWN_STATE: i32 = 1;

/// Reads a session with its state and the events of a window.
pub(super) async fn session(
    database: &Database,
    key: &SessionKey,
    window: EventWindow,
) -> Result<Option<Session>, StoreError> {
    let at = |revision: u64| i64::try_from(revision).unwrap_or(i64::MAX);
    let (mut after, mut newest, mut since, mut limit) = (0, i64::MAX, None, None);
    match window {
        EventWindow::All => {}
        EventWindow::Recent(count) => newest = at(count as u64),
        EventWindow::Since(time) => since = Some(time),
        EventWindow::RecentSince { count, time } => (newest, since) = (at(count as u64), Some(time)),
        EventWindow::AfterRevision(revision) => after = at(revision),
        EventWindow::Page { after: revision, limit: count } => {
            (after, limit) = (at(revision), Some(at(count as u64)));
        }
    }
    let activity = SessionOperation("read the session", key);
    let since = since.map(Timestamp::as_micros);
    let values: [&(dyn ToSql + Sync); 6] = [&&*key.app, &&*key.user, &&*key.id, &after, &newest, &limit];
    let rows = match &since {
        None => database.query(&activity, Repeat::Safe, queries::GET, &values).await?,
        Some(since) => {
            let values: Vec<&(dyn ToSql + Sync)> = values.into_iter().chain([since as &(dyn ToSql + Sync)]).collect();
            database.query(&activity, Repeat::Safe, queries::GET_SINCE, &values).await?
        }
    };
    read_session(key, &rows).map_err(|failure| database.error(&activity, failure))
}

fn read_session(key: &SessionKey, rows: &[Row]) -> Result<Option<Session>, Failure> {
    let mut session = None;
    let mut state = State::default();
    let mut events = Vec::new();
    for row in rows {
        match row.try_get::<_, i32>(0)? {
            SESSION => {
                let (revision, created, updated): (i64, i64, i64) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
                session = Some((revision, Timestamp::from_micros(created), Timestamp::from_micros(updated)));
            }
            STATE => state::set_from_row(&mut state, row, 4)?,
            _ => events.push((row.try_get::<_, i64>(1)?, row.try_get::<_, &str>(5)?)),
        }
    }
    let Some((revision, created, last_update_time)) = session else { return Ok(None) };
    // The parts of a union have no order between them.
    events.sort_unstable_by_key(|(revision, _)| *revision);
    let events: Vector<_> = events
        .into_iter()
        .map(|(revision, json)| parse_event(key, revision.cast_unsigned(), Bytes::copy_from_slice(json.as_bytes())))
        .collect();
    let revision = revision.cast_unsigned();
    Ok(Some(Session { key: key.clone(), state, events, revision, created, last_update_time }))
}

/// Reads a user's sessions in an app, without events, most recently updated first: those after a position, and at most
/// as many as the limit.
pub(super) async fn list(
    database: &Database,
    app: &str,
    user: &str,
    after: Option<&SessionCursor>,
    limit: Option<usize>,
) -> Result<SessionPage, StoreError> {
    let (updated, id) = after.map_or((i64::MAX, ""), |after| (after.updated.as_micros(), &*after.id));
    // Fetch one extra row to learn whether there is a next page.
    let rows = limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1));
    let activity = UserOperation { operation: "list the sessions", app, user };
    let rows = database.query(&activity, Repeat::Safe, queries::LIST, &[&app, &user, &updated, &id, &rows]).await?;
    let mut sessions = read_list(app, user, &rows).map_err(|failure| database.error(&activity, failure))?;
    let has_more = limit.is_some_and(|limit| sessions.len() > limit);
    sessions.truncate(limit.unwrap_or(usize::MAX));
    let next = sessions.last().filter(|_| has_more).map(SessionCursor::after);
    Ok(SessionPage { sessions, next })
}

fn read_list(app: &str, user: &str, rows: &[Row]) -> Result<Vec<Session>, Failure> {
    let (app, user): (Arc<str>, Arc<str>) = (app.into(), user.into());
    let mut shared = State::default();
    let mut own: HashMap<i64, State> = HashMap::new();
    let mut sessions = Vec::new();
    for row in rows {
        match row.try_get::<_, i32>(0)? {
            LISTED => {
                let key = SessionKey::new(app.clone(), user.clone(), row.try_get::<_, &str>(5)?);
                let session = Session {
                    key,
                    state: State::default(),
                    events: Vector::new(),
                    revision: row.try_get::<_, i64>(2)?.cast_unsigned(),
                    created: Timestamp::from_micros(row.try_get(3)?),
                    last_update_time: Timestamp::from_micros(row.try_get(4)?),
                };
                sessions.push((row.try_get::<_, i64>(1)?, session));
            }
            OWN_STATE => state::set_from_row(own.entry(row.try_get(1)?).or_default(), row, 5)?,
            _ => state::set_from_row(&mut shared, row, 5)?,
        }
    }
    let sessions = sessions.into_iter().map(|(number, session)| {
        let mut state = shared.clone();
        state.merge(&own.remove(&number).unwrap_or_default());
        Session { state, ..session }
    });
    let mut sessions: Vec<_> = sessions.collect();
    sessions.sort_by(|one, other| {
        let time = other.last_update_time.cmp(&one.last_update_time);
        time.then_with(|| one.key.id.cmp(&other.key.id))
    });
    Ok(sessions)
}

/// Reads the sessions of an app that have expired by a rule.
pub(super) async fn list_expired(
    database: &Database,
    app: &str,
    rule: &ExpiryRule,
    limit: usize,
) -> Result<Vec<ExpiredSession>, StoreError> {
    let idle_since = rule.idle_since.map_or(i64::MIN, Timestamp::as_micros);
    let at_most = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let (keeps, limit) = (rule.user_sessions.map_or(i64::MAX, at_most), at_most(limit as u64));
    let activity = "find sessions to delete";
    let longest_lease = micros(MAX_TURN_LEASE);
    let values: [&(dyn ToSql + Sync); 6] = [&app, &idle_since, &keeps, &limit, &HOST_USER, &longest_lease];
    let rows = database.query(&activity, Repeat::Safe, queries::EXPIRED, &values).await?;
    let read = |row: &Row| {
        let key = SessionKey::new(app, row.try_get::<_, &str>(0)?, row.try_get::<_, &str>(1)?);
        Ok(ExpiredSession { key, updated: Timestamp::from_micros(row.try_get(2)?) })
    };
    let expired = rows.iter().map(read).collect::<Result<Vec<_>, Failure>>();
    expired.map_err(|failure| database.error(&activity, failure))
}

/// Reads the totals of a session, its user and its app.
pub(super) async fn usage(database: &Database, key: &SessionKey) -> Result<Usage, StoreError> {
    let activity = SessionOperation("read the usage of the session", key);
    let values: [&(dyn ToSql + Sync); 3] = [&&*key.app, &&*key.user, &&*key.id];
    let rows = database.query(&activity, Repeat::Safe, queries::USAGE, &values).await?;
    let Some(row) = rows.first() else { return Ok(Usage::default()) };
    read_usage(row).map_err(|failure| database.error(&activity, failure))
}

fn read_usage(row: &Row) -> Result<Usage, Failure> {
    let number = |column: usize| row.try_get::<_, i64>(column).map(i64::cast_unsigned);
    let state = |column| Ok::<_, Failure>(StateUsage { keys: number(column)?, bytes: number(column + 1)? });
    Ok(Usage {
        session: SessionUsage { events: number(0)?, event_bytes: number(1)?, state: state(2)? },
        user: UserUsage { sessions: number(4)?, event_bytes: number(5)?, state: state(6)? },
        app: state(8)?,
    })
}
