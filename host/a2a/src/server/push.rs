//! Push notifications: requests to the URLs that clients have set for their tasks.
//!
//! The configurations of a task are the state of a session of their own, so that agents do not see them and a restarted
//! host finds them.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex as SyncMutex};
use std::time::Duration;

use futures::StreamExt;
use hatchery_core::sync::MutexExt;
use hatchery_core::{Event, EventActions, EventData, EventWindow, JsonMap, SessionKey, USER_AUTHOR};
use hatchery_engine::{RunUpdate, Runner};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::stream::Converter;
use super::task_id::TaskId;
use super::tasks::StoredTask;
use crate::codec::Version;
use crate::error::{A2aError, ErrorKind, excerpt};
use crate::model::{PushConfig, Update};
use hatchery_egress::{Egress, Timeouts, client, describe};

/// The user of the sessions with configurations.
const USER: &str = "A2A_PUSH";

/// The state keys of such a session.
const CONFIGS: &str = "configs";
const IS_DELIVERED: &str = "delivered";

/// Most configurations of a task.
const MAX_CONFIGS: usize = 8;

/// How often a notification is sent that does not arrive, and how long to wait before the second attempt. The wait doubles.
const MAX_ATTEMPTS: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_secs(1);

const TIMEOUTS: Timeouts = Timeouts { connect: Duration::from_secs(10), read: Duration::from_secs(20) };

/// The header with the token of a configuration.
const TOKEN_HEADER: &str = "x-a2a-notification-token";

/// Sends the notifications. Cheap to clone.
#[derive(Clone)]
pub(super) struct PushSender(Arc<SenderInner>);

struct SenderInner {
    runner: Runner,
    egress: Arc<dyn Egress>,
    /// The tasks that are followed.
    watched: SyncMutex<HashSet<String>>,
    /// Held while configurations are changed.
    change: Mutex<()>,
}

type Configs = BTreeMap<String, PushConfig>;

impl PushSender {
    pub(super) fn new(runner: Runner, egress: Arc<dyn Egress>) -> Self {
        Self(Arc::new(SenderInner { runner, egress, watched: SyncMutex::default(), change: Mutex::default() }))
    }

    /// Checks that notifications may be sent to a URL.
    ///
    /// # Errors
    /// The refusal with the setting that would allow it.
    pub(super) fn check(&self, config: &PushConfig) -> Result<(), A2aError> {
        let refused = |reason: String| A2aError::invalid_params(format!("the URL of a push notification: {reason}"));
        let url = Url::parse(&config.url).map_err(|error| refused(format!("`{}`: {error}", excerpt(&config.url))))?;
        client(&self.0.egress, &url, TIMEOUTS).map(drop).map_err(refused)
    }

    /// Adds or replaces a configuration, and follows the task from a revision on.
    ///
    /// # Errors
    /// As [`PushSender::check`].
    pub(super) async fn set(
        &self,
        app: &str,
        task: &StoredTask,
        config: PushConfig,
        after: u64,
    ) -> Result<PushConfig, A2aError> {
        self.check(&config)?;
        let id = config.id.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        let config = PushConfig { id: Some(id.clone()), ..config };
        let _guard = self.0.change.lock().await;
        let mut configs = self.read(app, &task.id).await?.unwrap_or_default();
        if !configs.contains_key(&id) && configs.len() >= MAX_CONFIGS {
            return Err(A2aError::invalid_params(format!("a task has at most {MAX_CONFIGS} push configurations")));
        }
        configs.insert(id, config.clone());
        self.write(app, &task.id, &configs).await?;
        self.watch(app, task, after).await?;
        Ok(config)
    }

    /// Returns a configuration; the only one if no id is given.
    pub(super) async fn get(&self, app: &str, task: &StoredTask, id: Option<&str>) -> Result<PushConfig, A2aError> {
        let configs = self.list(app, task).await?;
        let found = match id {
            Some(id) => configs.into_iter().find(|config| config.id.as_deref() == Some(id)),
            None => configs.into_iter().next(),
        };
        found.ok_or_else(|| A2aError::new(ErrorKind::TaskNotFound, "the task has no such push configuration"))
    }

    pub(super) async fn list(&self, app: &str, task: &StoredTask) -> Result<Vec<PushConfig>, A2aError> {
        Ok(self.read(app, &task.id).await?.unwrap_or_default().into_values().collect())
    }

    /// Deletes a configuration. Succeeds if there is none.
    pub(super) async fn delete(&self, app: &str, task: &StoredTask, id: &str) -> Result<(), A2aError> {
        let _guard = self.0.change.lock().await;
        let Some(mut configs) = self.read(app, &task.id).await? else { return Ok(()) };
        configs.remove(id);
        self.write(app, &task.id, &configs).await
    }

    /// Returns the configurations. `None` if the task never had any.
    async fn read(&self, app: &str, task: &TaskId) -> Result<Option<Configs>, A2aError> {
        let session = self.0.runner.services().sessions.get(&session(app, task), EventWindow::Recent(0)).await?;
        let configs = session.and_then(|session| session.state.get(CONFIGS).cloned());
        Ok(configs.map(|configs| serde_json::from_value(configs).unwrap_or_default()))
    }

    async fn write(&self, app: &str, task: &TaskId, configs: &Configs) -> Result<(), A2aError> {
        // Configurations consist of texts.
        let configs = serde_json::to_value(configs).unwrap_or_default();
        self.set_state(app, task, JsonMap::from_iter([(CONFIGS.into(), configs)])).await
    }

    async fn set_state(&self, app: &str, task: &TaskId, state: JsonMap) -> Result<(), A2aError> {
        let (sessions, key) = (&self.0.runner.services().sessions, session(app, task));
        if sessions.get(&key, EventWindow::Recent(0)).await?.is_none() {
            sessions.create(app, USER, Some(&key.id), state).await?;
            return Ok(());
        }
        let actions = EventActions { state_delta: state, ..EventActions::default() };
        let event = Event::new(EventData { author: USER_AUTHOR.into(), actions, ..EventData::default() });
        sessions.append(&key, &event).await?;
        Ok(())
    }

    /// Follows a task that has configurations from a revision on, unless that is done already.
    pub(super) async fn watch(&self, app: &str, task: &StoredTask, after: u64) -> Result<(), A2aError> {
        let id = task.id.to_string();
        let has_configs = self.read(app, &task.id).await?.is_some_and(|configs| !configs.is_empty());
        if !has_configs || !self.0.watched.lock_unpoisoned().insert(id.clone()) {
            return Ok(());
        }
        let (sender, app, task) = (self.clone(), app.to_owned(), task.id.clone());
        tokio::spawn(async move {
            if let Err(error) = sender.follow(&app, &task, after).await {
                tracing::warn!(task = id, "push notifications of a task have ended: {error}");
            }
            sender.0.watched.lock_unpoisoned().remove(&id);
        });
        Ok(())
    }

    /// Sends what a task emits after a revision, until it ends or waits.
    async fn follow(&self, app: &str, task: &TaskId, after: u64) -> Result<(), A2aError> {
        let runner = &self.0.runner;
        let stored = StoredTask::load(runner, app, task.clone()).await?;
        let mut converter = Converter::new(task.clone());
        if let Some(mut updates) = runner.follow(&stored.session, &stored.last_run(), after).await? {
            while let Some(Ok(RunUpdate::Event { event, .. })) = updates.next().await {
                if event.partial {
                    continue;
                }
                for update in converter.updates(&event) {
                    self.notify(app, task, update).await?;
                }
            }
        }
        let stored = StoredTask::settle(runner, app, task.clone()).await?;
        // Before the client can react to a question: its answer begins the next watch.
        self.0.watched.lock_unpoisoned().remove(&task.to_string());
        self.notify(app, task, stored.status_update()).await?;
        if stored.state().is_terminal() {
            self.set_state(app, task, JsonMap::from_iter([(IS_DELIVERED.into(), true.into())])).await?;
        }
        Ok(())
    }

    /// Sends an update to all URLs of a task. Clients of version 0.3 get the whole task when its state changes.
    async fn notify(&self, app: &str, task: &TaskId, update: Update) -> Result<(), A2aError> {
        for config in self.read(app, task).await?.unwrap_or_default().into_values() {
            let body = match (config.version, &update) {
                (Version::V1_0, update) => Version::V1_0.encode_update(update.clone()),
                (Version::V0_3, Update::Status(_)) => {
                    let stored = StoredTask::load(&self.0.runner, app, task.clone()).await?;
                    Version::V0_3.encode_update(Update::Task(stored.task(None)))
                }
                (Version::V0_3, _) => continue,
            };
            self.deliver(&config, &body).await;
        }
        Ok(())
    }

    /// Sends one notification. A failure is logged.
    async fn deliver(&self, config: &PushConfig, body: &Value) {
        let mut delay = FIRST_DELAY;
        for attempt in 1..=MAX_ATTEMPTS {
            match self.post(config, body).await {
                Ok(()) => return,
                Err(reason) => tracing::info!(attempt, "a push notification was not delivered: {reason}"),
            }
            if attempt < MAX_ATTEMPTS {
                tokio::time::sleep(delay).await;
                delay *= 2;
            }
        }
    }

    async fn post(&self, config: &PushConfig, body: &Value) -> Result<(), String> {
        let url = Url::parse(&config.url).map_err(|error| error.to_string())?;
        let client = client(&self.0.egress, &url, TIMEOUTS)?;
        let mut request = client.post(url).json(body);
        if let Some(token) = &config.token {
            request = request.header(TOKEN_HEADER, token);
        }
        if let Some(authentication) = &config.authentication {
            let credentials = authentication.credentials.as_deref().unwrap_or_default();
            request = request.header("authorization", format!("{} {credentials}", authentication.scheme).trim());
        }
        let response = request.send().await.map_err(describe)?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("the answer has the status {status}")),
        }
    }

    /// Continues with the tasks of these apps that were followed when the host ended.
    pub(super) async fn resume(&self, apps: &[String]) {
        for app in apps {
            let sessions = match self.0.runner.services().sessions.list(app, USER).await {
                Ok(sessions) => sessions,
                Err(error) => {
                    tracing::warn!(app, "push configurations were not read: {error}");
                    continue;
                }
            };
            for session in sessions {
                let is_delivered = session.state.get(IS_DELIVERED) == Some(&json!(true));
                if let Err(error) = self.resume_task(app, &session.key, is_delivered).await {
                    tracing::warn!(app, task = &*session.key.id, "push notifications were not continued: {error}");
                }
            }
        }
    }

    /// Continues with one task. The configurations of a task that has ended are deleted.
    async fn resume_task(&self, app: &str, key: &SessionKey, is_delivered: bool) -> Result<(), A2aError> {
        let Some(id) = TaskId::parse(&key.id).filter(|_| !is_delivered) else {
            return Ok(self.0.runner.services().sessions.delete(key).await?);
        };
        let stored = StoredTask::load(&self.0.runner, app, id).await?;
        self.watch(app, &stored, stored.revision).await
    }
}

fn session(app: &str, task: &TaskId) -> SessionKey {
    SessionKey::new(app, USER, task.to_string())
}
