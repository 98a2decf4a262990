//! Reads of sessions, lists and usage.

use std::sync::Arc;

use hatchery_core::{
    EventWindow, Session, SessionCursor, SessionKey, SessionPage, SessionUsage, State, StateScope, StateUsage,
    StoreError, Usage, state_entry_bytes,
};
use serde_json::json;

use super::events::{Revisions, StoredEvent};
use super::stored::{StoredSession, field_paths, session};
use super::{Store, state};
use crate::firestore::document::Document;
use crate::firestore::query::{and, filter, order, select};
use crate::firestore::{keys, names};

/// Maximum number of sessions that one request reads.
const PAGE: usize = 100;

impl Store {
    pub(super) async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        let fields = field_paths(&[keys::STATE]);
        let snapshot = self.client.read(&self.session_names(key), Some(&fields), None).await?;
        let [Some(found), shared @ ..] = snapshot.documents.as_slice() else { return Ok(None) };
        let stored = StoredSession::new(found.clone(), &snapshot.read_time);
        if !stored.status.is_visible() {
            return Ok(None);
        }
        let mut state = state::read_shared(shared);
        state.merge(&state::read_session_state(&stored.document));
        let events = self.window(key, stored.revision, window, &snapshot.read_time).await?;
        let read = session(key.clone(), state, stored.revision, stored.created, stored.updated);
        Ok(Some(Session { events: events.into_iter().map(|stored| stored.event).collect(), ..read }))
    }

    /// Revisions count events without a gap, so every window without a time is a range of them.
    async fn window(
        &self,
        key: &SessionKey,
        revision: u64,
        window: EventWindow,
        read_time: &str,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let before_newest = |count: usize| revision.saturating_sub(count as u64);
        let (after, since, limit) = match window {
            EventWindow::All => (0, None, usize::MAX),
            EventWindow::Recent(count) => (before_newest(count), None, usize::MAX),
            EventWindow::Since(time) => return self.read_events_since(key, time, revision, read_time).await,
            EventWindow::RecentSince { count, time } => (before_newest(count), Some(time), usize::MAX),
            EventWindow::AfterRevision(seen) => (seen, None, usize::MAX),
            EventWindow::Page { after, limit } => (after, None, limit),
        };
        let range = Revisions { after, last: revision };
        let mut events = self.read_events(key, range, limit, read_time).await?;
        events.retain(|stored| since.is_none_or(|since| stored.event.timestamp >= since));
        Ok(events)
    }

    pub(super) async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        let (shared, read_time) = self.shared_state(app, user).await?;
        let (mut sessions, mut after): (Vec<Session>, Option<SessionCursor>) = (Vec::new(), None);
        loop {
            let page = self.list_documents(app, user, after.as_ref(), PAGE, LISTED, Some(&read_time)).await?;
            let is_last = page.len() < PAGE;
            sessions.extend(page.into_iter().map(|document| to_listed_session(app, user, document, &shared)));
            after = sessions.last().map(SessionCursor::after);
            if is_last {
                return Ok(sessions);
            }
        }
    }

    pub(super) async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        let (shared, read_time) = self.shared_state(app, user).await?;
        // Fetch one extra row to learn whether there is a next page.
        let documents =
            self.list_documents(app, user, after, limit.saturating_add(1), LISTED, Some(&read_time)).await?;
        let mut sessions: Vec<_> =
            documents.into_iter().map(|document| to_listed_session(app, user, document, &shared)).collect();
        let has_more = sessions.len() > limit;
        sessions.truncate(limit);
        let next = sessions.last().filter(|_| has_more).map(SessionCursor::after);
        Ok(SessionPage { sessions, next })
    }

    /// Reads fields of the sessions of a user in an app, in the order of lists.
    async fn list_documents(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
        fields: &[&str],
        read_time: Option<&str>,
    ) -> Result<Vec<Document>, StoreError> {
        let (first, end) = names::listing_range(app);
        let start = after.map_or(first, |after| names::listing_key(app, after.updated, &after.id));
        let range =
            [filter(keys::LISTING, "GREATER_THAN", start.into()), filter(keys::LISTING, "LESS_THAN", end.into())];
        let query = json!({
            "select": select(fields),
            "from": [{"collectionId": keys::SESSIONS}],
            "where": and(&range),
            "orderBy": [order(keys::LISTING, "ASCENDING")],
            "limit": i32::try_from(limit).unwrap_or(i32::MAX),
        });
        self.client.query(&self.names.user(user), &query, read_time).await
    }

    async fn shared_state(&self, app: &str, user: &str) -> Result<(State, String), StoreError> {
        let names = [names::app_state(app), names::user_state(app, user)];
        let snapshot = self.client.read(&names, None, None).await?;
        Ok((state::read_shared(&snapshot.documents), snapshot.read_time))
    }

    pub(super) async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        let mut usage = Usage::default();
        let (shared, read_time) = self.shared_state(&key.app, &key.user).await?;
        for (name, value) in shared.iter() {
            let total = match StateScope::split_key(name).0 {
                StateScope::App => &mut usage.app,
                StateScope::User | StateScope::Session | StateScope::Temp => &mut usage.user.state,
            };
            add(total, StateUsage { keys: 1, bytes: state_entry_bytes(name, value) });
        }
        let documents = self.list_documents(&key.app, &key.user, None, usize::MAX, COUNTED, Some(&read_time)).await?;
        for document in documents {
            let session = session_usage(&document);
            usage.user.sessions += 1;
            usage.user.event_bytes += session.event_bytes;
            add(&mut usage.user.state, session.state);
            if document.text(keys::ID) == Some(&*key.id) {
                usage.session = session;
            }
        }
        Ok(usage)
    }
}

/// The fields of the sessions of a list.
const LISTED: &[&str] = &[keys::ID, keys::STATE, keys::REVISION, keys::CREATE_TIME, keys::UPDATE_TIME];
/// The fields of a session with its totals.
const COUNTED: &[&str] = &[keys::ID, keys::REVISION, keys::EVENT_BYTES, keys::STATE_KEYS, keys::STATE_BYTES];

fn add(total: &mut StateUsage, usage: StateUsage) {
    total.keys += usage.keys;
    total.bytes += usage.bytes;
}

fn session_usage(document: &Document) -> SessionUsage {
    SessionUsage {
        events: document.unsigned(keys::REVISION),
        event_bytes: document.unsigned(keys::EVENT_BYTES),
        state: StateUsage { keys: document.unsigned(keys::STATE_KEYS), bytes: document.unsigned(keys::STATE_BYTES) },
    }
}

fn to_listed_session(app: &str, user: &str, document: Document, shared: &State) -> Session {
    let id: Arc<str> = document.text(keys::ID).unwrap_or_default().into();
    let mut state = shared.clone();
    state.merge(&state::read_session_state(&document));
    let (created, updated) = (document.time(keys::CREATE_TIME), document.time(keys::UPDATE_TIME));
    session(SessionKey::new(app, user, id), state, document.unsigned(keys::REVISION), created, updated)
}
