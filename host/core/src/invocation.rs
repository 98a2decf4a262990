//! The invocation context of a run: its identity, settings, limits, and the session as the run sees it.

mod limits;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use imbl::Vector;
use tokio_util::sync::CancellationToken;

use crate::app_runner::AppRunner;
use crate::caller::{Caller, CallerOrigin};
use crate::client_input::InputClient;
use crate::content::Content;
use crate::error::StoreError;
use crate::event::{Event, EventData, new_invocation_id};
use crate::id::SessionKey;
use crate::journal::RunJournal;
use crate::json::JsonMap;
use crate::live::{LiveRequestQueue, LiveStreams};
use crate::plugin::Plugin;
use crate::provenance::{Claim, EventSigner};
use crate::run_config::RunConfig;
use crate::run_usage::RunUsage;
use crate::services::Services;
use crate::session::Session;
use crate::state::{State, StateScope, state_entry_bytes};
use crate::sync::RwLockExt;
use crate::trace::SpanContext;
use crate::turn::TurnLease;

pub use self::limits::RemainingLimits;
pub use self::writer::{InvocationWriter, RevisionGap};

/// One run for one user message: the data that all its agents, tools and callbacks share.
///
/// The session and the user's message can be read by everyone. They are changed only through the [`InvocationWriter`]
/// that [`Invocation::new`] returns once, and that the run's event log keeps.
pub struct Invocation {
    /// `e-<uuid>`.
    pub id: String,
    pub session_key: SessionKey,
    /// The user or process that requested the run.
    pub caller: Caller,
    /// The client that can be asked for input during the run. `None` for most protocols.
    pub input: Option<Arc<dyn InputClient>>,
    /// Settings and limits.
    pub run_config: RunConfig,
    pub services: Services,
    /// Cancelled to stop the run.
    pub cancel: CancellationToken,
    /// Cancelled when the host stops all runs, which can be continued later.
    pub host_stop: CancellationToken,
    /// The resources used so far, shared with the runs of agents that are called as tools.
    pub usage: Arc<RunUsage>,
    /// How many runs this run is nested in, by agents called as tools and by apps that code runs; 0 for the run of a
    /// user's message.
    pub depth: u32,
    /// Runs apps for the code of this run; `None` outside of a runner.
    pub apps: Option<Arc<dyn AppRunner>>,
    /// The plugins of the run, in order.
    pub plugins: Arc<[Arc<dyn Plugin>]>,
    /// The run whose code has started this one; `None` for the run of a user's message.
    pub parent: Option<Arc<Invocation>>,
    /// True in the run of an agent that is called as a tool.
    pub is_in_tool: bool,
    /// Whether the run can pause and be continued later.
    pub is_resumable: bool,
    /// Signs the events that the host itself has created, and verifies them.
    pub signer: EventSigner,
    /// The lease of the session's turn; `None` if the run writes to no session.
    pub lease: Option<Arc<TurnLease>>,
    /// The journal of the run's calls, shared with the runs of agents that are called as tools; `None` without a lease.
    pub journal: Option<Arc<RunJournal>>,
    /// The parent of the spans of the run.
    pub span: SpanContext,
    /// The queue of the user's requests in a live run, to which code may add some in the user's name. A text model reads
    /// them after the turn in progress, so code that waits for a place in the queue could wait for itself. `None` unless
    /// the run is live.
    pub live_requests: Option<LiveRequestQueue>,
    /// The streaming tools of a live run.
    pub live_streams: LiveStreams,
    /// True once an event has ended the run.
    is_ended: AtomicBool,
    user_content: RwLock<Arc<Content>>,
    session: RwLock<Session>,
}

/// The parameters of [`Invocation::new`].
pub struct NewInvocation {
    /// The id; [`new_invocation_id`] creates one.
    pub id: String,
    /// The session as it is stored.
    pub session: Session,
    /// The user's message; empty if the run has none.
    pub user_content: Arc<Content>,
    /// The user or process that requested the run.
    pub caller: Caller,
    /// The client that can be asked for input during the run.
    pub input: Option<Arc<dyn InputClient>>,
    /// Settings and limits.
    pub run_config: RunConfig,
    pub services: Services,
    /// Cancelled to stop the run.
    pub cancel: CancellationToken,
    /// Cancelled when the host stops all runs.
    pub host_stop: CancellationToken,
    /// Whether the run can pause and be continued later.
    pub is_resumable: bool,
    /// Runs apps for the code of the run.
    pub apps: Option<Arc<dyn AppRunner>>,
    /// The plugins of the run, in order.
    pub plugins: Arc<[Arc<dyn Plugin>]>,
    /// The run whose code has started this one. The usage of this run counts towards its limits too.
    pub parent: Option<Arc<Invocation>>,
    /// Signs the events that the host itself creates.
    pub signer: EventSigner,
    /// The resources that the run has used before, if it is resumed.
    pub usage: RunUsage,
    /// The lease of the session's turn; `None` if the run writes to no session.
    pub lease: Option<Arc<TurnLease>>,
    /// The journal of the run's calls; `None` without a lease.
    pub journal: Option<Arc<RunJournal>>,
    /// The parent of the spans of the run.
    pub span: SpanContext,
    /// The queue of the user's requests. `None` unless the run is live.
    pub live_requests: Option<LiveRequestQueue>,
}

impl NewInvocation {
    /// Returns parameters with a new id, default settings, no message, and the session's user as caller.
    pub fn new(session: Session, services: Services) -> Self {
        Self {
            id: new_invocation_id(),
            user_content: Arc::default(),
            caller: Caller::new(session.key.user.clone(), CallerOrigin::InProcess),
            input: None,
            run_config: RunConfig::default(),
            services,
            cancel: CancellationToken::new(),
            host_stop: CancellationToken::new(),
            is_resumable: false,
            apps: None,
            plugins: Arc::default(),
            parent: None,
            signer: EventSigner::default(),
            usage: RunUsage::default(),
            lease: None,
            journal: None,
            span: SpanContext::default(),
            live_requests: None,
            session,
        }
    }
}

impl Invocation {
    /// Creates the invocation of a user message, and the only handle that can change it.
    pub fn new(new: NewInvocation) -> (Arc<Self>, InvocationWriter) {
        let invocation = Self {
            id: new.id,
            session_key: new.session.key.clone(),
            caller: new.caller,
            input: new.input,
            run_config: new.run_config,
            services: new.services,
            cancel: new.cancel,
            host_stop: new.host_stop,
            usage: Arc::new(new.usage),
            depth: new.parent.as_ref().map_or(0, |parent| parent.depth + 1),
            apps: new.apps,
            plugins: new.plugins,
            parent: new.parent,
            is_in_tool: false,
            is_resumable: new.is_resumable,
            signer: new.signer,
            lease: new.lease,
            journal: new.journal,
            span: new.span,
            live_requests: new.live_requests,
            live_streams: LiveStreams::default(),
            is_ended: AtomicBool::new(false),
            user_content: RwLock::new(new.user_content),
            session: RwLock::new(new.session),
        };
        invocation.with_writer()
    }

    /// Creates the invocation of an agent that is called as a tool. It has no events yet, starts with `state`, counts
    /// as usage of this run, and is cancelled with it. It has the call's id, and its spans begin at `span`.
    pub fn child(
        &self,
        id: String,
        user_content: Arc<Content>,
        state: State,
        span: SpanContext,
    ) -> (Arc<Self>, InvocationWriter) {
        let session = Session { state, events: Vector::new(), revision: 0, ..self.session() };
        let cancel = self.cancel.child_token();
        let child = Self {
            usage: self.usage.clone(),
            input: self.input.clone(),
            depth: self.depth + 1,
            lease: self.lease.clone(),
            journal: self.journal.clone(),
            apps: self.apps.clone(),
            parent: self.parent.clone(),
            is_in_tool: true,
            span,
            ..self.derive(id, session, user_content, self.run_config.clone(), cancel)
        };
        child.with_writer()
    }

    /// Creates an invocation that outlives this one, such as for work in the background. It sees the session as it is
    /// now, has no user message, its own usage counters, and is cancelled by `cancel` only.
    pub fn detach(&self, run_config: RunConfig, cancel: CancellationToken) -> Arc<Self> {
        Arc::new(self.derive(new_invocation_id(), self.session(), Arc::default(), run_config, cancel))
    }

    fn derive(
        &self,
        id: String,
        session: Session,
        user_content: Arc<Content>,
        run_config: RunConfig,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            id,
            session_key: self.session_key.clone(),
            caller: self.caller.clone(),
            input: None,
            run_config,
            services: self.services.clone(),
            cancel,
            host_stop: self.host_stop.clone(),
            usage: Arc::default(),
            depth: 0,
            apps: None,
            plugins: self.plugins.clone(),
            parent: None,
            is_in_tool: false,
            is_resumable: false,
            signer: self.signer.clone(),
            lease: None,
            journal: None,
            span: self.span.clone(),
            live_requests: None,
            live_streams: LiveStreams::default(),
            is_ended: AtomicBool::new(false),
            user_content: RwLock::new(user_content),
            session: RwLock::new(session),
        }
    }

    fn with_writer(self) -> (Arc<Self>, InvocationWriter) {
        let invocation = Arc::new(self);
        let writer = InvocationWriter { invocation: invocation.clone() };
        (invocation, writer)
    }

    /// Returns the user's message.
    pub fn user_content(&self) -> Arc<Content> {
        self.user_content.read_unpoisoned().clone()
    }

    /// Returns the session as it is now, `temp:` state included. Copies nothing: state and events are shared.
    pub fn session(&self) -> Session {
        self.read_session().clone()
    }

    /// Returns the state as it is now.
    pub fn state(&self) -> State {
        self.read_session().state.clone()
    }

    /// Returns the events so far, oldest first.
    pub fn events(&self) -> Vector<Arc<Event>> {
        self.read_session().events.clone()
    }

    pub(crate) fn read_session(&self) -> RwLockReadGuard<'_, Session> {
        self.session.read_unpoisoned()
    }

    fn write_session(&self) -> RwLockWriteGuard<'_, Session> {
        self.session.write_unpoisoned()
    }

    /// Returns true if the event carries a valid proof of the claim, that is, if this host has created it in this
    /// session.
    pub fn proves(&self, event: &EventData, claim: Claim) -> bool {
        self.signer.proves(&self.session_key, event, claim)
    }

    /// Returns true if the run is continued later or elsewhere: the host stops, or another one has taken over the turn.
    pub fn is_interrupted(&self) -> bool {
        self.host_stop.is_cancelled() || self.lease.as_ref().is_some_and(|lease| lease.is_lost())
    }

    /// Returns true once an event with `actions.endInvocation` was added to the session: no agent runs any more.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Returns this run and the enclosing runs, whose code has started it, innermost first.
    pub fn and_parents(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |run| run.parent.as_deref())
    }

    /// Moves the `temp:` keys of a state delta into the state of this run, and returns the other keys. `temp:` keys are
    /// no part of stored state. They count as bytes of this run and the enclosing runs, so that the next event fails if
    /// there are too many.
    #[must_use]
    pub fn apply_temp_state(&self, mut delta: JsonMap) -> JsonMap {
        if delta.keys().any(|key| StateScope::split_key(key).0 == StateScope::Temp) {
            let mut session = self.write_session();
            delta.retain(|key, value| {
                let is_stored = StateScope::split_key(key).0 != StateScope::Temp;
                if !is_stored {
                    let bytes = state_entry_bytes(key, value);
                    self.and_parents().for_each(|run| {
                        run.usage.event_bytes.fetch_add(bytes, Ordering::Relaxed);
                    });
                    session.state.set(key, value.take());
                }
                is_stored
            });
        }
        delta
    }

    /// Returns once it is certain that no other host has taken over the session's turn. Await it directly before
    /// anything that has an effect outside of the session.
    ///
    /// # Errors
    /// As [`TurnLease::ensure`].
    pub async fn ensure_turn(&self) -> Result<(), StoreError> {
        match &self.lease {
            Some(lease) => lease.ensure().await,
            None => Ok(()),
        }
    }
}
