//! Decoder of streamed chat completions: passes text through and buffers tool calls and signatures until they are
//! complete.

use std::sync::Arc;

use hatchery_core::{Content, LlmResponse, ModelError, Part};

use super::details::ReasoningDetails;
use super::wire::{Logprobs, ToolCallJson, call_parts, finish_reason, parse};
use crate::failure::Origin;
use crate::finish;
use crate::sse::Decoder;

/// The last payload of a stream.
const DONE: &str = "[DONE]";

pub(super) struct ChunkDecoder {
    origin: Arc<Origin>,
    calls: Vec<ToolCallJson>,
    details: ReasoningDetails,
    logprobs: Logprobs,
    has_finish_reason: bool,
    is_done: bool,
}

impl ChunkDecoder {
    pub(super) fn new(origin: Arc<Origin>) -> Self {
        Self {
            origin,
            calls: Vec::new(),
            details: ReasoningDetails::default(),
            logprobs: Logprobs::default(),
            has_finish_reason: false,
            is_done: false,
        }
    }

    /// Appends a delta to the call with the same index, unless it has another id.
    fn add_call(&mut self, delta: ToolCallJson) {
        let id = delta.id.filter(|id| !id.is_empty());
        let open = match (delta.index, &id) {
            (Some(index), _) => self.calls.iter_mut().rev().find(|call| call.index == Some(index)),
            (None, None) => self.calls.last_mut(),
            (None, Some(id)) => self.calls.iter_mut().find(|call| call.id.as_ref() == Some(id)),
        };
        match open {
            Some(call) if id.is_none() || call.id.is_none() || call.id == id => {
                call.id = call.id.take().or(id);
                append(&mut call.function.name, delta.function.name);
                append(&mut call.function.arguments, delta.function.arguments);
                call.extra_content = delta.extra_content.or_else(|| call.extra_content.take());
            }
            _ => self.calls.push(ToolCallJson { id, ..delta }),
        }
    }

    /// Removes what is complete at the end only.
    fn take_last_parts(&mut self, reason: Option<&str>) -> Result<Vec<Part>, ModelError> {
        let calls = call_parts(std::mem::take(&mut self.calls), reason, &self.origin)?;
        Ok(self.details.take_part().into_iter().chain(calls).collect())
    }
}

impl Decoder for ChunkDecoder {
    fn decode(&mut self, payload: &str) -> Result<Vec<LlmResponse>, ModelError> {
        if payload.trim() == DONE {
            self.is_done = true;
            return self.finish();
        }
        let mut chunk = parse(payload.as_bytes(), &self.origin)?;
        let mut response = chunk.response(true);
        let mut parts = Vec::new();
        if let Some(choice) = chunk.take_choice() {
            self.logprobs.add(&choice);
            let mut message = choice.message.unwrap_or_default();
            for delta in message.tool_calls.take().unwrap_or_default() {
                self.add_call(delta);
            }
            self.details.add(message.reasoning_details.take());
            parts = message.parts();
            if let Some(reason) = choice.finish_reason.as_deref().and_then(finish_reason) {
                self.has_finish_reason = true;
                parts.extend(self.take_last_parts(Some(reason))?);
                finish::set(&mut response, reason, None);
                response.avg_logprobs = self.logprobs.mean();
                response.custom_metadata = chunk.metadata();
            }
        }
        if parts.is_empty() && response.finish_reason.is_none() && response.usage_metadata.is_none() {
            return Ok(Vec::new());
        }
        response.content = (!parts.is_empty()).then(|| Content::new("model", parts));
        Ok(vec![response])
    }

    /// Returns the calls and signatures that no finish reason followed.
    fn finish(&mut self) -> Result<Vec<LlmResponse>, ModelError> {
        if !self.has_finish_reason && !self.is_done {
            return Err(self.origin.incomplete_answer());
        }
        let parts = self.take_last_parts(None)?;
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let content = Some(Content::new("model", parts));
        Ok(vec![LlmResponse { content, partial: true, ..LlmResponse::default() }])
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}

fn append(text: &mut Option<String>, more: Option<String>) {
    match (text.as_mut(), more) {
        (Some(text), Some(more)) => text.push_str(&more),
        (None, more) => *text = more,
        (Some(_), None) => {}
    }
}
