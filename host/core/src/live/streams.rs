//! Streaming tools: they run during a live conversation, and send the model one result after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::StreamExt;
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::LiveRequestQueue;
use crate::error::ToolError;
use crate::sync::MutexExt;

/// Maximum number of requests that a tool has not read. It misses further ones.
const MAX_UNREAD_REQUESTS: usize = 64;

/// The results of a streaming tool, in order. The tool ends with the stream.
pub type LiveResults = BoxStream<'static, Value>;

/// A streaming tool that has begun.
pub struct LiveStream {
    /// The name of the tool.
    pub name: String,
    /// Its results, until it is stopped.
    pub results: LiveResults,
    /// The requests that the user sends while the tool runs. Closed once the tool has ended.
    pub input: LiveRequestQueue,
}

/// The streaming tools of a live conversation. Clones share them.
#[derive(Clone, Default)]
pub struct LiveStreams(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// `None` outside of a live conversation.
    started: Option<mpsc::UnboundedSender<LiveStream>>,
    /// The tools in progress by name, each with its number.
    running: HashMap<String, (u64, CancellationToken)>,
    /// The number of the newest tool.
    newest: u64,
}

impl LiveStreams {
    /// Begins a conversation. Returns the tools that begin during it.
    pub fn open(&self) -> mpsc::UnboundedReceiver<LiveStream> {
        let (sender, receiver) = mpsc::unbounded();
        self.0.lock_unpoisoned().started = Some(sender);
        receiver
    }

    /// Ends the conversation, and all tools in it.
    pub fn close(&self) {
        let mut state = self.0.lock_unpoisoned();
        state.started = None;
        state.running.drain().for_each(|(_, (_, token))| token.cancel());
    }

    /// Starts a tool, and stops an earlier one of this name. Returns the result of the call that has started it.
    pub(crate) fn start(
        &self,
        name: &str,
        start: impl FnOnce(LiveRequestQueue) -> LiveResults,
    ) -> Result<Value, ToolError> {
        let (input, token) = (LiveRequestQueue::new(MAX_UNREAD_REQUESTS), CancellationToken::new());
        let number = self.next_number();
        let (ended, streams, tool) = (input.clone(), self.clone(), name.to_owned());
        let end = stream::poll_fn(move |_| {
            ended.close();
            streams.remove(&tool, number);
            Poll::Ready(None)
        });
        let results = start(input.clone()).take_until(token.clone().cancelled_owned()).chain(end).boxed();
        let mut state = self.0.lock_unpoisoned();
        let stream = LiveStream { name: name.to_owned(), results, input };
        let is_started = state.started.as_ref().is_some_and(|started| started.unbounded_send(stream).is_ok());
        if !is_started {
            let message = "this tool works in live conversations only, with a model that hears and speaks";
            return Err(ToolError::Recoverable(message.into()));
        }
        if let Some((_, earlier)) = state.running.insert(name.to_owned(), (number, token)) {
            earlier.cancel();
        }
        Ok(json!({"status": "The function is running asynchronously and the results are pending."}))
    }

    fn next_number(&self) -> u64 {
        let mut state = self.0.lock_unpoisoned();
        state.newest += 1;
        state.newest
    }

    /// Removes a tool that has ended, unless a later one has its name.
    fn remove(&self, name: &str, number: u64) {
        let mut state = self.0.lock_unpoisoned();
        if state.running.get(name).is_some_and(|(running, _)| *running == number) {
            state.running.remove(name);
        }
    }

    /// Returns the names of the tools in progress, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.lock_unpoisoned().running.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Stops a tool. Returns false if none of this name is in progress.
    pub fn stop(&self, name: &str) -> bool {
        let stopped = self.0.lock_unpoisoned().running.remove(name);
        stopped.map(|(_, token)| token.cancel()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn a_tool_is_in_progress_until_its_results_end() {
        let streams = LiveStreams::default();
        let mut started = streams.open();
        streams.start("count", |_| stream::iter([json!(1)]).boxed()).unwrap();
        assert_eq!(streams.names(), ["count"]);
        let LiveStream { results, input, .. } = block_on(started.next()).unwrap();
        assert_eq!(block_on(results.collect::<Vec<_>>()), [json!(1)]);
        assert!(input.is_closed() && streams.names().is_empty());
        assert!(!streams.stop("count"));
    }

    #[test]
    fn the_end_of_a_tool_leaves_a_later_one_of_its_name_in_progress() {
        let streams = LiveStreams::default();
        let mut started = streams.open();
        for _ in 0..2 {
            streams.start("count", |_| stream::pending().boxed()).unwrap();
        }
        let [earlier, later] = [(); 2].map(|()| block_on(started.next()).unwrap());
        assert_eq!(block_on(earlier.results.count()), 0);
        assert!(earlier.input.is_closed() && !later.input.is_closed());
        assert_eq!(streams.names(), ["count"]);
        assert!(streams.stop("count") && !streams.stop("count"));
        assert_eq!(block_on(later.results.count()), 0);
    }
}
