//! The invocation context of a run: its identity, settings, limits, and the session as the run sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures::{StreamExt, stream};
use imbl::Vector;
use tokio_util::sync::CancellationToken;

use crate::app_runner::AppRunner;
use crate::caller::{Caller, CallerOrigin};
use crate::content::Content;
use crate::error::{RunError, RunLimit, StoreError};
use crate::event::{Event, EventData, new_invocation_id};
use crate::id::SessionKey;
use crate::journal::RunJournal;
use crate::json::JsonMap;
use crate::model::{LlmRequest, LlmResponse, Model, ResponseStream, StreamingMode};
use crate::plugin::Plugin;
use crate::provenance::{Claim, EventSigner};
use crate::run_config::RunConfig;
use crate::run_usage::{ExceededLimit, RunUsage};
use crate::services::Services;
use crate::session::Session;
use crate::state::{State, StateScope, state_entry_bytes};
use crate::sync::RwLockExt;
use crate::turn::TurnLease;

/// One run for one user message: the data that all its agents, tools and callbacks share.
///
/// The session and the user's message can be read by everyone. They are changed only through the [`InvocationWriter`]
/// that [`Invocation::new`] returns once, and that the run's event log keeps.
pub struct Invocation {
    /// `e-<uuid>`.
    pub id: String,
    /// The key of the session.
    pub session_key: SessionKey,
    /// The user or process that requested the run.
    pub caller: Caller,
    /// Settings and limits.
    pub run_config: RunConfig,
    /// The services.
    pub services: Services,
    /// Cancelled to stop the run.
    pub cancel: CancellationToken,
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
    /// True in an agent that is called as a tool.
    pub is_in_tool: bool,
    /// Whether the run can pause and be continued later.
    pub is_resumable: bool,
    /// Signs the events that the host itself has created, and verifies them.
    pub signer: EventSigner,
    /// The lease of the session's turn; `None` if the run writes to no session.
    pub lease: Option<Arc<TurnLease>>,
    /// The journal of the run's calls, shared with the runs of agents that are called as tools; `None` without a lease.
    pub journal: Option<Arc<RunJournal>>,
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
    /// Settings and limits.
    pub run_config: RunConfig,
    /// The services.
    pub services: Services,
    /// Cancelled to stop the run.
    pub cancel: CancellationToken,
    /// Whether the run can pause and be continued later.
    pub is_resumable: bool,
    /// Runs apps for the code of the run.
    pub apps: Option<Arc<dyn AppRunner>>,
    /// The plugins of the run, in order.
    pub plugins: Arc<[Arc<dyn Plugin>]>,
    /// The run whose code has started this one. It also pays for this one.
    pub parent: Option<Arc<Invocation>>,
    /// Signs the events that the host itself creates.
    pub signer: EventSigner,
    /// The resources that the run has used before, if it is resumed.
    pub usage: RunUsage,
    /// The lease of the session's turn; `None` if the run writes to no session.
    pub lease: Option<Arc<TurnLease>>,
    /// The journal of the run's calls; `None` without a lease.
    pub journal: Option<Arc<RunJournal>>,
}

impl NewInvocation {
    /// Returns parameters with a new id, default settings, no message, and the session's user as caller.
    pub fn new(session: Session, services: Services) -> Self {
        Self {
            id: new_invocation_id(),
            user_content: Arc::default(),
            caller: Caller::claimed(session.key.user.clone(), CallerOrigin::InProcess),
            run_config: RunConfig::default(),
            services,
            cancel: CancellationToken::new(),
            is_resumable: false,
            apps: None,
            plugins: Arc::default(),
            parent: None,
            signer: EventSigner::default(),
            usage: RunUsage::default(),
            lease: None,
            journal: None,
            session,
        }
    }
}

impl Invocation {
    /// Creates the invocation of a user message, and the only handle that can change it.
    pub fn new(new: NewInvocation) -> (Arc<Self>, InvocationWriter) {
        let NewInvocation { id, session, user_content, caller, run_config, services, cancel, usage, .. } = new;
        let NewInvocation { is_resumable, apps, plugins, parent, signer, lease, journal, .. } = new;
        let invocation = Self {
            id,
            session_key: session.key.clone(),
            caller,
            run_config,
            services,
            cancel,
            usage: Arc::new(usage),
            depth: parent.as_ref().map_or(0, |parent| parent.depth + 1),
            apps,
            plugins,
            parent,
            is_in_tool: false,
            is_resumable,
            signer,
            lease,
            journal,
            is_ended: AtomicBool::new(false),
            user_content: RwLock::new(user_content),
            session: RwLock::new(session),
        };
        invocation.with_writer()
    }

    /// Creates the invocation of an agent that is called as a tool. It has no events yet, starts with `state`, counts
    /// as usage of this run, and is cancelled with it. Its id is that of the call.
    pub fn child(&self, id: String, user_content: Arc<Content>, state: State) -> (Arc<Self>, InvocationWriter) {
        let session = Session { state, events: Vector::new(), revision: 0, ..self.session() };
        let cancel = self.cancel.child_token();
        let child = Self {
            id,
            usage: self.usage.clone(),
            depth: self.depth + 1,
            lease: self.lease.clone(),
            journal: self.journal.clone(),
            apps: self.apps.clone(),
            parent: self.parent.clone(),
            is_in_tool: true,
            ..self.derived(session, user_content, self.run_config.clone(), cancel)
        };
        child.with_writer()
    }

    /// Creates an invocation that outlives this one, such as for work in the background. It sees the session as it is
    /// now, has no user message, its own usage counters, and is cancelled by `cancel` only.
    pub fn detached(&self, run_config: RunConfig, cancel: CancellationToken) -> Arc<Self> {
        Arc::new(self.derived(self.session(), Arc::default(), run_config, cancel))
    }

    fn derived(
        &self,
        session: Session,
        user_content: Arc<Content>,
        run_config: RunConfig,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            id: new_invocation_id(),
            session_key: self.session_key.clone(),
            caller: self.caller.clone(),
            run_config,
            services: self.services.clone(),
            cancel,
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

    /// Returns true once an event with `actions.endInvocation` was added to the session: no agent runs any more.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Returns how much the run may still use.
    pub fn remaining(&self) -> RemainingLimits {
        let RunConfig { max_llm_calls, max_tokens, max_events, max_run_bytes, .. } = self.run_config;
        let left = |max: u64, used: u64| (max > 0).then(|| max.saturating_sub(used));
        let usage = &self.usage;
        let own = RemainingLimits {
            llm_calls: left(max_llm_calls.into(), usage.llm_calls.load(Ordering::Relaxed).into()),
            tokens: left(max_tokens, usage.tokens.load(Ordering::Relaxed)),
            events: left(max_events.into(), usage.events.load(Ordering::Relaxed).into()),
            bytes: left(max_run_bytes, usage.event_bytes.load(Ordering::Relaxed)),
        };
        self.parent.as_ref().map_or(own, |parent| own.least(parent.remaining()))
    }

    /// Returns this run and the runs around it whose code has started it, innermost first.
    pub fn and_parents(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |run| run.parent.as_deref())
    }

    /// Moves the `temp:` keys of a state delta into the state of this run, and returns the other keys. `temp:` keys are
    /// no part of stored state. They count as bytes of the run, so that the next event fails if there are too many.
    #[must_use]
    pub fn apply_temp_state(&self, mut delta: JsonMap) -> JsonMap {
        if delta.keys().any(|key| StateScope::of(key).0 == StateScope::Temp) {
            let mut session = self.write_session();
            delta.retain(|key, value| {
                let is_stored = StateScope::of(key).0 != StateScope::Temp;
                if !is_stored {
                    self.usage.event_bytes.fetch_add(state_entry_bytes(key, value), Ordering::Relaxed);
                    session.state.set(key, value.take());
                }
                is_stored
            });
        }
        delta
    }

    /// Counts a round of the loop agent `agent`.
    ///
    /// # Errors
    /// [`RunError::Limit`] if the round exceeds `max_rounds`.
    pub fn count_round(&self, agent: &str) -> Result<(), RunError> {
        let rounds = self.usage.rounds.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let max = self.run_config.max_rounds;
        if max > 0 && rounds > max {
            return Err(RunError::Limit { limit: RunLimit::Rounds, value: u64::from(max), agent: agent.into() });
        }
        Ok(())
    }

    /// Counts a model call of `agent`.
    ///
    /// # Errors
    /// [`RunError::Limit`] if the call exceeds `max_llm_calls`.
    pub fn count_llm_call(&self, agent: &str) -> Result<(), RunError> {
        let calls = self.usage.llm_calls.fetch_add(1, Ordering::Relaxed) + 1;
        let max = self.run_config.max_llm_calls;
        if max > 0 && calls > max {
            return Err(RunError::Limit { limit: RunLimit::LlmCalls, value: u64::from(max), agent: agent.into() });
        }
        self.parent.as_ref().map_or(Ok(()), |parent| parent.count_llm_call(agent))
    }

    /// Counts an event of an agent before it is stored or forwarded. Once one exceeds a limit, all later ones do.
    ///
    /// # Errors
    /// [`RunError::Limit`] if the event exceeds `max_events` or `max_run_bytes`.
    pub fn count_event(&self, event: &Event) -> Result<(), RunError> {
        let (max_events, max_bytes) = (self.run_config.max_events, self.run_config.max_run_bytes);
        if !event.partial && max_events > 0 {
            let events = self.usage.events.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            if events > max_events {
                return Err(self.exceed(RunLimit::Events, u64::from(max_events), event));
            }
        }
        if max_bytes > 0 {
            // The event keeps its JSON for the store or the client, which need it next.
            let bytes = event.json().len() as u64;
            let bytes = self.usage.event_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
            if bytes > max_bytes {
                return Err(self.exceed(RunLimit::EventBytes, max_bytes, event));
            }
        }
        self.parent.as_ref().map_or(Ok(()), |parent| parent.count_event(event))
    }

    /// Records that an event has exceeded a limit. The first one of a run is written to the audit log.
    fn exceed(&self, limit: RunLimit, value: u64, event: &Event) -> RunError {
        let exceeded = ExceededLimit { limit, value, agent: event.author.clone() };
        if self.usage.record_exceeded(exceeded.clone()) {
            let SessionKey { app, user, id: session } = &self.session_key;
            let origin = self.caller.origin;
            let detail = format!("{limit} of {value} reached by agent `{}`", exceeded.agent);
            tracing::warn!(
                target: "hatchery::audit", %app, %user, %session, invocation = self.id, %origin, limit = limit.key(), detail,
                "limit"
            );
        }
        exceeded.into()
    }

    /// Returns the error of the limit of events or bytes that the run has exceeded. It ends the run even if the agent
    /// ignores the error.
    pub fn exceeded_limit(&self) -> Option<RunError> {
        self.usage.exceeded().cloned().map(RunError::from)
    }

    fn check_tokens(&self, agent: &str) -> Result<(), RunError> {
        let max = self.run_config.max_tokens;
        if max > 0 && self.usage.tokens.load(Ordering::Relaxed) >= max {
            return Err(RunError::Limit { limit: RunLimit::Tokens, value: max, agent: agent.into() });
        }
        self.parent.as_ref().map_or(Ok(()), |parent| parent.check_tokens(agent))
    }

    /// Returns once it is certain that no other host has taken over the session's turn. To be awaited directly before
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

    /// Calls a model for `agent`, and counts the call and the tokens of the response. Schemas in Gemini's dialect become
    /// JSON Schema. All model calls of a run use this function.
    ///
    /// # Errors
    /// If the model refuses the request, a limit is reached or the run is cancelled.
    pub async fn generate(
        &self,
        agent: &str,
        model: &dyn Model,
        mut request: LlmRequest,
        streaming_mode: StreamingMode,
    ) -> Result<ResponseStream, RunError> {
        request.normalize_schemas();
        self.check_tokens(agent)?;
        self.count_llm_call(agent)?;
        self.ensure_turn().await?;
        match self.cancel.run_until_cancelled(model.generate(request, streaming_mode)).await {
            Some(responses) => Ok(self.count_tokens(responses?)),
            None => Err(RunError::Cancelled),
        }
    }

    /// Returns the responses of a model call that was completed before the run was interrupted. It counts like a new one.
    pub(crate) fn replay_responses(
        &self,
        agent: &str,
        responses: Vec<LlmResponse>,
    ) -> Result<ResponseStream, RunError> {
        self.count_llm_call(agent)?;
        Ok(self.count_tokens(stream::iter(responses.into_iter().map(Ok)).boxed()))
    }

    /// Counts the tokens of a model call for this run and the runs around it, while its responses are read.
    fn count_tokens(&self, responses: ResponseStream) -> ResponseStream {
        self.and_parents().fold(responses, |responses, run| run.usage.clone().count_tokens(responses))
    }
}

/// What a run may still use; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemainingLimits {
    /// Model calls.
    pub llm_calls: Option<u64>,
    /// Tokens of model calls.
    pub tokens: Option<u64>,
    /// Stored events.
    pub events: Option<u64>,
    /// Bytes of the JSON of events.
    pub bytes: Option<u64>,
}

impl RemainingLimits {
    /// Returns the lower of each two limits.
    fn least(self, other: Self) -> Self {
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            llm_calls: least(self.llm_calls, other.llm_calls),
            tokens: least(self.tokens, other.tokens),
            events: least(self.events, other.events),
            bytes: least(self.bytes, other.bytes),
        }
    }
}

/// The handle that changes the session and the user's message of one [`Invocation`]. There is one per invocation, and
/// it cannot be cloned: the event log of the run owns it.
pub struct InvocationWriter {
    invocation: Arc<Invocation>,
}

/// Events are missing between those that the invocation has seen and the one that was stored: others have written to
/// the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevisionGap {
    /// The last revision that the invocation has seen.
    pub known: u64,
}

impl InvocationWriter {
    /// Returns the invocation.
    pub fn invocation(&self) -> &Arc<Invocation> {
        &self.invocation
    }

    /// Replaces the user's message. To be called before the message is stored.
    pub fn set_user_content(&self, content: Arc<Content>) {
        *self.invocation.user_content.write_unpoisoned() = content;
    }

    /// Adds an event that has no store: that of an agent which is called as a tool.
    pub fn append_unstored(&self, event: &Arc<Event>) {
        let mut session = self.invocation.write_session();
        session.state.apply(&event.actions.state_delta);
        session.events.push_back(event.clone());
        self.end_with(event);
    }

    /// Adds an event that was stored as `revision`. Returns false if the session has it already.
    ///
    /// # Errors
    /// If there are events before it that the session does not have: it is unchanged, and
    /// [`InvocationWriter::catch_up`] adds them all.
    pub fn append(&self, event: &Arc<Event>, revision: u64) -> Result<bool, RevisionGap> {
        let mut session = self.invocation.write_session();
        if revision <= session.revision {
            return Ok(false);
        }
        if revision != session.revision + 1 {
            return Err(RevisionGap { known: session.revision });
        }
        session.state.apply(&event.actions.state_delta);
        session.last_update_time = event.timestamp;
        session.revision = revision;
        session.events.push_back(event.clone());
        self.end_with(event);
        Ok(true)
    }

    /// Records the end of the run, if the event ends it.
    fn end_with(&self, event: &Event) {
        if event.actions.end_invocation == Some(true) {
            self.invocation.is_ended.store(true, Ordering::Release);
        }
    }

    /// Adds the events of `stored`, which are those after [`RevisionGap::known`], and takes over its state. `temp:`
    /// state is kept, and `own` is added as the object that was stored, not as a copy of it.
    pub fn catch_up(&self, stored: Session, own: &Arc<Event>) {
        let mut session = self.invocation.write_session();
        let mut state = stored.state;
        for (key, value) in session.state.iter().filter(|(key, _)| StateScope::of(key).0 == StateScope::Temp) {
            state.set(key, value.clone());
        }
        session.state = state;
        session.revision = stored.revision;
        session.last_update_time = stored.last_update_time;
        for event in stored.events {
            session.events.push_back(if event.id == own.id { own.clone() } else { event });
        }
        self.end_with(own);
    }
}
