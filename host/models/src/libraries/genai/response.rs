//! Answers of the library as responses.

use std::sync::Arc;

use ::genai::chat::{
    ChatResponse, ChatStream, ChatStreamEvent, ContentPart, MessageContent, StopReason, StreamEnd, ToolCall, Usage,
};
use futures::StreamExt;
use hatchery_core::{Content, FunctionCall, JsonMap, LlmResponse, ModelError, Part, PartData, UsageMetadata};
use serde_json::{Value, json};

use super::super::ConversionError;
use super::request::Signatures;
use super::{model_error, without_log};
use crate::failure::Origin;
use crate::finish;
use crate::signatures::SignatureKind;

/// Returns an answer that was not streamed.
pub(super) fn complete_response(answer: ChatResponse) -> Result<LlmResponse, ConversionError> {
    let has_reasoning = answer.content.contains_reasoning_content();
    let mut parts = parts(answer.content, false)?;
    if let Some(thought) = answer.reasoning_content.filter(|thought| !thought.is_empty() && !has_reasoning) {
        parts.insert(0, Part { thought: true, ..Part::text(thought) });
    }
    let mut response = response(parts, false);
    response.usage_metadata = usage(answer.usage);
    set_finish(&mut response, answer.stop_reason);
    Ok(response)
}

/// Decodes a streamed answer incrementally.
pub(super) struct StreamDecoder {
    first: Option<ChatStreamEvent>,
    /// `None` once the stream has ended.
    events: Option<ChatStream>,
    origin: Arc<Origin>,
}

impl StreamDecoder {
    pub(super) fn new(first: Option<ChatStreamEvent>, events: ChatStream, origin: Arc<Origin>) -> Self {
        Self { first, events: Some(events), origin }
    }

    /// Returns the next response. An error is the last item.
    pub(super) async fn next(&mut self) -> Option<Result<LlmResponse, ModelError>> {
        loop {
            let event = match self.first.take() {
                Some(event) => Some(Ok(event)),
                None => without_log(self.events.as_mut()?.next()).await,
            };
            let event = match event {
                Some(Ok(event)) => event,
                Some(Err(error)) => return self.end(Err(model_error(error, &self.origin))),
                None => return self.end(Err(self.origin.incomplete_answer())),
            };
            match event {
                ChatStreamEvent::Chunk(chunk) => return Some(Ok(response(vec![Part::text(chunk.content)], true))),
                ChatStreamEvent::ReasoningChunk(chunk) => {
                    let part = Part { thought: true, ..Part::text(chunk.content) };
                    return Some(Ok(response(vec![part], true)));
                }
                ChatStreamEvent::End(end) => {
                    let last = last_response(end).map_err(|error| error.in_response(&self.origin));
                    return self.end(last);
                }
                // Signatures and calls are complete at the end.
                ChatStreamEvent::Start
                | ChatStreamEvent::ThoughtSignatureChunk(_)
                | ChatStreamEvent::ToolCallChunk(_)
                | ChatStreamEvent::Heartbeat => {}
            }
        }
    }

    fn end(&mut self, last: Result<LlmResponse, ModelError>) -> Option<Result<LlmResponse, ModelError>> {
        self.events = None;
        Some(last)
    }
}

/// Returns the calls, signatures and usage of a stream that has ended. Its texts were sent before.
fn last_response(end: StreamEnd) -> Result<LlmResponse, ConversionError> {
    let mut parts = parts(end.captured_content.unwrap_or_default(), true)?;
    parts.retain(|part| part.as_text().is_none() || part.thought_signature.is_some());
    let mut response = response(parts, true);
    response.usage_metadata = end.captured_usage.and_then(usage);
    set_finish(&mut response, end.captured_stop_reason);
    Ok(response)
}

/// Converts the parts of an answer. A signature belongs to the thought after it, or else to the call after it. The text
/// of a thought that was streamed is in its signature only.
fn parts(content: MessageContent, was_streamed: bool) -> Result<Vec<Part>, ConversionError> {
    let mut parts = Vec::new();
    let mut pending = Vec::new();
    for part in content {
        match part {
            ContentPart::Text(text) if text.is_empty() => {}
            ContentPart::Text(text) => parts.push(Part::text(text)),
            ContentPart::ThoughtSignature(signature) => pending.push(signature),
            ContentPart::ReasoningContent(text) => {
                let signatures = std::mem::take(&mut pending);
                let (shown, hidden) = if was_streamed { (String::new(), Some(text)) } else { (text, None) };
                parts.push(with_signature(
                    Part { thought: true, ..Part::text(shown) },
                    Signatures { text: hidden, signatures, custom: None },
                ));
            }
            ContentPart::ToolCall(mut call) => {
                let signatures = call.thought_signatures.take().unwrap_or_else(|| std::mem::take(&mut pending));
                pending.clear();
                let part = PartData::FunctionCall(function_call(call)?).into();
                parts.push(with_signature(part, Signatures { signatures, ..Signatures::default() }));
            }
            ContentPart::Binary(binary) => return Err(ConversionError::UnsupportedContentType(binary.content_type)),
            ContentPart::ToolResponse(_) => {
                let message = "the answer has the result of a tool, which only requests have";
                return Err(ConversionError::InvalidStructure(message.into()));
            }
            // Such as a thought that is encrypted.
            ContentPart::Custom(custom) => {
                let signatures = Signatures { custom: Some(custom), ..Signatures::default() };
                parts.push(with_signature(Part { thought: true, ..Part::default() }, signatures));
            }
        }
    }
    Ok(parts)
}

fn with_signature(part: Part, signatures: Signatures) -> Part {
    let is_signed = !signatures.signatures.is_empty() || signatures.custom.is_some();
    let json = is_signed.then(|| json!(signatures).to_string());
    Part { thought_signature: json.map(|json| SignatureKind::Genai.write(&json)), ..part }
}

fn function_call(call: ToolCall) -> Result<FunctionCall, ConversionError> {
    let args = match call.fn_arguments {
        Value::Object(args) => args,
        Value::Null => JsonMap::new(),
        Value::String(text) if text.trim().is_empty() => JsonMap::new(),
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|error| ConversionError::json(format!("the arguments of `{}`", call.fn_name), error))?,
        other => {
            let message = format!("the arguments of `{}` are no object: {other}", call.fn_name);
            return Err(ConversionError::InvalidStructure(message));
        }
    };
    let id = Some(call.call_id).filter(|id| !id.is_empty());
    Ok(FunctionCall { id, name: call.fn_name, args, ..FunctionCall::default() })
}

fn response(parts: Vec<Part>, partial: bool) -> LlmResponse {
    let content = (!parts.is_empty()).then(|| Content::new("model", parts));
    LlmResponse { content, partial, ..LlmResponse::default() }
}

fn set_finish(response: &mut LlmResponse, reason: Option<StopReason>) {
    let Some(reason) = reason else { return };
    let name = match reason {
        StopReason::Completed(_) | StopReason::ToolCall(_) | StopReason::StopSequence(_) => finish::STOP,
        StopReason::MaxTokens(_) => "MAX_TOKENS",
        StopReason::ContentFilter(_) => "SAFETY",
        StopReason::Other(_) => "OTHER",
    };
    finish::set(response, name, None);
}

/// Returns the counts. The library includes thoughts in the tokens of the answer.
fn usage(usage: Usage) -> Option<UsageMetadata> {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
    let thoughts = count(usage.completion_tokens_details.and_then(|details| details.reasoning_tokens));
    let cached = count(usage.prompt_tokens_details.and_then(|details| details.cached_tokens));
    let metadata = UsageMetadata {
        prompt_token_count: count(usage.prompt_tokens),
        candidates_token_count: count(usage.completion_tokens).map(|all| all.saturating_sub(thoughts.unwrap_or(0))),
        thoughts_token_count: thoughts,
        cached_content_token_count: cached,
        total_token_count: count(usage.total_tokens),
        ..UsageMetadata::default()
    };
    (metadata != UsageMetadata::default()).then_some(metadata)
}
