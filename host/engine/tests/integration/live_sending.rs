//! Requests that a live model does not take at once, or not at all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    Blob, Content, LiveConnection, LiveRequest, LiveResponse, LlmRequest, Model, ModelCapabilities, ModelError,
    ModelRef, ResponseStream, StreamingMode,
};
use hatchery_models::scripted::Scripted;
use tokio::sync::{Notify, Semaphore};

use crate::support::live::*;
use crate::support::*;

/// The chunks of each answer.
const CHUNKS: usize = 200;

/// A live model that takes its next request once all messages about the one before were received.
struct OneAtATime;

struct Connection {
    /// A permit while a request is taken.
    takes: Semaphore,
    messages: Mutex<VecDeque<LiveResponse>>,
    arrived: Notify,
}

/// Returns the messages about one request.
fn answer() -> impl Iterator<Item = LiveResponse> {
    let chunks = std::iter::repeat_n(LiveResponse::Content(Content::model("a")), CHUNKS);
    chunks.chain([LiveResponse::TurnComplete])
}

#[async_trait]
impl Model for OneAtATime {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        panic!("called without a connection: {request:?}")
    }

    async fn connect(&self, _: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        // The first message is in the request.
        let messages = Mutex::new(answer().collect());
        Ok(Box::new(Connection { takes: Semaphore::new(0), messages, arrived: Notify::new() }))
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities { live: true, ..ModelCapabilities::default() }
    }
}

#[async_trait]
impl LiveConnection for Connection {
    async fn send(&self, _: LiveRequest) -> Result<(), ModelError> {
        self.takes.acquire().await.unwrap().forget();
        self.messages.lock().unwrap().extend(answer());
        self.arrived.notify_one();
        Ok(())
    }

    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>> {
        // Leaves the client time for another request.
        tokio::task::yield_now().await;
        loop {
            {
                let mut messages = self.messages.lock().unwrap();
                if let Some(message) = messages.pop_front() {
                    self.takes.add_permits(usize::from(messages.is_empty()));
                    return Some(Ok(message));
                }
            }
            self.arrived.notified().await;
        }
    }

    async fn close(&self) {}
}

#[tokio::test]
async fn the_messages_of_a_model_are_received_while_it_takes_no_request() {
    let root = llm_with("root", Scripted::new(), |llm| {
        llm.model = Some(ModelRef::Object("live".into(), Arc::new(OneAtATime)));
    });
    let app = Harness::new(root).await;
    let mut live = Live::start(&app).await;
    for text in ["one", "two"] {
        live.queue.send_content(Content::user(text)).await.unwrap();
    }
    for _ in 0..2 {
        let turn = tokio::time::timeout(Duration::from_secs(20), live.turn()).await;
        assert_eq!(turn.expect("the conversation stands still"), [format!("root: {}", "a".repeat(CHUNKS))]);
    }
    live.finish().await;
    let expected = ["user: one", "user: two"].map(String::from);
    let stored = app.session_transcript().await;
    assert_eq!(stored.iter().filter(|line| line.starts_with("user")).collect::<Vec<_>>(), expected.each_ref());
}

#[tokio::test]
async fn what_was_said_is_stored_before_a_conversation_fails() {
    let model = LiveModel::new([vec![transcription("half a "), transcription("word")]]);
    let app = Harness::new(model.agent("root", |_| {})).await;
    let Live { mut run, queue } = Live::start(&app).await;
    queue.send_content(Content::user("hi")).await.unwrap();
    for _ in 0..2 {
        assert!(run.next().await.unwrap().unwrap().partial);
    }
    let document = Blob { mime_type: "application/pdf".into(), data: vec![1].into(), display_name: None };
    queue.send(LiveRequest::Blob(document)).await.unwrap();
    let error = loop {
        if let Err(error) = run.next().await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.to_string(), "no documents");
    app.runner.drain().await;
    let stored: Vec<_> = app.session().await.events.iter().map(|event| line(event)).collect();
    assert_eq!(stored, ["user: hi", "root: “half a word”", "root: error BAD_INPUT: no documents"]);
}
