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
    /// The requests that the user sends meanwhile. Closed once the tool has ended.
    pub input: LiveRequestQueue,
}

/// The streaming tools of a live conversation. Clones share them.
#[derive(Clone, Default)]
pub struct LiveStreams(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// `None` outside of a live conversation.
    started: Option<mpsc::UnboundedSender<LiveStream>>,
    running: HashMap<String, CancellationToken>,
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
        state.running.drain().for_each(|(_, token)| token.cancel());
    }

    /// Starts a tool, and stops an earlier one of this name. Returns the result of the call that has started it.
    pub(crate) fn start(
        &self,
        name: &str,
        start: impl FnOnce(LiveRequestQueue) -> LiveResults,
    ) -> Result<Value, ToolError> {
        let (input, token) = (LiveRequestQueue::new(MAX_UNREAD_REQUESTS), CancellationToken::new());
        let ended = input.clone();
        let end = stream::poll_fn(move |_| {
            ended.close();
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
        if let Some(earlier) = state.running.insert(name.to_owned(), token) {
            earlier.cancel();
        }
        Ok(json!({"status": "The function is running asynchronously and the results are pending."}))
    }

    /// Stops a tool. Returns false if none of this name was started.
    pub fn stop(&self, name: &str) -> bool {
        let token = self.0.lock_unpoisoned().running.remove(name);
        token.map(|token| token.cancel()).is_some()
    }
}
