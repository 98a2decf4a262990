//! Deleting, forking and rewinding sessions.

use std::collections::HashSet;

use hatchery_core::{JsonMap, RunState, Session, SessionKey, State, StoreError, StoredRun, Timestamp};
use serde_json::json;

use super::Store;
use super::change::{is_applied, retries, wait};
use super::events::{Revisions, StoredEvent};
use super::runs::{parse_run, pending_write};
use super::state::{self, session_values};
use super::stored::{Status, StoredSession, field_paths, session};
use crate::firestore::client::split;
use crate::firestore::document::{Document, Value, Write, fields};
use crate::firestore::query::select;
use crate::firestore::{keys, names};
use crate::sessions::{record_bytes, too_few_events};

/// Maximum number of documents of a deleted session that one request reads.
const PAGE: usize = 100;

/// The consequences of removing the newest events.
struct Removal {
    writes: Vec<Write>,
    /// The bytes that events, runs and calls do not take any more.
    freed: u64,
}

impl Store {
    pub(super) async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let mut backoff = retries();
        while let Some((stored, _)) = self.find_any(key, &[], &[]).await? {
            if stored.status == Status::Removing {
                return self.sweep(key).await;
            }
            // The remaining document is not listed.
            let mark = fields([
                (keys::ID, (*key.id).into()),
                (keys::APP_NAME, (*key.app).into()),
                (keys::USER_ID, (*key.user).into()),
                (keys::STATUS, Status::Removing.name().into()),
            ]);
            if is_applied(self.client.commit(&[stored.replace(mark)]).await?) {
                return self.sweep(key).await;
            }
            wait(&mut backoff).await?;
        }
        Ok(())
    }

    /// Deletes the remaining documents of a deleted session, or of an incomplete copy. Does nothing once another
    /// host has done so: every commit has the condition that the session's document is the one that was read.
    pub(super) async fn sweep(&self, key: &SessionKey) -> Result<(), StoreError> {
        let Some((stored, _)) = self.find_any(key, &[], &[]).await? else { return Ok(()) };
        if stored.status.is_visible() {
            return Ok(());
        }
        for collection in [keys::CALLS, keys::RUNS, keys::EVENTS] {
            loop {
                let documents = self.children(key, collection, PAGE).await?;
                let is_last = documents.len() < PAGE;
                let writes = documents.iter().flat_map(|document| self.delete_child(key, collection, document));
                for mut writes in split(writes.collect()) {
                    writes.push(stored.guard());
                    if !is_applied(self.client.commit(&writes).await?) {
                        return Ok(());
                    }
                }
                if is_last {
                    break;
                }
            }
        }
        self.client.commit(&[stored.delete()]).await.map(drop)
    }

    /// Reads the data for deleting documents of a session.
    async fn children(&self, key: &SessionKey, collection: &str, limit: usize) -> Result<Vec<Document>, StoreError> {
        let fields = ["__name__", keys::PARTS, keys::ID, keys::BACKGROUND];
        let query = json!({"select": select(&fields), "from": [{"collectionId": collection}], "limit": limit});
        self.client.query(&self.names.session(key), &query, None).await
    }

    fn delete_child(&self, key: &SessionKey, collection: &str, document: &Document) -> Vec<Write> {
        let mut writes = self.delete_event_writes(document);
        if collection == keys::RUNS && document.boolean(keys::BACKGROUND) {
            let run = document.text(keys::ID).unwrap_or_default();
            writes.push(Write::delete(names::background_run(key, run)));
        }
        writes
    }

    pub(super) async fn fork(&self, key: &SessionKey, revision: u64, fork: SessionKey) -> Result<Session, StoreError> {
        let created = Timestamp::now();
        let mut backoff = retries();
        loop {
            let Some(read) = self.read_for_restoration(key, revision).await? else {
                return Err(StoreError::SessionNotFound(key.clone()));
            };
            let (initial, own) = read.states_at(revision);
            let events: Vec<_> = read.events.iter().filter(|stored| stored.revision <= revision).collect();
            let updated = events.last().map_or(created, |stored| stored.event.timestamp);
            let mut new = self.new_session(&fork, created, &own, &initial);
            new.set_field(keys::UPDATE_TIME, updated.into());
            new.set_field(keys::LISTING, names::listing_key(&fork.app, updated, &fork.id).into());
            new.set_field(keys::REVISION, revision.into());
            new.set_field(keys::EVENT_BYTES, events.iter().map(|stored| stored.json.len() as u64).sum::<u64>().into());
            let copies = events.iter().flat_map(|stored| self.copy_writes(&fork, stored)).collect();
            match self.find_any(&fork, &[], &[]).await? {
                Some((existing, _)) if existing.status.is_visible() => return Err(StoreError::SessionExists(fork)),
                Some(_) => self.sweep(&fork).await?,
                None => {}
            }
            if self.write_in_steps(&fork, new, copies, Status::Copying).await? {
                let mut state = read.shared;
                state.merge(&own);
                return Ok(session(fork, state, revision, created, updated));
            }
            wait(&mut backoff).await?;
        }
    }

    pub(super) async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        let mut backoff = retries();
        loop {
            let Some(read) = self.read_for_restoration(key, revision).await? else {
                return Err(StoreError::SessionNotFound(key.clone()));
            };
            if read.stored.status == Status::Trimming {
                self.trim(key).await?;
                continue;
            }
            if read.stored.lease_remaining().is_some() {
                return Err(StoreError::session_in_use(key));
            }
            let stored = &read.stored;
            let removal = self.removal(key, revision, &read.events, &read.read_time).await?;
            let (_, own) = read.states_at(revision);
            // Another time than before, even if the clock was set back.
            let created = Timestamp::now().max(Timestamp::from_micros(stored.created.as_micros() + 1));
            let newest = read.events.iter().rfind(|stored| stored.revision <= revision);
            let updated = newest.map_or(created, |stored| stored.event.timestamp);
            let (state, usage) = state::session_fields(&own);
            let update = stored.update(fields([
                (keys::STATUS, Status::Active.name().into()),
                (keys::CREATE_TIME, created.into()),
                (keys::UPDATE_TIME, updated.into()),
                (keys::LISTING, names::listing_key(&key.app, updated, &key.id).into()),
                (keys::REVISION, revision.into()),
                (keys::EVENT_BYTES, stored.event_bytes.saturating_sub(removal.freed).into()),
                (keys::STATE, state),
                (keys::STATE_KEYS, usage.keys.into()),
                (keys::STATE_BYTES, usage.bytes.into()),
                (keys::FENCE, (stored.fence + 1).into()),
                (keys::LEASED_UNTIL, 0_i64.into()),
            ]));
            if self.write_in_steps(key, update, removal.writes, Status::Trimming).await? {
                let mut state = read.shared;
                state.merge(&own);
                return Ok(session(key.clone(), state, revision, created, updated));
            }
            wait(&mut backoff).await?;
        }
    }

    /// Removes the remaining documents of an incomplete rewind.
    pub(super) async fn trim(&self, key: &SessionKey) -> Result<(), StoreError> {
        let mut backoff = retries();
        loop {
            let Some(read) = self.read_for_restoration(key, 0).await? else { return Ok(()) };
            if read.stored.status != Status::Trimming {
                return Ok(());
            }
            let removal = self.removal(key, read.stored.revision, &read.events, &read.read_time).await?;
            if self.complete_steps(&read.stored, removal.writes, None).await? {
                return Ok(());
            }
            wait(&mut backoff).await?;
        }
    }

    /// Writes a session's document and others, in one commit if they fit. If they don't, the session has the `status`
    /// until all are written. Returns false if a condition did not hold: nothing is changed then, but for an incomplete
    /// copy.
    async fn write_in_steps(
        &self,
        key: &SessionKey,
        mut session: Write,
        others: Vec<Write>,
        status: Status,
    ) -> Result<bool, StoreError> {
        let mut commits = split(others);
        if commits.len() <= 1 {
            let mut writes = commits.pop().unwrap_or_default();
            writes.insert(0, session);
            return Ok(is_applied(self.client.commit(&writes).await?));
        }
        session.set_field(keys::STATUS, status.name().into());
        // A copy is not listed before it is complete.
        let listing = if status == Status::Copying { session.take_field(keys::LISTING) } else { None };
        if !is_applied(self.client.commit(&[session]).await?) {
            return Ok(false);
        }
        let others = commits.into_iter().flatten().collect();
        let is_complete = match self.find_any(key, &[], &[]).await? {
            Some((stored, _)) if stored.status == status => self.complete_steps(&stored, others, listing).await?,
            // Another host has completed it, or removed it.
            _ => false,
        };
        // The first commit decides about a rewind. Repeating it would remove events that were appended after another
        // host has completed it.
        Ok(is_complete || status == Status::Trimming)
    }

    /// Makes the other writes of several commits, and then marks the session as complete, with its position in lists if
    /// it has none yet.
    async fn complete_steps(
        &self,
        stored: &StoredSession,
        others: Vec<Write>,
        listing: Option<Value>,
    ) -> Result<bool, StoreError> {
        for mut writes in split(others) {
            writes.push(stored.guard());
            if !is_applied(self.client.commit(&writes).await?) {
                return Ok(false);
            }
        }
        let mut active = stored.update(fields([(keys::STATUS, Status::Active.name().into())]));
        if let Some(listing) = listing {
            active.set_field(keys::LISTING, listing);
        }
        Ok(is_applied(self.client.commit(&[active]).await?))
    }

    /// Returns the writes that remove the events after a revision, with the calls of their runs and the runs that have
    /// begun since.
    async fn removal(
        &self,
        key: &SessionKey,
        revision: u64,
        events: &[StoredEvent],
        read_time: &str,
    ) -> Result<Removal, StoreError> {
        let (remaining, removed): (Vec<_>, Vec<_>) = events.iter().partition(|stored| stored.revision <= revision);
        let runs_of = |events: &[&StoredEvent]| -> HashSet<String> {
            events.iter().map(|stored| stored.event.invocation_id.clone()).collect()
        };
        let (kept_runs, removed_runs) = (runs_of(&remaining), runs_of(&removed));
        let mut removal = Removal { writes: Vec::new(), freed: 0 };
        for document in self.documents(key, keys::CALLS, read_time).await? {
            if removed_runs.contains(document.text(keys::RUN).unwrap_or_default()) {
                let call = document.text(keys::CALL).unwrap_or_default();
                removal.freed += record_bytes(call, document.text(keys::OUTCOME));
                removal.writes.push(Write::delete(self.client.relative(&document.name).to_owned()));
            }
        }
        for document in self.documents(key, keys::RUNS, read_time).await? {
            let run = parse_run(key, &document);
            let name = self.client.relative(&document.name).to_owned();
            if is_undone(&run, revision, &kept_runs, &removed_runs) {
                removal.freed += run.bytes();
                removal.writes.push(Write::delete(name));
                removal.writes.extend(run.is_background.then(|| Write::delete(names::background_run(key, &run.id))));
            } else if run.first_revision > revision {
                removal.writes.push(Write::merge(name, fields([(keys::FIRST_REVISION, revision.into())])));
                removal.writes.extend(pending_write(&run));
            }
        }
        for stored in removed {
            removal.freed += stored.json.len() as u64;
            removal.writes.extend(self.delete_event_writes(&stored.document));
        }
        Ok(removal)
    }

    /// Reads all documents of a session's collection.
    async fn documents(
        &self,
        key: &SessionKey,
        collection: &str,
        read_time: &str,
    ) -> Result<Vec<Document>, StoreError> {
        let query = json!({"from": [{"collectionId": collection}]});
        self.client.query(&self.names.session(key), &query, Some(read_time)).await
    }

    async fn read_for_restoration(&self, key: &SessionKey, revision: u64) -> Result<Option<Restoration>, StoreError> {
        let fields = field_paths(&[keys::STATE, keys::INITIAL_STATE]);
        let snapshot = self.client.read(&self.session_names(key), Some(&fields), None).await?;
        let [Some(found), shared @ ..] = snapshot.documents.as_slice() else { return Ok(None) };
        let (shared, read_time) = (state::read_shared(shared), snapshot.read_time.clone());
        let stored = StoredSession::new(found.clone(), &read_time);
        if !stored.status.is_visible() {
            return Ok(None);
        }
        if revision > stored.revision {
            return Err(too_few_events(key, revision, stored.revision));
        }
        // A rewind that was not completed has left events after the revision.
        let all = Revisions { after: 0, last: i64::MAX.cast_unsigned() };
        let events = self.read_events(key, all, usize::MAX, &read_time).await?;
        Ok(Some(Restoration { stored, shared, events, read_time }))
    }
}

/// A consistent snapshot of a session with all events.
struct Restoration {
    stored: StoredSession,
    shared: State,
    events: Vec<StoredEvent>,
    read_time: String,
}

impl Restoration {
    /// Returns the session's own state at its creation and at a revision.
    fn states_at(&self, revision: u64) -> (State, State) {
        let initial = self.stored.document.text(keys::INITIAL_STATE).unwrap_or("{}");
        let initial = State::from(&serde_json::from_str::<JsonMap>(initial).unwrap_or_default());
        let mut state = initial.clone();
        for stored in self.events.iter().take_while(|stored| stored.revision <= revision) {
            for (name, value) in session_values(&stored.event.actions.state_delta) {
                state.set(name, value.clone());
            }
        }
        (initial, state)
    }
}

fn is_undone(run: &StoredRun, revision: u64, kept: &HashSet<String>, removed: &HashSet<String>) -> bool {
    let is_later = run.first_revision >= revision || removed.contains(&run.id);
    run.state != RunState::Accepted && is_later && !kept.contains(&run.id)
}
