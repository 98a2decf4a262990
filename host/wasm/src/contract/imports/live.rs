//! `runner.run-live`: live runs of other apps.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::{FutureExt, Stream};
use hatchery_core::{LiveAppRunRequest, LiveQueueClosed, LiveRequest, LiveRequestQueue, QueuedRequest};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::PollSender;
use tracing::Instrument;

use super::runner::{Admission, NestedRun, admit, runner};
use super::{StoreAccess, check_change, reserve, wit_error};
use crate::contract::convert::live::live_config;
use crate::contract::convert::{EstimateSize, FromWit, ParsedSize, wit};
use crate::policy::Permission;
use crate::runtime::limits::Limit;
use crate::runtime::store::call_usage::CallUsage;

/// Maximum number of requests that a run has not read. The guest waits from there on.
const MAX_UNREAD_REQUESTS: usize = 16;

/// Opens a live run of an app.
pub(super) async fn run(
    mut store: impl StoreAccess,
    request: wit::LiveRunRequest,
) -> Result<NestedLiveRun, wit::Error> {
    let cx = check_change(&mut store, Permission::Run(&request.app)).await?;
    let wit::LiveRunRequest { app, session, config } = request;
    let _reservation = reserve(&mut store, config.parsed_size())?;
    let config = live_config(config)?;
    let admission = admit(&mut store, &app)?;
    let Admission { nesting, usage, .. } = &admission;
    let (nesting, usage) = (nesting.clone(), usage.clone());
    let queue = LiveRequestQueue::new(MAX_UNREAD_REQUESTS);
    let request = LiveAppRunRequest { app, session, config };
    let run = nesting.scope(runner(&cx)?.run_live(&cx, request, queue.clone())).await?;
    let events = admission.live_run(run.session, run.events);
    Ok(NestedLiveRun { events, requests: LiveRequests { queue, usage }, refused: None })
}

/// A live run that the guest has opened: a stream of its events. Dropping it cancels the run.
pub struct NestedLiveRun {
    events: NestedRun,
    requests: LiveRequests,
    /// The refusal of a request that the guest has written to a stream; `None` if there can be none.
    refused: Option<oneshot::Receiver<wit::Error>>,
}

impl NestedLiveRun {
    pub(super) fn session(&self) -> &str {
        &self.events.info.session
    }

    /// Returns the queue of its requests.
    pub(super) fn requests(&self) -> LiveRequests {
        self.requests.clone()
    }

    /// Returns the run with the sink of the stream of its requests. The end of that stream closes the queue.
    pub(super) fn with_requests(mut self) -> (Self, PollSender<wit::LiveRequest>) {
        let (sender, mut receiver) = mpsc::channel(1);
        let (refusal, refused) = oneshot::channel();
        let requests = self.requests();
        tokio::spawn(
            async move {
                while let Some(request) = receiver.recv().await {
                    match requests.send(request).await {
                        Ok(()) => {}
                        // The run has ended, and reports the reason itself.
                        Err(error) if error.code == CLOSED => return,
                        Err(error) => {
                            // Fails if the guest has dropped the run.
                            let _ = refusal.send(error);
                            return;
                        }
                    }
                }
                requests.close();
            }
            .in_current_span(),
        );
        self.refused = Some(refused);
        (self, PollSender::new(sender))
    }
}

impl Drop for NestedLiveRun {
    fn drop(&mut self) {
        self.requests.queue.stop();
    }
}

impl Stream for NestedLiveRun {
    type Item = wit::Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<wit::Event>> {
        if let Some(refused) = &mut self.refused
            && let Poll::Ready(refusal) = refused.poll_unpin(cx)
        {
            self.refused = None;
            if let Ok(error) = refusal {
                return Poll::Ready(Some(self.events.fail(error)));
            }
        }
        Pin::new(&mut self.events).poll_next(cx)
    }
}

/// The code of a request to a run that takes no more.
const CLOSED: &str = "LIVE_CLOSED";

/// The queue of a run that the guest has opened.
#[derive(Clone)]
pub(super) struct LiveRequests {
    queue: LiveRequestQueue,
    usage: Arc<CallUsage>,
}

impl LiveRequests {
    /// Sends a request once the queue has capacity. Its bytes, and its JSON after parsing, count as memory of the guest
    /// until the run has read it.
    pub(super) async fn send(&self, request: wit::LiveRequest) -> Result<(), wit::Error> {
        let size = request.estimated_size();
        if size > self.usage.limits().result {
            let exceeded = self.usage.limit_exceeded(Limit::Result);
            return Err(wit_error("LIMIT_REACHED", exceeded.for_callers()));
        }
        let memory = self.usage.reserve(size.saturating_add(request.parsed_size()));
        let memory = memory.map_err(|error| wit_error("LIMIT_REACHED", error.for_callers()))?;
        let request = LiveRequest::from_wit(request)?;
        request.check_from_code()?;
        let closed = |LiveQueueClosed| wit_error(CLOSED, LiveQueueClosed.to_string());
        let mut queued = QueuedRequest { request, reservations: vec![Arc::new(memory)] };
        loop {
            self.queue.ready().await.map_err(closed)?;
            match self.queue.try_send(queued).map_err(closed)? {
                None => return Ok(()),
                Some(returned) => queued = returned,
            }
        }
    }

    /// Closes the sending side.
    pub(super) fn close(&self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Content, FunctionCall, PartData};
    use serde_json::{Value, json};

    use super::*;
    use crate::contract::convert::ToWit;
    use crate::guest_log::GuestLog;
    use crate::runtime::limits::Limits;
    use crate::runtime::store::memory::{EngineMemory, InstanceMemory};

    #[tokio::test]
    async fn json_in_a_request_counts_to_the_memory_as_it_is_after_parsing() {
        let limits = Limits { memory: 4 << 20, ..Limits::default() };
        let engine = EngineMemory::new(1 << 30, 1 << 30);
        let memory = InstanceMemory::new(limits.clone(), engine.clone(), None);
        let log = GuestLog::new("made".into(), None, &limits);
        let usage = Arc::new(CallUsage::new(limits, log, memory));
        let requests = LiveRequests { queue: LiveRequestQueue::new(MAX_UNREAD_REQUESTS), usage };
        let message = |args: Value| {
            let args = args.as_object().cloned().unwrap_or_default();
            let call = PartData::FunctionCall(FunctionCall { name: "f".into(), args, ..FunctionCall::default() });
            let content = Content::new("user", vec![call.into()]).to_wit();
            wit::LiveRequest::Content(wit::LiveMessage { content, partial: false })
        };
        requests.send(message(json!({"a": "x".repeat(400_000)}))).await.unwrap();
        let held = engine.used_bytes();
        assert!(held > 400_000, "{held}");
        let error = requests.send(message(json!({"a": vec![0; 200_000]}))).await.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("LIMIT_REACHED", "it exceeded its limit of 4 MiB of memory")
        );
        assert_eq!(engine.used_bytes(), held);
    }
}
