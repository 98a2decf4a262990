//! Live conversations: recording them, and playing them again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{Blob, JsonMap, LiveConnection, LiveRequest, LiveResponse, ModelError, pluralize};
use tokio::sync::Notify;

use crate::call_recorder::{CallId, CallRecorder};
use crate::{LiveCall, LiveStep, compare};

/// Returns the recorded form of a request: without the bytes of sounds and images, and without state, which is part of
/// the user's message.
pub(crate) fn recorded_request(request: &LiveRequest) -> LiveRequest {
    match request {
        LiveRequest::Blob(blob) => LiveRequest::Blob(Blob { mime_type: blob.mime_type.clone(), ..Blob::default() }),
        LiveRequest::Content { content, partial, state_delta: _ } => {
            LiveRequest::Content { content: content.clone(), partial: *partial, state_delta: JsonMap::new() }
        }
        request @ (LiveRequest::ActivityStart
        | LiveRequest::ActivityEnd
        | LiveRequest::AudioStreamEnd
        | LiveRequest::ToolResponses(_)
        | LiveRequest::Close) => request.clone(),
    }
}

/// Wrapper that records the messages of a connection.
pub(crate) struct RecordedConnection {
    pub(crate) connection: Box<dyn LiveConnection>,
    pub(crate) calls: Arc<CallRecorder>,
    pub(crate) id: CallId,
}

#[async_trait]
impl LiveConnection for RecordedConnection {
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError> {
        // Recorded before it is sent, so that it precedes the model's response.
        self.calls.add_step(self.id, LiveStep::Sent(recorded_request(&request)));
        self.connection.send(request).await.inspect_err(|error| self.calls.set_error(self.id, error))
    }

    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>> {
        let received = self.connection.receive().await;
        match &received {
            Some(Ok(response)) => self.calls.add_step(self.id, LiveStep::Received(response.clone())),
            Some(Err(error)) => self.calls.set_error(self.id, error),
            None => self.calls.add_step(self.id, LiveStep::Closed),
        }
        received
    }

    async fn close(&self) {
        self.connection.close().await;
    }
}

/// A request that differs from the recorded one.
pub(crate) type Difference = String;

/// Replays a recorded conversation. A response is received once all requests before it have been sent.
pub(crate) struct ReplayedConnection {
    state: Mutex<State>,
    /// Notified of each request.
    request_sent: Notify,
    /// Reports a request that differs. Returns the error of the connection.
    report: Box<dyn Fn(Difference) -> ModelError + Send + Sync>,
}

struct State {
    steps: VecDeque<LiveStep>,
    /// The number of steps at the beginning that are requests and have been sent.
    sent_requests: usize,
    /// The media type of the audio that is being sent. Any number of chunks may follow.
    sound: Option<String>,
    error: Option<ModelError>,
}

/// The next step of a replayed connection.
enum NextStep {
    Received(Option<Result<LiveResponse, ModelError>>),
    /// Waits for a request.
    Wait,
}

impl ReplayedConnection {
    pub(crate) fn new(call: LiveCall, report: impl Fn(Difference) -> ModelError + Send + Sync + 'static) -> Self {
        let LiveCall { request: _, steps, error } = call;
        let state = State { steps: steps.into(), sent_requests: 0, sound: None, error };
        Self { state: Mutex::new(state), request_sent: Notify::new(), report: Box::new(report) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_unpoisoned()
    }
}

impl State {
    /// Compares a request with the next recorded one.
    fn send(&mut self, request: &LiveRequest) -> Result<(), Difference> {
        if let LiveRequest::Blob(blob) = request
            && self.sound.as_ref() == Some(&blob.mime_type)
            && !self.waits_for_sound()
        {
            return Ok(());
        }
        let is_request = |step: &&LiveStep| matches!(step, LiveStep::Sent(_));
        let recorded = self.steps.iter().filter(is_request).nth(self.sent_requests);
        let Some(LiveStep::Sent(recorded)) = recorded else {
            return Err("the recording has no more requests of this conversation".into());
        };
        let actual = recorded_request(request);
        if let Some(diff) = compare::diff_live_requests(recorded, &actual) {
            return Err(format!("the live request differs from the recorded one\n{diff}"));
        }
        self.sound = if let LiveRequest::Blob(Blob { mime_type, .. }) = actual { Some(mime_type) } else { None };
        self.sent_requests += 1;
        Ok(())
    }

    /// Returns true if everything before the next sound was played.
    fn waits_for_sound(&self) -> bool {
        self.sent_requests == 0 && matches!(self.steps.front(), Some(LiveStep::Sent(LiveRequest::Blob(_))))
    }

    fn next(&mut self) -> NextStep {
        loop {
            match self.steps.front() {
                Some(LiveStep::Sent(_)) if self.sent_requests == 0 => return NextStep::Wait,
                Some(LiveStep::Sent(_)) => {
                    self.sent_requests -= 1;
                    self.steps.pop_front();
                }
                Some(LiveStep::Received(_)) => {
                    let Some(LiveStep::Received(response)) = self.steps.pop_front() else { return NextStep::Wait };
                    return NextStep::Received(Some(Ok(response)));
                }
                Some(LiveStep::Closed) => return NextStep::Received(None),
                None => match self.error.take() {
                    Some(error) => {
                        self.steps.push_back(LiveStep::Closed);
                        return NextStep::Received(Some(Err(error)));
                    }
                    None => return NextStep::Wait,
                },
            }
        }
    }
}

#[async_trait]
impl LiveConnection for ReplayedConnection {
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError> {
        let result = self.state().send(&request);
        self.request_sent.notify_one();
        result.map_err(|difference| (self.report)(difference))
    }

    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>> {
        loop {
            let request_sent = self.request_sent.notified();
            if let NextStep::Received(received) = self.state().next() {
                return received;
            }
            request_sent.await;
        }
    }

    async fn close(&self) {
        let missing = {
            let state = self.state();
            let requests = state.steps.iter().filter(|step| matches!(step, LiveStep::Sent(_))).count();
            requests - state.sent_requests.min(requests)
        };
        if missing > 0 {
            let requests = pluralize(missing, "recorded request", "recorded requests");
            (self.report)(format!("the conversation ended without {requests}"));
        }
    }
}
