//! Runs of sessions in memory.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Event, FastHashMap, RunPage, RunService, RunState, RunTransition, SessionKey, StoreError, StoredRun,
};
use imbl::Vector;

use super::{MemorySessions, StoredSession};

/// The runs of one session, oldest first. The number of a run is its position, from 1.
#[derive(Default)]
pub(super) struct SessionRuns {
    runs: Vec<StoredRun>,
    positions: FastHashMap<String, usize>,
}

impl SessionRuns {
    fn get(&self, run: &str) -> Option<&StoredRun> {
        self.runs.get(self.position(run)?)
    }

    fn get_mut(&mut self, run: &str) -> Option<&mut StoredRun> {
        let position = self.position(run)?;
        self.runs.get_mut(position)
    }

    fn position(&self, run: &str) -> Option<usize> {
        // Nearly always the last one is changed.
        match self.runs.last() {
            Some(last) if last.id == run => Some(self.runs.len() - 1),
            Some(_) | None => self.positions.get(run).copied(),
        }
    }

    fn push(&mut self, run: StoredRun) {
        self.positions.insert(run.id.clone(), self.runs.len());
        self.runs.push(run);
    }

    /// Removes the runs that have begun after a revision: they have no events before it. Returns their bytes.
    pub(super) fn rewind(
        &mut self,
        revision: u64,
        remaining: &Vector<Arc<Event>>,
        removed: &Vector<Arc<Event>>,
    ) -> u64 {
        let has =
            |events: &Vector<Arc<Event>>, run: &StoredRun| events.iter().any(|event| event.invocation_id == run.id);
        let is_undone = |run: &StoredRun| {
            let is_later = run.first_revision >= revision || has(removed, run);
            run.state != RunState::Accepted && is_later && !has(remaining, run)
        };
        let (undone, kept): (Vec<_>, Vec<_>) = std::mem::take(self).runs.into_iter().partition(is_undone);
        for run in kept {
            self.push(StoredRun { first_revision: run.first_revision.min(revision), ..run });
        }
        undone.iter().map(StoredRun::bytes).sum()
    }
}

impl MemorySessions {
    /// Adds a run, unless the session has it already.
    fn add_run(&self, stored: &mut StoredSession, run: &StoredRun) {
        if stored.runs.get(&run.id).is_none() {
            stored.runs.push(run.clone());
            stored.add_event_bytes(run.bytes());
            self.index_background_run(run);
        }
    }

    fn start_run(&self, stored: &mut StoredSession, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        stored.check_fence(Some(fence))?;
        self.add_run(stored, run);
        self.change_run(stored, &run.id, &RunTransition::Start);
        Ok(())
    }

    fn change_run(&self, stored: &mut StoredSession, run: &str, transition: &RunTransition) {
        let Some(run) = stored.runs.get_mut(run) else { return };
        let bytes = run.bytes();
        if run.apply(transition) {
            self.index_background_run(run);
            let growth = run.bytes().wrapping_sub(bytes);
            stored.add_event_bytes(growth);
        }
    }

    fn index_background_run(&self, run: &StoredRun) {
        if run.is_background {
            let entry = (run.accepted, run.session.clone(), run.id.clone());
            let mut background_runs = self.background_runs.lock_unpoisoned();
            if run.state.is_active() {
                background_runs.insert(entry)
            } else {
                background_runs.remove(&entry)
            };
        }
    }
}

#[async_trait]
impl RunService for MemorySessions {
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        self.change(&run.session, |stored| {
            self.add_run(stored, run);
            Ok(stored.runs.get(&run.id).unwrap_or(run).clone())
        })
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        self.change(&run.session, |stored| {
            self.start_run(stored, run, fence)?;
            Ok(stored.runs.get(&run.id).unwrap_or(run).clone())
        })
    }

    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        self.change(&run.session, |stored| self.start_run(stored, run, fence))
    }

    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        let changed = MemorySessions::change(self, session, |stored| {
            stored.check_fence(fence)?;
            self.change_run(stored, run, transition);
            Ok(stored.runs.get(run).cloned())
        });
        match changed {
            Err(StoreError::SessionNotFound(_)) => Ok(None),
            result => result,
        }
    }

    async fn change_later(
        &self,
        session: &SessionKey,
        run: &str,
        fence: u64,
        transition: &RunTransition,
    ) -> Result<(), StoreError> {
        let changed = MemorySessions::change(self, session, |stored| {
            stored.check_fence(Some(fence))?;
            self.change_run(stored, run, transition);
            Ok(())
        });
        match changed {
            Err(StoreError::SessionNotFound(_)) => Ok(()),
            result => result,
        }
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        let stored = self.find(session);
        Ok(stored.and_then(|stored| stored.lock_unpoisoned().runs.get(run).cloned()))
    }

    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        let Some(stored) = self.find(session) else { return Ok(RunPage::default()) };
        let stored = stored.lock_unpoisoned();
        let runs = &stored.runs.runs;
        let from = from.map_or(runs.len(), |from| usize::try_from(from).unwrap_or(usize::MAX).min(runs.len()));
        let end = from.saturating_sub(limit);
        let page = runs.get(end..from).unwrap_or_default().iter().rev().cloned().collect();
        Ok(RunPage { runs: page, next: (end > 0).then_some(end as u64) })
    }

    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        let Some(stored) = self.find(session) else { return Ok(None) };
        let stored = stored.lock_unpoisoned();
        let is_held = stored.is_held();
        let running = stored.runs.runs.iter().filter(|run| is_held && run.state == RunState::Running);
        Ok(running.max_by_key(|run| run.updated).map(|run| run.id.clone()))
    }

    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError> {
        let Some(stored) = self.find(session) else { return Ok(false) };
        let stored = stored.lock_unpoisoned();
        Ok(stored.is_held())
    }

    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        let entries = self.background_runs.lock_unpoisoned().clone();
        let mut runs = Vec::new();
        for entry in entries {
            if runs.len() == limit {
                break;
            }
            let (accepted, session, id) = &entry;
            let found = self.find(session);
            let stored = found.as_ref().map(|stored| stored.lock_unpoisoned());
            // A later run may have the same ids.
            let is_same = |run: &&StoredRun| run.accepted == *accepted && run.is_background && run.state.is_active();
            let run = stored.as_ref().and_then(|stored| Some((stored, stored.runs.get(id).filter(is_same)?)));
            let Some((stored, run)) = run else {
                // The session was deleted, or the run was undone.
                self.background_runs.lock_unpoisoned().remove(&entry);
                continue;
            };
            if !stored.is_held() && apps.iter().any(|app| **app == *session.app) {
                runs.push(StoredRun { request: None, ..run.clone() });
            }
        }
        Ok(runs)
    }
}
