//! Reads of sessions, lists and usage.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    Event, EventWindow, ExpiredSession, ExpiryRule, HOST_USER, Session, SessionCursor, SessionKey, SessionPage,
    SessionUsage, State, StateUsage, Timestamp, Usage, UserUsage,
};
use imbl::Vector;
use rusqlite::{Connection, Row, params};

use super::turns::latest_end;
use super::{first, queries, state};
use crate::sessions::parse_event;
use crate::sqlite::read_transaction;

/// Reads a session with its state and the events of a window, within a transaction.
pub(super) fn session(
    connection: &Connection,
    key: SessionKey,
    window: EventWindow,
) -> rusqlite::Result<Option<Session>> {
    let mut find = connection.prepare_cached(queries::FIND)?;
    let found: Option<(i64, i64, i64, i64)> = first(&mut find, params![key.app, key.user, key.id], four)?;
    let Some((row, revision, created, updated)) = found else { return Ok(None) };
    let state = state::read(connection, &key, row)?;
    let events = events(connection, &key, row, revision, window)?;
    Ok(Some(Session {
        key,
        state,
        events,
        revision: revision.cast_unsigned(),
        created: Timestamp::from_micros(created),
        last_update_time: Timestamp::from_micros(updated),
    }))
}

/// Revisions count events without a gap, so every window without a time is a range of them.
fn events(
    connection: &Connection,
    key: &SessionKey,
    row: i64,
    revision: i64,
    window: EventWindow,
) -> rusqlite::Result<Vector<Arc<Event>>> {
    let before_newest = |count: usize| revision.saturating_sub_unsigned(count as u64);
    let at = |revision: u64| i64::try_from(revision).unwrap_or(i64::MAX);
    let (after, since, limit) = match window {
        EventWindow::All => (0, i64::MIN, -1),
        EventWindow::Recent(count) => (before_newest(count), i64::MIN, -1),
        EventWindow::Since(time) => (0, time.as_micros(), -1),
        EventWindow::RecentSince { count, time } => (before_newest(count), time.as_micros(), -1),
        EventWindow::AfterRevision(seen) => (at(seen), i64::MIN, -1),
        EventWindow::Page { after, limit } => (at(after), i64::MIN, at(limit as u64)),
    };
    if after >= revision {
        return Ok(Vector::new());
    }
    let mut select = connection.prepare_cached(queries::EVENTS)?;
    let rows = select.query_map(params![row, after, since, limit], |stored| {
        let revision: i64 = stored.get(0)?;
        let json = Bytes::copy_from_slice(stored.get_ref(1)?.as_bytes()?);
        Ok(parse_event(key, revision.cast_unsigned(), json))
    })?;
    rows.collect()
}

/// Reads a user's sessions in an app, without events, most recently updated first.
pub(super) fn list(connection: &Connection, app: &Arc<str>, user: &Arc<str>) -> rusqlite::Result<Vec<Session>> {
    read_transaction(connection, |connection| {
        let mut select = connection.prepare_cached(queries::SHARED_STATE)?;
        let shared = state::from_rows(select.query(params![app, user])?)?;
        let mut states: HashMap<i64, State> = HashMap::new();
        let mut select = connection.prepare_cached(queries::LIST_STATE)?;
        let mut own = select.query(params![app, user])?;
        while let Some(row) = own.next()? {
            let state = states.entry(row.get(0)?).or_insert_with(|| shared.clone());
            state::set_from_row(state, row, 1)?;
        }
        let mut select = connection.prepare_cached(queries::LIST)?;
        let rows = select.query_map(params![app, user], |row| {
            let state = states.remove(&row.get(0)?).unwrap_or_else(|| shared.clone());
            session_from_row(row, app, user, state)
        })?;
        rows.collect()
    })
}

/// Reads a page of that list.
pub(super) fn list_page(
    connection: &Connection,
    app: &Arc<str>,
    user: &Arc<str>,
    after: Option<&SessionCursor>,
    limit: usize,
) -> rusqlite::Result<SessionPage> {
    let (updated, id) = after.map_or((i64::MAX, ""), |after| (after.updated.as_micros(), &*after.id));
    // One more, to know whether there is another page.
    let rows = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    read_transaction(connection, |connection| {
        let mut select = connection.prepare_cached(queries::SHARED_STATE)?;
        let shared = state::from_rows(select.query(params![app, user])?)?;
        let mut select = connection.prepare_cached(queries::LIST_PAGE)?;
        let found = select.query_map(params![app, user, updated, id, rows], |row| {
            let mut state = shared.clone();
            state.merge(&state::read_own(connection, row.get(0)?)?);
            session_from_row(row, app, user, state)
        })?;
        let mut sessions = found.collect::<rusqlite::Result<Vec<_>>>()?;
        let has_more = sessions.len() > limit;
        sessions.truncate(limit);
        let next = sessions.last().filter(|_| has_more).map(SessionCursor::after);
        Ok(SessionPage { sessions, next })
    })
}

/// Reads the sessions of an app that have expired by a rule.
pub(super) fn list_expired(
    connection: &Connection,
    app: &str,
    rule: &ExpiryRule,
    limit: usize,
) -> rusqlite::Result<Vec<ExpiredSession>> {
    let idle_since = rule.idle_since.map_or(i64::MIN, Timestamp::as_micros);
    let at_most = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let (keeps, limit) = (rule.user_sessions.map_or(i64::MAX, at_most), at_most(limit as u64));
    let mut select = connection.prepare_cached(queries::EXPIRED)?;
    let now = Timestamp::now().as_micros();
    let values = params![app, idle_since, keeps, now, limit, HOST_USER, latest_end(now)];
    let rows = select.query_map(values, |row| {
        let (user, id): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(ExpiredSession { key: SessionKey::new(app, user, id), updated: Timestamp::from_micros(row.get(2)?) })
    })?;
    rows.collect()
}

/// Reads the columns of a list.
fn session_from_row(row: &Row<'_>, app: &Arc<str>, user: &Arc<str>, state: State) -> rusqlite::Result<Session> {
    Ok(Session {
        key: SessionKey::new(app.clone(), user.clone(), row.get::<_, Arc<str>>(1)?),
        state,
        events: Vector::new(),
        revision: row.get::<_, i64>(2)?.cast_unsigned(),
        created: Timestamp::from_micros(row.get(3)?),
        last_update_time: Timestamp::from_micros(row.get(4)?),
    })
}

/// Reads the running totals of a session, its user and its app.
pub(super) fn usage(connection: &Connection, key: &SessionKey) -> rusqlite::Result<Usage> {
    read_transaction(connection, |connection| {
        let mut select = connection.prepare_cached(queries::SESSION_USAGE)?;
        let session = first(&mut select, params![key.app, key.user, key.id], four)?;
        let mut select = connection.prepare_cached(queries::USER_USAGE)?;
        let user = first(&mut select, params![key.app, key.user], four)?;
        let mut select = connection.prepare_cached(queries::APP_USAGE)?;
        let app = first(&mut select, params![key.app], |row| Ok(state_usage(row.get(0)?, row.get(1)?)))?;
        let session = session.map_or_else(SessionUsage::default, |(events, event_bytes, keys, bytes)| SessionUsage {
            events: events.cast_unsigned(),
            event_bytes: event_bytes.cast_unsigned(),
            state: state_usage(keys, bytes),
        });
        let user = user.map_or_else(UserUsage::default, |(sessions, event_bytes, keys, bytes)| UserUsage {
            sessions: sessions.cast_unsigned(),
            event_bytes: event_bytes.cast_unsigned(),
            state: state_usage(keys, bytes),
        });
        Ok(Usage { session, user, app: app.unwrap_or_default() })
    })
}

fn state_usage(keys: i64, bytes: i64) -> StateUsage {
    StateUsage { keys: keys.cast_unsigned(), bytes: bytes.cast_unsigned() }
}

fn four(row: &Row<'_>) -> rusqlite::Result<(i64, i64, i64, i64)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}
