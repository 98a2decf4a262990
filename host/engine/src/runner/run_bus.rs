//! The run bus: connects the runs of this host with their followers, and cancels them.
//!
//! The bus may lose events: followers read missed ones from the store, which has each event before the bus. A follower
//! that comes while a message is streamed gets the message so far.

mod partial_messages;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hatchery_core::sync::MutexExt;
use hatchery_core::{Event, FastHashMap, SessionKey};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use partial_messages::PartialMessages;

/// Frames that a follower may be behind. One that falls behind further reads the store.
pub(super) const MAX_BUFFERED_FRAMES: usize = 64;

/// A message of the bus.
#[derive(Debug, Clone)]
pub(super) enum Frame {
    Event {
        /// The session's revision with this event; `None` for a partial event, which is not stored.
        revision: Option<u64>,
        event: Arc<Event>,
    },
    /// No turn of the run is in progress or queued on this host any more.
    End,
}

/// Sends the events of a run to its followers.
#[derive(Clone, Default)]
pub(super) struct FrameSender(Arc<Mutex<FrameState>>);

#[derive(Default)]
struct FrameState {
    /// `None` until the first follower subscribes.
    followers: Option<broadcast::Sender<Frame>>,
    partial_messages: PartialMessages,
}

/// The frames of a run from now on.
pub(super) struct FrameSubscription {
    pub(super) frames: broadcast::Receiver<Frame>,
    /// The messages that are being streamed, so far, as partial events.
    pub(super) partial_messages: Vec<Arc<Event>>,
}

impl FrameSender {
    /// Sends an event. A stored event is published after it was stored.
    pub(super) fn publish(&self, revision: Option<u64>, event: &Arc<Event>) {
        let mut state = self.0.lock_unpoisoned();
        state.partial_messages.add(event);
        state.send(|| Frame::Event { revision, event: event.clone() });
    }

    fn subscribe(&self) -> FrameSubscription {
        let mut state = self.0.lock_unpoisoned();
        let followers = state.followers.get_or_insert_with(|| broadcast::channel(MAX_BUFFERED_FRAMES).0);
        FrameSubscription { frames: followers.subscribe(), partial_messages: state.partial_messages.to_events() }
    }
}

impl FrameState {
    fn send(&self, frame: impl FnOnce() -> Frame) {
        if let Some(followers) = &self.followers {
            // Fails if there is no receiver any more.
            let _ = followers.send(frame());
        }
    }
}

/// A run of this host that is in progress or queued.
#[derive(Debug, Clone)]
pub struct RunInProgress {
    pub session: SessionKey,
    pub id: String,
    /// Time since this host accepted the run.
    pub elapsed: Duration,
}

/// The session and the id of a run.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RunKey {
    session: SessionKey,
    run: String,
}

impl RunKey {
    fn new(session: &SessionKey, run: &str) -> Self {
        Self { session: session.clone(), run: run.to_owned() }
    }
}

/// The runs of this host, in progress or queued.
#[derive(Default)]
pub(super) struct RunBus {
    channels: Mutex<FastHashMap<RunKey, Channel>>,
    /// Cancelled once all runs are stopped.
    stopped: CancellationToken,
}

struct Channel {
    announced: Instant,
    frames: FrameSender,
    is_cancel_requested: Arc<AtomicBool>,
    /// The tokens of the turns of the run that are in progress or queued.
    turns: Vec<(u64, CancellationToken)>,
    next_turn: u64,
}

impl RunBus {
    /// Announces a turn of a run, which `cancel` stops, until the publisher is dropped.
    pub(super) fn announce(
        self: &Arc<Self>,
        session: &SessionKey,
        run: &str,
        cancel: CancellationToken,
    ) -> RunPublisher {
        let key = RunKey::new(session, run);
        let mut channels = self.channels();
        let channel = channels.entry(key.clone()).or_insert_with(|| Channel {
            announced: Instant::now(),
            frames: FrameSender::default(),
            is_cancel_requested: Arc::default(),
            turns: Vec::new(),
            next_turn: 0,
        });
        if self.is_stopped() {
            cancel.cancel();
        }
        let turn = channel.next_turn;
        channel.next_turn += 1;
        channel.turns.push((turn, cancel));
        let (frames, is_cancel_requested) = (channel.frames.clone(), channel.is_cancel_requested.clone());
        RunPublisher { bus: self.clone(), key, turn, frames, is_cancel_requested }
    }

    /// Subscribes to a run; `None` if the run is not one of this host.
    pub(super) fn follow(&self, session: &SessionKey, run: &str) -> Option<FrameSubscription> {
        let channels = self.channels();
        channels.get(&RunKey::new(session, run)).map(|channel| channel.frames.subscribe())
    }

    /// Returns true if the run is in progress or queued on this host.
    pub(super) fn has(&self, session: &SessionKey, run: &str) -> bool {
        self.channels().contains_key(&RunKey::new(session, run))
    }

    /// Returns at most `limit` of the runs, those that were announced longest ago first.
    pub(super) fn in_progress(&self, limit: usize) -> Vec<RunInProgress> {
        let channels = self.channels();
        let mut runs: Vec<_> = channels.iter().map(|(key, channel)| (channel.announced, key)).collect();
        if runs.len() > limit {
            runs.select_nth_unstable_by_key(limit, |(announced, _)| *announced);
            runs.truncate(limit);
        }
        runs.sort_unstable_by_key(|(announced, _)| *announced);
        let runs = runs.into_iter().map(|(announced, key)| RunInProgress {
            session: key.session.clone(),
            id: key.run.clone(),
            elapsed: announced.elapsed(),
        });
        runs.collect()
    }

    /// Cancels the turns of a run. Returns false if the run is not one of this host.
    pub(super) fn cancel(&self, session: &SessionKey, run: &str) -> bool {
        let channels = self.channels();
        let Some(channel) = channels.get(&RunKey::new(session, run)) else { return false };
        channel.is_cancel_requested.store(true, Ordering::Release);
        channel.turns.iter().for_each(|(_, cancel)| cancel.cancel());
        true
    }

    /// Stops all current and future runs.
    pub(super) fn stop(&self) {
        let channels = self.channels();
        self.stopped.cancel();
        channels.values().flat_map(|channel| &channel.turns).for_each(|(_, cancel)| cancel.cancel());
    }

    /// Returns true once all runs are stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_cancelled()
    }

    /// Returns the token that is cancelled once all runs are stopped.
    pub(super) fn stop_token(&self) -> CancellationToken {
        self.stopped.clone()
    }

    fn channels(&self) -> MutexGuard<'_, FastHashMap<RunKey, Channel>> {
        self.channels.lock_unpoisoned()
    }
}

/// One turn of a run, as it was announced. Dropping the last one notifies the followers.
pub(super) struct RunPublisher {
    bus: Arc<RunBus>,
    key: RunKey,
    turn: u64,
    frames: FrameSender,
    is_cancel_requested: Arc<AtomicBool>,
}

impl RunPublisher {
    /// Returns the id of the run.
    pub(super) fn run(&self) -> &str {
        &self.key.run
    }

    /// Returns the sender of the turn's events.
    pub(super) fn frames(&self) -> FrameSender {
        self.frames.clone()
    }

    /// Cancels the run.
    pub(super) fn cancel(&self) {
        self.bus.cancel(&self.key.session, &self.key.run);
    }

    /// Returns true if cancellation of this run was requested.
    pub(super) fn is_cancel_requested(&self) -> bool {
        self.is_cancel_requested.load(Ordering::Acquire)
    }
}

impl Drop for RunPublisher {
    fn drop(&mut self) {
        let mut channels = self.bus.channels();
        let is_last = channels.get_mut(&self.key).is_some_and(|channel| {
            channel.turns.retain(|(turn, _)| *turn != self.turn);
            channel.turns.is_empty()
        });
        if !is_last {
            return;
        }
        channels.remove(&self.key);
        drop(channels);
        self.frames.0.lock_unpoisoned().send(|| Frame::End);
    }
}
