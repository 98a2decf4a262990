//! Tool calls of a live model, which run concurrently with the conversation.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use hatchery_core::{
    AgentContext, Content, Event, FunctionCall, FunctionResponse, JsonMap, PartData, RunError, USER_AUTHOR,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::llm::LoopDriver;
use crate::tools::pipeline::error_map;

/// The calls of one message of the model, once they have ended.
pub(super) enum FinishedBatch {
    /// The event with the results; `None` if all of them come later.
    Called(Result<Option<Arc<Event>>, RunError>),
    /// The event with the calls, which the model has cancelled.
    Cancelled(Arc<Event>),
}

/// The calls of one message of the model.
type Batch<'a> = BoxFuture<'a, FinishedBatch>;

/// The calls in progress.
#[derive(Default)]
pub(super) struct RunningBatches<'a> {
    running: FuturesUnordered<Batch<'a>>,
    /// Calls that have ended while something else was awaited.
    finished: VecDeque<FinishedBatch>,
}

impl<'a> RunningBatches<'a> {
    /// Runs the calls that were started since.
    pub(super) fn run_started(&mut self, tools: &mut RunningTools<'a>) {
        self.running.extend(tools.started.drain(..));
    }

    /// Returns the next batch of calls that has ended. Never returns if there are none. Cancel safe.
    pub(super) async fn next(&mut self) -> FinishedBatch {
        if let Some(batch) = self.finished.pop_front() {
            return batch;
        }
        match self.running.next().await {
            Some(batch) => batch,
            None => pending().await,
        }
    }

    /// Awaits `work` while the calls continue: they may hold a resource that it waits for, and have timeouts of their
    /// own.
    pub(super) async fn run_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                result = &mut work => return result,
                Some(batch) = self.running.next() => self.finished.push_back(batch),
            }
        }
    }
}

/// The calls of the model: which are to be started, how they are cancelled, and whose responses it expects.
#[derive(Default)]
pub(super) struct RunningTools<'a> {
    /// Calls that do not run yet.
    started: Vec<Batch<'a>>,
    tokens: Vec<(HashSet<String>, CancellationToken)>,
    /// Whether the model expects the response to each call that has none yet, by the id of the call.
    is_expected: HashMap<String, bool>,
}

impl<'a> RunningTools<'a> {
    /// Starts the calls of an event. They run once [`RunningBatches`] has them.
    pub(super) fn start(&mut self, driver: &'a LoopDriver<'a>, event: Arc<Event>) {
        let ids: HashSet<String> = event.function_calls().filter_map(|call| call.id.clone()).collect();
        self.is_expected.extend(ids.iter().map(|id| (id.clone(), true)));
        let token = CancellationToken::new();
        self.tokens.retain(|(_, token)| !token.is_cancelled());
        self.tokens.push((ids, token.clone()));
        let cx = batch_context(driver.cx);
        self.started.push(Box::pin(async move {
            // Cancelled by its own end, too, so that it is forgotten.
            let guard = token.clone().drop_guard();
            let driver = driver.in_context(&cx);
            let result = match token.run_until_cancelled(driver.call_tools(&event)).await {
                Some(result) => FinishedBatch::Called(result.map(|results| results.event)),
                None => FinishedBatch::Cancelled(event),
            };
            drop(guard);
            result
        }));
    }

    /// Cancels calls. The calls of one message run together, so they end once all of them are cancelled. Unknown ids
    /// are not kept: the model of a component can send any number of them.
    pub(super) fn cancel(&mut self, ids: &[String]) {
        for id in ids {
            if let Some(is_expected) = self.is_expected.get_mut(id) {
                *is_expected = false;
            }
        }
        for (ids, token) in &self.tokens {
            if !ids.iter().any(|id| self.expects(id)) {
                token.cancel();
            }
        }
    }

    /// Returns false if the model has cancelled the call with this id.
    fn expects(&self, id: &str) -> bool {
        self.is_expected.get(id) != Some(&false)
    }

    /// Removes the calls to which an event responds. Returns the responses that the model expects.
    pub(super) fn take_responses(&mut self, event: &Event) -> Vec<FunctionResponse> {
        let mut responses: Vec<_> = event.function_responses().cloned().collect();
        responses.retain(|response| response.id.as_ref().is_none_or(|id| self.is_expected.remove(id) != Some(false)));
        responses
    }

    /// Removes the calls of an event, which the model has cancelled.
    pub(super) fn forget(&mut self, event: &Event) {
        for id in event.function_calls().filter_map(|call| call.id.as_ref()) {
            self.is_expected.remove(id);
        }
    }
}

/// Returns a context for the events of one message's calls. Its changes are its own: the callbacks of the model may be
/// in progress, and their changes belong to the model's response.
pub(super) fn batch_context(cx: &AgentContext) -> AgentContext {
    AgentContext { call: cx.call.for_call(None), sink: cx.sink.clone() }
}

/// Returns the error response to a call that a callback has removed.
pub(super) fn removal_response(FunctionCall { id, name, .. }: FunctionCall) -> FunctionResponse {
    let response = error_map("the call was not allowed, and has not happened");
    FunctionResponse { id, name, response, ..FunctionResponse::default() }
}

/// Returns a message in which each call of an event has the same response.
pub(super) fn responses_to(event: &Event, response: &Value) -> Content {
    let response: JsonMap = response.as_object().cloned().unwrap_or_default();
    let parts = event.function_calls().map(|call| {
        let (id, name, response) = (call.id.clone(), call.name.clone(), response.clone());
        PartData::FunctionResponse(FunctionResponse { id, name, response, ..FunctionResponse::default() }).into()
    });
    Content::new(USER_AUTHOR, parts.collect())
}
