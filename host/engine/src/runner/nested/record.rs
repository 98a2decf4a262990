//! Records of nested runs in the journal of the run that has started them.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use hatchery_core::{
    AppRun, AppRunRequest, CallContext, EarlierCall, Event, EventWindow, RunError, RunJournal, SessionKey, USER_AUTHOR,
};
use serde::{Deserialize, Serialize};

/// A nested run as the journal has it. Its events are in its own session.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunRecord {
    invocation_id: String,
    session: String,
    /// `None` while the run is in progress.
    result: Option<Result<(), Failure>>,
}

/// The error of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Failure {
    code: String,
    message: String,
}

impl Failure {
    fn new(error: &RunError) -> Self {
        Self { code: error.code().to_owned(), message: error.client_message() }
    }

    fn into_error(self, cx: &CallContext) -> RunError {
        RunError::Agent { agent: cx.agent.to_string(), code: self.code.into(), message: self.message }
    }
}

/// Starts a run, or returns the one that the code has started before its own run was interrupted.
pub(super) async fn run_once(
    cx: &CallContext,
    request: AppRunRequest,
    start: impl AsyncFnOnce(AppRunRequest) -> Result<AppRun, RunError>,
) -> Result<AppRun, RunError> {
    let arguments = (&request.session, &request.message, &request.state_delta);
    let key = cx.next_call_key(&format!("run:{}", request.app), &arguments);
    let (Some(key), Some(journal)) = (key, cx.invocation.journal.clone()) else { return start(request).await };
    match journal.earlier::<RunRecord>(&key) {
        EarlierCall::Completed(record) => return replay(cx, &request.app, record).await,
        EarlierCall::Interrupted => return Err(interruption_error(cx, &request.app)),
        EarlierCall::Unknown => {}
    }
    journal.begin(&key).await?;
    let mut run = match start(request).await {
        Ok(run) => run,
        Err(error) => {
            let result = Some(Err(Failure::new(&error)));
            journal.complete(&key, &RunRecord { invocation_id: String::new(), session: String::new(), result }).await?;
            return Err(error);
        }
    };
    let record = RunRecord { invocation_id: run.invocation_id.clone(), session: run.session.clone(), result: None };
    journal.complete(&key, &record).await?;
    run.events = record_end(journal, key, record, run.events);
    Ok(run)
}

type Events = BoxStream<'static, Result<Arc<Event>, RunError>>;

/// Records the end of the run when its last event has been read.
fn record_end(journal: Arc<RunJournal>, key: String, record: RunRecord, events: Events) -> Events {
    let state = (events, Some((journal, key, record)));
    let recorded = stream::unfold(state, |(mut events, mut unfinished)| async move {
        let item = events.next().await;
        if !matches!(item, Some(Ok(_)))
            && let Some((journal, key, record)) = unfinished.take()
        {
            let result = match &item {
                Some(Err(error)) => Err(Failure::new(error)),
                Some(Ok(_)) | None => Ok(()),
            };
            if let Err(error) = journal.complete(&key, &RunRecord { result: Some(result), ..record }).await {
                return Some((Err(error.into()), (stream::empty().boxed(), None)));
            }
        }
        Some((item?, (events, unfinished)))
    });
    recorded.boxed()
}

/// Returns the events that a recorded run has stored, and its error.
async fn replay(cx: &CallContext, app: &str, record: RunRecord) -> Result<AppRun, RunError> {
    let RunRecord { invocation_id, session, result } = record;
    let end = match result {
        Some(Err(failure)) if invocation_id.is_empty() => return Err(failure.into_error(cx)),
        Some(Err(failure)) => Some(Err(failure.into_error(cx))),
        Some(Ok(())) => None,
        None => Some(Err(interruption_error(cx, app))),
    };
    let parent = &cx.invocation;
    let key = SessionKey::new(app, &*parent.session_key.user, session.as_str());
    let stored = parent.services.sessions.get(&key, EventWindow::All).await?;
    let events = stored.into_iter().flat_map(|session| session.events.iter().cloned().collect::<Vec<_>>());
    let events: Vec<_> = events
        .filter(|event| event.invocation_id == invocation_id && event.author != USER_AUTHOR)
        .map(Ok)
        .chain(end)
        .collect();
    Ok(AppRun { invocation_id, session, events: stream::iter(events).boxed(), cancel: parent.cancel.child_token() })
}

fn interruption_error(cx: &CallContext, app: &str) -> RunError {
    let message = format!(
        "the run of app `{app}` was interrupted with the run that had started it; it is not started again: look into its \
         session before you do so"
    );
    RunError::Agent { agent: cx.agent.to_string(), code: "INTERRUPTED".into(), message }
}
