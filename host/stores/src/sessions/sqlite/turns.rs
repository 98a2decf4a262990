//! Rows of turns: the fence and the lease of a session.

use std::time::Duration;

use hatchery_core::{EventWindow, MAX_TURN_LEASE, SessionKey, Timestamp, Turn, TurnOpening, TurnStart};
use rusqlite::{Connection, params};

use super::{first, queries, reads};

/// Maximum size in bytes of the events and the state that the writing thread reads. Other writes would wait for a
/// longer read.
const MAX_READ_BYTES: i64 = 64 << 10;

/// The result of the first step of opening a turn.
pub(super) enum OpenOutcome {
    Complete(TurnOpening),
    /// The turn has begun, and the session is too large to be read by the writing thread.
    Unread(TurnStart),
    NoSession,
}

/// Begins a turn, and reads the session unless it is large.
pub(super) fn open(
    connection: &Connection,
    key: &SessionKey,
    previous: Option<u64>,
    lease: Duration,
    window: EventWindow,
) -> rusqlite::Result<OpenOutcome> {
    let turn = match begin(connection, key, previous, lease)? {
        Some(TurnStart::Begun(turn)) => turn,
        Some(TurnStart::Held { remaining }) => return Ok(OpenOutcome::Complete(TurnOpening::Held { remaining })),
        None => return Ok(OpenOutcome::NoSession),
    };
    if is_large(connection, key, window != EventWindow::AfterRevision(turn.revision))? {
        return Ok(OpenOutcome::Unread(TurnStart::Begun(turn)));
    }
    let session = reads::session(connection, key.clone(), window)?;
    Ok(session.map_or(OpenOutcome::NoSession, |session| {
        OpenOutcome::Complete(TurnOpening::Begun { fence: turn.fence, session })
    }))
}

/// Returns true if the state of a session, with its events if these are read, exceeds [`MAX_READ_BYTES`].
fn is_large(connection: &Connection, key: &SessionKey, reads_events: bool) -> rusqlite::Result<bool> {
    let mut find = connection.prepare_cached(queries::READ_BYTES)?;
    let found: Option<(i64, i64, i64)> =
        first(&mut find, params![key.app, key.user, key.id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let Some((event_bytes, state_bytes, user_bytes)) = found else { return Ok(false) };
    let mut remaining = MAX_READ_BYTES - state_bytes - if reads_events { event_bytes } else { 0 };
    // The user's total includes the state of other sessions, so it is counted exactly only where that matters.
    if remaining < 0 || user_bytes <= remaining {
        return Ok(remaining < 0);
    }
    let mut select = connection.prepare_cached(queries::USER_KEY_BYTES)?;
    let mut keys = select.query(params![key.app, key.user])?;
    while let Some(row) = keys.next()? {
        remaining -= row.get::<_, i64>(0)?;
        if remaining < 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Begins a turn if no other one is held. Returns `None` if the session does not exist.
pub(super) fn begin(
    connection: &Connection,
    key: &SessionKey,
    previous: Option<u64>,
    lease: Duration,
) -> rusqlite::Result<Option<TurnStart>> {
    let now = Timestamp::now().as_micros();
    let (until, latest) = (now.saturating_add(micros(lease)), latest_end(now));
    let previous = previous.map(u64::cast_signed);
    let mut begin = connection.prepare_cached(queries::BEGIN_TURN)?;
    let begun: Option<(i64, i64)> =
        first(&mut begin, params![key.app, key.user, key.id, now, until, latest, previous], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if let Some((fence, revision)) = begun {
        let turn = Turn { fence: fence.cast_unsigned(), revision: revision.cast_unsigned() };
        return Ok(Some(TurnStart::Begun(turn)));
    }
    let held = |until: i64| {
        let remaining = Duration::from_micros(until.saturating_sub(now).max(0).cast_unsigned());
        TurnStart::Held { remaining }
    };
    Ok(find_lease(connection, key)?.map(held))
}

/// Sets the lease of a turn. Returns false if another turn has begun, `None` if the session does not exist.
pub(super) fn renew(
    connection: &Connection,
    key: &SessionKey,
    fence: u64,
    lease: Duration,
) -> rusqlite::Result<Option<bool>> {
    let until = Timestamp::now().as_micros().saturating_add(micros(lease));
    let mut renew = connection.prepare_cached(queries::RENEW_TURN)?;
    let renewed = first(&mut renew, params![key.app, key.user, key.id, fence.cast_signed(), until], |_| Ok(()))?;
    if renewed.is_some() {
        return Ok(Some(true));
    }
    Ok(find_lease(connection, key)?.map(|_| false))
}

/// Returns the end of the newest lease; `None` if the session does not exist.
pub(super) fn find_lease(connection: &Connection, key: &SessionKey) -> rusqlite::Result<Option<i64>> {
    let mut find = connection.prepare_cached(queries::FIND_LEASE)?;
    first(&mut find, params![key.app, key.user, key.id], |row| row.get(0))
}

/// Returns the latest end of a lease at a time. One that ends later is the result of a clock that was set back.
pub(super) fn latest_end(now: i64) -> i64 {
    now.saturating_add(micros(MAX_TURN_LEASE))
}

/// Returns the lease in microseconds, at most [`MAX_TURN_LEASE`].
fn micros(lease: Duration) -> i64 {
    i64::try_from(lease.min(MAX_TURN_LEASE).as_micros()).unwrap_or(i64::MAX)
}
