//! Documents of runs.

use async_trait::async_trait;
use hatchery_core::{RunFailure, RunPage, RunService, RunState, RunTransition, SessionKey, StoreError, StoredRun};
use serde_json::json;

use super::change::Plan;
use super::stored::{StoredSession, check_fence, field_paths};
use super::{FirestoreSessionService, Store};
use crate::firestore::document::{Document, Precondition, Write, fields};
use crate::firestore::query::{filter, order, select};
use crate::firestore::{keys, names};

/// The fields of a run, without its request.
const FIELDS: [&str; 11] = [
    keys::ID,
    keys::NUMBER,
    keys::STATE,
    keys::FAILURE,
    keys::BACKGROUND,
    keys::CANCEL_REQUESTED,
    keys::ATTEMPTS,
    keys::FIRST_REVISION,
    keys::CREATE_TIME,
    keys::UPDATE_TIME,
    keys::REQUEST,
];

/// Number of background runs that one request reads.
const PAGE: usize = 100;

#[async_trait]
impl RunService for FirestoreSessionService {
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        let add = |known: Option<StoredRun>| match known {
            Some(known) => (None, known),
            None => (Some(run.clone()), run.clone()),
        };
        self.0.change_run(&run.session, &run.id, None, add).await
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        let start = |known: Option<StoredRun>| {
            let is_new = known.is_none();
            let mut started = known.unwrap_or_else(|| run.clone());
            let has_changed = started.apply(&RunTransition::Start);
            ((has_changed || is_new).then(|| started.clone()), started)
        };
        self.0.change_run(&run.session, &run.id, Some(fence), start).await
    }

    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        let changed = self.0.change_run(session, run, fence, |known| {
            let Some(mut run) = known else { return (None, None) };
            let has_changed = run.apply(transition);
            (has_changed.then(|| run.clone()), Some(run))
        });
        match changed.await {
            Err(StoreError::SessionNotFound(_)) => Ok(None),
            result => result,
        }
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        let found = self.0.find(session, &[self.0.names.run(session, run)], &FIELDS).await?;
        Ok(found.and_then(|(_, runs)| Some(parse_run(session, runs.first()?.as_ref()?))))
    }

    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        self.0.list_runs(session, from, limit).await
    }

    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        self.0.run_in_progress(session).await
    }

    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError> {
        Ok(self.0.find_turn(session).await?.is_some())
    }

    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        let mut runs = Vec::new();
        for app in apps {
            runs.extend(self.0.interrupted_in(app, limit).await?);
        }
        runs.sort_by(|one, other| {
            (one.accepted, &one.session, &one.id).cmp(&(other.accepted, &other.session, &other.id))
        });
        runs.truncate(limit);
        Ok(runs)
    }
}

impl Store {
    /// Changes a run. `change` gets the stored run, and returns the new one and the result.
    async fn change_run<T>(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        change: impl Fn(Option<StoredRun>) -> (Option<StoredRun>, T),
    ) -> Result<T, StoreError> {
        let name = self.names.run(session, run);
        let plan = |stored: &StoredSession, others: &[Option<Document>]| {
            check_fence(session, stored, fence)?;
            let document = others.first().and_then(Option::as_ref);
            let known = document.map(|document| parse_run(session, document));
            let before = known.as_ref().map_or(0, StoredRun::bytes);
            let (changed, result) = change(known);
            let Some(changed) = changed else { return Ok(Plan::unchanged(result)) };
            let last = stored.document.unsigned(keys::LAST_RUN);
            let number = document.map_or(last + 1, |document| document.unsigned(keys::NUMBER));
            let mut update = stored.add_bytes(changed.bytes().wrapping_sub(before));
            update.set_field(keys::LAST_RUN, last.max(number).into());
            let set = run_write(name.clone(), &changed, number).with_condition(Precondition::unchanged(document));
            let mut writes = vec![update, set];
            writes.extend(pending_write(&changed));
            Ok(Plan::new(writes, result))
        };
        self.change(session, std::slice::from_ref(&name), &FIELDS, plan).await
    }

    async fn list_runs(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        if self.find(session, &[], &[]).await?.is_none() {
            return Ok(RunPage::default());
        }
        let from = from.unwrap_or(i64::MAX.cast_unsigned());
        let query = json!({
            "from": [{"collectionId": keys::RUNS}],
            "where": filter(keys::NUMBER, "LESS_THAN", from.into()),
            "orderBy": [order(keys::NUMBER, "DESCENDING")],
            // Fetch one extra row to learn whether there is a next page.
            "limit": i32::try_from(limit.saturating_add(1)).unwrap_or(i32::MAX),
        });
        let mut documents = self.client.query(&self.names.session(session), &query, None).await?;
        let has_more = documents.len() > limit;
        documents.truncate(limit);
        let next = documents.last().filter(|_| has_more).map(|document| document.unsigned(keys::NUMBER));
        Ok(RunPage { runs: documents.iter().map(|document| parse_run(session, document)).collect(), next })
    }

    /// Returns the id of the run that was started last and is running, if a turn holds the session.
    async fn run_in_progress(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        let Some(read_time) = self.find_turn(session).await? else { return Ok(None) };
        let query = json!({
            "select": select(&[keys::ID, keys::UPDATE_TIME]),
            "from": [{"collectionId": keys::RUNS}],
            "where": filter(keys::STATE, "EQUAL", RunState::Running.name().into()),
        });
        let running = self.client.query(&self.names.session(session), &query, Some(&read_time)).await?;
        let last = running.iter().max_by_key(|document| document.time(keys::UPDATE_TIME));
        Ok(last.and_then(|document| document.text(keys::ID)).map(ToOwned::to_owned))
    }

    /// Returns the time at which the session was read if a turn holds it then.
    async fn find_turn(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        let name = self.names.session(session);
        let snapshot = self.client.read(std::slice::from_ref(&name), Some(&field_paths(&[])), None).await?;
        let [Some(found), ..] = snapshot.documents.as_slice() else { return Ok(None) };
        let stored = StoredSession::new(found.clone(), &snapshot.read_time);
        let is_held = stored.status.is_visible() && stored.lease_remaining().is_some();
        Ok(is_held.then_some(snapshot.read_time))
    }

    /// Returns background runs of an app that no host runs, those that have waited longest first.
    async fn interrupted_in(&self, app: &str, limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        let (mut runs, mut offset) = (Vec::new(), 0);
        while runs.len() < limit {
            let query = json!({
                "from": [{"collectionId": keys::PENDING}],
                "orderBy": [order(keys::CREATE_TIME, "ASCENDING")],
                "offset": offset,
                "limit": PAGE,
            });
            let pending = self.client.query(&names::background_runs(app), &query, None).await?;
            offset += pending.len();
            runs.extend(self.list_unheld(app, &pending).await?);
            if pending.len() < PAGE {
                break;
            }
        }
        runs.truncate(limit);
        Ok(runs)
    }

    /// Returns the runs of these documents whose session no turn holds, without their requests.
    async fn list_unheld(&self, app: &str, pending: &[Document]) -> Result<Vec<StoredRun>, StoreError> {
        let key = |document: &Document| {
            let text = |field| document.text(field).unwrap_or_default().to_owned();
            SessionKey::new(app, text(keys::USER_ID), text(keys::SESSION_ID))
        };
        let keys: Vec<_> = pending.iter().map(key).collect();
        let run_names = pending
            .iter()
            .zip(&keys)
            .map(|(document, key)| self.names.run(key, document.text(keys::ID).unwrap_or_default()));
        let names: Vec<_> = keys.iter().map(|key| self.names.session(key)).chain(run_names).collect();
        let without_request: Vec<_> = FIELDS.iter().filter(|field| **field != keys::REQUEST).copied().collect();
        let snapshot = self.client.read(&names, Some(&field_paths(&without_request)), None).await?;
        let (sessions, runs) = snapshot.documents.split_at(keys.len().min(snapshot.documents.len()));
        let found = sessions.iter().zip(runs).zip(&keys).filter_map(|((session, run), key)| {
            let stored = StoredSession::new(session.clone()?, &snapshot.read_time);
            let run = parse_run(key, run.as_ref()?);
            let is_free = stored.status.is_visible() && stored.lease_remaining().is_none();
            (is_free && run.state.is_active()).then_some(run)
        });
        Ok(found.collect())
    }
}

/// Returns the write of a run's document.
fn run_write(name: String, run: &StoredRun, number: u64) -> Write {
    let failure = run.failure.as_ref().map(|failure| json!(failure).to_string());
    Write::set(
        name,
        fields([
            (keys::ID, run.id.as_str().into()),
            (keys::NUMBER, number.into()),
            (keys::STATE, run.state.name().into()),
            (keys::FAILURE, failure.into()),
            (keys::BACKGROUND, run.is_background.into()),
            (keys::CANCEL_REQUESTED, run.is_cancel_requested.into()),
            (keys::ATTEMPTS, u64::from(run.attempts).into()),
            (keys::FIRST_REVISION, run.first_revision.into()),
            (keys::REQUEST, run.request.clone().into()),
            (keys::CREATE_TIME, run.accepted.into()),
            (keys::UPDATE_TIME, run.updated.into()),
        ]),
    )
}

/// Returns the write by which a background run is found while it is active.
pub(super) fn pending_write(run: &StoredRun) -> Option<Write> {
    let name = names::background_run(&run.session, &run.id);
    let entry = || {
        fields([
            (keys::ID, run.id.as_str().into()),
            (keys::APP_NAME, (*run.session.app).into()),
            (keys::USER_ID, (*run.session.user).into()),
            (keys::SESSION_ID, (*run.session.id).into()),
            (keys::CREATE_TIME, run.accepted.into()),
        ])
    };
    let write = || if run.state.is_active() { Write::set(name, entry()) } else { Write::delete(name) };
    run.is_background.then(write)
}

/// Converts a run's document.
pub(super) fn parse_run(session: &SessionKey, document: &Document) -> StoredRun {
    let failure = document.text(keys::FAILURE).and_then(|json| serde_json::from_str::<RunFailure>(json).ok());
    StoredRun {
        id: document.text(keys::ID).unwrap_or_default().to_owned(),
        session: session.clone(),
        state: document.text(keys::STATE).and_then(RunState::from_name).unwrap_or(RunState::Failed),
        failure,
        is_background: document.boolean(keys::BACKGROUND),
        is_cancel_requested: document.boolean(keys::CANCEL_REQUESTED),
        attempts: u32::try_from(document.unsigned(keys::ATTEMPTS)).unwrap_or(u32::MAX),
        first_revision: document.unsigned(keys::FIRST_REVISION),
        request: document.text(keys::REQUEST).map(ToOwned::to_owned),
        accepted: document.time(keys::CREATE_TIME),
        updated: document.time(keys::UPDATE_TIME),
    }
}
