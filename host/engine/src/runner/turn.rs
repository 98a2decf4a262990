//! One turn: sets up the run, appends the user's message, runs the agent, and reports a failure.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::{
    CallContext, Caller, Event, EventData, EventSink, Invocation, JsonMap, NewInvocation, RunError, RunFailure,
    RunJournal, RunLimit, RunTransition, Services, Session, SessionKey, Span, SpanContext, SpanOperation, StoreError,
    TimeKind, TraceParent, TurnLease, USER_AUTHOR, escape_control, truncate_bytes,
};
use imbl::Vector;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::RunnerInner;
use super::agent_selection::agents_to_run;
use super::event_log::{EventLog, EventSender};
use super::live::LiveStart;
use super::open_calls::{end_answered_runs, has_open_calls};
use super::paused_run::PausedRun;
use super::request::RunRequest;
use super::resumption::ResumedRun;
use super::run_bus::RunPublisher;
use super::session_access::{AcquiredSession, renew_during};
use super::session_queue::{CachedSession, json_bytes};
use super::turn_plan::TurnPlan;
use super::user_message::{MessageKind, UserInput, append_user_message, event_data, with_role};
use crate::agents::{engine_host, run_agent};
use crate::app::{App, MemoryAddition};
use crate::deadline::Deadline;
use crate::history::contents::PromptViews;
use crate::plugins::Plugins;
use crate::provenance::Verifier;
use crate::run::{AgentOutcome, AgentScope, Replay, RunContext};

/// Maximum size in bytes of a failure in the log.
const MAX_LOGGED_FAILURE: usize = 16 << 10;

/// The parameters of a turn.
pub(super) struct TurnRequest {
    pub(super) app: Arc<App>,
    pub(super) services: Services,
    pub(super) plugins: Plugins,
    pub(super) request: RunRequest,
    /// The id of a new run.
    pub(super) new_id: String,
    /// True if the run is stored before the turn.
    pub(super) is_accepted: bool,
    /// The run as it was announced on the bus, if its id was known.
    pub(super) announced: Option<RunPublisher>,
    pub(super) client: EventSender,
    /// Dropped once the run and its message are stored.
    pub(super) begun: oneshot::Sender<()>,
    /// The requests of a live run.
    pub(super) live: Option<LiveStart>,
    /// The run whose code has started this one.
    pub(super) parent: Option<Arc<Invocation>>,
    /// The caller's token, which cancels the run.
    pub(super) caller_cancel: CancellationToken,
    /// When the run was requested.
    pub(super) requested: Instant,
}

/// A run in progress.
struct OpenRun {
    run: Arc<RunContext>,
    cx: CallContext,
    log: EventLog,
    publisher: RunPublisher,
    /// Ends with the turn.
    span: Span,
    deadline: Deadline,
    /// Index of the run's first event.
    first_event: usize,
    caller_cancel: CancellationToken,
    /// True if the code of another run has started this one.
    is_nested: bool,
}

impl OpenRun {
    /// Reports an error to plugins and clients. Returns true if the run is finished, with the transition of its record;
    /// `None` if the run can be continued.
    async fn conclude(
        &mut self,
        result: Result<AgentOutcome, RunError>,
    ) -> (Result<bool, RunError>, Option<RunTransition>) {
        match result {
            Ok(AgentOutcome::Paused) => (Ok(false), Some(RunTransition::Wait)),
            Err(RunError::Stopped) => (Ok(false), Some(RunTransition::Finish)),
            Ok(AgentOutcome::Done | AgentOutcome::Escalated | AgentOutcome::Transfer(_)) => {
                let waits = waits_for_user(&self.run, self.first_event);
                (Ok(true), Some(if waits { RunTransition::Wait } else { RunTransition::Finish }))
            }
            Err(error) => {
                self.span.set_error(&error);
                self.run.plugins.on_run_error(&self.cx, &error, self.deadline).await;
                let has_ended = report(&self.run, &self.log, &error).await;
                let transition = match &error {
                    RunError::Cancelled => self.is_cancel_requested().then_some(RunTransition::Cancel),
                    error => has_ended.then(|| RunTransition::Fail(RunFailure::new(error))),
                };
                (Err(error), transition)
            }
        }
    }

    /// Returns true if a client or the calling code has cancelled the run, rather than the host's end or a failure of
    /// the storage.
    fn is_cancel_requested(&self) -> bool {
        self.publisher.is_cancel_requested() || self.caller_cancel.is_cancelled() || self.is_nested
    }
}

impl RunnerInner {
    /// Runs a turn and returns the session to the queue. If another host ran a turn in between, first waits for the
    /// lease and reads the new events.
    pub(super) async fn run_next_turn(
        self: &Arc<Self>,
        key: SessionKey,
        turn: Box<TurnRequest>,
        AcquiredSession { cached, mut guard, lease }: AcquiredSession,
    ) -> Result<(), RunError> {
        let (cached, lease) = match lease {
            Some(lease) => (cached, lease.into_lease()),
            None => self.wait_for_turn(&key, cached, &turn.request.cancel, turn.parent.is_none()).await?,
        };
        let running = renew_during(&lease, self.run_turn(key, turn, &lease, cached, &mut guard));
        // A panic while a failure is reported must not end the task of the caller, which may serve other runs.
        let result = AssertUnwindSafe(running).catch_unwind().await;
        self.ended_turns.push(lease);
        result.unwrap_or_else(|panic| Err(panic_error(panic.as_ref())))
    }

    /// Runs a turn.
    async fn run_turn(
        self: &Arc<Self>,
        key: SessionKey,
        mut turn: Box<TurnRequest>,
        lease: &Arc<TurnLease>,
        cached: CachedSession,
        slot: &mut Option<CachedSession>,
    ) -> Result<(), RunError> {
        let plan = match self.plan_turn(&key, &mut turn, lease, &cached.session).await {
            Ok(plan) => plan,
            Err(error) => {
                *slot = Some(cached);
                return if matches!(error, RunError::Stopped) { Ok(()) } else { Err(error) };
            }
        };
        let CachedSession { session, views, bytes, last_turn } = cached;
        let events_before = session.events.len();
        let journal = plan.journal.clone();
        let interrupted = plan.resumed.as_ref().filter(|_| plan.message.is_none()).map(ResumedRun::first_message);
        let (mut open, input, resumed) = self.open_run(key, turn, plan, lease, session, views);
        let result = self.execute_open(&open, lease, input, resumed).await;
        let (result, transition) = open.conclude(result).await;
        let OpenRun { run, log, publisher, span, .. } = open;
        log.close().await;
        let invocation = &run.invocation;
        if let Some(transition) = transition {
            self.record_end(lease, &invocation.id, &transition).await;
        }
        if may_have_lost_session(&result)
            && let Err(error) = self.delete_orphaned_artifacts(&invocation.session_key).await
        {
            let (session, code) = (&invocation.session_key, error.code());
            tracing::warn!(%session, code, "artifacts of a deleted session may be left: {error}");
        }
        if let Ok(true) = result {
            // Before the session's next turn, which may continue this run and record calls.
            delete_records(&journal).await;
        }
        let session = invocation.session();
        let new_events = session.events.skip(events_before);
        if !lease.is_lost() {
            run.compact_after_run();
        }
        if !lease.is_lost() && run.app.settings.memory_addition == MemoryAddition::AfterRun {
            let unknown = events_to_remember(&session.events, events_before, interrupted, &invocation.id);
            remember(invocation, &unknown).await;
        }
        let (views, bytes) = (run.take_views(), bytes + json_bytes(&new_events));
        // The view of each agent has copies of what the others have said.
        let copies = views.count().max(1);
        let events = session.events.len().saturating_mul(copies);
        self.queue.record_size(&session.key, events, bytes.saturating_mul(copies));
        *slot = Some(CachedSession { session, views, bytes, last_turn });
        // The state is stored, so followers find it.
        drop(publisher);
        span.finish();
        result.map(drop)
    }

    /// Creates the context that the agents of a run share. Returns it with the user's input and the run that is
    /// continued.
    fn open_run(
        self: &Arc<Self>,
        key: SessionKey,
        turn: Box<TurnRequest>,
        plan: TurnPlan,
        lease: &Arc<TurnLease>,
        mut session: Session,
        views: PromptViews,
    ) -> (OpenRun, UserInput, Option<ResumedRun>) {
        let TurnRequest { app, services, plugins, request, announced, client, begun, .. } = *turn;
        let TurnRequest { parent, caller_cancel, live, requested, .. } = *turn;
        let TurnPlan { id, resumed, is_attached, message, paused, journal } = plan;
        let first_event = if resumed.is_some() { 0 } else { session.events.len() };
        let (user_content, delivered_ids) = match &resumed {
            Some(resumed) => (resumed.user_content(&session.events), resumed.event_ids(&session.events)),
            None => (message.clone().unwrap_or_default(), HashSet::new()),
        };
        session.state.apply(&paused.temp_state);
        journal.set_counted_calls(paused.counted_calls);
        let publisher = announced.filter(|announced| announced.run() == id);
        let publisher = publisher.unwrap_or_else(|| self.run_bus.announce(&key, &id, request.cancel.clone()));
        let span = self.start_span(&app, &key, &id, request.trace_parent, requested);
        let is_nested = parent.is_some();
        let (invocation, writer) = Invocation::new(NewInvocation {
            id,
            session,
            user_content,
            caller: Caller::new(key.user, request.origin),
            input: request.input,
            run_config: app.settings.run.apply_to(request.config),
            services,
            cancel: request.cancel,
            host_stop: self.run_bus.stop_token(),
            is_resumable: app.settings.resumable,
            apps: self.app_runner(),
            plugins: plugins.to_arc(),
            parent,
            signer: self.signer.clone(),
            usage: paused.usage.into(),
            lease: Some(lease.clone()),
            journal: Some(journal),
            span: span.context().clone(),
            live_requests: live.as_ref().map(LiveStart::queue),
        });
        let cx = CallContext::new(invocation.clone(), app.root().name.as_str(), None);
        let deadline = Deadline::new(&invocation.run_config);
        let frames = publisher.frames();
        let log = EventLog::new(cx.clone(), writer, plugins.clone(), deadline, client, frames, delivered_ids);
        let live = live.map(|start| start.into_input(&cx, &log));
        let run = RunContext::new(app, invocation, plugins, engine_host);
        let run = Arc::new(run.with_history(views, self.compactions.clone()).with_live_input(live));
        let state_delta = if is_attached { JsonMap::new() } else { request.state_delta };
        let input = UserInput { message, state_delta, begun: Some(begun) };
        (OpenRun { run, cx, log, publisher, span, deadline, first_event, caller_cancel, is_nested }, input, resumed)
    }

    /// Starts the span of a run that was requested at this time.
    fn start_span(
        &self,
        app: &App,
        key: &SessionKey,
        id: &str,
        parent: Option<TraceParent>,
        requested: Instant,
    ) -> Span {
        let trace = self.spans.clone().map(|spans| SpanContext::new(spans, key.clone(), id, parent));
        let trace = trace.unwrap_or_default();
        trace.add_time(TimeKind::Queue, requested.elapsed());
        let mut span = trace.start_at(SpanOperation::Run, "", Some(requested));
        span.record(|data| data.set("gen_ai.workflow.name", app.name.clone()));
        span
    }

    /// Runs the agents of a run within its time limit, until it is cancelled. A panic is an error.
    async fn execute_open(
        &self,
        open: &OpenRun,
        lease: &TurnLease,
        input: UserInput,
        resumed: Option<ResumedRun>,
    ) -> Result<AgentOutcome, RunError> {
        let OpenRun { run, cx, log, publisher, deadline, .. } = open;
        let execution = within_time_limit(run, *deadline, execute(run, cx, log, input, resumed).boxed());
        let execution = self.cancel_on_request(lease, publisher, execution);
        let result = AssertUnwindSafe(execution).catch_unwind().await;
        let result = result.unwrap_or_else(|panic| Err(panic_error(panic.as_ref())));
        // These end the run even if the agent that met them ignored the error.
        let taken_over = lease.is_lost().then(|| StoreError::Fenced(run.invocation.session_key.clone()).into());
        taken_over.or_else(|| run.invocation.exceeded_limit()).map_or(result, Err)
    }
}

/// Deletes the records of a run that has finished. A failure does not concern the client: it is logged.
async fn delete_records(journal: &RunJournal) {
    if let Err(error) = journal.finish().await {
        tracing::warn!(code = error.code(), "the journal of a run was not deleted: {error}");
    }
}

/// Returns true if the session of a run with this end may have been deleted meanwhile.
fn may_have_lost_session(result: &Result<bool, RunError>) -> bool {
    match result {
        Err(RunError::Store(error)) => matches!(error, StoreError::SessionNotFound(_) | StoreError::Fenced(_)),
        Err(_) => true,
        Ok(_) => false,
    }
}

/// Awaits a run for at most `max_run_time`.
async fn within_time_limit(
    run: &RunContext,
    deadline: Deadline,
    execution: BoxFuture<'_, Result<AgentOutcome, RunError>>,
) -> Result<AgentOutcome, RunError> {
    let exceeded = || RunError::Limit {
        limit: RunLimit::RunTime,
        value: run.invocation.run_config.max_run_time.as_secs(),
        agent: run.app.root().name.clone(),
    };
    deadline.run_until(execution).await.unwrap_or_else(|| Err(exceeded()))
}

/// Runs the agents, unless a plugin answers instead. After success, runs the final hooks.
async fn execute(
    run: &Arc<RunContext>,
    cx: &CallContext,
    log: &EventLog,
    input: UserInput,
    resumed: Option<ResumedRun>,
) -> Result<AgentOutcome, RunError> {
    let outcome = match run_agents(run, cx, log, input, resumed).await {
        Err(RunError::Stopped) if run.invocation.is_ended() => AgentOutcome::Done,
        outcome => outcome?,
    };
    run.plugins.after_run(cx).await?;
    if !cx.actions().is_empty() {
        log.append_run_event(Event::new(event_data(cx, "model", None))).await?;
    }
    if outcome == AgentOutcome::Paused
        && let Some(record) = PausedRun::record(cx)
    {
        log.append_user_event(record).await?;
    }
    Ok(outcome)
}

/// Appends the user's message, and runs the selected agents and those that follow them.
///
/// # Errors
/// [`RunError::Stopped`] if an event has ended the run.
async fn run_agents(
    run: &Arc<RunContext>,
    cx: &CallContext,
    log: &EventLog,
    input: UserInput,
    resumed: Option<ResumedRun>,
) -> Result<AgentOutcome, RunError> {
    let RunContext { app, invocation, plugins, .. } = run.as_ref();
    let kind = if resumed.is_none() { MessageKind::First } else { MessageKind::Further };
    let message = append_user_message(run, cx, log, input, kind).await?;
    if !app.settings.resumable {
        end_answered_runs(run).await;
    }
    let answer = plugins.before_run(cx).await?;
    if answer.is_some() || !cx.actions().is_empty() {
        let content = answer.clone().map(|answer| Arc::new(with_role(answer, "model")));
        log.emit(Event::new(event_data(cx, "model", content))).await?;
    }
    let mut outcome = AgentOutcome::Done;
    if answer.is_none() {
        let events = invocation.events();
        let (initial_events, replay) = match &resumed {
            Some(resumed) => (resumed.events_before_agents(&events), resumed.replay(&app.tree, &events)),
            None => (up_to(events, message.as_deref()), Replay::empty()),
        };
        // A summary of older events may have been appended after the user's message.
        let is_message = |event: &&Arc<Event>| event.author == USER_AUTHOR && event.actions.compaction.is_none();
        if let Some(first) = initial_events.iter().rev().find(is_message) {
            run.set_first_message(first.clone());
        }
        for (agent, branch) in agents_to_run(&app.tree, &initial_events, &Verifier::new(invocation)) {
            let scope = AgentScope {
                branch,
                replay: replay.clone(),
                sink: Arc::new(log.clone()),
                span: invocation.span.clone(),
            };
            let running = run_agent(run.clone(), agent, scope);
            outcome = invocation.cancel.run_until_cancelled(running).await.ok_or(RunError::Cancelled)??;
            if outcome == AgentOutcome::Paused {
                break;
            }
        }
    }
    Ok(outcome)
}

/// Returns true if the agents of an app that is not resumable have ended, and some of their calls wait for the user.
/// The run's events are those from `first_event` on.
fn waits_for_user(run: &RunContext, first_event: usize) -> bool {
    let invocation = &run.invocation;
    let has_open_calls =
        || has_open_calls(&invocation.events().skip(first_event), &invocation.id, &Verifier::new(invocation));
    !run.app.settings.resumable && !invocation.is_ended() && has_open_calls()
}

/// Returns the events that the memory may not have: the events from `new` on, and the events of a run whose earlier
/// turn was interrupted. The latter begin at its first message, `interrupted`.
fn events_to_remember(
    events: &Vector<Arc<Event>>,
    new: usize,
    interrupted: Option<usize>,
    run: &str,
) -> Vector<Arc<Event>> {
    let start = interrupted.unwrap_or(new);
    let unknown =
        (start..).zip(events.skip(start)).filter(|(index, event)| *index >= new || event.invocation_id == run);
    unknown.map(|(_, event)| event).collect()
}

/// Adds the events of a run to the user's memory. A failure does not concern the client: it is logged.
async fn remember(invocation: &Invocation, events: &Vector<Arc<Event>>) {
    let events: Vec<_> = events.iter().filter(|event| event.content.is_some()).cloned().collect();
    if let Err(error) = invocation.services.memory.add_events(&invocation.session_key, &events).await {
        tracing::warn!(invocation = invocation.id, "could not add the run to the memory: {error}");
    }
}

/// Returns the events up to `message`. Plugins and compactions may have appended others after it.
fn up_to(events: Vector<Arc<Event>>, message: Option<&Event>) -> Vector<Arc<Event>> {
    let index = message.and_then(|message| events.iter().rposition(|event| event.id == message.id));
    match index {
        Some(index) if index + 1 < events.len() => events.take(index + 1),
        Some(_) | None => events,
    }
}

/// Appends a failure to the session, where the client and later readers find it, unless an event reports it already.
/// Returns true if the run has ended: the session has the report, or may have no more events.
async fn report(run: &RunContext, log: &EventLog, error: &RunError) -> bool {
    let invocation = &run.invocation;
    // A turn that was taken over can store nothing.
    match error {
        RunError::AlreadyReported { .. } => return true,
        RunError::Store(StoreError::Fenced(_)) => return false,
        _ => {}
    }
    tracing::warn!(
        invocation = %invocation.id, session = %invocation.session_key, code = error.code(),
        "run failed: {}", escape_control(&truncate_bytes(&error.to_string(), MAX_LOGGED_FAILURE))
    );
    let RunFailure { code, message } = RunFailure::new(error);
    let mut data = EventData {
        invocation_id: invocation.id.clone(),
        author: run.failed_agent(),
        error_code: Some(code),
        error_message: Some(message),
        ..EventData::default()
    };
    invocation.run_config.add_custom_metadata(&mut data);
    let Err(failure) = log.append_failure(Event::new(data)).await else { return true };
    tracing::error!(invocation = %invocation.id, "the failure could not be stored: {failure}");
    matches!(failure, RunError::Store(StoreError::QuotaExceeded { .. }))
}

/// Converts a panic in native code to an error, so that the client gets a response and the session is unlocked.
fn panic_error(panic: &(dyn std::any::Any + Send)) -> RunError {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    RunError::Internal(text.unwrap_or("no message").into())
}
