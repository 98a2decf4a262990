//! Live conversations are recorded and played again.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Agent, Blob, Content, Event, FunctionCall, LiveConnection, LiveRequest, LiveRequestQueue, LiveResponse, LlmRequest,
    Model, ModelCapabilities, ModelError, ModelErrorKind, ModelRef, PartData, ResponseStream, RunError, StreamingMode,
    Tool, Transcription, UsageMetadata,
};
use hatchery_engine::LiveRunRequest;
use hatchery_recordings::{LiveStep, RecordedCall};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::support::*;

/// A live model that repeats its input, counts by two at `count`, and fails at `fail`.
struct Parrot;

struct Connection {
    sender: mpsc::UnboundedSender<Result<LiveResponse, ModelError>>,
    receiver: tokio::sync::Mutex<mpsc::UnboundedReceiver<Result<LiveResponse, ModelError>>>,
}

#[async_trait]
impl Model for Parrot {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        panic!("called without a connection: {request:?}")
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let connection = Connection { sender, receiver: receiver.into() };
        if let Some(message) = request.contents.last().filter(|content| content.role.as_deref() == Some("user")) {
            connection.send(LiveRequest::content(Content::clone(message))).await?;
        }
        Ok(Box::new(connection))
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities { live: true, ..ModelCapabilities::default() }
    }
}

fn transcription(text: &str) -> Transcription {
    Transcription { text: text.into(), finished: true }
}

#[async_trait]
impl LiveConnection for Connection {
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError> {
        let say = |response| self.sender.send(Ok(response)).unwrap();
        match request {
            LiveRequest::Content { content, .. } => match content.text().as_str() {
                "count" => {
                    let args = map(json!({"by": 2}));
                    let call =
                        FunctionCall { id: Some("c1".into()), name: "count".into(), args, ..FunctionCall::default() };
                    say(LiveResponse::ToolCalls(vec![call]));
                    return Ok(());
                }
                "fail" => {
                    let error = ModelError::new(ModelErrorKind::Server, "parrot", "it has flown away");
                    self.sender.send(Err(error)).unwrap();
                    return Ok(());
                }
                text => say(LiveResponse::Content(Content::model(text))),
            },
            LiveRequest::Blob(blob) => {
                say(LiveResponse::InputTranscription(transcription("squawk")));
                say(LiveResponse::Content(Content::new("model", vec![PartData::InlineData(blob).into()])));
                say(LiveResponse::OutputTranscription(transcription("squawk!")));
            }
            LiveRequest::ToolResponses(responses) => {
                say(LiveResponse::Content(Content::model(Value::Object(responses[0].response.clone()).to_string())));
            }
            request => panic!("unexpected: {request:?}"),
        }
        say(LiveResponse::Usage(UsageMetadata { total_token_count: Some(3), ..UsageMetadata::default() }));
        say(LiveResponse::TurnComplete);
        Ok(())
    }

    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>> {
        self.receiver.lock().await.recv().await
    }

    async fn close(&self) {}
}

/// A live model that must not be connected to.
struct Silent;

#[async_trait]
impl Model for Silent {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        panic!("a replay calls no model: {request:?}")
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        panic!("a replay connects to no model: {request:?}")
    }

    fn capabilities(&self) -> ModelCapabilities {
        Parrot.capabilities()
    }
}

fn agent(model: Arc<dyn Model>, tool: Arc<dyn Tool>) -> Agent {
    llm_with("root", no_replies(), |llm| {
        llm.model = Some(ModelRef::Object("parrot".into(), model));
        llm.tools = vec![tool];
    })
}

async fn recorded(folder: &TempDir) -> Harness {
    recording(folder, agent(Arc::new(Parrot), count_tool())).await
}

async fn replayed(folder: &TempDir) -> Harness {
    replaying(folder, agent(Arc::new(Silent), never_called("count"))).await
}

fn text(text: &str) -> LiveRequest {
    LiveRequest::content(Content::user(text))
}

fn sound(data: &[u8]) -> LiveRequest {
    LiveRequest::Blob(Blob { mime_type: "audio/pcm".into(), data: data.to_vec().into(), display_name: None })
}

/// Holds a conversation, and reads until the end of each turn. Returns its events in short form, and the error of the
/// run.
async fn converse(app: &Harness, requests: Vec<LiveRequest>) -> (Vec<Value>, Option<RunError>) {
    let queue = LiveRequestQueue::new(8);
    let request = LiveRunRequest { config: app.config.clone(), ..LiveRunRequest::new(USER, SESSION) };
    let mut run = app.runner.run_live(app.app.clone(), request, queue.clone()).await.unwrap();
    let events = Mutex::new(Vec::new());
    let add = |event: &Event| events.lock().unwrap().push(short(event));
    for request in requests {
        queue.send(request).await.unwrap();
        loop {
            match run.next().await {
                Some(Ok(event)) => {
                    add(&event);
                    if event.turn_complete == Some(true) {
                        break;
                    }
                }
                Some(Err(error)) => return (events.into_inner().unwrap(), Some(error)),
                None => return (events.into_inner().unwrap(), None),
            }
        }
    }
    queue.close();
    while let Some(event) = run.next().await {
        match event {
            Ok(event) => add(&event),
            Err(error) => return (events.into_inner().unwrap(), Some(error)),
        }
    }
    (events.into_inner().unwrap(), None)
}

/// Returns an event as clients see it, without ids and times.
fn short(event: &Event) -> Value {
    let mut json = serde_json::to_value(event).unwrap();
    for key in ["id", "invocationId", "timestamp"] {
        json.as_object_mut().unwrap().remove(key);
    }
    json
}

#[tokio::test]
async fn a_replayed_conversation_has_the_same_events_and_state_without_model_and_tools() {
    let folder = tempfile::tempdir().unwrap();
    let conversation = || vec![text("hello"), text("count"), sound(&[1, 2, 3])];
    let app = recorded(&folder).await;
    let (events, error) = converse(&app, conversation()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(app.state().await, json!({"count": 2}));
    assert_eq!(calls(&read_recording(folder.path())), ["0 root: live", "0 root: count{\"by\":2}"]);
    let again = replayed(&folder).await;
    let (replayed, error) = converse(&again, conversation()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(replayed, events);
    assert_eq!(again.state().await, json!({"count": 2}));
}

#[tokio::test]
async fn the_messages_of_a_conversation_are_user_messages_and_the_next_run_follows_them() {
    let folder = tempfile::tempdir().unwrap();
    let app = recorded(&folder).await;
    assert!(converse(&app, vec![sound(&[1]), sound(&[2]), text("hello")]).await.1.is_none());
    assert!(converse(&app, vec![text("bye")]).await.1.is_none());
    let file = read_recording(folder.path());
    let messages: Vec<_> = file.user_messages.iter().map(|message| message.content.text()).collect();
    assert_eq!(messages, ["squawk", "squawk", "hello", "bye"]);
    assert_eq!(calls(&file), ["0 root: live", "3 root: live"]);
    let RecordedCall::Live(live) = &file.recordings[0].call else { panic!("{file:?}") };
    let sent: Vec<_> = live.steps.iter().filter(|step| matches!(step, LiveStep::Sent(_))).collect();
    let silence = LiveRequest::Blob(Blob { mime_type: "audio/pcm".into(), ..Blob::default() });
    let silence = LiveStep::Sent(silence);
    assert_eq!(sent, [&silence, &silence, &LiveStep::Sent(text("hello"))], "speech is recorded without its sound");
    assert_eq!(hatchery_recordings::Recordings::parse(&file.to_yaml().unwrap()).unwrap(), file);
    let again = replayed(&folder).await;
    // Another user's voice takes other chunks.
    assert!(converse(&again, vec![sound(&[9, 9]), sound(&[9]), text("hello")]).await.1.is_none());
    let (events, error) = converse(&again, vec![text("bye")]).await;
    assert!(error.is_none(), "{error:?}");
    assert!(events.iter().any(|event| event["content"]["parts"][0]["text"] == "bye"), "{events:?}");
}

#[tokio::test]
async fn an_error_of_the_model_is_played_again() {
    let folder = tempfile::tempdir().unwrap();
    let error = converse(&recorded(&folder).await, vec![text("fail")]).await.1.unwrap();
    assert!(error.to_string().contains("it has flown away"), "{error}");
    let again = converse(&replayed(&folder).await, vec![text("fail")]).await.1.unwrap();
    assert_eq!((again.code(), again.to_string()), (error.code(), error.to_string()));
    assert_eq!(read_recording(folder.path()).user_messages[0].error_code.as_deref(), Some(error.code()));
}

#[tokio::test]
async fn another_request_ends_the_conversation_with_a_diff() {
    let folder = tempfile::tempdir().unwrap();
    assert!(converse(&recorded(&folder).await, vec![text("hello"), text("bye")]).await.1.is_none());
    let error = converse(&replayed(&folder).await, vec![text("hello"), text("adieu")]).await.1.unwrap();
    assert_eq!(error.code(), "REPLAY_MISMATCH");
    let message = error.to_string();
    assert!(message.starts_with("agent `root`: the live request differs from the recorded one\n"), "{message}");
    assert!(message.contains("bye") && message.contains("adieu"), "{message}");
    let error = converse(&replayed(&folder).await, vec![text("hello")]).await.1.unwrap();
    assert_eq!(error.to_string(), "agent `root`: the conversation ended without 1 recorded request");
    let more = vec![text("hello"), text("bye"), text("bye")];
    let error = converse(&replayed(&folder).await, more).await.1.unwrap();
    assert_eq!(error.to_string(), "agent `root`: the recording has no more requests of this conversation");
}

#[tokio::test]
async fn a_conversation_is_not_a_call_and_a_call_is_no_conversation() {
    let folder = tempfile::tempdir().unwrap();
    assert!(converse(&recorded(&folder).await, vec![text("hello")]).await.1.is_none());
    let (_, error) = replayed(&folder).await.expect_error("hello").await;
    assert!(
        error.to_string().contains("the model was called, but the recording has a live conversation here"),
        "{error}"
    );
    let folder = tempfile::tempdir().unwrap();
    recording(&folder, llm("root", hatchery_models::scripted::Scripted::sequence(["hi"]))).await.run("hello").await;
    let error = converse(&replayed(&folder).await, vec![text("hello")]).await.1.unwrap();
    let expected = "a live conversation was begun, but the recording has a call of the model here";
    assert!(error.to_string().contains(expected), "{error}");
}
