//! Runs of other apps: [`Runner`], [`RunRequest`] and [`Run`].

use std::marker::PhantomData;

use serde::Serialize;

use crate::bindings::wit::types;
use crate::content::{Content, JsonMap};
use crate::context::Context;
use crate::error::Error;
use crate::event::Event;
use crate::host::{StreamReader, runner};
use crate::live_run::{LiveRun, LiveRunRequest};
use crate::model::next;

/// Access to other apps, for the user of the current run. Every method fails if the component is not allowed to run the
/// app.
#[derive(Debug)]
pub struct Runner<'a>(PhantomData<&'a Context>);

/// A request for a run of an app.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRequest {
    pub app: String,
    /// Id of the session, which is created if it does not exist. `None` creates a session with a new id.
    pub session: Option<String>,
    pub message: Content,
    /// State keys that are set with the message; `null` deletes.
    pub state_delta: JsonMap,
    /// True if the run yields partial events while a model responds.
    pub streaming: bool,
}

impl RunRequest {
    /// Creates a request to send a text to an app, in a new session.
    pub fn new(app: impl Into<String>, text: impl Into<String>) -> Self {
        let (app, message) = (app.into(), Content::user(text));
        Self { app, session: None, message, state_delta: JsonMap::new(), streaming: false }
    }

    /// Replaces the message.
    #[must_use]
    pub fn message(mut self, message: Content) -> Self {
        self.message = message;
        self
    }

    /// Runs the app in this session of the user, which is created if it does not exist.
    #[must_use]
    pub fn session(mut self, id: impl Into<String>) -> Self {
        self.session = Some(id.into());
        self
    }

    /// Sets a state key with the message; `()` deletes it.
    ///
    /// # Errors
    /// If the value is not JSON.
    pub fn state(mut self, key: impl Into<String>, value: impl Serialize) -> Result<Self, Error> {
        self.state_delta.insert(key.into(), serde_json::to_value(value)?);
        Ok(self)
    }

    /// Requests partial events while a model responds.
    #[must_use]
    pub fn streaming(mut self) -> Self {
        self.streaming = true;
        self
    }
}

impl Runner<'_> {
    pub(crate) fn new(_context: &Context) -> Self {
        Self(PhantomData)
    }

    /// Returns the names of the apps that the component may run, sorted.
    ///
    /// # Errors
    /// See [`Runner`].
    pub fn list_apps(&self) -> Result<Vec<String>, Error> {
        Ok(runner::list_apps()?)
    }

    /// Starts a run of an app. Its model calls, tokens and events count towards the current run, and it ends with
    /// the current call.
    ///
    /// # Errors
    /// `CYCLE` if the session belongs to the current run or to one around it, `STORE_BUSY` if another run is in
    /// progress in it. See also [`Runner`].
    pub async fn run(&self, request: RunRequest) -> Result<Run, Error> {
        let (info, events) = runner::run(request.into()).await?;
        Ok(Run { info, events: Some(events) })
    }

    /// Opens a live run of an app, whose requests are sent while it is in progress. An app with a text model answers
    /// message by message.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub async fn run_live(&self, request: LiveRunRequest) -> Result<LiveRun, Error> {
        LiveRun::open(request).await
    }
}

/// A run of an app. Dropping it cancels the run.
pub struct Run {
    info: types::RunInfo,
    events: Option<StreamReader<types::Event>>,
}

impl Run {
    /// Returns the id of the run.
    pub fn invocation_id(&self) -> &str {
        &self.info.invocation_id
    }

    /// Returns the id of the session.
    pub fn session(&self) -> &str {
        &self.info.session
    }

    /// Returns the next event. `None` if the run has ended.
    ///
    /// # Errors
    /// The error of a run that failed, with its code.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        let Some(event) = next(&mut self.events).await.map(Event::try_from).transpose()? else { return Ok(None) };
        match event.error_code {
            Some(code) => Err(Error::new(code, event.error_message.unwrap_or_default())),
            None => Ok(Some(event)),
        }
    }

    /// Waits for the end of the run, and returns the text of its last message. Empty if there is none.
    ///
    /// # Errors
    /// The error of a run that failed, with its code.
    pub async fn text(mut self) -> Result<String, Error> {
        let mut text = String::new();
        while let Some(event) = self.next().await? {
            if !event.partial && event.content.is_some() {
                text = event.text_content();
            }
        }
        Ok(text)
    }

    /// Cancels the run. Its events end with an error.
    ///
    /// # Errors
    /// See [`Runner`].
    pub fn cancel(&self) -> Result<(), Error> {
        Ok(runner::cancel(&self.info.invocation_id)?)
    }
}

impl From<RunRequest> for types::RunRequest {
    fn from(request: RunRequest) -> Self {
        let RunRequest { app, session, message, state_delta, streaming } = request;
        let state_delta = state_delta.into_iter().map(|(key, value)| (key, value.to_string())).collect();
        Self { app, session, message: message.into(), state_delta, streaming }
    }
}
