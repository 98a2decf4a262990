//! Following a run: its stored events, then those that it still emits, until it ends or waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use hatchery_core::{Event, EventWindow, RunError, SessionKey, StoreError, StoredRun, USER_AUTHOR};
use tokio::sync::broadcast::{self, error::RecvError};

use super::run_bus::{Frame, FrameSubscription, MAX_BUFFERED_FRAMES};
use super::{Runner, RunnerInner};

/// Maximum number of events that a follower reads from the store at a time.
const PAGE_EVENTS: usize = 64;

/// Polling interval for the events of a run that another host runs, or that has not begun.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// An item that a follower of a run receives.
#[derive(Debug, Clone)]
pub enum RunUpdate {
    /// An event of an agent.
    Event {
        /// The session's revision with this event, to follow from; `None` for a partial event, which is not stored.
        revision: Option<u64>,
        event: Arc<Event>,
    },
    /// The run has ended, or waits for an answer. The last update.
    End(Box<StoredRun>),
}

impl Runner {
    /// Follows a run of any host from a revision of its session on: each event that was stored after it comes once and
    /// in order. Partial events come only while the run is one of this host: a message that is being streamed first
    /// comes as one partial event with its text so far. `None` if there is no such run.
    ///
    /// # Errors
    /// The errors of the session service, and [`StoreError::InvalidRequest`] if it stores no runs.
    pub async fn follow(
        &self,
        session: &SessionKey,
        run: &str,
        after: u64,
    ) -> Result<Option<BoxStream<'static, Result<RunUpdate, RunError>>>, RunError> {
        let Some(stored) = self.0.runs()?.get(session, run).await? else { return Ok(None) };
        let follower = Follower {
            runner: self.0.clone(),
            session: session.clone(),
            run: run.to_owned(),
            // Stores count revisions up to there, and the next one must be a number too.
            revision: after.max(stored.first_revision).min(i64::MAX.cast_unsigned()),
            pending: VecDeque::new(),
            frames: None,
            stored_ids: VecDeque::new(),
            is_behind: false,
            has_ended: false,
        };
        let updates = stream::unfold(follower, |mut follower| async move {
            match follower.next().await {
                Ok(update) => update.map(|update| (Ok(update), follower)),
                Err(error) => {
                    follower.has_ended = true;
                    follower.pending.clear();
                    Some((Err(error), follower))
                }
            }
        });
        Ok(Some(updates.boxed()))
    }
}

struct Follower {
    runner: Arc<RunnerInner>,
    session: SessionKey,
    run: String,
    /// The revision up to which the follower has everything.
    revision: u64,
    pending: VecDeque<RunUpdate>,
    /// The frames of a run of this host.
    frames: Option<broadcast::Receiver<Frame>>,
    /// Ids of the last events that were read from the store. Their partial events, which may still be buffered, are
    /// dropped.
    stored_ids: VecDeque<String>,
    /// True if the store has more events than were read.
    is_behind: bool,
    has_ended: bool,
}

impl Follower {
    async fn next(&mut self) -> Result<Option<RunUpdate>, RunError> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                return Ok(Some(update));
            }
            if self.has_ended {
                return Ok(None);
            }
            if self.is_behind {
                self.catch_up().await?;
                continue;
            }
            match self.receive().await {
                Some(Ok(Frame::Event { revision: None, event })) => {
                    if !self.stored_ids.contains(&event.id) {
                        return Ok(Some(RunUpdate::Event { revision: None, event }));
                    }
                }
                Some(Ok(Frame::Event { revision: Some(revision), event })) if revision == self.revision + 1 => {
                    self.revision = revision;
                    return Ok(Some(RunUpdate::Event { revision: Some(revision), event }));
                }
                Some(Ok(Frame::Event { revision: Some(revision), .. })) if revision <= self.revision => {}
                // Frames were lost, or others have written to the session.
                Some(Ok(Frame::Event { .. }) | Err(RecvError::Lagged(_))) => self.catch_up().await?,
                Some(Ok(Frame::End) | Err(RecvError::Closed)) => self.frames = None,
                None => self.read_store().await?,
            }
        }
    }

    /// Returns the next frame; `None` without a run of this host.
    async fn receive(&mut self) -> Option<Result<Frame, RecvError>> {
        Some(self.frames.as_mut()?.recv().await)
    }

    /// Reads the store, and subscribes to the run if this host runs it and the store has few more events.
    async fn read_store(&mut self) -> Result<(), RunError> {
        // Before the store is read, so that nothing is missed in between.
        let subscription = self.runner.run_bus.follow(&self.session, &self.run);
        let stored = self.runner.runs()?.get(&self.session, &self.run).await?;
        let stored = stored.ok_or_else(|| StoreError::SessionNotFound(self.session.clone()))?;
        // After the run, so that all events of a run that has ended are there.
        self.catch_up().await?;
        if self.is_behind {
            return Ok(());
        }
        if let Some(FrameSubscription { frames, partial_messages }) = subscription {
            let partial = partial_messages.into_iter().filter(|event| !self.stored_ids.contains(&event.id));
            self.pending.extend(partial.map(|event| RunUpdate::Event { revision: None, event }));
            self.frames = Some(frames);
            return Ok(());
        }
        if !stored.state.is_active() {
            self.has_ended = true;
            self.pending.push_back(RunUpdate::End(Box::new(stored)));
        } else if self.pending.is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Reads the next page of events.
    async fn catch_up(&mut self) -> Result<(), RunError> {
        let window = EventWindow::Page { after: self.revision, limit: PAGE_EVENTS };
        let session = self.runner.services.sessions.get(&self.session, window).await?;
        let session = session.ok_or_else(|| StoreError::SessionNotFound(self.session.clone()))?;
        let first = self.revision;
        self.revision += session.events.len() as u64;
        self.is_behind = !session.events.is_empty() && self.revision < session.revision;
        let revisions = (first + 1..).zip(session.events);
        for (revision, event) in revisions.filter(|(_, event)| event.invocation_id == self.run) {
            self.stored_ids.push_back(event.id.clone());
            if event.author != USER_AUTHOR {
                self.pending.push_back(RunUpdate::Event { revision: Some(revision), event });
            }
        }
        let older = self.stored_ids.len().saturating_sub(MAX_BUFFERED_FRAMES);
        self.stored_ids.drain(..older);
        Ok(())
    }
}
