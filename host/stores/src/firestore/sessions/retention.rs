//! Sessions that have expired by a retention rule.
//!
//! Firestore has no index of the sessions of all users, unless an operator creates one, so the users are listed, and
//! each is asked for the sessions that a rule names.

use std::collections::BTreeMap;

use hatchery_core::{ExpiredSession, ExpiryRule, HOST_USER, SessionKey, StoreError, Timestamp};
use serde_json::{Value as Json, json};

use super::Store;
use super::stored::StoredSession;
use crate::firestore::query::{and, filter, order, select};
use crate::firestore::{keys, names};

/// The fields that decide whether a session can be deleted.
const FIELDS: &[&str] = &[keys::ID, keys::USER_ID, keys::STATUS, keys::LEASED_UNTIL, keys::UPDATE_TIME];

impl Store {
    pub(super) async fn list_expired(
        &self,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        let mut expired = Vec::new();
        if *rule == ExpiryRule::default() {
            return Ok(expired);
        }
        let host = self.names.user(HOST_USER);
        for user in self.client.list_names(&self.names.root).await?.into_iter().filter(|user| *user != host) {
            expired.extend(self.expired_of(&user, app, rule, limit).await?);
            expired.sort_by(|one: &ExpiredSession, other| (one.updated, &one.key).cmp(&(other.updated, &other.key)));
            expired.truncate(limit);
        }
        Ok(expired)
    }

    /// Returns the sessions of the user with this document.
    async fn expired_of(
        &self,
        user: &str,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        let mut expired = BTreeMap::new();
        let (first, end) = names::listing_range(app);
        if let Some(since) = rule.idle_since {
            // The position of the newest idle session is after all sessions of that time.
            let newest = Timestamp::from_micros(since.as_micros().saturating_sub(1));
            let range = range(&names::listing_key(app, newest, ""), &end);
            self.add_expired(&mut expired, (user, app), &range, limit, None).await?;
        }
        if let Some(keeps) = rule.user_sessions {
            let range = range(&first, &end);
            let (count, read_time) = self.client.count(user, &json!({"from": from(), "where": range})).await?;
            let excess = usize::try_from(count.saturating_sub(keeps)).unwrap_or(usize::MAX).min(limit);
            if excess > 0 {
                self.add_expired(&mut expired, (user, app), &range, excess, Some(&read_time)).await?;
            }
        }
        Ok(expired.into_values().collect())
    }

    /// Adds up to `limit` sessions of a range of lists, those without an event for longest, except for those in use.
    async fn add_expired(
        &self,
        expired: &mut BTreeMap<String, ExpiredSession>,
        (user, app): (&str, &str),
        range: &Json,
        limit: usize,
        read_time: Option<&str>,
    ) -> Result<(), StoreError> {
        let query = json!({
            "select": select(FIELDS),
            "from": from(),
            "where": range,
            "orderBy": [order(keys::LISTING, "DESCENDING")],
            "limit": i32::try_from(limit).unwrap_or(i32::MAX),
        });
        for document in self.client.query(user, &query, read_time).await? {
            let field = |name| document.text(name).unwrap_or_default();
            let key = SessionKey::new(app, field(keys::USER_ID), field(keys::ID));
            let name = document.name.clone();
            // This is the time of this host. Firestore's time decides when the deletion begins a turn.
            let stored = StoredSession::new(document, "");
            if stored.status.is_visible() && stored.lease_remaining().is_none() {
                expired.insert(name, ExpiredSession { key, updated: stored.updated });
            }
        }
        Ok(())
    }
}

fn from() -> Json {
    json!([{"collectionId": keys::SESSIONS}])
}

/// Returns the condition for positions in lists from `first` on, before `end`.
fn range(first: &str, end: &str) -> Json {
    and(&[
        filter(keys::LISTING, "GREATER_THAN_OR_EQUAL", first.to_owned().into()),
        filter(keys::LISTING, "LESS_THAN", end.to_owned().into()),
    ])
}
