//! A live model that plays scripts, and a client of a live run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Agent, Blob, Content, Event, FunctionCall, LiveConnection, LiveRequest, LiveRequestQueue, LiveResponse, LlmAgent,
    LlmRequest, Model, ModelCapabilities, ModelError, ModelErrorKind, ModelRef, ResponseStream, RunError,
    StreamingMode, Transcription, UsageMetadata,
};
use hatchery_engine::{LiveRunRequest, Run};
use hatchery_models::scripted::Scripted;
use hatchery_test_support::{Harness, SESSION, USER, brief, llm_with, map};
use serde_json::Value;
use tokio::sync::mpsc;

use super::tool_response;

/// A step of a connection.
pub enum Step {
    /// The agent sends this request.
    Expect(LiveRequest),
    /// The model sends this message.
    Send(LiveResponse),
    /// The connection breaks.
    Fail(ModelError),
}

/// A live model that plays one script per connection, and keeps the requests of connections. After its script a
/// connection waits.
pub struct LiveModel {
    scripts: Mutex<VecDeque<Vec<Step>>>,
    pub requests: Mutex<Vec<LlmRequest>>,
}

struct Connection {
    steps: Mutex<VecDeque<Step>>,
    sender: mpsc::UnboundedSender<LiveRequest>,
    receiver: tokio::sync::Mutex<mpsc::UnboundedReceiver<LiveRequest>>,
}

#[async_trait]
impl Model for LiveModel {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        panic!("called without a connection: {request:?}")
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        request.progress.set_provider("test.live");
        self.requests.lock().unwrap().push(request);
        let steps = self.scripts.lock().unwrap().pop_front().expect("a script for each connection");
        let (sender, receiver) = mpsc::unbounded_channel();
        Ok(Box::new(Connection { steps: Mutex::new(steps.into()), sender, receiver: receiver.into() }))
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities { live: true, ..ModelCapabilities::default() }
    }
}

#[async_trait]
impl LiveConnection for Connection {
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError> {
        if let LiveRequest::Blob(blob) = &request
            && blob.mime_type == "application/pdf"
        {
            return Err(ModelError::new(ModelErrorKind::BadRequest, "live", "no documents"));
        }
        self.sender.send(request).unwrap();
        Ok(())
    }

    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>> {
        loop {
            let waits = matches!(self.steps.lock().unwrap().front(), None | Some(Step::Expect(_)));
            let request = if waits { self.receiver.lock().await.recv().await } else { None };
            match (self.steps.lock().unwrap().pop_front(), request) {
                (Some(Step::Send(response)), _) => return Some(Ok(response)),
                (Some(Step::Fail(error)), _) => return Some(Err(error)),
                (Some(Step::Expect(expected)), request) => assert_eq!(request, Some(expected)),
                (None, request) => panic!("unexpected: {request:?}"),
            }
        }
    }

    async fn close(&self) {}
}

impl LiveModel {
    pub fn new(scripts: impl IntoIterator<Item = Vec<Step>>) -> Arc<Self> {
        Arc::new(Self { scripts: Mutex::new(scripts.into_iter().collect()), requests: Mutex::default() })
    }

    pub fn agent(self: &Arc<Self>, name: &str, change: impl FnOnce(&mut LlmAgent)) -> Agent {
        llm_with(name, Scripted::new(), |llm| {
            llm.model = Some(ModelRef::Object("live".into(), self.clone()));
            change(llm);
        })
    }

    /// Returns the texts of the history that a connection has got.
    pub fn history(&self, connection: usize) -> Vec<String> {
        self.requests.lock().unwrap()[connection].contents.iter().map(|content| content.text()).collect()
    }
}

pub fn transcription(text: &str) -> Step {
    Step::Send(LiveResponse::OutputTranscription(Transcription { text: text.into(), finished: false }))
}

pub fn text_reply(text: &str) -> Step {
    Step::Send(LiveResponse::Content(Content::model(text)))
}

pub fn complete() -> Step {
    Step::Send(LiveResponse::TurnComplete)
}

pub fn call(id: &str, name: &str, args: Value) -> Step {
    let call = FunctionCall { id: Some(id.into()), name: name.into(), args: map(args), ..FunctionCall::default() };
    Step::Send(LiveResponse::ToolCalls(vec![call]))
}

pub fn result(id: &str, name: &str, response: Value) -> Step {
    let content = tool_response(id, name, response);
    Step::Expect(LiveRequest::ToolResponses(content.function_responses().cloned().collect()))
}

pub fn used(prompt: u64) -> Step {
    let usage = UsageMetadata { prompt_token_count: Some(prompt), ..UsageMetadata::default() };
    Step::Send(LiveResponse::Usage(usage))
}

pub fn audio() -> LiveRequest {
    LiveRequest::Blob(Blob { mime_type: "audio/pcm".into(), data: vec![1].into(), display_name: None })
}

/// A live run in progress.
pub struct Live {
    pub run: Run,
    pub queue: LiveRequestQueue,
}

impl Live {
    pub async fn start(app: &Harness) -> Self {
        Self::start_with(app, LiveRunRequest::new(USER, SESSION)).await
    }

    pub async fn start_with(app: &Harness, request: LiveRunRequest) -> Self {
        let queue = LiveRequestQueue::new(8);
        let request = LiveRunRequest { config: app.config.clone(), ..request };
        Self { run: app.runner.run_live(app.app.clone(), request, queue.clone()).await.unwrap(), queue }
    }

    /// Returns the complete events up to the end of a turn, in short form.
    pub async fn turn(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        loop {
            let event = self.run.next().await.unwrap().unwrap();
            if !event.partial && (event.content.is_some() || event.output_transcription.is_some()) {
                events.push(line(&event));
            }
            if event.turn_complete == Some(true) {
                return events;
            }
        }
    }

    pub async fn ask(&mut self, text: &str) -> Vec<String> {
        self.queue.send_content(Content::user(text)).await.unwrap();
        self.turn().await
    }

    /// Closes the queue, and checks that the run ends without an error.
    pub async fn finish(self) {
        if let Some(error) = self.end().await {
            panic!("{error}");
        }
    }

    /// Closes the queue, and returns the error of the run.
    pub async fn end(mut self) -> Option<RunError> {
        self.queue.close();
        loop {
            match self.run.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Some(error),
                None => return None,
            }
        }
    }
}

pub fn line(event: &Event) -> String {
    match &event.output_transcription {
        Some(transcription) => format!("{}: “{}”", event.author, transcription["text"].as_str().unwrap()),
        None => brief(event),
    }
}
