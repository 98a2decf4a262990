//! Answers of the library as responses.

use std::sync::Arc;

use futures::StreamExt;
use hatchery_core::{
    Blob, Content, FunctionCall, LlmResponse, ModelError, Part, PartData, UsageMetadata, base64_bytes,
};
use rig_core::completion::{CompletionResponse, FinishReason, Usage};
use rig_core::message::{AssistantContent, DocumentSourceKind, Image, MimeType};
use rig_core::streaming::{CompletionStream, Item, StreamEvent};

use super::super::ConversionError;
use super::request::with_signature;
use super::{model_error, without_log};
use crate::failure::Origin;
use crate::finish;

/// Returns a whole answer as a response. Of one whose texts were streamed, only the rest is returned.
pub(super) fn response(answer: &CompletionResponse, was_streamed: bool) -> Result<LlmResponse, ConversionError> {
    let mut parts = Vec::new();
    for block in &answer.choice {
        let part = part(block)?.map(|part| with_signature(part, block, &answer.origin)).transpose()?;
        parts.extend(part.and_then(|part| if was_streamed { without_text(part) } else { Some(part) }));
    }
    let mut response = partial(parts, was_streamed);
    response.model_version = answer.model().map(str::to_owned);
    response.usage_metadata = usage(&answer.usage);
    if let Some(reason) = answer.finish_reason() {
        let name = match reason {
            FinishReason::Stop | FinishReason::ToolCalls => finish::STOP,
            FinishReason::Length => "MAX_TOKENS",
            FinishReason::ContentFilter => "SAFETY",
            _ => "OTHER",
        };
        finish::set(&mut response, name, answer.error.clone());
    }
    Ok(response)
}

/// Returns a part without its text, which was sent before. `None` if nothing else is in it.
fn without_text(mut part: Part) -> Option<Part> {
    match &mut part.data {
        // The signature of a text is of no use without it.
        PartData::Text(_) if !part.thought => None,
        PartData::Text(text) => {
            text.clear();
            part.thought_signature.is_some().then_some(part)
        }
        _ => Some(part),
    }
}

fn part(block: &AssistantContent) -> Result<Option<Part>, ConversionError> {
    Ok(match block {
        AssistantContent::Text(text) => (!text.text.is_empty()).then(|| Part::text(&text.text)),
        AssistantContent::Reasoning(reasoning) => Some(Part { thought: true, ..Part::text(&reasoning.text) }),
        AssistantContent::ToolCall(call) => {
            let name = call.function.name.as_str().to_owned();
            if let Some(text) = &call.function.invalid_arguments {
                let reason = serde_json::from_str::<hatchery_core::JsonMap>(text).err();
                let reason = reason.map_or_else(|| "it is no object".to_owned(), |error| error.to_string());
                return Err(ConversionError::json(format!("the arguments of `{name}`"), reason));
            }
            let id = call.id.provider().map(|id| id.as_str().to_owned());
            let args = call.function.arguments.clone();
            Some(PartData::FunctionCall(FunctionCall { id, name, args, ..FunctionCall::default() }).into())
        }
        AssistantContent::Image(image) => Some(PartData::InlineData(blob(image)?).into()),
        // Such as a thought that is encrypted.
        AssistantContent::Opaque(opaque) => opaque.replay.then(|| Part { thought: true, ..Part::default() }),
        _ => None,
    })
}

fn blob(image: &Image) -> Result<Blob, ConversionError> {
    let DocumentSourceKind::Base64(data) = &image.data else {
        return Err(ConversionError::InvalidStructure("the image of the answer is not in base64".into()));
    };
    let data = base64_bytes::decode(data).map_err(|error| ConversionError::InvalidStructure(error.to_string()))?;
    let mime_type = image.media_type.as_ref().map_or("image/png", |kind| kind.to_mime_type()).to_owned();
    Ok(Blob { mime_type, data, display_name: None })
}

fn partial(parts: Vec<Part>, partial: bool) -> LlmResponse {
    let content = (!parts.is_empty()).then(|| Content::new("model", parts));
    LlmResponse { content, partial, ..LlmResponse::default() }
}

/// Returns the counts. The library includes thoughts in the tokens of the answer.
fn usage(usage: &Usage) -> Option<UsageMetadata> {
    let thoughts = usage.reasoning_tokens.filter(|tokens| *tokens > 0);
    let metadata = UsageMetadata {
        prompt_token_count: usage.input_tokens,
        candidates_token_count: usage.output_tokens.map(|all| all.saturating_sub(thoughts.unwrap_or(0))),
        thoughts_token_count: thoughts,
        cached_content_token_count: usage.cached_input_tokens.filter(|tokens| *tokens > 0),
        total_token_count: usage.total_tokens,
        ..UsageMetadata::default()
    };
    (metadata != UsageMetadata::default()).then_some(metadata)
}

/// Decodes a streamed answer incrementally.
pub(super) struct StreamDecoder {
    first: Option<Item<StreamEvent>>,
    /// `None` once the stream has ended.
    events: Option<CompletionStream>,
    origin: Arc<Origin>,
}

impl StreamDecoder {
    pub(super) fn new(first: Option<Item<StreamEvent>>, events: CompletionStream, origin: Arc<Origin>) -> Self {
        Self { first, events: Some(events), origin }
    }

    /// Returns the next response. An error is the last item.
    pub(super) async fn next(&mut self) -> Option<Result<LlmResponse, ModelError>> {
        loop {
            let item = match self.first.take() {
                Some(item) => Some(Ok(item)),
                None => without_log(self.events.as_mut()?.next()).await,
            };
            match item {
                Some(Ok(Item::Event(StreamEvent::Text { text, .. }))) => {
                    return Some(Ok(partial(vec![Part::text(text)], true)));
                }
                Some(Ok(Item::Event(StreamEvent::Reasoning { text, .. }))) => {
                    return Some(Ok(partial(vec![Part { thought: true, ..Part::text(text) }], true)));
                }
                // Calls and signatures are complete at the end.
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.events = None;
                    return Some(Err(model_error(&error, &self.origin)));
                }
                None => {
                    let answer = without_log(self.events.take()?.finish()).await;
                    return Some(match answer {
                        Ok(answer) => response(&answer, true).map_err(|error| error.in_response(&self.origin)),
                        Err(error) => Err(model_error(&error, &self.origin)),
                    });
                }
            }
        }
    }
}
