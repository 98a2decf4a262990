//! The server: apps of a host as A2A agents. Tasks are views of the stored runs, so they survive the process.

mod answer;
mod card;
mod card_changes;
mod endpoint;
mod events;
mod input;
mod json_rpc;
mod list;
mod push;
mod rest;
mod send;
mod stream;
mod task_changes;
mod task_id;
mod task_locks;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hatchery_core::matches_wildcard;
use hatchery_engine::{App, AppDirectory, Runner};

use crate::codec::Version;
use crate::error::{A2aError, ErrorKind};
use crate::model::{Operation, Outcome, TaskState};
use card::card_url;
use card_changes::CardChanges;
use hatchery_egress::Egress;
use input::INPUT_MODES;
use push::PushSender;
use task_changes::TaskChanges;
use task_id::TaskId;
use task_locks::TaskLocks;
use tasks::StoredTask;

pub(crate) use endpoint::VERSION_HEADER;
pub use endpoint::{A2aEndpoint, Body};
pub use push::PushLimits;
pub use task_id::is_reserved_user;

/// Settings of the server.
#[derive(Clone)]
pub struct ServerSettings {
    /// Patterns of the names of apps that clients may use, in which `*` matches any text.
    pub apps: Vec<String>,
    /// The app of the routes that name none. `None` means the only one that clients may use.
    pub default_app: Option<String>,
    /// Versions of the protocol that clients may use.
    pub versions: Vec<Version>,
    /// Media types of the files that clients may send, such as `image/*`. Texts and JSON are always accepted.
    pub input_modes: Vec<String>,
    /// Base of the URLs in cards. `None` means `http://` or `https://` and the host of the request.
    pub public_url: Option<String>,
    /// True if the server speaks HTTPS.
    pub is_tls: bool,
    /// True if every client is authenticated. Then there is an extended card, which has the tools of agents.
    pub has_authentication: bool,
    /// Maximum time that a blocking request waits for the end of its task.
    pub blocking_timeout: Duration,
    /// The interval of comments in idle streams.
    pub keep_alive: Duration,
    /// Maximum number of runs of the host at a time.
    pub max_runs: usize,
    /// Egress policy of push notifications. `None` disables them.
    pub push: Option<Arc<dyn Egress>>,
    /// Limits of push notifications.
    pub push_limits: PushLimits,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            apps: vec!["*".into()],
            default_app: None,
            versions: vec![Version::V0_3, Version::V1_0],
            input_modes: INPUT_MODES.map(Into::into).to_vec(),
            public_url: None,
            is_tls: false,
            has_authentication: false,
            blocking_timeout: Duration::from_secs(300),
            keep_alive: Duration::from_secs(15),
            max_runs: usize::MAX,
            push: None,
            push_limits: PushLimits::default(),
        }
    }
}

/// A host as an A2A server, for all clients or for one. Cheap to clone.
#[derive(Clone)]
pub struct A2aService(Arc<ServiceInner>, Client);

/// The client of a request.
#[derive(Clone, Default)]
struct Client {
    /// `None` if it is not authenticated.
    user: Option<Arc<str>>,
    /// The prefix of `/a2a` in its URLs.
    base_url: String,
}

struct ServiceInner {
    runner: Runner,
    apps: Arc<dyn AppDirectory>,
    settings: ArcSwap<ServerSettings>,
    push: PushSender,
    /// Held while runs are added to a task or cancelled, so that two answers do not become the same run.
    task_locks: TaskLocks,
    task_changes: TaskChanges,
    card_changes: CardChanges,
}

impl A2aService {
    /// Creates a service.
    pub fn new(runner: Runner, apps: Arc<dyn AppDirectory>, settings: ServerSettings) -> Self {
        let push = PushSender::new(runner.clone());
        push.configure(settings.push.clone(), settings.push_limits);
        let settings = ArcSwap::from_pointee(settings);
        let (task_locks, task_changes) = (TaskLocks::default(), TaskChanges::default());
        let card_changes = CardChanges::default();
        let inner = ServiceInner { runner, apps, settings, push, task_locks, task_changes, card_changes };
        Self(Arc::new(inner), Client::default())
    }

    /// Continues push notifications of tasks from before the process was started.
    pub fn resume_push_notifications(&self) {
        if self.0.push.is_enabled() {
            let (push, apps) = (self.0.push.clone(), self.app_names());
            tokio::spawn(async move { push.resume(&apps).await });
        }
    }

    /// Replaces the settings. `changes_push` is true if the egress policy of push notifications has changed. The new
    /// policy also applies to running tasks, and notifications that were held back while push was disabled are sent.
    pub fn reconfigure(&self, settings: ServerSettings, changes_push: bool) {
        if changes_push {
            self.0.push.configure(settings.push.clone(), settings.push_limits);
        }
        self.0.settings.store(Arc::new(settings));
        if changes_push {
            self.resume_push_notifications();
        }
    }

    fn settings(&self) -> Arc<ServerSettings> {
        self.0.settings.load_full()
    }

    fn for_client(&self, client: Client) -> Self {
        Self(self.0.clone(), client)
    }

    /// Returns the names of the apps that clients may use.
    fn app_names(&self) -> Vec<String> {
        let mut names = self.0.apps.app_names();
        names.retain(|name| self.is_exposed(name));
        names
    }

    fn is_exposed(&self, app: &str) -> bool {
        self.settings().apps.iter().any(|pattern| matches_wildcard(pattern, app))
    }

    /// Returns an app that clients may use.
    fn app(&self, name: &str) -> Option<Arc<App>> {
        self.0.apps.app(name).filter(|_| self.is_exposed(name))
    }

    /// Returns the app of the routes that name none.
    fn default_app(&self) -> Option<Arc<App>> {
        match (&self.settings().default_app, self.app_names().as_slice()) {
            (Some(name), _) => self.app(name),
            (None, [only]) => self.app(only),
            (None, _) => None,
        }
    }

    /// Performs an operation that is no stream.
    async fn perform(&self, app: &Arc<App>, operation: Operation) -> Result<Outcome, A2aError> {
        match operation {
            Operation::Send(request) => self.send(app, *request).await.map(Outcome::Sent),
            Operation::Get { id, history_length } => Ok(Outcome::Task(self.load(app, &id).await?.task(history_length))),
            Operation::List(request) => self.list(app, request).await.map(Outcome::Tasks),
            Operation::Cancel { id } => self.cancel(app, &id).await.map(Outcome::Task),
            Operation::SetPush { task_id, config } => {
                let (push, task) = (self.push()?, self.load(app, &task_id).await?);
                let has_ended = task.state().is_terminal();
                // Its client has learned the end of a task that has ended from the answer.
                let reported = task.updated_at().filter(|_| has_ended);
                let config = push.set(&app.name, &task.id, config, task.revision, reported).await?;
                if !has_ended {
                    push.watch(&app.name, &task.id);
                }
                Ok(Outcome::Push { task_id, config })
            }
            Operation::GetPush { task_id, id } => {
                let (push, task) = (self.push()?, self.load(app, &task_id).await?);
                let config = push.get(&app.name, &task.id, id.as_deref()).await?;
                Ok(Outcome::Push { task_id, config })
            }
            Operation::ListPush { task_id } => {
                let (push, task) = (self.push()?, self.load(app, &task_id).await?);
                let configs = push.list(&app.name, &task.id).await?;
                Ok(Outcome::Pushes { task_id, configs })
            }
            Operation::DeletePush { task_id, id } => {
                let (push, task) = (self.push()?, self.load(app, &task_id).await?);
                push.delete(&app.name, &task.id, &id).await?;
                Ok(Outcome::Deleted)
            }
            Operation::ExtendedCard if self.settings().has_authentication => {
                Ok(Outcome::Card(Box::new(self.extended_card(app, &card_url(&self.1.base_url, app)))))
            }
            // The card does not announce one: no client may see more than others.
            Operation::ExtendedCard => Err(A2aError::new(
                ErrorKind::UnsupportedOperation,
                "this host has no extended card, because it does not authenticate its clients",
            )),
            Operation::Stream(_) | Operation::Subscribe { .. } => {
                Err(A2aError::new(ErrorKind::UnsupportedOperation, "this operation is a stream"))
            }
        }
    }

    /// Reads a task of an app.
    async fn load(&self, app: &App, id: &str) -> Result<StoredTask, A2aError> {
        let id = TaskId::parse(id, self.1.user.clone()).ok_or_else(|| A2aError::task_not_found(id))?;
        StoredTask::load(&self.0.runner, &app.name, id).await
    }

    fn push(&self) -> Result<&PushSender, A2aError> {
        self.0.push.check_enabled().inspect_err(|_| {
            tracing::debug!("a client asks for push notifications; `a2a.push` in hatchery.yaml allows them");
        })?;
        Ok(&self.0.push)
    }

    /// Cancels a task.
    async fn cancel(&self, app: &App, id: &str) -> Result<crate::model::Task, A2aError> {
        let _guard = self.0.task_locks.lock(id).await;
        let task = self.load(app, id).await?;
        let not_cancelable = |state| {
            let message = format!("the task has ended as {state:?} and cannot be canceled");
            A2aError::new(ErrorKind::TaskNotCancelable, message)
        };
        if task.state().is_terminal() {
            return Err(not_cancelable(task.state()));
        }
        // The newest first, so that none begins because the one before it has ended.
        for run in task.open_runs().collect::<Vec<_>>().into_iter().rev() {
            self.0.runner.cancel_run(&task.session, &run.id).await?;
        }
        self.0.task_changes.notify(id);
        let task = StoredTask::load(&self.0.runner, &app.name, task.id).await?;
        match task.state() {
            state @ (TaskState::Completed | TaskState::Failed | TaskState::Rejected) => Err(not_cancelable(state)),
            _ => Ok(task.task(None)),
        }
    }
}
