//! Rows of turns: the fence and the lease of a session, and events by id.

use std::time::Duration;

use hatchery_core::{MAX_TURN_LEASE, SessionKey, Timestamp, Turn, TurnStart};
use sqlx::{query_as, query_scalar};

use super::database::Database;
use super::{id_hash, queries};

impl Database {
    /// Begins a turn if no other one is held. Returns `None` if the session does not exist.
    pub(super) async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<Option<TurnStart>, sqlx::Error> {
        let now = Timestamp::now().as_micros();
        // All rows are fetched, because a statement outside a transaction is committed only then.
        let begun: Vec<(i64, i64)> = query_as(queries::BEGIN_TURN)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .bind(now)
            .bind(now.saturating_add(micros(lease)))
            .bind(now.saturating_add(micros(MAX_TURN_LEASE)))
            .bind(previous.map(u64::cast_signed))
            .fetch_all(&self.writer)
            .await?;
        if let Some((fence, revision)) = begun.first() {
            let turn = Turn { fence: fence.cast_unsigned(), revision: revision.cast_unsigned() };
            return Ok(Some(TurnStart::Begun(turn)));
        }
        let held = |until: i64| {
            let remaining = Duration::from_micros(until.saturating_sub(now).max(0).cast_unsigned());
            TurnStart::Held { remaining }
        };
        Ok(self.find_lease(key).await?.map(held))
    }

    /// Sets the lease of a turn. Returns false if another turn has begun, `None` if the session does not exist.
    pub(super) async fn renew_turn(
        &self,
        key: &SessionKey,
        fence: u64,
        lease: Duration,
    ) -> Result<Option<bool>, sqlx::Error> {
        let renewed: Vec<i64> = query_scalar(queries::RENEW_TURN)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .bind(fence.cast_signed())
            .bind(Timestamp::now().as_micros().saturating_add(micros(lease)))
            .fetch_all(&self.writer)
            .await?;
        if !renewed.is_empty() {
            return Ok(Some(true));
        }
        Ok(self.find_lease(key).await?.map(|_| false))
    }

    /// Returns the end of the newest lease; `None` if the session does not exist.
    pub(super) async fn find_lease(&self, key: &SessionKey) -> Result<Option<i64>, sqlx::Error> {
        let lease = query_scalar(queries::FIND_LEASE).bind(&*key.app).bind(&*key.user).bind(&*key.id);
        lease.fetch_optional(&self.readers).await
    }

    /// Returns the revision and the JSON of the event with this id, or `None` inside if there is none; `None` if the
    /// session does not exist.
    pub(super) async fn find_event(
        &self,
        key: &SessionKey,
        id: &str,
    ) -> Result<Option<Option<(u64, Vec<u8>)>>, sqlx::Error> {
        let found: Option<(Option<i64>, Option<Vec<u8>>)> = query_as(queries::FIND_EVENT)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .bind(id_hash(id))
            .fetch_optional(&self.readers)
            .await?;
        Ok(found.map(|(revision, json)| revision.map(i64::cast_unsigned).zip(json)))
    }
}

/// Returns the lease in microseconds, at most [`MAX_TURN_LEASE`].
fn micros(lease: Duration) -> i64 {
    i64::try_from(lease.min(MAX_TURN_LEASE).as_micros()).unwrap_or(i64::MAX)
}
