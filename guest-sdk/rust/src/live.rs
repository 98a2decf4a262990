//! Live conversations: [`LiveRequest`] and [`LiveResponse`], and the [`LiveModel`]s of a component.
//!
//! The code of a live model runs while its conversation lasts. It is never ahead of its readers by more than one
//! response.

use std::pin::pin;

use futures::channel::mpsc;
use futures::lock::Mutex;
use futures::stream::{self, LocalBoxStream};
use futures::{FutureExt, SinkExt, Stream, StreamExt, future};

use crate::bindings::live_models::exports::hatchery::agent::guest_live_models as wit;
use crate::bindings::live_models::wit_stream;
use crate::bindings::wit::types;
use crate::content::{Blob, Content, FunctionCall, FunctionResponse, JsonMap};
use crate::context::Context;
use crate::convert::{object, read};
use crate::error::Error;
use crate::export::{ExportList, find};
use crate::model::LlmRequest;
use crate::tool::LocalFuture;

/// A request in a live run, and to a live model.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveRequest {
    /// A message of the user.
    Content {
        /// The message, or a piece of it.
        content: Content,
        /// True if more of the same message follows.
        partial: bool,
    },
    /// A chunk of audio, or an image.
    Blob(Blob),
    /// The user starts to speak.
    ActivityStart,
    /// The user stops speaking.
    ActivityEnd,
    /// The microphone is off.
    AudioStreamEnd,
    /// The results of tool calls. Only live models get them, and only from the host.
    ToolResponses(Vec<FunctionResponse>),
}

impl LiveRequest {
    /// Creates a complete message of the user with one text.
    pub fn text(text: impl Into<String>) -> Self {
        Content::user(text).into()
    }
}

impl From<Content> for LiveRequest {
    fn from(content: Content) -> Self {
        Self::Content { content, partial: false }
    }
}

impl From<Blob> for LiveRequest {
    fn from(blob: Blob) -> Self {
        Self::Blob(blob)
    }
}

/// A part of a transcription.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcription {
    /// The text; in a chunk, only the new part.
    pub text: String,
    /// True if the utterance has ended.
    pub finished: bool,
}

/// A message of a live model.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveResponse {
    /// A chunk of text or audio, with new content only.
    Content(Content),
    /// A chunk of the transcription of the user's speech.
    InputTranscription(Transcription),
    /// A chunk of the transcription of the model's speech.
    OutputTranscription(Transcription),
    /// Calls of tools, each with an id. Their results arrive as [`LiveRequest::ToolResponses`].
    ToolCalls(Vec<FunctionCall>),
    /// The ids of calls whose results the model no longer expects.
    ToolCallsCancelled(Vec<String>),
    /// The user has interrupted the model.
    Interrupted,
    /// The model has finished its turn.
    TurnComplete,
    /// The tokens that were used since the last report, as in Gemini's `UsageMetadata`.
    Usage(JsonMap),
}

impl From<Content> for LiveResponse {
    fn from(content: Content) -> Self {
        Self::Content(content)
    }
}

/// A live model, made from an async function by [`#[live_model]`](macro@crate::live_model).
#[derive(Debug, Clone, Copy)]
pub struct LiveModel {
    /// Name of the model. Agents refer to it as `component:NAME/model`.
    pub name: &'static str,
    #[doc(hidden)]
    pub run: fn(LlmRequest, LiveConnection, Context) -> LocalFuture<Result<(), Error>>,
}

impl LiveModel {
    /// Returns the responses of the model to these requests; then the connection is closed. For unit tests.
    ///
    /// # Errors
    /// The error of the model.
    pub async fn converse(
        &self,
        request: LlmRequest,
        requests: impl IntoIterator<Item = LiveRequest>,
    ) -> Result<Vec<LiveResponse>, Error> {
        let requests: Vec<_> = requests.into_iter().map(Ok).collect();
        let responses = pin!(self.responses(request, JsonMap::new(), stream::iter(requests).boxed_local()));
        responses.collect::<Vec<_>>().await.into_iter().collect()
    }

    /// Streams the responses. The code advances while the next response is awaited.
    fn responses(
        &self,
        request: LlmRequest,
        config: JsonMap,
        requests: LocalBoxStream<'static, Result<LiveRequest, Error>>,
    ) -> impl Stream<Item = Result<LiveResponse, Error>> + use<> {
        let (sender, receiver) = mpsc::channel(0);
        let requests = Mutex::new(requests);
        let connection = LiveConnection { config, requests, responses: Mutex::new(sender) };
        let run = (self.run)(request, connection, Context::new());
        // The code waits until each response is taken, so its end comes after all of them.
        let end = run.into_stream().filter_map(|end| future::ready(end.err().map(Err)));
        stream::select(receiver.map(Ok), end)
    }
}

/// The connection of a live model to its client. Receiving and sending may overlap.
pub struct LiveConnection {
    config: JsonMap,
    requests: Mutex<LocalBoxStream<'static, Result<LiveRequest, Error>>>,
    responses: Mutex<mpsc::Sender<LiveResponse>>,
}

impl LiveConnection {
    /// Returns the settings of the connection, as in Gemini's `LiveConnectConfig`.
    pub fn config(&self) -> &JsonMap {
        &self.config
    }

    /// Returns the next request. `None` once the connection is closed: the code should return.
    ///
    /// # Errors
    /// If the host sends invalid JSON.
    pub async fn receive(&self) -> Result<Option<LiveRequest>, Error> {
        self.requests.lock().await.next().await.transpose()
    }

    /// Sends a chunk of text.
    ///
    /// # Errors
    /// See [`LiveConnection::send`].
    pub async fn say(&self, text: impl Into<String>) -> Result<(), Error> {
        self.send(Content::model(text)).await
    }

    /// Sends a response, and waits until it is taken.
    ///
    /// # Errors
    /// `CANCELLED` if the conversation has ended: return this error.
    pub async fn send(&self, response: impl Into<LiveResponse>) -> Result<(), Error> {
        let sent = self.responses.lock().await.send(response.into()).await;
        sent.map_err(|_| Error::new("CANCELLED", "the conversation of this model has ended"))
    }
}

/// Converts a response, or the error that ends a conversation.
fn to_wit(response: Result<LiveResponse, Error>) -> types::LiveResponse {
    match response {
        Ok(response) => response.into(),
        Err(error) => types::LiveResponse::Failed(error.into()),
    }
}

impl<S: ExportList<LiveModel>> wit::Guest for S {
    fn describe() -> Vec<String> {
        S::items().into_iter().map(|model| model.name.into()).collect()
    }

    async fn connect(
        name: String,
        request: types::LlmRequest,
        config: String,
        requests: wit_bindgen::StreamReader<types::LiveRequest>,
    ) -> Result<wit_bindgen::StreamReader<types::LiveResponse>, types::Error> {
        let model = find(S::items(), "live model", &name, |model| model.name)?;
        let (request, config) = (request.try_into()?, read(&config, "the settings of a live connection")?);
        let requests = stream::unfold(requests, |mut requests| async {
            let request = requests.next().await?;
            Some((LiveRequest::try_from(request), requests))
        });
        let mut responses = Box::pin(model.responses(request, config, requests.fuse().boxed_local()));
        let (mut writer, reader) = wit_stream::new();
        wit_bindgen::spawn_local(async move {
            while let Some(response) = responses.next().await {
                if writer.write_one(to_wit(response)).await.is_some() {
                    return;
                }
            }
        });
        Ok(reader)
    }
}

impl TryFrom<types::LiveRequest> for LiveRequest {
    type Error = Error;

    fn try_from(request: types::LiveRequest) -> Result<Self, Error> {
        Ok(match request {
            types::LiveRequest::Content(types::LiveMessage { content, partial }) => {
                Self::Content { content: content.try_into()?, partial }
            }
            types::LiveRequest::Blob(blob) => Self::Blob(blob.into()),
            types::LiveRequest::ActivityStart => Self::ActivityStart,
            types::LiveRequest::ActivityEnd => Self::ActivityEnd,
            types::LiveRequest::AudioStreamEnd => Self::AudioStreamEnd,
            types::LiveRequest::ToolResponses(responses) => {
                Self::ToolResponses(responses.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?)
            }
        })
    }
}

impl From<LiveRequest> for types::LiveRequest {
    fn from(request: LiveRequest) -> Self {
        match request {
            LiveRequest::Content { content, partial } => {
                Self::Content(types::LiveMessage { content: content.into(), partial })
            }
            LiveRequest::Blob(blob) => Self::Blob(blob.into()),
            LiveRequest::ActivityStart => Self::ActivityStart,
            LiveRequest::ActivityEnd => Self::ActivityEnd,
            LiveRequest::AudioStreamEnd => Self::AudioStreamEnd,
            LiveRequest::ToolResponses(responses) => {
                Self::ToolResponses(responses.into_iter().map(Into::into).collect())
            }
        }
    }
}

impl From<LiveResponse> for types::LiveResponse {
    fn from(response: LiveResponse) -> Self {
        let transcription = |Transcription { text, finished }| types::Transcription { text, finished };
        match response {
            LiveResponse::Content(content) => Self::Content(content.into()),
            LiveResponse::InputTranscription(chunk) => Self::InputTranscription(transcription(chunk)),
            LiveResponse::OutputTranscription(chunk) => Self::OutputTranscription(transcription(chunk)),
            LiveResponse::ToolCalls(calls) => Self::ToolCalls(calls.into_iter().map(Into::into).collect()),
            LiveResponse::ToolCallsCancelled(ids) => Self::ToolCallsCancelled(ids),
            LiveResponse::Interrupted => Self::Interrupted,
            LiveResponse::TurnComplete => Self::TurnComplete,
            LiveResponse::Usage(usage) => Self::Usage(object(usage)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate as hatchery_guest;

    /// Repeats its input, and closes the connection on request.
    #[hatchery_guest::live_model]
    async fn parrot(_request: LlmRequest, connection: LiveConnection) -> Result<(), Error> {
        while let Some(request) = connection.receive().await? {
            let LiveRequest::Content { content, .. } = request else { continue };
            if content.text() == "go" {
                return Err(Error::new("RUDE", "I am gone"));
            }
            connection.say(content.text()).await?;
            connection.send(LiveResponse::TurnComplete).await?;
        }
        connection.say("bye").await
    }

    fn converse(requests: Vec<LiveRequest>) -> Result<Vec<LiveResponse>, Error> {
        block_on(parrot().converse(LlmRequest::default(), requests))
    }

    #[test]
    fn a_model_answers_each_request_until_the_connection_is_closed() {
        let responses = converse(vec![LiveRequest::text("hi"), LiveRequest::ActivityStart]).unwrap();
        let text = |text: &str| LiveResponse::Content(Content::model(text));
        assert_eq!(responses, [text("hi"), LiveResponse::TurnComplete, text("bye")]);
    }

    #[test]
    fn the_error_of_a_model_ends_the_conversation() {
        let error = converse(vec![LiveRequest::text("go")]).unwrap_err();
        assert_eq!(error, Error::new("RUDE", "I am gone"));
        assert!(matches!(to_wit(Err(error)), types::LiveResponse::Failed(error) if error.code == "RUDE"));
    }

    #[test]
    fn requests_are_converted_without_loss() {
        let blob = Blob { mime_type: "audio/pcm".into(), data: vec![1], display_name: None };
        let response = FunctionResponse { id: Some("c".into()), name: "f".into(), ..FunctionResponse::default() };
        for request in [
            LiveRequest::Content { content: Content::user("hi"), partial: true },
            blob.into(),
            LiveRequest::ActivityStart,
            LiveRequest::ActivityEnd,
            LiveRequest::AudioStreamEnd,
            LiveRequest::ToolResponses(vec![response]),
        ] {
            assert_eq!(LiveRequest::try_from(types::LiveRequest::from(request.clone())).unwrap(), request);
        }
    }
}
