//! Rows of runs.

use async_trait::async_trait;
use hatchery_core::{
    RunFailure, RunPage, RunService, RunState, RunTransition, SessionKey, StoreError, StoredRun, Timestamp,
};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use super::turns::{find_lease, latest_end};
use super::{SqliteSessions, first, queries};

/// The failed operation in error messages.
const START: &str = "start a run of the session";
const CHANGE: &str = "change a run of the session";

/// The result of a change.
enum Change<T> {
    Applied(T),
    /// Another turn has begun.
    Fenced,
    /// The session does not exist.
    NoSession,
}

#[async_trait]
impl RunService for SqliteSessions {
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        let (session, new) = (&run.session, run.clone());
        let added = self.write("add a run to the session", session, move |connection| {
            let Some(Change::Applied(row)) = find_session(connection, &new.session, None)? else {
                return Ok(Change::NoSession);
            };
            if let Some((_, known)) = find(connection, &new.session, row, &new.id)? {
                return Ok(Change::Applied(known));
            }
            insert(connection, row, &new)?;
            Ok(Change::Applied(new.clone()))
        });
        into_result(added.await?, session)
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        let (session, new) = (&run.session, run.clone());
        let started = self.write(START, session, move |connection| start(connection, &new, fence));
        into_result(started.await?, session)
    }

    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        let (key, id, transition) = (session.clone(), run.to_owned(), transition.clone());
        let changed = self.write(CHANGE, session, move |connection| change(connection, &key, &id, fence, &transition));
        into_result(changed.await?, session)
    }

    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        let new = run.clone();
        self.write_later(START, &run.session, move |connection| start_new(connection, &new, fence));
        Ok(())
    }

    async fn change_later(
        &self,
        session: &SessionKey,
        run: &str,
        fence: u64,
        transition: &RunTransition,
    ) -> Result<(), StoreError> {
        let (key, id, transition) = (session.clone(), run.to_owned(), transition.clone());
        self.write_later(CHANGE, session, move |connection| {
            change(connection, &key, &id, Some(fence), &transition).map(drop)
        });
        Ok(())
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        self.wait_for_deferred(session).await?;
        let (key, id) = (session.clone(), run.to_owned());
        let found = self.read("read a run of the session", session, move |connection| {
            let mut find = connection.prepare_cached(queries::FIND_RUN_BY_KEY)?;
            first(&mut find, params![key.app, key.user, key.id, id], |row| stored_run(row, key.clone()))
        });
        Ok(found.await?.map(|(_, run)| run))
    }

    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        self.wait_for_deferred(session).await?;
        let key = session.clone();
        let from = from.map_or(i64::MAX, |from| i64::try_from(from).unwrap_or(i64::MAX));
        let listed = self.read("list the runs of the session", session, move |connection| {
            let mut list = connection.prepare_cached(queries::LIST_RUNS)?;
            // One more, to know whether there is another page.
            let rows = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
            let values = params![key.app, key.user, key.id, from, rows];
            list.query_map(values, |row| stored_run(row, key.clone()))?.collect::<rusqlite::Result<Vec<_>>>()
        });
        let mut listed = listed.await?;
        let has_more = listed.len() > limit;
        listed.truncate(limit);
        let next = listed.last().filter(|_| has_more).map(|(number, _)| number.cast_unsigned());
        Ok(RunPage { runs: listed.into_iter().map(|(_, run)| run).collect(), next })
    }

    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        self.wait_for_deferred(session).await?;
        let key = session.clone();
        let found = self.read("find the run of the session in progress", session, move |connection| {
            let now = Timestamp::now().as_micros();
            let mut find = connection.prepare_cached(queries::RUN_IN_PROGRESS)?;
            first(&mut find, params![key.app, key.user, key.id, now, latest_end(now)], |row| row.get::<_, String>(0))
        });
        found.await
    }

    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError> {
        let key = session.clone();
        let found = self.read("find the turn of the session", session, move |connection| find_lease(connection, &key));
        let (leased_until, now) = (found.await?, Timestamp::now().as_micros());
        Ok(leased_until.is_some_and(|until| until > now && until <= latest_end(now)))
    }

    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        let apps = serde_json::json!(apps).to_string();
        let found = self.database.read(move |connection| {
            let mut find = connection.prepare_cached(queries::INTERRUPTED_RUNS)?;
            let now = Timestamp::now().as_micros();
            let values = params![now, apps, i64::try_from(limit).unwrap_or(i64::MAX), latest_end(now)];
            let rows = find.query_map(values, |row| {
                let (app, user, id): (String, String, String) = (row.get(12)?, row.get(13)?, row.get(14)?);
                stored_run(row, SessionKey::new(app, user, id)).map(|(_, run)| run)
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        });
        found.await.map_err(self.database.error("find interrupted runs"))
    }
}

/// Starts a run of the turn `fence`, and adds it first unless the session has it.
fn start(connection: &Connection, new: &StoredRun, fence: u64) -> rusqlite::Result<Change<StoredRun>> {
    let row = match find_session(connection, &new.session, Some(fence))? {
        Some(Change::Applied(row)) => row,
        Some(_) => return Ok(Change::Fenced),
        None => return Ok(Change::NoSession),
    };
    let known = find(connection, &new.session, row, &new.id)?;
    let (number, mut run) = known.map_or_else(|| (None, new.clone()), |(number, run)| (Some(number), run));
    let bytes = run.bytes();
    let has_changed = run.apply(&RunTransition::Start);
    match number {
        Some(number) if has_changed => update(connection, row, number, bytes, &run)?,
        Some(_) => {}
        None => insert(connection, row, &run)?,
    }
    Ok(Change::Applied(run))
}

/// Starts a run that the session does not have yet. Does nothing if another turn has begun.
fn start_new(connection: &Connection, new: &StoredRun, fence: u64) -> rusqlite::Result<()> {
    if let Some(Change::Applied(row)) = find_session(connection, &new.session, Some(fence))? {
        let mut run = new.clone();
        if run.apply(&RunTransition::Start) {
            insert(connection, row, &run)?;
        }
    }
    Ok(())
}

/// Changes a run, if the session has it.
fn change(
    connection: &Connection,
    key: &SessionKey,
    id: &str,
    fence: Option<u64>,
    transition: &RunTransition,
) -> rusqlite::Result<Change<Option<StoredRun>>> {
    let row = match find_session(connection, key, fence)? {
        Some(Change::Applied(row)) => row,
        Some(_) => return Ok(Change::Fenced),
        None => return Ok(Change::Applied(None)),
    };
    let Some((number, mut run)) = find(connection, key, row, id)? else { return Ok(Change::Applied(None)) };
    let bytes = run.bytes();
    if run.apply(transition) {
        update(connection, row, number, bytes, &run)?;
    }
    Ok(Change::Applied(Some(run)))
}

fn into_result<T>(change: Change<T>, session: &SessionKey) -> Result<T, StoreError> {
    match change {
        Change::Applied(value) => Ok(value),
        Change::Fenced => Err(StoreError::Fenced(session.clone())),
        Change::NoSession => Err(StoreError::SessionNotFound(session.clone())),
    }
}

/// Returns the row of a session, if the turn of the fence is its newest; `None` if the session does not exist.
fn find_session(
    connection: &Connection,
    key: &SessionKey,
    fence: Option<u64>,
) -> rusqlite::Result<Option<Change<i64>>> {
    let mut find = connection.prepare_cached(queries::FIND_TURN)?;
    let found: Option<(i64, i64)> =
        first(&mut find, params![key.app, key.user, key.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found.map(|(row, turn)| {
        if fence.is_none_or(|fence| fence == turn.cast_unsigned()) { Change::Applied(row) } else { Change::Fenced }
    }))
}

fn find(connection: &Connection, key: &SessionKey, row: i64, id: &str) -> rusqlite::Result<Option<(i64, StoredRun)>> {
    let mut find = connection.prepare_cached(queries::FIND_RUN)?;
    first(&mut find, params![row, id], |row| stored_run(row, key.clone()))
}

/// Inserts a run, unless the session has it.
fn insert(connection: &Connection, session: i64, run: &StoredRun) -> rusqlite::Result<()> {
    let inserted = connection.prepare_cached(queries::ADD_RUN)?.execute(params![
        session,
        run.id,
        run.state.name(),
        run.is_background,
        run.is_cancel_requested,
        run.attempts,
        run.first_revision.cast_signed(),
        run.request,
        run.accepted.as_micros(),
        run.updated.as_micros(),
    ])?;
    if inserted == 0 { Ok(()) } else { count_bytes(connection, session, run, 0) }
}

/// Updates the row `number` of a run of a session, which counted with `before` bytes until now.
fn update(connection: &Connection, session: i64, number: i64, before: u64, run: &StoredRun) -> rusqlite::Result<()> {
    let failure = run.failure.as_ref();
    connection.prepare_cached(queries::UPDATE_RUN)?.execute(params![
        number,
        run.state.name(),
        failure.map(|failure| &failure.code),
        failure.map(|failure| &failure.message),
        run.is_cancel_requested,
        run.attempts,
        run.request,
        run.updated.as_micros(),
    ])?;
    count_bytes(connection, session, run, before)
}

/// Adds the bytes of a run to the totals of its session and user.
fn count_bytes(connection: &Connection, session: i64, run: &StoredRun, before: u64) -> rusqlite::Result<()> {
    let bytes = run.bytes().wrapping_sub(before).cast_signed();
    if bytes == 0 {
        return Ok(());
    }
    connection.prepare_cached(queries::COUNT_SESSION_BYTES)?.execute(params![session, bytes])?;
    let SessionKey { app, user, .. } = &run.session;
    connection.prepare_cached(queries::COUNT_USER_EVENT)?.execute(params![app, user, bytes]).map(drop)
}

/// Converts a row with the columns of [`queries::FIND_RUN`]. Returns its number and the run.
fn stored_run(row: &Row<'_>, session: SessionKey) -> rusqlite::Result<(i64, StoredRun)> {
    let state: String = row.get(2)?;
    let unknown = || rusqlite::Error::FromSqlConversionFailure(2, Type::Text, format!("no state `{state}`").into());
    let failure: (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
    let run = StoredRun {
        id: row.get(1)?,
        session,
        state: RunState::from_name(&state).ok_or_else(unknown)?,
        failure: failure.0.zip(failure.1).map(|(code, message)| RunFailure { code, message }),
        is_background: row.get(5)?,
        is_cancel_requested: row.get(6)?,
        attempts: row.get(7)?,
        first_revision: row.get::<_, i64>(8)?.cast_unsigned(),
        request: row.get(9)?,
        accepted: Timestamp::from_micros(row.get(10)?),
        updated: Timestamp::from_micros(row.get(11)?),
    };
    Ok((row.get(0)?, run))
}
