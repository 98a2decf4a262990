//! Live runs of other apps: [`LiveRunRequest`] and [`LiveRun`].

use futures::lock::Mutex;

use crate::bindings::wit::types;
use crate::content::JsonMap;
use crate::convert::some_object;
use crate::error::Error;
use crate::event::Event;
use crate::host::{StreamReader, StreamWriter, runner, wit_stream};
use crate::live::LiveRequest;
use crate::model::next;

/// A request for a live run of an app.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveRunRequest {
    pub app: String,
    /// Id of the session, which is created if it does not exist. `None` creates a session with a new id.
    pub session: Option<String>,
    /// Settings of connections to live models, as in Gemini's `LiveConnectConfig`.
    pub config: JsonMap,
}

impl LiveRunRequest {
    /// Creates a request to talk to an app, in a new session.
    pub fn new(app: impl Into<String>) -> Self {
        Self { app: app.into(), session: None, config: JsonMap::new() }
    }

    /// Runs the app in this session of the user, which is created if it does not exist.
    #[must_use]
    pub fn session(mut self, id: impl Into<String>) -> Self {
        self.session = Some(id.into());
        self
    }
}

/// A live run of an app. Sending and receiving may overlap. Dropping it cancels the run.
pub struct LiveRun {
    session: String,
    /// `None` once the run is closed.
    requests: Mutex<Option<StreamWriter<types::LiveRequest>>>,
    events: Mutex<Option<StreamReader<types::Event>>>,
}

impl LiveRun {
    pub(crate) async fn open(request: LiveRunRequest) -> Result<Self, Error> {
        let LiveRunRequest { app, session, config } = request;
        let request = types::LiveRunRequest { app, session, config: some_object(config) };
        let (writer, requests) = wit_stream::new();
        let (session, events) = runner::run_live(request, requests).await?;
        Ok(Self { session, requests: Mutex::new(Some(writer)), events: Mutex::new(Some(events)) })
    }

    /// Returns the id of the session.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Sends a request: a message, a chunk of audio, or a signal. Waits while the run has too many unread ones.
    ///
    /// # Errors
    /// `LIVE_CLOSED` if the run accepts no more requests; [`LiveRun::next`] returns the reason.
    pub async fn send(&self, request: impl Into<LiveRequest>) -> Result<(), Error> {
        let request: LiveRequest = request.into();
        let mut requests = self.requests.lock().await;
        let refused = match requests.as_mut() {
            Some(writer) => writer.write_one(request.into()).await.is_some(),
            None => true,
        };
        if refused {
            return Err(Error::new("LIVE_CLOSED", "the live run takes no more requests"));
        }
        Ok(())
    }

    /// Returns the next event. [`Event::turn_complete`] is true in the last event of a turn. `None` if the run has
    /// ended.
    ///
    /// # Errors
    /// The error of a run that failed, with its code.
    pub async fn next(&self) -> Result<Option<Event>, Error> {
        let event = next(&mut *self.events.lock().await).await;
        let Some(event) = event.map(Event::try_from).transpose()? else { return Ok(None) };
        match event.error_code {
            Some(code) => Err(Error::new(code, event.error_message.unwrap_or_default())),
            None => Ok(Some(event)),
        }
    }

    /// Closes the queue of requests. A text model still answers earlier messages, a live model closes the conversation.
    pub async fn close(&self) {
        self.requests.lock().await.take();
    }
}
