//! Rows of turns: the fence and the lease of a session.

use std::time::Duration;

use hatchery_core::{MAX_TURN_LEASE, SessionKey, Timestamp, Turn, TurnStart};
use rusqlite::{Connection, params};

use super::{first, queries};

/// Begins a turn if no other one is held. Returns `None` if the session does not exist.
pub(super) fn begin(
    connection: &Connection,
    key: &SessionKey,
    previous: Option<u64>,
    lease: Duration,
) -> rusqlite::Result<Option<TurnStart>> {
    let now = Timestamp::now().as_micros();
    let (until, latest) = (now.saturating_add(micros(lease)), now.saturating_add(micros(MAX_TURN_LEASE)));
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

/// Returns the lease in microseconds, at most [`MAX_TURN_LEASE`].
fn micros(lease: Duration) -> i64 {
    i64::try_from(lease.min(MAX_TURN_LEASE).as_micros()).unwrap_or(i64::MAX)
}
