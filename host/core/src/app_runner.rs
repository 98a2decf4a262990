//! Runs that code starts: an app as a service of another app's run.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::call_context::CallContext;
use crate::content::Content;
use crate::error::RunError;
use crate::event::Event;
use crate::json::JsonMap;
use crate::live::{LiveConnectConfig, LiveRequestQueue};
use crate::model::StreamingMode;

/// Starts runs of apps for the code of other runs. Implemented by the engine.
#[async_trait]
pub trait AppRunner: Send + Sync {
    /// Returns the names of all apps.
    fn app_names(&self) -> Vec<String>;

    /// Returns true if the artifacts of a session are kept when it is deleted.
    fn keeps_artifacts(&self) -> bool;

    /// Starts a run of an app in a session of the user of `cx`. The run counts as usage of the run of `cx`, and is
    /// cancelled with it.
    ///
    /// # Errors
    /// If the app does not exist, the message is not a user message or responds to a function call, the runs are nested
    /// too deeply, or another run uses the session. [`RunError::Cycle`] if the run of `cx` or an enclosing run uses it.
    async fn run(&self, cx: &CallContext, request: AppRunRequest) -> Result<AppRun, RunError>;

    /// Opens a live run of an app, which answers the requests of `queue` until it is closed. Code sends no request that
    /// [`LiveRequest::check_from_code`](crate::LiveRequest::check_from_code) refuses. Unlike other runs it is not
    /// journaled: code that runs again opens a new one.
    ///
    /// # Errors
    /// As [`AppRunner::run`].
    async fn run_live(
        &self,
        cx: &CallContext,
        request: LiveAppRunRequest,
        queue: LiveRequestQueue,
    ) -> Result<LiveAppRun, RunError>;
}

/// A request of code for a run of an app.
pub struct AppRunRequest {
    /// The name of the app.
    pub app: String,
    /// The id of the session, which is created if it does not exist. `None` creates a session with a new id.
    pub session: Option<String>,
    pub message: Content,
    /// Changes of state that are stored with the message.
    pub state_delta: JsonMap,
    /// Whether the run yields the chunks of model responses.
    pub streaming_mode: StreamingMode,
}

/// A run that code has started.
pub struct AppRun {
    /// The id of the run.
    pub invocation_id: String,
    /// The id of the session.
    pub session: String,
    /// The events. A failed run ends with an event that reports the failure, then the error. Dropping the stream
    /// cancels the run.
    pub events: BoxStream<'static, Result<Arc<Event>, RunError>>,
    /// Cancels the run.
    pub cancel: tokio_util::sync::CancellationToken,
}

/// A request of code for a live run of an app.
pub struct LiveAppRunRequest {
    /// The name of the app.
    pub app: String,
    /// The id of the session, which is created if it does not exist. `None` creates a session with a new id.
    pub session: Option<String>,
    /// The settings of connections to live models.
    pub config: LiveConnectConfig,
}

/// A live run that code has opened.
pub struct LiveAppRun {
    /// The id of the session.
    pub session: String,
    /// The events, like the events of an [`AppRun`]. Dropping the stream cancels the run.
    pub events: BoxStream<'static, Result<Arc<Event>, RunError>>,
}
