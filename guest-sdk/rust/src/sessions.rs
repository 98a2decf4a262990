//! Other sessions of the user: [`Sessions`], [`SessionInfo`] and [`EventWindow`].

use std::marker::PhantomData;

use crate::bindings::wit::types;
use crate::content::JsonMap;
use crate::context::Context;
use crate::convert::read_state;
use crate::error::Error;
use crate::event::Event;
use crate::host::sessions;

/// Access to the sessions of the current run's user in one app. Every method fails if the component is not allowed to
/// use them.
#[derive(Debug)]
pub struct Sessions<'a> {
    app: String,
    context: PhantomData<&'a Context>,
}

/// A session without its events.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionInfo {
    pub app: String,
    pub id: String,
    /// The state that the component may read.
    pub state: JsonMap,
    /// Number of events that were ever appended.
    pub event_count: u64,
    /// Time of creation, in microseconds since 1970.
    pub created_micros: i64,
    /// Time of the newest event, or of the creation, in microseconds since 1970.
    pub updated_micros: i64,
}

/// A part of the events of a session: by default all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventWindow {
    recent: Option<u32>,
    after: Option<i64>,
}

impl EventWindow {
    /// Returns a window of all events.
    pub fn all() -> Self {
        Self::default()
    }

    /// Narrows the window to the newest events, up to `count`.
    #[must_use]
    pub fn recent(self, count: u32) -> Self {
        Self { recent: Some(count), ..self }
    }

    /// Narrows the window to the events at or after a time, in microseconds since 1970.
    #[must_use]
    pub fn after_micros(self, time: i64) -> Self {
        Self { after: Some(time), ..self }
    }
}

impl Sessions<'_> {
    pub(crate) fn new(_context: &Context, app: String) -> Self {
        Self { app, context: PhantomData }
    }

    /// Creates a session with this id and state; with a new id if `id` is `None`.
    ///
    /// # Errors
    /// `SESSION_EXISTS` if the id is taken. See also [`Sessions`].
    pub async fn create(&self, id: Option<&str>, state: JsonMap) -> Result<SessionInfo, Error> {
        let state = state.into_iter().map(|(key, value)| (key, value.to_string())).collect();
        sessions::create(self.app.clone(), id.map(Into::into), state).await?.try_into()
    }

    /// Returns a session. `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Sessions`].
    pub async fn get(&self, id: &str) -> Result<Option<SessionInfo>, Error> {
        sessions::get(self.app.clone(), id.into()).await?.map(SessionInfo::try_from).transpose()
    }

    /// Returns up to `limit` sessions from number `offset` on, most recently updated first.
    ///
    /// # Errors
    /// See [`Sessions`].
    pub async fn list(&self, offset: u64, limit: u32) -> Result<Vec<SessionInfo>, Error> {
        sessions::list(self.app.clone(), offset, limit).await?.into_iter().map(SessionInfo::try_from).collect()
    }

    /// Returns up to `limit` events of a window from number `offset` on, oldest first. Long events reduce the number,
    /// but never below one.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND` if there is no such session. See also [`Sessions`].
    pub async fn events(&self, id: &str, window: EventWindow, offset: u64, limit: u32) -> Result<Vec<Event>, Error> {
        let window = types::EventWindow { recent: window.recent, after: window.after };
        let events = sessions::events(self.app.clone(), id.into(), window, offset, limit).await?;
        events.into_iter().map(Event::try_from).collect()
    }

    /// Appends an event of the current agent, and returns it as it was stored. Function calls and confirmation requests
    /// in it are never acted on.
    ///
    /// # Errors
    /// `SESSION_IN_USE` for the session of the current run: emit events instead. See also [`Sessions`].
    pub async fn append(&self, id: &str, event: impl Into<Event>) -> Result<Event, Error> {
        sessions::append(self.app.clone(), id.into(), event.into().into()).await?.try_into()
    }

    /// Deletes a session and its events. Does nothing if it does not exist.
    ///
    /// # Errors
    /// `SESSION_IN_USE` for the session of the current run. See also [`Sessions`].
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        Ok(sessions::delete(self.app.clone(), id.into()).await?)
    }
}

impl TryFrom<types::SessionInfo> for SessionInfo {
    type Error = Error;

    fn try_from(info: types::SessionInfo) -> Result<Self, Error> {
        Ok(Self {
            app: info.app,
            id: info.id,
            state: read_state(info.state)?,
            event_count: info.event_count,
            created_micros: info.created,
            updated_micros: info.updated,
        })
    }
}
