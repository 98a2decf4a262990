//! `sessions`: other sessions of the user.

use std::sync::Arc;

use hatchery_core::{
    CallContext, EarlierCall, Event, EventData, EventWindow, Session, SessionKey, StoreError, Timestamp, USER_AUTHOR,
    remove_proof,
};
use wasmtime::component::HasSelf;

use super::journal::CallEntry;
use super::runner::{state_size, to_state};
use super::session::{MAX_EVENTS, take_within};
use super::{
    Access as Accessor, StoreAccess, begin_read, check_change, check_permission, reserve, reserve_value, wit_error,
};
use crate::contract::bindings::hatchery::agent::sessions::{Host, HostWithStore};
use crate::contract::convert::{EstimateSize, FromWit, ToWit, to_json, wit};
use crate::policy::{Access, Grants, Permission};
use crate::runtime::store::HostState;

/// Maximum number of sessions of one call, for any `limit`.
const MAX_SESSIONS: u32 = 1000;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn create(
        accessor: &Accessor<T>,
        app: String,
        id: Option<String>,
        state: Vec<(String, String)>,
    ) -> Result<wit::SessionInfo, wit::Error> {
        create(accessor, app, id, state).await
    }

    async fn get(accessor: &Accessor<T>, app: String, id: String) -> Result<Option<wit::SessionInfo>, wit::Error> {
        get(accessor, app, id).await
    }

    async fn list(
        accessor: &Accessor<T>,
        app: String,
        offset: u64,
        limit: u32,
    ) -> Result<Vec<wit::SessionInfo>, wit::Error> {
        list(accessor, app, offset, limit).await
    }

    async fn events(
        accessor: &Accessor<T>,
        app: String,
        id: String,
        window: wit::EventWindow,
        offset: u64,
        limit: u32,
    ) -> Result<Vec<wit::Event>, wit::Error> {
        events(accessor, app, id, window, offset, limit).await
    }

    async fn append(
        accessor: &Accessor<T>,
        app: String,
        id: String,
        event: wit::Event,
    ) -> Result<wit::Event, wit::Error> {
        append(accessor, app, id, event).await
    }

    async fn delete(accessor: &Accessor<T>, app: String, id: String) -> Result<(), wit::Error> {
        delete(accessor, app, id).await
    }
}

pub(super) async fn create(
    mut store: impl StoreAccess,
    app: String,
    id: Option<String>,
    state: Vec<(String, String)>,
) -> Result<wit::SessionInfo, wit::Error> {
    let cx = check_change(&mut store, Permission::Sessions(Access::Write, &app)).await?;
    check_app(&cx, &app)?;
    for (key, _) in &state {
        store.with_state(|host| host.check(Permission::State(Access::Write, key)))?;
    }
    let _reservation = reserve(&mut store, state_size(&state))?;
    let state = to_state(state)?;
    let user = &cx.invocation.session_key.user;
    if let Some(id) = &id {
        SessionKey::new(app.as_str(), &**user, id.as_str()).check().map_err(StoreError::from)?;
    }
    let sessions = &cx.invocation.services.sessions;
    let record = CallEntry::new(&cx, &format!("sessions.create:{app}"), &(&id, &state));
    let created = match (record.earlier::<String>(), &id) {
        (EarlierCall::Completed(id), _) => Some(id),
        // Only an interrupted call can have created its session.
        (EarlierCall::Interrupted, id) => id.clone(),
        (EarlierCall::Unknown, _) => None,
    };
    if let Some(id) = created
        && let Some(session) = sessions.get(&key(&cx, &app, &id)?, EventWindow::Recent(0)).await?
    {
        return Ok(store.with_state(|host| info(&session, &host.grants)));
    }
    record.begin().await?;
    let session = sessions.create(&app, user, id.as_deref(), state).await?;
    record.complete(&*session.key.id).await?;
    Ok(store.with_state(|host| info(&session, &host.grants)))
}

pub(super) async fn get(
    mut store: impl StoreAccess,
    app: String,
    id: String,
) -> Result<Option<wit::SessionInfo>, wit::Error> {
    let cx = check_permission(&mut store, Permission::Sessions(Access::Read, &app))?;
    let _read = begin_read(&mut store).await;
    let session = cx.invocation.services.sessions.get(&key(&cx, &app, &id)?, EventWindow::Recent(0)).await?;
    Ok(store.with_state(|host| session.map(|session| info(&session, &host.grants))))
}

pub(super) async fn list(
    mut store: impl StoreAccess,
    app: String,
    offset: u64,
    limit: u32,
) -> Result<Vec<wit::SessionInfo>, wit::Error> {
    let run = check_permission(&mut store, Permission::Sessions(Access::Read, &app))?.invocation;
    let _read = begin_read(&mut store).await;
    let sessions = run.services.sessions.list(&app, &run.session_key.user).await?;
    let first = usize::try_from(offset).unwrap_or(usize::MAX);
    let listed = sessions.iter().skip(first).take(limit.min(MAX_SESSIONS) as usize);
    Ok(store.with_state(|host| take_within(host.writes.limit(), listed.map(|session| info(session, &host.grants)))))
}

pub(super) async fn events(
    mut store: impl StoreAccess,
    app: String,
    id: String,
    window: wit::EventWindow,
    offset: u64,
    limit: u32,
) -> Result<Vec<wit::Event>, wit::Error> {
    let cx = check_permission(&mut store, Permission::Sessions(Access::Read, &app))?;
    let key = key(&cx, &app, &id)?;
    let recent = window.recent.map(|count| count as usize);
    let window = match (window.after, recent) {
        (Some(after), _) => EventWindow::Since(Timestamp::from_micros(after)),
        (None, Some(count)) => EventWindow::Recent(count),
        (None, None) => EventWindow::All,
    };
    let _read = begin_read(&mut store).await;
    let session = cx.invocation.services.sessions.get(&key, window).await?;
    let events = session.ok_or_else(|| StoreError::SessionNotFound(key))?.events;
    let older = recent.map_or(0, |count| events.len().saturating_sub(count));
    let first = older.saturating_add(usize::try_from(offset).unwrap_or(usize::MAX)).min(events.len());
    let events = events.iter().skip(first).take(limit.min(MAX_EVENTS) as usize);
    Ok(store.with_state(|host| {
        take_within(host.writes.limit(), events.map(|event| host.grants.redact_state(event.to_wit())))
    }))
}

pub(super) async fn append(
    mut store: impl StoreAccess,
    app: String,
    id: String,
    event: wit::Event,
) -> Result<wit::Event, wit::Error> {
    let cx = check_change(&mut store, Permission::Sessions(Access::Write, &app)).await?;
    let key = key(&cx, &app, &id)?;
    check_idle(&cx, &key, "its agents emit events instead")?;
    for (key, _) in &event.actions.state_delta {
        store.with_state(|host| host.check(Permission::State(Access::Write, key)))?;
    }
    let _reservation = reserve_value(&mut store, &event)?;
    let record = CallEntry::new(&cx, &format!("sessions.append:{app}/{id}"), &EventData::from_wit(event.clone())?);
    let earlier = match record.earlier::<String>() {
        EarlierCall::Completed(id) => find_event(&cx, &key, &id).await?,
        EarlierCall::Interrupted => find_event(&cx, &key, &record.event_id()).await?,
        EarlierCall::Unknown => None,
    };
    if let Some(event) = earlier {
        return Ok(store.with_state(|host| host.grants.redact_state(event.to_wit())));
    }
    let event = prepare_event(&cx, EventData::from_wit(event)?, record.event_id())?;
    cx.invocation.count_event(&event)?;
    record.begin().await?;
    cx.invocation.services.sessions.append(&key, &event).await?;
    record.complete(event.id.as_str()).await?;
    Ok(store.with_state(|host| host.grants.redact_state(event.to_wit())))
}

pub(super) async fn delete(mut store: impl StoreAccess, app: String, id: String) -> Result<(), wit::Error> {
    let cx = check_change(&mut store, Permission::Sessions(Access::Write, &app)).await?;
    let key = key(&cx, &app, &id)?;
    check_idle(&cx, &key, "delete it when its run has ended")?;
    cx.invocation.services.sessions.delete(&key).await?;
    let (SessionKey { app, user, id }, invocation) = (&key, &cx.invocation.id);
    let decision = "deleted";
    tracing::info!(target: "hatchery::audit", %app, %user, session = %id, invocation, decision, "deletion");
    let keeps_artifacts = cx.invocation.apps.as_ref().is_some_and(|apps| apps.keeps_artifacts());
    if !keeps_artifacts {
        // They would count towards the quota of the user, and a new session with the id would have them.
        cx.invocation.services.artifacts.delete_all(&key).await?;
    }
    Ok(())
}

/// Returns the key of a session of the user.
fn key(cx: &CallContext, app: &str, id: &str) -> Result<SessionKey, wit::Error> {
    let key = SessionKey::new(app, &*cx.invocation.session_key.user, id);
    key.check().map_err(StoreError::from)?;
    Ok(key)
}

/// Returns an error if the host has apps and none of them has this name.
fn check_app(cx: &CallContext, app: &str) -> Result<(), wit::Error> {
    match &cx.invocation.apps {
        Some(apps) if !apps.app_names().iter().any(|name| name == app) => {
            Err(wit_error("NOT_FOUND", format!("there is no app `{app}`")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns an error if the session belongs to the current run or an enclosing one.
fn check_idle(cx: &CallContext, key: &SessionKey, instead: &str) -> Result<(), wit::Error> {
    if cx.invocation.and_parents().any(|run| run.session_key == *key) {
        let message = format!("session `{}` of app `{}` belongs to the current run: {instead}", key.id, key.app);
        return Err(wit_error("SESSION_IN_USE", message));
    }
    Ok(())
}

/// Returns an event of a session by its id; `None` if it is not there.
async fn find_event(cx: &CallContext, key: &SessionKey, id: &str) -> Result<Option<Arc<Event>>, wit::Error> {
    let session = cx.invocation.services.sessions.get(key, EventWindow::All).await?;
    Ok(session.and_then(|session| session.events.iter().find(|event| event.id == id).cloned()))
}

/// Completes an event that code appends: sets the author, the id and the run, and removes `temp:` state and any proof, so
/// that the engine never acts on its calls.
fn prepare_event(cx: &CallContext, mut data: EventData, id: String) -> Result<Arc<Event>, wit::Error> {
    if data.author.is_empty() {
        data.author = cx.agent.to_string();
    }
    if data.author == USER_AUTHOR || data.author != *cx.agent {
        let message =
            format!("an event of `{}` cannot be appended by `{}`; leave the author empty", data.author, cx.agent);
        return Err(wit_error("BAD_INPUT", message));
    }
    if data.partial {
        return Err(wit_error("BAD_INPUT", "a partial event is never stored; append the complete one"));
    }
    if data.actions.compaction.is_some() {
        return Err(wit_error("DENIED", "only the host summarizes a session, as the `compaction` of its app says"));
    }
    data.id = id;
    data.invocation_id.clone_from(&cx.invocation.id);
    data.timestamp = Timestamp::default();
    data.actions.remove_temp_state();
    remove_proof(&mut data);
    let event = Event::new(data);
    event
        .check_storable()
        .map_err(|error| wit_error("INVALID_EVENT", format!("the event cannot be stored: {error}")))?;
    Ok(event)
}

fn info(session: &Session, grants: &Grants) -> wit::SessionInfo {
    let state = session.state.iter().filter(|(key, _)| grants.can_read_state(key));
    wit::SessionInfo {
        app: session.key.app.to_string(),
        id: session.key.id.to_string(),
        state: state.map(|(key, value)| (key.into(), to_json(value))).collect(),
        event_count: session.revision,
        created: session.created.as_micros(),
        updated: session.last_update_time.as_micros(),
    }
}

impl EstimateSize for wit::SessionInfo {
    fn estimated_size(&self) -> u64 {
        let state = self.state.iter().map(|(key, value)| key.estimated_size() + value.estimated_size());
        self.app.estimated_size() + self.id.estimated_size() + state.sum::<u64>()
    }
}
