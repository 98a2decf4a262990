//! What a turn replies: parts, how they are cut into pieces, and failures on purpose.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use hatchery_core::{
    Content, FunctionCall, LlmResponse, ModelError, ModelErrorKind, Part, PartData, ResponseStream, StreamingMode,
    UsageMetadata,
};
use serde_json::Value;

use super::tail::{Fit, bytes_of_part, tokens};
use super::template::{Shape, Template};
use crate::failure::kind_of_status;
use crate::finish;

/// What a script answers. Texts may hold placeholders, see the module's comment.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    items: Vec<Item>,
    delay: Duration,
    chunk_delay: Duration,
    finish_reason: Option<String>,
    failure: Option<Failure>,
}

#[derive(Debug, Clone)]
enum Item {
    /// A text as the pieces that it is streamed in, each cut again into so many.
    Text {
        pieces: Vec<Template>,
        chunks: usize,
        thought: bool,
    },
    Call {
        id: Option<String>,
        name: String,
        args: Shape,
    },
    Part(Box<Part>),
}

#[derive(Debug, Clone)]
struct Failure {
    kind: ModelErrorKind,
    status: Option<u16>,
    message: Template,
    /// After how many pieces; `None` fails the call itself.
    after: Option<usize>,
}

impl Reply {
    /// An empty reply, to which parts are added.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One text.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::new().and_text(text)
    }

    /// One text, streamed in exactly these pieces.
    pub fn chunks<T: AsRef<str>>(pieces: impl IntoIterator<Item = T>) -> Self {
        let pieces = pieces.into_iter().map(|piece| Template::new(piece.as_ref())).collect();
        Self::new().and(Item::Text { pieces, chunks: 1, thought: false })
    }

    /// One tool call; `args` is a JSON object.
    pub fn call(name: impl Into<String>, args: Value) -> Self {
        Self::new().and_call(name, args)
    }

    /// A call that fails at once.
    pub fn error(kind: ModelErrorKind, message: impl AsRef<str>) -> Self {
        Self::new().with_error(kind, message)
    }

    /// A call that fails at once as a provider's HTTP status does.
    pub fn status(status: u16, message: impl AsRef<str>) -> Self {
        Self::new().with_error_status(status, message)
    }

    /// Adds a text.
    #[must_use]
    pub fn and_text(self, text: impl AsRef<str>) -> Self {
        self.and(Item::Text { pieces: vec![Template::new(text.as_ref())], chunks: 1, thought: false })
    }

    /// Adds a thought.
    #[must_use]
    pub fn and_thought(self, text: impl AsRef<str>) -> Self {
        self.and(Item::Text { pieces: vec![Template::new(text.as_ref())], chunks: 1, thought: true })
    }

    /// Adds a tool call; several are parallel calls. `args` is a JSON object.
    #[must_use]
    pub fn and_call(self, name: impl Into<String>, args: Value) -> Self {
        self.and(Item::Call { id: None, name: name.into(), args: Shape::new(args) })
    }

    /// Gives the call that was added last an id; without one the engine makes it.
    #[must_use]
    pub fn with_id(mut self, call_id: impl Into<String>) -> Self {
        if let Some(Item::Call { id, .. }) = self.items.last_mut() {
            *id = Some(call_id.into());
        }
        self
    }

    /// Adds any part, as it is.
    #[must_use]
    pub fn and_part(self, part: Part) -> Self {
        self.and(Item::Part(Box::new(part)))
    }

    /// Streams the text that was added last in `count` pieces of about one length.
    #[must_use]
    pub fn chunked(mut self, count: usize) -> Self {
        if let Some(Item::Text { chunks, .. }) = self.items.last_mut() {
            *chunks = count;
        }
        self
    }

    /// Waits before the first piece; with [`Duration::MAX`] for ever, which is how to test what ends a call.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Waits before each further piece.
    #[must_use]
    pub fn chunk_delay(mut self, delay: Duration) -> Self {
        self.chunk_delay = delay;
        self
    }

    /// Ends with this reason instead of `STOP`; any other reason makes the answer an error too, as providers do (`MAX_TOKENS`).
    #[must_use]
    pub fn finish(mut self, reason: impl Into<String>) -> Self {
        self.finish_reason = Some(reason.into());
        self
    }

    /// Fails: at once, or as [`Reply::after`] says.
    #[must_use]
    pub fn with_error(mut self, kind: ModelErrorKind, message: impl AsRef<str>) -> Self {
        self.failure = Some(Failure { kind, status: None, message: Template::new(message.as_ref()), after: None });
        self
    }

    /// Fails as a provider's HTTP status does.
    #[must_use]
    pub fn with_error_status(self, status: u16, message: impl AsRef<str>) -> Self {
        let mut reply = self.with_error(kind_of_status(status), message);
        if let Some(failure) = &mut reply.failure {
            failure.status = Some(status);
        }
        reply
    }

    /// Lets the failure come in the stream, after so many pieces; an answer delivered whole then is the failure alone.
    #[must_use]
    pub fn after(mut self, pieces: usize) -> Self {
        if let Some(failure) = &mut self.failure {
            failure.after = Some(pieces);
        }
        self
    }

    pub(super) fn and_pieces<T: AsRef<str>>(self, pieces: &[T], chunks: usize, thought: bool) -> Self {
        let pieces = pieces.iter().map(|piece| Template::new(piece.as_ref())).collect();
        self.and(Item::Text { pieces, chunks, thought })
    }

    fn and(mut self, item: Item) -> Self {
        self.items.push(item);
        self
    }

    /// Answers: the stream gives what the script says, when it says so.
    pub(super) async fn play(
        &self,
        fit: &Fit<'_>,
        streaming_mode: StreamingMode,
    ) -> Result<ResponseStream, ModelError> {
        let unfilled = |message| ModelError::new(ModelErrorKind::BadRequest, fit.tail.model(), message);
        let responses = || self.responses(fit, streaming_mode).map_err(unfilled);
        let Some(failure) = &self.failure else {
            let mut responses = responses()?;
            let usage = usage_of(&responses, fit);
            if let Some(last) = responses.last_mut() {
                finish::set(last, self.finish_reason.as_deref().unwrap_or(finish::STOP), None);
                last.usage_metadata = Some(usage);
                last.model_version = Some(fit.tail.model().to_owned());
            }
            return Ok(self.paced(responses.into_iter().map(Ok).collect()));
        };
        let error = failure.error(fit).map_err(unfilled)?;
        let Some(after) = failure.after else {
            wait(self.delay).await;
            return Err(error);
        };
        let mut items = match streaming_mode {
            StreamingMode::Off => Vec::new(),
            StreamingMode::On => responses()?.into_iter().take(after).map(Ok).collect(),
        };
        items.push(Err(error));
        Ok(self.paced(items))
    }

    /// One response per piece, or one of all parts. Never empty.
    fn responses(&self, fit: &Fit<'_>, streaming_mode: StreamingMode) -> Result<Vec<LlmResponse>, String> {
        let mut parts = Vec::new();
        for item in &self.items {
            item.push_parts(fit, streaming_mode, &mut parts)?;
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

    fn paced(&self, items: Vec<Result<LlmResponse, ModelError>>) -> ResponseStream {
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

impl Item {
    fn push_parts(&self, fit: &Fit<'_>, streaming_mode: StreamingMode, parts: &mut Vec<Part>) -> Result<(), String> {
        match self {
            Self::Text { pieces, chunks, thought } => {
                let texts = pieces.iter().map(|piece| piece.text(fit)).collect::<Result<Vec<_>, _>>()?;
                let part = |text: &str| Part { thought: *thought, ..Part::text(text) };
                match streaming_mode {
                    StreamingMode::Off => parts.push(part(&texts.concat())),
                    StreamingMode::On => {
                        parts.extend(texts.iter().flat_map(|text| cut(text, *chunks)).map(part));
                    }
                }
            }
            Self::Call { id, name, args } => {
                let call = FunctionCall {
                    id: id.clone(),
                    name: name.clone(),
                    args: args.map(fit)?,
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
    fn error(&self, fit: &Fit<'_>) -> Result<ModelError, String> {
        let message = self.message.text(fit)?;
        Ok(ModelError { status: self.status, ..ModelError::new(self.kind, fit.tail.model(), message) })
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

/// The tokens of a whole answer, thoughts apart.
fn usage_of(answer: &[LlmResponse], fit: &Fit<'_>) -> UsageMetadata {
    let (mut said, mut thought) = (0, 0);
    for part in answer.iter().filter_map(|response| response.content.as_ref()).flat_map(|content| &content.parts) {
        *(if part.thought { &mut thought } else { &mut said }) += bytes_of_part(&part.data);
    }
    let (prompt, said, thought) = (fit.tail.tokens(), tokens(said), tokens(thought));
    UsageMetadata {
        prompt_token_count: Some(prompt),
        candidates_token_count: Some(said),
        thoughts_token_count: (thought > 0).then_some(thought),
        total_token_count: Some(prompt + said + thought),
        ..UsageMetadata::default()
    }
}

/// Cuts a text into `count` pieces of about one length, fewer when it has fewer characters; an empty text is one piece.
fn cut(text: &str, count: usize) -> Vec<&str> {
    let length = text.chars().count();
    let count = count.clamp(1, length.max(1));
    let mut rest = text;
    let mut pieces = Vec::with_capacity(count);
    for index in 0..count {
        let characters = length * (index + 1) / count - length * index / count;
        let end = rest.char_indices().nth(characters).map_or(rest.len(), |(end, _)| end);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
