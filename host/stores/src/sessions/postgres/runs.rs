//! Rows of runs.

use async_trait::async_trait;
use hatchery_core::{
    MAX_TURN_LEASE, RunFailure, RunPage, RunService, RunState, RunTransition, SessionKey, StoreError, StoredRun,
    Timestamp,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{PostgresSessions, micros, queries};
use crate::postgres::{Failure, Repeat, SessionOperation, escape, unescape};

/// The failed operation in error messages.
const ADD: &str = "add a run to the session";
const CHANGE: &str = "change a run of the session";
const READ: &str = "read a run of the session";

/// A run with the number and the version of its row.
struct RunRow {
    number: i64,
    version: i64,
    run: StoredRun,
}

#[async_trait]
impl RunService for PostgresSessions {
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        loop {
            if self.add_run(run, None).await? {
                return Ok(run.clone());
            }
            // A rewind may have removed it concurrently.
            if let Some((known, _)) = self.find_run(&run.session, &run.id).await? {
                return Ok(known.run);
            }
        }
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        let mut started = run.clone();
        let has_changed = started.apply(&RunTransition::Start);
        let new = if has_changed { &started } else { run };
        loop {
            if self.add_run(new, Some(fence)).await? {
                return Ok(new.clone());
            }
            if let Some(known) = self.change(&run.session, &run.id, Some(fence), &RunTransition::Start).await? {
                return Ok(known);
            }
        }
    }

    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        loop {
            let Some((row, turn)) = self.find_run(session, run).await? else {
                return self.check_turn(session, fence).await.map(|()| None);
            };
            if fence.is_some_and(|fence| fence != turn) {
                return Err(StoreError::Fenced(session.clone()));
            }
            let mut changed = row.run.clone();
            if !changed.apply(transition) || self.update_run(&row, &changed, fence).await? {
                return Ok(Some(changed));
            }
        }
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        Ok(self.find_run(session, run).await?.map(|(row, _)| row.run))
    }

    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        let from = from.map_or(i64::MAX, |from| i64::try_from(from).unwrap_or(i64::MAX));
        // Fetch one extra row to learn whether there is a next page.
        let rows = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let values: [&(dyn ToSql + Sync); 5] = [&&*session.app, &&*session.user, &&*session.id, &from, &rows];
        let activity = "list the runs of the session";
        let rows = self.query(activity, session, Repeat::Safe, queries::LIST_RUNS, &values).await?;
        let listed = rows.iter().map(|row| read_run(row, session.clone())).collect::<Result<Vec<_>, _>>();
        let failed = |failure| self.database.error(&SessionOperation(activity, session), failure);
        let mut listed = listed.map_err(failed)?;
        let has_more = listed.len() > limit;
        listed.truncate(limit);
        let next = listed.last().filter(|_| has_more).map(|row| row.number.cast_unsigned());
        Ok(RunPage { runs: listed.into_iter().map(|row| row.run).collect(), next })
    }

    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        let longest = micros(MAX_TURN_LEASE);
        let values: [&(dyn ToSql + Sync); 4] = [&&*session.app, &&*session.user, &&*session.id, &longest];
        let rows = self.query(READ, session, Repeat::Safe, queries::RUN_IN_PROGRESS, &values).await?;
        let id = rows.first().map(|row| row.try_get::<_, &str>(0)).transpose().map_err(self.unreadable(session))?;
        Ok(id.map(|id| unescape(id).into_owned()))
    }

    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError> {
        let longest = micros(MAX_TURN_LEASE);
        let values: [&(dyn ToSql + Sync); 4] = [&&*session.app, &&*session.user, &&*session.id, &longest];
        let activity = "find the turn of the session";
        Ok(!self.query(activity, session, Repeat::Safe, queries::FIND_TURN, &values).await?.is_empty())
    }

    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let activity = "find interrupted runs";
        let values: [&(dyn ToSql + Sync); 3] = [&apps, &limit, &micros(MAX_TURN_LEASE)];
        let rows = self.database.query(&activity, Repeat::Safe, queries::INTERRUPTED_RUNS, &values).await?;
        let read = |row: &Row| {
            let (app, user, id): (&str, &str, &str) = (row.try_get(12)?, row.try_get(13)?, row.try_get(14)?);
            read_run(row, SessionKey::new(app, user, id)).map(|row| row.run)
        };
        let found = rows.iter().map(read).collect::<Result<Vec<_>, _>>();
        found.map_err(|failure| self.database.error(&activity, failure))
    }
}

impl PostgresSessions {
    /// Adds a run. Returns false if the session has it.
    async fn add_run(&self, run: &StoredRun, fence: Option<u64>) -> Result<bool, StoreError> {
        let StoredRun { id, session, state, failure, is_background, is_cancel_requested, .. } = run;
        let (id, fence, state, failure) =
            (escape(id), fence.map(u64::cast_signed), state.name(), failure_json(failure));
        let (attempts, first, bytes) =
            (i64::from(run.attempts), run.first_revision.cast_signed(), run.bytes().cast_signed());
        let (accepted, updated) = (run.accepted.as_micros(), run.updated.as_micros());
        let values: [&(dyn ToSql + Sync); 15] = [
            &&*session.app,
            &&*session.user,
            &&*session.id,
            &fence,
            &&*id,
            &state,
            &failure,
            is_background,
            is_cancel_requested,
            &attempts,
            &first,
            &run.request,
            &accepted,
            &updated,
            &bytes,
        ];
        // When it has run before, the run is known.
        self.outcome(ADD, session, Repeat::Safe, queries::ADD_RUN, &values).await?.into_result(session)
    }

    /// Updates a run. Returns false if it was changed concurrently.
    async fn update_run(&self, row: &RunRow, run: &StoredRun, fence: Option<u64>) -> Result<bool, StoreError> {
        let StoredRun { session, state, failure, is_cancel_requested, request, .. } = run;
        let (fence, state, failure) = (fence.map(u64::cast_signed), state.name(), failure_json(failure));
        let (attempts, updated) = (i64::from(run.attempts), run.updated.as_micros());
        let bytes = run.bytes().cast_signed();
        let values: [&(dyn ToSql + Sync); 13] = [
            &&*session.app,
            &&*session.user,
            &&*session.id,
            &fence,
            &row.number,
            &row.version,
            &state,
            &failure,
            is_cancel_requested,
            &attempts,
            request,
            &updated,
            &bytes,
        ];
        self.outcome(CHANGE, session, Repeat::Never, queries::CHANGE_RUN, &values).await?.into_result(session)
    }

    /// Returns a run, and the newest turn of its session.
    async fn find_run(&self, session: &SessionKey, run: &str) -> Result<Option<(RunRow, u64)>, StoreError> {
        let run = escape(run);
        let values: [&(dyn ToSql + Sync); 4] = [&&*session.app, &&*session.user, &&*session.id, &&*run];
        let rows = self.query(READ, session, Repeat::Safe, queries::FIND_RUN, &values).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = read_run(row, session.clone()).and_then(|run| Ok((run, row.try_get::<_, i64>(12)?.cast_unsigned())));
        read.map(Some).map_err(|failure| self.database.error(&SessionOperation(READ, session), failure))
    }

    /// Returns an error if another turn of the session has begun. A session that does not exist has none.
    async fn check_turn(&self, session: &SessionKey, fence: Option<u64>) -> Result<(), StoreError> {
        let Some(fence) = fence else { return Ok(()) };
        let values: [&(dyn ToSql + Sync); 3] = [&&*session.app, &&*session.user, &&*session.id];
        let rows = self.query(READ, session, Repeat::Safe, queries::TURN, &values).await?;
        let turn = rows.first().map(|row| row.try_get::<_, i64>(0)).transpose().map_err(self.unreadable(session))?;
        match turn {
            Some(turn) if turn.cast_unsigned() != fence => Err(StoreError::Fenced(session.clone())),
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns the error of a run as JSON.
fn failure_json(failure: &Option<RunFailure>) -> Option<String> {
    failure.as_ref().and_then(|failure| serde_json::to_string(failure).ok())
}

/// Converts a row with the columns of [`queries::FIND_RUN`].
fn read_run(row: &Row, session: SessionKey) -> Result<RunRow, Failure> {
    let state: &str = row.try_get(3)?;
    let unreadable = |reason: String| StoreError::backend("cannot read a stored run", reason);
    let failure: Option<&str> = row.try_get(4)?;
    let run = StoredRun {
        id: unescape(row.try_get(2)?).into_owned(),
        session,
        state: RunState::from_name(state).ok_or_else(|| unreadable(format!("there is no state `{state}`")))?,
        failure: failure.map(serde_json::from_str).transpose().map_err(|error| unreadable(error.to_string()))?,
        is_background: row.try_get(5)?,
        is_cancel_requested: row.try_get(6)?,
        attempts: u32::try_from(row.try_get::<_, i64>(7)?).unwrap_or(u32::MAX),
        first_revision: row.try_get::<_, i64>(8)?.cast_unsigned(),
        request: row.try_get(9)?,
        accepted: Timestamp::from_micros(row.try_get(10)?),
        updated: Timestamp::from_micros(row.try_get(11)?),
    };
    Ok(RunRow { number: row.try_get(0)?, version: row.try_get(1)?, run })
}
