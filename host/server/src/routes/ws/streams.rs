//! The messages about one run of a connection, as a stream that ends with the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use hatchery_core::{RunError, SessionKey};
use hatchery_engine::RunUpdate;
use tokio_util::sync::DropGuard;

use super::message::{Failure, SocketMessage};
use crate::auth::RequestPermit;
use crate::body::BodyMemory;
use crate::routes::run::StartedRun;
use crate::routes::runs::RunView;
use crate::state::AppState;

/// The resources that a request holds until its run ends.
pub(super) struct RequestResources {
    pub(super) _memory: BodyMemory,
    pub(super) _permit: Option<RequestPermit>,
}

/// A run that a request of the connection has started.
struct ConnectionRun {
    id: Arc<str>,
    state: AppState,
    session: SessionKey,
    run: StartedRun,
    /// The id of the run, once it is known.
    run_id: Option<String>,
    /// True once the client knows that the run has begun.
    is_announced: bool,
    _held: RequestResources,
}

/// Returns the messages of a run of this connection: its start, once it is stored, its events and its end. Events are
/// read no faster than they are sent.
pub(super) fn stream_run(
    id: Arc<str>,
    state: AppState,
    session: SessionKey,
    run: StartedRun,
    held: RequestResources,
) -> impl Stream<Item = SocketMessage> {
    let run_id = run.run.id().map(str::to_owned);
    let started = ConnectionRun { id, state, session, run, run_id, is_announced: false, _held: held };
    stream::unfold(Some(started), |started| async move {
        let mut started = started?;
        if !started.is_announced {
            // From then on it can be followed.
            started.run.run.wait_until_begun().await;
            started.is_announced = true;
            let message = SocketMessage::Started { id: started.id.clone(), run_id: started.run_id.clone() };
            return Some((message, Some(started)));
        }
        let error = match started.run.run.next_with_revision().await {
            Some(Ok((revision, event))) => {
                started.run_id.get_or_insert_with(|| event.invocation_id.clone());
                let message = SocketMessage::Event { id: started.id.clone(), revision, event };
                return Some((message, Some(started)));
            }
            Some(Err(error)) => Some(Failure::from(&error)),
            None => None,
        };
        // The run has ended, so there is nothing to cancel.
        started.run.guard.take().map(DropGuard::disarm);
        let run = started.read_stored().await;
        Some((SocketMessage::End { id: started.id, run, error }, None))
    })
}

impl ConnectionRun {
    /// Returns the stored run; `None` if it is not stored.
    async fn read_stored(&self) -> Option<Box<RunView>> {
        let runs = self.state.services().sessions.runs()?;
        let run = runs.get(&self.session, self.run_id.as_deref()?).await;
        let run = run.inspect_err(|error| tracing::warn!(%error, "could not read a run that has ended")).ok()??;
        Some(Box::new(run.into()))
    }
}

/// Returns the messages of a followed run: its start, its events and its end.
pub(super) fn follow_run(
    id: Arc<str>,
    run_id: String,
    updates: BoxStream<'static, Result<RunUpdate, RunError>>,
    permit: Option<RequestPermit>,
) -> impl Stream<Item = SocketMessage> {
    let beginning = SocketMessage::Started { id: id.clone(), run_id: Some(run_id) };
    let messages = updates.map(move |update| {
        let (id, _permit) = (id.clone(), &permit);
        match update {
            Ok(RunUpdate::Event { revision, event }) => SocketMessage::Event { id, revision, event },
            Ok(RunUpdate::End(run)) => SocketMessage::End { id, run: Some(Box::new(RunView::from(*run))), error: None },
            Err(error) => SocketMessage::End { id, run: None, error: Some(Failure::from(&error)) },
        }
    });
    stream::once(std::future::ready(beginning)).chain(messages)
}

/// Cancels a run, and resets `is_cancelling` then. Returns a message if that fails; otherwise the run's stream ends as
/// usual.
pub(super) fn cancel_run(
    id: Arc<str>,
    state: AppState,
    session: SessionKey,
    run: String,
    is_cancelling: Arc<AtomicBool>,
) -> impl Stream<Item = SocketMessage> {
    let cancel = async move {
        let cancelled = state.runner().cancel_run(&session, &run).await;
        // If it has failed, the client may try again.
        is_cancelling.store(false, Ordering::Relaxed);
        cancelled
    };
    stream::once(cancel).filter_map(move |cancelled| {
        let refusal = cancelled.err().map(|error| SocketMessage::refusal(Some(id.clone()), error.into()));
        std::future::ready(refusal)
    })
}
