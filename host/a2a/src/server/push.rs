//! Push notifications: requests to the URLs that clients have set for their tasks.
//!
//! The configurations of a task are the state of their own session, so that agents do not see them and a restarted
//! host finds them. The session also records the notifications that were sent, and is deleted when the task has ended.

mod delivery;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex as SyncMutex};

use arc_swap::ArcSwapOption;
use futures::StreamExt;
use futures::future::join_all;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Event, EventActions, EventData, EventWindow, HOST_USER, JsonMap, SessionKey, Timestamp, USER_AUTHOR,
};
use hatchery_engine::{RunUpdate, Runner};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::stream::Converter;
use super::task_id::TaskId;
use super::tasks::StoredTask;
use crate::codec::Version;
use crate::error::{A2aError, ErrorKind};
use crate::model::{PushConfig, Update};
use delivery::Delivery;
pub use delivery::PushLimits;
use hatchery_egress::Egress;

/// Maximum number of configurations of a task.
const MAX_CONFIGS: usize = 8;
/// Maximum number of times that following a task begins again after an error of the host.
const MAX_FOLLOW_RETRIES: u32 = 8;

/// Sends the notifications. Cheap to clone.
#[derive(Clone)]
pub(super) struct PushSender(Arc<SenderInner>);

struct SenderInner {
    runner: Runner,
    /// `None` while this host sends no notifications.
    delivery: ArcSwapOption<Delivery>,
    /// Tasks being watched. True if the task changed meanwhile and must be checked again.
    watched: SyncMutex<HashMap<SessionKey, bool>>,
    /// Held while configurations are changed.
    change: Mutex<()>,
}

type Configs = BTreeMap<String, PushConfig>;
type Reports = BTreeMap<String, Timestamp>;

/// The configurations of a task, and the progress of its notifications.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PushRecord {
    configs: Configs,
    /// The revision of the task's session up to which events were sent.
    delivered: u64,
    /// Time of the last task state that was sent, by the id of the configuration.
    reports: Reports,
    /// The time for all configurations, in records of earlier versions.
    reported: Option<Timestamp>,
    /// The user of the task. `None` if clients are not authenticated.
    user: Option<Arc<str>>,
}

impl PushRecord {
    /// Reads a record. An invalid record counts as empty, and an invalid configuration is omitted.
    fn from_state(state: Value, key: &SessionKey) -> Self {
        let mut record: Self = serde_json::from_value(state).unwrap_or_else(|error| {
            tracing::warn!(task = &*key.id, "stored push configurations are invalid and are not used: {error}");
            Self::default()
        });
        record.configs.retain(|id, config| match delivery::check(config) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(task = &*key.id, id, "a stored push configuration is invalid and is not used: {error}");
                false
            }
        });
        let Self { configs, reports, reported, .. } = &mut record;
        if let Some(time) = reported.take() {
            for id in configs.keys() {
                reports.entry(id.clone()).or_insert(time);
            }
        }
        reports.retain(|id, _| configs.contains_key(id));
        record
    }

    /// Returns the configurations to which the task's state of this time was not sent.
    fn due(&self, time: Option<Timestamp>) -> Configs {
        let due = self.configs.iter().filter(|(id, _)| self.reports.get(*id).copied() != time);
        due.map(|(id, config)| (id.clone(), config.clone())).collect()
    }

    /// Returns the time of the oldest state that a configuration knows. `None` if one of them knows none.
    fn oldest_report(&self) -> Option<Timestamp> {
        if self.reports.len() < self.configs.len() { None } else { self.reports.values().min().copied() }
    }
}

/// Returns the change that stores these reports. They replace the time that earlier versions stored.
fn report_changes(reports: &Reports) -> [(String, Value); 2] {
    [("reports".into(), json!(reports)), ("reported".into(), Value::Null)]
}

impl PushSender {
    /// Creates a sender that sends nothing until it is [configured](PushSender::configure).
    pub(super) fn new(runner: Runner) -> Self {
        let (delivery, watched, change) = (ArcSwapOption::empty(), SyncMutex::default(), Mutex::default());
        Self(Arc::new(SenderInner { runner, delivery, watched, change }))
    }

    /// Replaces the egress policy and the limits, including the limits of followed tasks. Without a policy, nothing is
    /// sent.
    pub(super) fn configure(&self, egress: Option<Arc<dyn Egress>>, limits: PushLimits) {
        self.0.delivery.store(egress.map(|egress| Arc::new(Delivery::new(egress, limits))));
    }

    /// Returns true if this host sends notifications.
    pub(super) fn is_enabled(&self) -> bool {
        self.0.delivery.load().is_some()
    }

    /// Checks that this host sends notifications.
    ///
    /// # Errors
    /// If it sends none.
    pub(super) fn check_enabled(&self) -> Result<(), A2aError> {
        self.delivery().map(drop)
    }

    fn delivery(&self) -> Result<Arc<Delivery>, A2aError> {
        self.0.delivery.load_full().ok_or_else(|| {
            A2aError::new(ErrorKind::PushNotificationNotSupported, "this host sends no push notifications")
        })
    }

    /// Adds or replaces a configuration. Once the task is [watched](PushSender::watch), its state is sent unless it is
    /// of the time `reported`. The first configuration of a task determines the revision after which events are sent.
    ///
    /// # Errors
    /// If a value is too large, the URL is not allowed, or the task has too many configurations.
    pub(super) async fn set(
        &self,
        app: &str,
        task: &TaskId,
        config: PushConfig,
        after: u64,
        reported: Option<Timestamp>,
    ) -> Result<PushConfig, A2aError> {
        delivery::check(&config)?;
        self.delivery()?.check_url(&config)?;
        let id = config.id.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        let config = PushConfig { id: Some(id.clone()), ..config };
        let _guard = self.0.change.lock().await;
        let key = session(app, task);
        let known = self.read(&key).await?;
        let is_new = known.is_none();
        let PushRecord { mut configs, mut reports, .. } = known.unwrap_or_default();
        if !configs.contains_key(&id) && configs.len() >= MAX_CONFIGS {
            return Err(A2aError::invalid_params(format!("a task has at most {MAX_CONFIGS} push configurations")));
        }
        match reported {
            Some(time) => reports.insert(id.clone(), time),
            None => reports.remove(&id),
        };
        configs.insert(id, config.clone());
        let mut changes = JsonMap::from_iter(report_changes(&reports));
        changes.insert("configs".into(), json!(configs));
        if is_new {
            changes.insert("delivered".into(), after.into());
            changes.extend(task.user.as_ref().map(|user| ("user".to_owned(), json!(user))));
        }
        self.write(&key, changes).await?;
        Ok(config)
    }

    /// Returns a configuration; the only one if no id is given.
    pub(super) async fn get(&self, app: &str, task: &TaskId, id: Option<&str>) -> Result<PushConfig, A2aError> {
        let configs = self.list(app, task).await?;
        let found = match id {
            Some(id) => configs.into_iter().find(|config| config.id.as_deref() == Some(id)),
            None => configs.into_iter().next(),
        };
        found.ok_or_else(|| A2aError::new(ErrorKind::TaskNotFound, "the task has no such push configuration"))
    }

    pub(super) async fn list(&self, app: &str, task: &TaskId) -> Result<Vec<PushConfig>, A2aError> {
        Ok(self.read(&session(app, task)).await?.unwrap_or_default().configs.into_values().collect())
    }

    /// Restores the previous value of a configuration. Does nothing if the task has no configurations any more.
    pub(super) async fn restore(&self, app: &str, task: &TaskId, config: PushConfig) -> Result<(), A2aError> {
        let _guard = self.0.change.lock().await;
        let key = session(app, task);
        let (Some(PushRecord { mut configs, .. }), Some(id)) = (self.read(&key).await?, config.id.clone()) else {
            return Ok(());
        };
        configs.insert(id, config);
        self.write(&key, JsonMap::from_iter([("configs".into(), json!(configs))])).await
    }

    /// Deletes a configuration. Succeeds if there is none.
    pub(super) async fn delete(&self, app: &str, task: &TaskId, id: &str) -> Result<(), A2aError> {
        let _guard = self.0.change.lock().await;
        let key = session(app, task);
        let Some(PushRecord { mut configs, .. }) = self.read(&key).await? else { return Ok(()) };
        configs.remove(id);
        if configs.is_empty() {
            Ok(self.0.runner.services().sessions.delete(&key).await?)
        } else {
            self.write(&key, JsonMap::from_iter([("configs".into(), json!(configs))])).await
        }
    }

    /// Returns the record. `None` if the task has no configurations.
    async fn read(&self, key: &SessionKey) -> Result<Option<PushRecord>, A2aError> {
        let session = self.0.runner.services().sessions.get(key, EventWindow::Recent(0)).await?;
        let state = session.map(|session| {
            let state = session.state.iter().map(|(key, value)| (key.to_owned(), value.clone()));
            Value::Object(state.collect())
        });
        Ok(state.map(|state| PushRecord::from_state(state, key)))
    }

    async fn write(&self, key: &SessionKey, changes: JsonMap) -> Result<(), A2aError> {
        let sessions = &self.0.runner.services().sessions;
        if sessions.get(key, EventWindow::Recent(0)).await?.is_none() {
            sessions.create(&key.app, &key.user, Some(&key.id), changes).await?;
            return Ok(());
        }
        let actions = EventActions { state_delta: changes, ..EventActions::default() };
        let event = Event::new(EventData { author: USER_AUTHOR.into(), actions, ..EventData::default() });
        sessions.append(key, &event).await?;
        Ok(())
    }

    /// Sends the notifications of a task until it ends or waits. If the task is watched already, it is checked once
    /// more afterwards.
    pub(super) fn watch(&self, app: &str, task: &TaskId) {
        let key = session(app, task);
        match self.0.watched.lock_unpoisoned().entry(key.clone()) {
            Entry::Occupied(mut entry) => {
                entry.insert(true);
                return;
            }
            Entry::Vacant(entry) => entry.insert(false),
        };
        let (sender, app, task) = (self.clone(), app.to_owned(), task.clone());
        tokio::spawn(async move {
            loop {
                if let Err(error) = sender.follow_persistently(&app, &task, &key).await {
                    tracing::warn!(task = %task, "push notifications of a task have ended: {error}");
                }
                let mut watched = sender.0.watched.lock_unpoisoned();
                let is_wanted_again = watched.get_mut(&key).is_some_and(std::mem::take);
                if !is_wanted_again {
                    watched.remove(&key);
                    return;
                }
            }
        });
    }

    /// [Follows](PushSender::follow) a task, and begins again where it stopped after an error that may pass.
    async fn follow_persistently(&self, app: &str, task: &TaskId, key: &SessionKey) -> Result<(), A2aError> {
        let mut retries = 0;
        loop {
            let Err(error) = self.follow(app, task, key).await else { return Ok(()) };
            if retries == MAX_FOLLOW_RETRIES || !matches!(error.kind, ErrorKind::Internal | ErrorKind::Busy) {
                return Err(error);
            }
            let delay = self.delivery()?.retry_delay(retries);
            tracing::info!(task = %task, ?delay, "push notifications of a task are continued after an error: {error}");
            tokio::time::sleep(delay).await;
            retries += 1;
        }
    }

    /// Sends the events of a task since the last notification until it ends or waits, then its state.
    async fn follow(&self, app: &str, task: &TaskId, key: &SessionKey) -> Result<(), A2aError> {
        let Some(record) = self.read(key).await? else { return Ok(()) };
        let (mut delivered, mut last_change) = (record.delivered, record.oldest_report());
        let (runner, mut converter) = (&self.0.runner, Converter::new(task.clone()));
        let stored = loop {
            let stored = StoredTask::load(runner, app, task.clone()).await?;
            let changed: Vec<_> = stored.runs_changed_since(last_change).map(|run| run.id.clone()).collect();
            if changed.is_empty() {
                break stored;
            }
            for run in changed {
                let Some(mut updates) = runner.follow(&stored.session, &run, delivered).await? else { continue };
                while let Some(update) = updates.next().await {
                    let RunUpdate::Event { revision: Some(revision), event } = update? else { continue };
                    for update in converter.updates(&event) {
                        let PushRecord { configs, .. } = self.read(key).await?.unwrap_or_default();
                        self.notify(app, task, &configs, update).await?;
                    }
                    delivered = revision;
                    self.write_sent(key, JsonMap::from_iter([("delivered".into(), delivered.into())])).await?;
                }
            }
            last_change = stored.updated_at();
        };
        let due = self.read(key).await?.unwrap_or_default().due(stored.updated_at());
        if due.is_empty() {
            return Ok(());
        }
        self.notify(app, task, &due, stored.status_update()).await?;
        if stored.state().is_terminal() {
            return self.finish(key, &due).await;
        }
        self.write_reports(key, &due, &stored).await
    }

    /// Stores the progress of notifications, unless the configurations were deleted.
    async fn write_sent(&self, key: &SessionKey, changes: JsonMap) -> Result<(), A2aError> {
        let _guard = self.0.change.lock().await;
        match self.read(key).await? {
            Some(_) => self.write(key, changes).await,
            None => Ok(()),
        }
    }

    /// Stores that a state of a task was sent. Configurations that were replaced since are omitted.
    async fn write_reports(&self, key: &SessionKey, notified: &Configs, stored: &StoredTask) -> Result<(), A2aError> {
        let _guard = self.0.change.lock().await;
        let (Some(PushRecord { configs, mut reports, .. }), Some(time)) = (self.read(key).await?, stored.updated_at())
        else {
            return Ok(());
        };
        let current = notified.iter().filter(|(id, config)| configs.get(*id) == Some(*config));
        reports.extend(current.map(|(id, _)| (id.clone(), time)));
        let mut changes = JsonMap::from_iter(report_changes(&reports));
        changes.insert("delivered".into(), stored.revision.into());
        self.write(key, changes).await
    }

    /// Deletes the configurations of a task that know its end, with their credentials. Those that were set after the
    /// last notification are kept for the next notification.
    async fn finish(&self, key: &SessionKey, notified: &Configs) -> Result<(), A2aError> {
        let _guard = self.0.change.lock().await;
        let Some(PushRecord { mut configs, .. }) = self.read(key).await? else { return Ok(()) };
        configs.retain(|id, config| notified.get(id) != Some(&*config));
        if configs.is_empty() {
            return Ok(self.0.runner.services().sessions.delete(key).await?);
        }
        self.write(key, JsonMap::from_iter([("configs".into(), json!(configs))])).await
    }

    /// Sends an update to the URLs of these configurations of a task. Clients of version 0.3 get the whole task when
    /// its state changes.
    ///
    /// # Errors
    /// The errors of the session service, and an error if this host sends no notifications any more.
    async fn notify(&self, app: &str, task: &TaskId, configs: &Configs, update: Update) -> Result<(), A2aError> {
        let (delivery, mut deliveries) = (self.delivery()?, Vec::new());
        for config in configs.values() {
            let body = match (config.version, &update) {
                (Version::V1_0, update) => Version::V1_0.encode_update(update.clone()),
                (Version::V0_3, Update::Status(_)) => {
                    let stored = StoredTask::load(&self.0.runner, app, task.clone()).await?;
                    Version::V0_3.encode_update(Update::Task(stored.task(None)))
                }
                (Version::V0_3, _) => continue,
            };
            deliveries.push(delivery.deliver(config, body));
        }
        join_all(deliveries).await;
        Ok(())
    }

    /// Continues with the tasks of these apps that were followed when the host ended.
    pub(super) async fn resume(&self, apps: &[String]) {
        for app in apps {
            let sessions = match self.0.runner.services().sessions.list(app, HOST_USER).await {
                Ok(sessions) => sessions,
                Err(error) => {
                    tracing::warn!(app, "push configurations were not read: {error}");
                    continue;
                }
            };
            for session in sessions {
                if let Err(error) = self.resume_task(app, &session.key).await {
                    tracing::warn!(app, task = &*session.key.id, "push notifications were not continued: {error}");
                }
            }
        }
    }

    /// Continues with one task. The configurations of a task that no longer exists, or has ended without
    /// anything left to send, are deleted.
    async fn resume_task(&self, app: &str, key: &SessionKey) -> Result<(), A2aError> {
        let record = self.read(key).await?.unwrap_or_default();
        let found = match TaskId::parse(&key.id, record.user.clone()) {
            Some(id) => StoredTask::load(&self.0.runner, app, id).await,
            None => Err(A2aError::task_not_found(&key.id)),
        };
        match found {
            Ok(stored) => {
                if stored.state().is_terminal() && record.due(stored.updated_at()).is_empty() {
                    return Ok(self.0.runner.services().sessions.delete(key).await?);
                }
                self.watch(app, &stored.id);
                Ok(())
            }
            Err(error) if error.kind == ErrorKind::TaskNotFound => {
                Ok(self.0.runner.services().sessions.delete(key).await?)
            }
            Err(error) => Err(error),
        }
    }
}

fn session(app: &str, task: &TaskId) -> SessionKey {
    SessionKey::new(app, HOST_USER, task.to_string())
}
