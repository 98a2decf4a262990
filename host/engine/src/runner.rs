//! The runner: one turn of a session from start to end. Checks the request, waits in the session's queue, appends the
//! user's message, selects the agent, runs it, and reports a failure.

mod agent_selection;
mod blobs;
mod event_log;
mod follow;
mod live;
mod nested;
mod open_calls;
mod paused_run;
mod request;
mod resumption;
mod retention;
mod run_bus;
mod run_records;
mod session_access;
mod session_close;
mod session_compaction;
mod session_history;
mod session_queue;
mod start;
mod turn;
mod turn_end_queue;
mod turn_plan;
mod user_message;
mod user_runs;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use hatchery_core::sync::MutexExt;
use hatchery_core::{Event, EventSigner, Plugin, RunError, Services, SessionKey, SpanExporter};
use tokio::sync::{mpsc, oneshot, watch};

use crate::app::App;
use crate::history::compaction::Compactions;
use crate::plugins::{PluginSource, Plugins, PrependedPlugin};
use crate::provenance::Verifier;
use event_log::SentEvent;
pub use follow::RunUpdate;
pub use live::LiveRunRequest;
pub use request::RunRequest;
use retention::UndeletedSessions;
use run_bus::RunBus;
pub use run_bus::RunInProgress;
use run_records::attach;
use session_queue::SessionQueue;
use start::RunKind;
use turn_end_queue::TurnEndQueue;
use user_runs::UserRuns;

/// Maximum number of events that a client has not read. A run waits for its client from there on.
const MAX_UNREAD_EVENTS: usize = 64;

/// How long a turn is held without a renewal. After the death of a host, others wait this long for its turns.
const TURN_LEASE: Duration = Duration::from_secs(3);

/// The apps that the code of runs can run.
pub trait AppDirectory: Send + Sync {
    /// Returns the app of this name.
    fn app(&self, name: &str) -> Option<Arc<App>>;

    /// Returns the names of all apps, sorted.
    fn app_names(&self) -> Vec<String>;
}

/// Runs agents for users. Cheap to clone; clones share the queues of sessions.
#[derive(Clone)]
pub struct Runner(Arc<RunnerInner>);

struct RunnerInner {
    services: Services,
    plugins: Arc<dyn PluginSource>,
    queue: SessionQueue,
    active_runs: watch::Sender<usize>,
    /// Number of permits: runs that are being started and that `active_runs` does not count yet.
    starting_runs: AtomicUsize,
    user_runs: UserRuns,
    compactions: Compactions,
    signer: EventSigner,
    turn_lease: Mutex<Duration>,
    /// Whether the artifacts of a session stay when code deletes it.
    keeps_artifacts: AtomicBool,
    /// Receives the spans of runs. `None` if they are not traced.
    spans: Option<Arc<dyn SpanExporter>>,
    ended_turns: TurnEndQueue,
    /// Expired sessions that earlier searches could not delete, until a search reaches the end.
    undeleted: Mutex<UndeletedSessions>,
    run_bus: Arc<RunBus>,
    /// The apps that the code of runs can run; empty until they are known.
    apps: OnceLock<Arc<dyn AppDirectory>>,
}

/// A run in progress: a stream of its events. Dropping it does not stop the run; [`RunRequest::cancel`] does.
#[derive(Debug)]
pub struct Run {
    events: mpsc::Receiver<Result<SentEvent, RunError>>,
    id: Option<String>,
    /// Closed once the run has begun; `None` if that is known.
    begin_signal: Option<oneshot::Receiver<()>>,
}

impl Run {
    /// Returns the id. `None` for an answer that waits for an earlier turn of its session, which may change the run
    /// that it continues.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Waits until the run and its message are stored, or the run has ended before.
    pub async fn wait_until_begun(&mut self) {
        if let Some(signal) = &mut self.begin_signal {
            // Nothing is ever sent.
            let _ = signal.await;
            self.begin_signal = None;
        }
    }

    /// Returns the next event, or `None` after the last one. A failed run ends with an event that reports the failure,
    /// then the error.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, RunError>> {
        Some(self.next_with_revision().await?.map(|(_, event)| event))
    }

    /// Like [`Run::next`], with the session's revision with the event, to [follow](Runner::follow) the run from there.
    /// `None` for a partial event, which is not stored.
    pub async fn next_with_revision(&mut self) -> Option<Result<(Option<u64>, Arc<Event>), RunError>> {
        self.events.recv().await
    }

    /// Returns all events, or the error of a failed run.
    pub async fn collect(mut self) -> Result<Vec<Arc<Event>>, RunError> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event?);
        }
        Ok(events)
    }
}

impl Stream for Run {
    type Item = Result<Arc<Event>, RunError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(cx).map(|item| item.map(|item| item.map(|(_, event)| event)))
    }
}

impl Runner {
    /// Returns a runner without plugins.
    pub fn new(services: Services) -> Self {
        Self::with_plugins(services, Plugins::default())
    }

    /// Returns a runner that asks `plugins` at the beginning of each run. It signs events with a key of this process,
    /// so interrupted runs and open requests can be continued only by the same process.
    pub fn with_plugins(services: Services, plugins: impl PluginSource + 'static) -> Self {
        Self::with_signer(services, plugins, EventSigner::for_process())
    }

    /// Like [`Runner::with_plugins`], with a key that outlives the process or is shared by the processes that serve the
    /// same sessions.
    pub fn with_signer(services: Services, plugins: impl PluginSource + 'static, signer: EventSigner) -> Self {
        Self(Arc::new(RunnerInner {
            services,
            plugins: Arc::new(plugins),
            queue: SessionQueue::default(),
            active_runs: watch::Sender::new(0),
            starting_runs: AtomicUsize::new(0),
            user_runs: UserRuns::default(),
            compactions: Compactions::default(),
            signer,
            turn_lease: Mutex::new(TURN_LEASE),
            keeps_artifacts: AtomicBool::new(false),
            spans: None,
            ended_turns: TurnEndQueue::default(),
            undeleted: Mutex::default(),
            run_bus: Arc::default(),
            apps: OnceLock::new(),
        }))
    }

    /// Returns a separate runner that holds its turns for `lease` without a renewal instead of for three seconds. Other
    /// hosts on the same sessions wait this long for the turns of a host that has died.
    #[must_use]
    pub fn with_turn_lease(&self, lease: Duration) -> Self {
        self.separate(|runner| runner.turn_lease = Mutex::new(lease))
    }

    /// Returns a separate runner, which keeps or deletes the artifacts of the sessions that it or the code of its runs
    /// deletes. By default they are deleted.
    #[must_use]
    pub fn with_kept_artifacts(&self, keeps_artifacts: bool) -> Self {
        self.separate(|runner| runner.keeps_artifacts = AtomicBool::new(keeps_artifacts))
    }

    /// Returns a separate runner whose runs are traced.
    #[must_use]
    pub fn with_span_exporter(&self, exporter: Arc<dyn SpanExporter>) -> Self {
        self.separate(|runner| runner.spans = Some(exporter))
    }

    /// Holds turns that begin from now on for `lease` without a renewal.
    pub fn set_turn_lease(&self, lease: Duration) {
        *self.0.turn_lease.lock_unpoisoned() = lease;
    }

    /// Leaves the artifacts of sessions that are deleted from now on, or not.
    pub fn set_kept_artifacts(&self, keeps_artifacts: bool) {
        self.0.keeps_artifacts.store(keeps_artifacts, Ordering::Relaxed);
    }

    /// Returns true if the artifacts of a session are kept when it is deleted.
    pub fn keeps_artifacts(&self) -> bool {
        self.0.keeps_artifacts.load(Ordering::Relaxed)
    }

    fn separate(&self, change: impl FnOnce(&mut RunnerInner)) -> Self {
        let RunnerInner { services, plugins, signer, spans, apps, .. } = self.0.as_ref();
        let mut runner = RunnerInner {
            services: services.clone(),
            plugins: plugins.clone(),
            queue: SessionQueue::default(),
            active_runs: watch::Sender::new(0),
            starting_runs: AtomicUsize::new(0),
            user_runs: UserRuns::default(),
            compactions: Compactions::default(),
            signer: signer.clone(),
            turn_lease: Mutex::new(self.0.turn_lease()),
            keeps_artifacts: AtomicBool::new(self.0.keeps_artifacts.load(Ordering::Relaxed)),
            spans: spans.clone(),
            ended_turns: TurnEndQueue::default(),
            undeleted: Mutex::default(),
            run_bus: Arc::default(),
            apps: apps.clone(),
        };
        change(&mut runner);
        Self(Arc::new(runner))
    }

    /// Resolves the plugins again, so that replaced ones are released even if no run begins.
    ///
    /// # Errors
    /// The errors of [`PluginSource::current`].
    pub fn refresh_plugins(&self) -> Result<(), RunError> {
        self.0.plugins.current().map(|_| ())
    }

    /// Returns a separate runner on `services`, with `plugin` before the plugins of this runner. It replaces the plugin
    /// of the same name.
    #[must_use]
    pub fn with_prepended_plugin(&self, services: Services, plugin: Arc<dyn Plugin>) -> Self {
        let plugins = PrependedPlugin { plugin, rest: self.0.plugins.clone() };
        let runner = Self::with_signer(services, plugins, self.0.signer.clone());
        if let Some(apps) = self.0.apps.get() {
            runner.set_apps(apps.clone());
        }
        runner
    }

    /// Returns a separate runner on `services`.
    #[must_use]
    pub fn with_services(&self, services: Services) -> Self {
        self.separate(|runner| runner.services = services)
    }

    /// Sets the apps that the code of runs can run. Has an effect once, before the first run.
    pub fn set_apps(&self, apps: Arc<dyn AppDirectory>) {
        let _ = self.0.apps.set(apps);
    }

    /// Waits until no run and no compaction is in progress, then closes the plugins.
    pub async fn close(&self) {
        self.drain().await;
        self.close_plugins().await;
    }

    /// Closes the plugins without waiting for runs.
    pub async fn close_plugins(&self) {
        self.0.plugins.close().await;
    }

    /// Returns the services of all runs.
    pub fn services(&self) -> &Services {
        &self.0.services
    }

    /// Returns the signer of the host's events.
    pub fn signer(&self) -> &EventSigner {
        &self.0.signer
    }

    /// Returns the number of runs that are in progress or queued.
    pub fn active_runs(&self) -> usize {
        *self.0.active_runs.borrow()
    }

    /// Returns at most `limit` runs that are in progress or queued and have a known id, oldest first.
    pub fn runs_in_progress(&self, limit: usize) -> Vec<RunInProgress> {
        self.0.run_bus.in_progress(limit)
    }

    /// Returns a permit to start a run, to be dropped once [`Runner::run`] has returned. `None` if `max` runs are in
    /// progress, queued or being started with a permit.
    pub fn try_acquire(&self, max: usize) -> Option<RunPermit> {
        let permit = RunPermit(self.0.clone());
        let starting = self.0.starting_runs.fetch_add(1, Ordering::SeqCst) + 1;
        (starting + self.active_runs() <= max).then_some(permit)
    }

    /// Waits until no run is in progress and all turns are ended, then for the compactions that the runs started.
    /// Compactions that take longer than ten seconds are cancelled.
    pub async fn drain(&self) {
        let mut active_runs = self.0.active_runs.subscribe();
        // `self` has the sender, so waiting cannot fail.
        let _ = active_runs.wait_for(|runs| *runs == 0).await;
        self.0.ended_turns.end_all().await;
        self.0.compactions.drain().await;
    }

    /// Stops all current and future runs, for the end of the host. Unlike runs that are cancelled, they can be
    /// continued.
    pub fn stop_runs(&self) {
        self.0.run_bus.stop();
    }

    /// Starts a run in a separate task. The turns of one session run in sequence, in the order of these
    /// calls. A failed turn does not stop the next.
    ///
    /// # Errors
    /// If the message or an id is invalid, a plugin cannot be resolved, or the user has used up a quota. If the run to
    /// resume does not exist, or the session does not exist and `auto_create_session` is off.
    pub async fn run(&self, app: Arc<App>, request: RunRequest) -> Result<Run, RunError> {
        match self.attach_to_known(&app, &request).await? {
            Some(run) => Ok(run),
            None => self.start(app, request, RunKind::Foreground).await,
        }
    }

    /// Like [`Runner::run`], but the run begins in the task of the caller, and gets a separate task when it first waits
    /// for something. `permit` is dropped once the runner counts the run.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub async fn run_inline(&self, app: Arc<App>, request: RunRequest, permit: RunPermit) -> Result<Run, RunError> {
        match self.attach_to_known(&app, &request).await? {
            Some(run) => Ok(run),
            None => self.start_inline(app, request, permit).await,
        }
    }

    /// Returns the run that a request repeats, if it is one of this host.
    async fn attach_to_known(&self, app: &App, request: &RunRequest) -> Result<Option<Run>, RunError> {
        let Some(id) = &request.run_id else { return Ok(None) };
        request.check(false)?;
        let key = SessionKey::new(app.name.as_str(), request.user.as_str(), request.session.as_str());
        if !self.0.run_bus.has(&key, id) || self.0.services.sessions.runs().is_none() {
            return Ok(None);
        }
        let updates = self.follow(&key, id, 0).await?;
        Ok(updates.map(|updates| attach(updates, request, id.clone())))
    }
}

impl RunnerInner {
    fn turn_lease(&self) -> Duration {
        *self.turn_lease.lock_unpoisoned()
    }

    fn verifier<'a>(&'a self, session: &'a SessionKey) -> Verifier<'a> {
        Verifier { signer: &self.signer, session }
    }
}

/// A permit to start a run; see [`Runner::try_acquire`].
pub struct RunPermit(Arc<RunnerInner>);

impl Drop for RunPermit {
    fn drop(&mut self) {
        self.0.starting_runs.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts a run until it is dropped. A live run and its turns are one.
struct ActiveRun(Arc<RunnerInner>);

impl ActiveRun {
    fn new(runner: &Arc<RunnerInner>) -> Self {
        runner.active_runs.send_modify(|runs| *runs += 1);
        Self(runner.clone())
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.0.active_runs.send_modify(|runs| *runs = runs.saturating_sub(1));
    }
}
