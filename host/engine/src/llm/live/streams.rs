//! The streaming tools of a conversation.

use std::future::pending;

use futures::channel::mpsc::UnboundedReceiver;
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use hatchery_core::{Content, LiveRequest, LiveRequestQueue, LiveStream, LiveStreams};
use serde_json::Value;

/// The streaming tools in progress. Dropping it stops them.
pub(super) struct RunningStreams {
    streams: LiveStreams,
    started: UnboundedReceiver<LiveStream>,
    /// The results of all tools, as requests to the model.
    results: SelectAll<BoxStream<'static, LiveRequest>>,
    inputs: Vec<LiveRequestQueue>,
}

impl RunningStreams {
    /// Begins a conversation with these streaming tools.
    pub(super) fn open(streams: &LiveStreams) -> Self {
        let started = streams.open();
        Self { streams: streams.clone(), started, results: SelectAll::new(), inputs: Vec::new() }
    }

    /// Starts to read the results of the tools that have started. Call it after the result of the call was added to the
    /// requests.
    pub(super) fn read_started(&mut self) {
        while let Some(Some(LiveStream { name, results, input })) = self.started.next().now_or_never() {
            self.inputs.push(input);
            let message =
                move |result: Value| LiveRequest::content(Content::user(format!("Function {name} returned: {result}")));
            self.results.push(results.map(message).boxed());
        }
    }

    /// Returns the next result as a message for the model. Never returns if there are no tools. Cancel safe.
    pub(super) async fn next(&mut self) -> LiveRequest {
        match self.results.next().await {
            Some(message) => message,
            None => pending().await,
        }
    }

    /// Passes a request of the user on to the tools. One that has too many unread requests misses it.
    pub(super) fn pass_on(&mut self, request: &LiveRequest) {
        self.inputs.retain(|input| !input.is_closed());
        for input in &self.inputs {
            let _ = input.send(request.clone()).now_or_never();
        }
    }
}

impl Drop for RunningStreams {
    fn drop(&mut self) {
        self.streams.close();
    }
}
