//! Sessions of other conversations.

use super::super::mock_state::{MockSession, MockState};
use super::super::scope::Scope;
use crate::bindings::wit::types;
use crate::content::JsonMap;
use crate::convert::read_state;
use crate::error::Error;
use crate::event::Event;

pub(crate) async fn create(
    app: String,
    id: Option<String>,
    state: Vec<(String, String)>,
) -> Result<types::SessionInfo, types::Error> {
    let scope = Scope::for_change()?;
    let state = read_state(state)?;
    let mut mock = scope.mock.borrow_mut();
    let id = id.unwrap_or_else(|| format!("session-{}", mock.sessions.len() + 1));
    let key = (app, id);
    if mock.sessions.contains_key(&key) {
        return Err(Error::new("SESSION_EXISTS", format!("Session already exists: {}", key.1)).into());
    }
    let now = mock.now();
    let session = MockSession { state, events: Vec::new(), created_micros: now, updated_micros: now };
    let info = info(&key, &session);
    mock.sessions.insert(key, session);
    Ok(info)
}

pub(crate) async fn get(app: String, id: String) -> Result<Option<types::SessionInfo>, types::Error> {
    let scope = Scope::for_session()?;
    let (mock, key) = (scope.mock.borrow(), (app, id));
    Ok(mock.sessions.get(&key).map(|session| info(&key, session)))
}

pub(crate) async fn list(app: String, offset: u64, limit: u32) -> Result<Vec<types::SessionInfo>, types::Error> {
    let scope = Scope::for_session()?;
    let mock = scope.mock.borrow();
    let mut sessions: Vec<_> = mock.sessions.iter().filter(|(key, _)| key.0 == app).collect();
    sessions.sort_by_key(|(_, session)| std::cmp::Reverse(session.updated_micros));
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let listed = sessions.into_iter().skip(offset).take(limit as usize);
    Ok(listed.map(|(key, session)| info(key, session)).collect())
}

pub(crate) async fn events(
    app: String,
    id: String,
    window: types::EventWindow,
    offset: u64,
    limit: u32,
) -> Result<Vec<types::Event>, types::Error> {
    let scope = Scope::for_session()?;
    let mock = scope.mock.borrow();
    let session = mock.sessions.get(&(app, id.clone())).ok_or_else(|| not_found(&id))?;
    let is_inside = |event: &&Event| window.after.is_none_or(|after| event.timestamp_micros >= after);
    let events: Vec<_> = session.events.iter().filter(is_inside).collect();
    let older = window.recent.map_or(0, |recent| events.len().saturating_sub(recent as usize));
    let offset = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(older);
    Ok(events.into_iter().skip(offset).take(limit as usize).cloned().map(Into::into).collect())
}

pub(crate) async fn append(app: String, id: String, event: types::Event) -> Result<types::Event, types::Error> {
    let scope = Scope::for_change()?;
    let mut mock = scope.mock.borrow_mut();
    check_idle(&mock, &app, &id)?;
    let event = mock.complete(Event::try_from(event)?, &scope.call.agent);
    let session = mock.sessions.get_mut(&(app, id.clone())).ok_or_else(|| not_found(&id))?;
    session.append(event.clone());
    Ok(event.into())
}

pub(crate) async fn delete(app: String, id: String) -> Result<(), types::Error> {
    let scope = Scope::for_change()?;
    let mut mock = scope.mock.borrow_mut();
    check_idle(&mock, &app, &id)?;
    mock.sessions.remove(&(app, id));
    Ok(())
}

fn check_idle(mock: &MockState, app: &str, id: &str) -> Result<(), Error> {
    if (app, id) == (mock.info.app.as_str(), mock.info.session.as_str()) {
        let message =
            format!("session `{id}` of app `{app}` belongs to the current run: its agents emit events instead");
        return Err(Error::new("SESSION_IN_USE", message));
    }
    Ok(())
}

fn not_found(id: &str) -> Error {
    let what = "add `.other_session(\"APP\", \"ID\", [Event::text(\"…\")])` to the test's host";
    Error::new("SESSION_NOT_FOUND", format!("Session not found: {id}; {what}"))
}

fn info((app, id): &(String, String), session: &MockSession) -> types::SessionInfo {
    let state: &JsonMap = &session.state;
    types::SessionInfo {
        app: app.clone(),
        id: id.clone(),
        state: state.iter().map(|(key, value)| (key.clone(), value.to_string())).collect(),
        event_count: session.events.len() as u64,
        created: session.created_micros,
        updated: session.updated_micros,
    }
}
