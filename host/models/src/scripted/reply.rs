//! Replies of a script: content parts, streaming in chunks, delays and simulated errors.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use hatchery_core::{
    Content, FunctionCall, LlmResponse, ModelError, ModelErrorKind, Part, PartData, ResponseStream, StreamingMode,
    UsageMetadata,
};
use serde_json::Value;

use super::recent_history::{TurnMatch, bytes_of_part, tokens};
use super::template::{JsonTemplate, Template};
use crate::finish;
use crate::retry::kind_of_status;

/// A reply of a script. Texts may contain placeholders, see the [module](super).
#[derive(Debug, Clone, Default)]
pub struct Reply {
    parts: Vec<ReplyPart>,
    delay: Duration,
    chunk_delay: Duration,
    finish_reason: Option<String>,
    failure: Option<Failure>,
}

#[derive(Debug, Clone)]
enum ReplyPart {
    /// A text in the pieces in which it is streamed. Each piece is split into `chunks` chunks.
    Text {
        pieces: Vec<Template>,
        chunks: usize,
        thought: bool,
    },
    Call {
        id: Option<String>,
        name: String,
        args: JsonTemplate,
    },
    Part(Box<Part>),
}

#[derive(Debug, Clone)]
struct Failure {
    kind: ModelErrorKind,
    status: Option<u16>,
    message: Template,
    /// The number of chunks before the failure. `None` if the call itself fails.
    after: Option<usize>,
}

impl Reply {
    /// Creates an empty reply, to which parts are added.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a reply of one text.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::new().and_text(text)
    }

    /// Creates a reply of one text that is streamed in exactly these pieces.
    pub fn chunks<T: AsRef<str>>(pieces: impl IntoIterator<Item = T>) -> Self {
        let pieces = pieces.into_iter().map(|piece| Template::new(piece.as_ref())).collect();
        Self::new().and(ReplyPart::Text { pieces, chunks: 1, thought: false })
    }

    /// Creates a reply of one tool call. `args` is a JSON object.
    pub fn call(name: impl Into<String>, args: Value) -> Self {
        Self::new().and_call(name, args)
    }

    /// Creates a reply that makes the call fail.
    pub fn error(kind: ModelErrorKind, message: impl AsRef<str>) -> Self {
        Self::new().with_error(kind, message)
    }

    /// Creates a reply that makes the call fail as with this HTTP status of a provider.
    pub fn status(status: u16, message: impl AsRef<str>) -> Self {
        Self::new().with_error_status(status, message)
    }

    /// Adds a text.
    #[must_use]
    pub fn and_text(self, text: impl AsRef<str>) -> Self {
        self.and(ReplyPart::Text { pieces: vec![Template::new(text.as_ref())], chunks: 1, thought: false })
    }

    /// Adds a thought.
    #[must_use]
    pub fn and_thought(self, text: impl AsRef<str>) -> Self {
        self.and(ReplyPart::Text { pieces: vec![Template::new(text.as_ref())], chunks: 1, thought: true })
    }

    /// Adds a tool call. Several calls are parallel calls. `args` is a JSON object.
    #[must_use]
    pub fn and_call(self, name: impl Into<String>, args: Value) -> Self {
        self.and(ReplyPart::Call { id: None, name: name.into(), args: JsonTemplate::new(args) })
    }

    /// Sets the id of the last call. Without it, the engine generates one.
    #[must_use]
    pub fn with_id(mut self, call_id: impl Into<String>) -> Self {
        if let Some(ReplyPart::Call { id, .. }) = self.parts.last_mut() {
            *id = Some(call_id.into());
        }
        self
    }

    /// Adds a part unchanged.
    #[must_use]
    pub fn and_part(self, part: Part) -> Self {
        self.and(ReplyPart::Part(Box::new(part)))
    }

    /// Streams the last text in `count` chunks of about equal length.
    #[must_use]
    pub fn chunked(mut self, count: usize) -> Self {
        if let Some(ReplyPart::Text { chunks, .. }) = self.parts.last_mut() {
            *chunks = count;
        }
        self
    }

    /// Sets the delay before the first chunk. [`Duration::MAX`] never replies, for tests of timeouts and cancellation.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the delay between chunks.
    #[must_use]
    pub fn chunk_delay(mut self, delay: Duration) -> Self {
        self.chunk_delay = delay;
        self
    }

    /// Sets the finish reason, `STOP` by default. Any other reason, such as `MAX_TOKENS`, also makes the response an
    /// error.
    #[must_use]
    pub fn finish(mut self, reason: impl Into<String>) -> Self {
        self.finish_reason = Some(reason.into());
        self
    }

    /// Fails the call. With [`Reply::after`], fails the stream after some chunks.
    #[must_use]
    pub fn with_error(mut self, kind: ModelErrorKind, message: impl AsRef<str>) -> Self {
        self.failure = Some(Failure { kind, status: None, message: Template::new(message.as_ref()), after: None });
        self
    }

    /// Fails the call as with this HTTP status of a provider.
    #[must_use]
    pub fn with_error_status(self, status: u16, message: impl AsRef<str>) -> Self {
        let mut reply = self.with_error(kind_of_status(status), message);
        if let Some(failure) = &mut reply.failure {
            failure.status = Some(status);
        }
        reply
    }

    /// Moves the failure into the stream, after this number of chunks. Without streaming, the response is the failure
    /// alone.
    #[must_use]
    pub fn after(mut self, chunks: usize) -> Self {
        if let Some(failure) = &mut self.failure {
            failure.after = Some(chunks);
        }
        self
    }

    pub(super) fn and_pieces<T: AsRef<str>>(self, pieces: &[T], chunks: usize, thought: bool) -> Self {
        let pieces = pieces.iter().map(|piece| Template::new(piece.as_ref())).collect();
        self.and(ReplyPart::Text { pieces, chunks, thought })
    }

    fn and(mut self, part: ReplyPart) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns the responses with their delays and errors.
    pub(super) async fn play(
        &self,
        turn_match: &TurnMatch<'_>,
        streaming_mode: StreamingMode,
    ) -> Result<ResponseStream, ModelError> {
        let model = turn_match.history.model();
        let bad_placeholder = |message| ModelError::new(ModelErrorKind::BadRequest, model, message);
        let responses = || self.responses(turn_match, streaming_mode).map_err(bad_placeholder);
        let Some(failure) = &self.failure else {
            let mut responses = responses()?;
            let usage = usage_of(&responses, turn_match);
            if let Some(last) = responses.last_mut() {
                finish::set(last, self.finish_reason.as_deref().unwrap_or(finish::STOP), None);
                last.usage_metadata = Some(usage);
                last.model_version = Some(model.to_owned());
            }
            return Ok(self.with_delays(responses.into_iter().map(Ok).collect()));
        };
        let error = failure.error(turn_match).map_err(bad_placeholder)?;
        let Some(after) = failure.after else {
            wait(self.delay).await;
            return Err(error);
        };
        let mut items = match streaming_mode {
            StreamingMode::Off => Vec::new(),
            StreamingMode::On => responses()?.into_iter().take(after).map(Ok).collect(),
        };
        items.push(Err(error));
        Ok(self.with_delays(items))
    }

    /// Returns one response per chunk, or one of all parts without streaming. Never empty.
    fn responses(&self, turn_match: &TurnMatch<'_>, streaming_mode: StreamingMode) -> Result<Vec<LlmResponse>, String> {
        let mut parts = Vec::new();
        for part in &self.parts {
            part.push_parts(turn_match, streaming_mode, &mut parts)?;
        }
        let response = |parts: Vec<Part>| LlmResponse {
            content: (!parts.is_empty()).then(|| Content::new("model", parts)),
            partial: streaming_mode == StreamingMode::On,
            ..LlmResponse::default()
        };
        Ok(match streaming_mode {
            StreamingMode::On if !parts.is_empty() => parts.into_iter().map(|part| response(vec![part])).collect(),
            StreamingMode::On | StreamingMode::Off => vec![response(parts)],
        })
    }

    fn with_delays(&self, items: Vec<Result<LlmResponse, ModelError>>) -> ResponseStream {
        if self.delay.is_zero() && self.chunk_delay.is_zero() {
            return stream::iter(items).boxed();
        }
        let (first, further) = (self.delay, self.chunk_delay);
        stream::iter(items.into_iter().enumerate())
            .then(move |(index, item)| async move {
                wait(if index == 0 { first } else { further }).await;
                item
            })
            .boxed()
    }
}

impl ReplyPart {
    fn push_parts(
        &self,
        turn_match: &TurnMatch<'_>,
        streaming_mode: StreamingMode,
        parts: &mut Vec<Part>,
    ) -> Result<(), String> {
        match self {
            Self::Text { pieces, chunks, thought } => {
                let texts = pieces.iter().map(|piece| piece.render(turn_match)).collect::<Result<Vec<_>, _>>()?;
                let part = |text: &str| Part { thought: *thought, ..Part::text(text) };
                match streaming_mode {
                    StreamingMode::Off => parts.push(part(&texts.concat())),
                    StreamingMode::On => {
                        parts.extend(texts.iter().flat_map(|text| split(text, *chunks)).map(part));
                    }
                }
            }
            Self::Call { id, name, args } => {
                let call = FunctionCall {
                    id: id.clone(),
                    name: name.clone(),
                    args: args.render_map(turn_match)?,
                    ..FunctionCall::default()
                };
                parts.push(PartData::FunctionCall(call).into());
            }
            Self::Part(part) => parts.push(part.as_ref().clone()),
        }
        Ok(())
    }
}

impl Failure {
    fn error(&self, turn_match: &TurnMatch<'_>) -> Result<ModelError, String> {
        let message = self.message.render(turn_match)?;
        Ok(ModelError { status: self.status, ..ModelError::new(self.kind, turn_match.history.model(), message) })
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

/// Counts the tokens of a complete response. Thoughts are counted separately.
fn usage_of(responses: &[LlmResponse], turn_match: &TurnMatch<'_>) -> UsageMetadata {
    let (mut output_bytes, mut thought_bytes) = (0, 0);
    for part in responses.iter().filter_map(|response| response.content.as_ref()).flat_map(|content| &content.parts) {
        *(if part.thought { &mut thought_bytes } else { &mut output_bytes }) += bytes_of_part(&part.data);
    }
    let (prompt, output, thoughts) = (turn_match.history.tokens(), tokens(output_bytes), tokens(thought_bytes));
    UsageMetadata {
        prompt_token_count: Some(prompt),
        candidates_token_count: Some(output),
        thoughts_token_count: (thoughts > 0).then_some(thoughts),
        total_token_count: Some(prompt + output + thoughts),
        ..UsageMetadata::default()
    }
}

/// Splits a text into `count` chunks of about equal length, or one per character if it is shorter. An empty text is one
/// chunk.
fn split(text: &str, count: usize) -> Vec<&str> {
    let length = text.chars().count();
    let count = count.clamp(1, length.max(1));
    let mut rest = text;
    let mut chunks = Vec::with_capacity(count);
    for index in 0..count {
        let characters = length * (index + 1) / count - length * index / count;
        let end = rest.char_indices().nth(characters).map_or(rest.len(), |(end, _)| end);
        let (chunk, after) = rest.split_at(end);
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
