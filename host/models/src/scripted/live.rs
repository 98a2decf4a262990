//! `scripted-live:<file>`: live conversations with a script. It answers as `scripted:<file>` does, in text, or as
//! speech with transcriptions and generated tones.

use std::collections::VecDeque;
use std::f64::consts::TAU;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Aggregator, Blob, Content, FunctionCall, LiveConnection, LiveRequest, LiveResponse, LlmRequest, LlmResponse, Model,
    ModelCapabilities, ModelError, Part, PartData, ResponseStream, StreamingMode, Transcription,
};
use tokio::sync::mpsc;

use super::Scripted;

/// Bytes per second of received speech: 16,000 samples of two bytes.
const HEARD_BYTES_PER_SECOND: f64 = 32_000.0;
/// The samples of a second of speech that is generated.
const SPOKEN_RATE: u32 = 24_000;
/// The samples of one tone, a tenth of a second.
const TONE_SAMPLES: u32 = 2_400;
/// The pitch of tones in hertz.
const PITCH: f64 = 440.0;
/// Maximum number of requests that are not handled yet.
const MAX_REQUESTS: usize = 32;

/// A script as a live model.
#[derive(Debug)]
pub(super) struct LiveScript(pub(super) Arc<Scripted>);

#[async_trait]
impl Model for LiveScript {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        self.0.generate(request, streaming_mode).await
    }

    async fn connect(&self, mut request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        request.progress.set_provider("scripted");
        let modalities = request.live_connect_config.clone().unwrap_or_default().modalities();
        let (sender, requests) = mpsc::channel(MAX_REQUESTS);
        let is_unanswered = request.contents.last().is_some_and(|content| content.role.as_deref() == Some("user"));
        let first = if is_unanswered { request.contents.pop_back() } else { None };
        let mut conversation = Conversation {
            script: self.0.clone(),
            speaks: modalities.iter().any(|modality| modality != "TEXT"),
            history: request,
            requests,
            waiting: VecDeque::new(),
            heard_bytes: 0,
            reply: None,
            responses: VecDeque::new(),
        };
        if let Some(message) = first {
            conversation.answer(Arc::unwrap_or_clone(message));
        }
        Ok(Box::new(Connection { sender: Mutex::new(Some(sender)), conversation: conversation.into() }))
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities { live: true, ..self.0.capabilities() }
    }
}

struct Connection {
    /// `None` once the connection is closed.
    sender: Mutex<Option<mpsc::Sender<LiveRequest>>>,
    conversation: tokio::sync::Mutex<Conversation>,
}

struct Conversation {
    script: Arc<Scripted>,
    /// True if the output is audio.
    speaks: bool,
    /// The conversation so far.
    history: LlmRequest,
    requests: mpsc::Receiver<LiveRequest>,
    /// Messages that came during a reply.
    waiting: VecDeque<Content>,
    /// Bytes of the speech in the current turn.
    heard_bytes: usize,
    reply: Option<Reply>,
    responses: VecDeque<Result<LiveResponse, ModelError>>,
}

/// A reply in progress.
struct Reply {
    chunks: ResponseStream,
    whole: Aggregator,
    calls: Vec<FunctionCall>,
}

#[async_trait]
impl LiveConnection for Connection {
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError> {
        let sender = self.sender.lock_unpoisoned().clone();
        if let Some(sender) = sender {
            // Fails once the connection is closed, which `receive` reports.
            let _ = sender.send(request).await;
        }
        Ok(())
    }

    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>> {
        let mut conversation = self.conversation.lock().await;
        loop {
            if let Some(response) = conversation.responses.pop_front() {
                return Some(response);
            }
            let Conversation { requests, reply, .. } = &mut *conversation;
            let next_chunk = async {
                match reply {
                    Some(reply) => reply.chunks.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                request = requests.recv() => conversation.receive(request?),
                chunk = next_chunk => conversation.advance(chunk),
            }
        }
    }

    async fn close(&self) {
        self.sender.lock_unpoisoned().take();
    }
}

impl Conversation {
    fn receive(&mut self, request: LiveRequest) {
        match request {
            LiveRequest::Content { content, .. } => self.answer(content),
            LiveRequest::ToolResponses(responses) => {
                let parts = responses.into_iter().map(|response| PartData::FunctionResponse(response).into());
                // They belong to the calls of the last reply, before any message that waits.
                self.waiting.push_front(Content::new("user", parts.collect()));
                self.answer_next();
            }
            LiveRequest::Blob(blob) => self.heard_bytes += blob.data.len(),
            LiveRequest::ActivityStart => {
                if self.reply.take().is_some() {
                    self.responses.push_back(Ok(LiveResponse::Interrupted));
                    self.answer_next();
                }
            }
            LiveRequest::ActivityEnd | LiveRequest::AudioStreamEnd if self.heard_bytes > 0 => {
                #[allow(clippy::cast_precision_loss, reason = "a length to display")]
                let seconds = std::mem::take(&mut self.heard_bytes) as f64 / HEARD_BYTES_PER_SECOND;
                let text = format!("{seconds:.1} s of sound");
                let transcription = Transcription { text: text.clone(), finished: true };
                self.responses.push_back(Ok(LiveResponse::InputTranscription(transcription)));
                self.answer(Content::user(text));
            }
            LiveRequest::ActivityEnd | LiveRequest::AudioStreamEnd | LiveRequest::Close => {}
        }
    }

    /// Starts to reply, or later if a reply is in progress.
    fn answer(&mut self, message: Content) {
        self.waiting.push_back(message);
        self.answer_next();
    }

    /// Starts to reply to the message that has waited longest, unless a reply is in progress.
    fn answer_next(&mut self) {
        if self.reply.is_some() {
            return;
        }
        let Some(message) = self.waiting.pop_front() else { return };
        self.history.contents.push_back(message.into());
        let (script, request) = (self.script.clone(), self.history.clone());
        let reply = async move { script.generate(request, StreamingMode::On).await };
        let chunks = stream::once(reply).try_flatten().boxed();
        self.reply = Some(Reply { chunks, whole: Aggregator::default(), calls: Vec::new() });
    }

    /// Says the next chunk of a reply, and ends the turn after the last one.
    fn advance(&mut self, chunk: Option<Result<LlmResponse, ModelError>>) {
        match chunk {
            Some(Ok(response)) => self.say(response),
            Some(Err(error)) => {
                self.reply = None;
                self.responses.push_back(Err(error));
                self.answer_next();
            }
            None => {
                let Some(Reply { whole, calls, .. }) = self.reply.take() else { return };
                let whole = whole.finish().and_then(|response| response.content);
                self.history.contents.extend(whole.map(Arc::new));
                if calls.is_empty() {
                    self.responses.push_back(Ok(LiveResponse::TurnComplete));
                    self.answer_next();
                } else {
                    // The responses of the tools come next.
                    self.responses.push_back(Ok(LiveResponse::ToolCalls(calls)));
                }
            }
        }
    }

    fn say(&mut self, mut response: LlmResponse) {
        let Some(reply) = &mut self.reply else { return };
        for (index, part) in response.content.iter_mut().flat_map(|content| &mut content.parts).enumerate() {
            match &mut part.data {
                PartData::FunctionCall(call) => {
                    let number = self.history.contents.len();
                    call.id.get_or_insert_with(|| format!("scripted-{number}-{index}-{}", reply.calls.len()));
                    reply.calls.push(call.clone());
                }
                PartData::Text(text) if self.speaks && !part.thought => {
                    let words = Transcription { text: text.clone(), finished: false };
                    self.responses.push_back(Ok(LiveResponse::OutputTranscription(words)));
                    self.responses.push_back(Ok(LiveResponse::Content(Content::new("model", vec![tone()]))));
                }
                _ => {
                    let content = Content::new("model", vec![part.clone()]);
                    self.responses.push_back(Ok(LiveResponse::Content(content)));
                }
            }
        }
        let usage = response.usage_metadata.clone().map(LiveResponse::Usage);
        self.responses.extend(usage.map(Ok));
        reply.whole.push(response);
    }
}

/// Returns a short tone.
fn tone() -> Part {
    let samples = (0..TONE_SAMPLES).flat_map(|sample| {
        let phase = f64::from(sample) * PITCH * TAU / f64::from(SPOKEN_RATE);
        #[allow(clippy::cast_possible_truncation, reason = "the amplitude is in range")]
        let amplitude = (phase.sin() * 8_000.0) as i16;
        amplitude.to_le_bytes()
    });
    let data = samples.collect::<Vec<_>>().into();
    PartData::InlineData(Blob { mime_type: format!("audio/pcm;rate={SPOKEN_RATE}"), data, display_name: None }).into()
}
