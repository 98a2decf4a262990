//! Chunks of a streamed answer: text passes through, tool calls are held back until they are whole.

use std::sync::Arc;

use hatchery_core::{Content, LlmResponse, ModelError, Part};

use super::wire::{ToolCallJson, call_parts, finish_reason, parse};
use crate::failure::Origin;
use crate::finish;
use crate::sse::Decoder;

/// What ends a stream.
const DONE: &str = "[DONE]";

pub(super) struct Deltas {
    origin: Arc<Origin>,
    calls: Vec<ToolCallJson>,
    done: bool,
}

impl Deltas {
    pub(super) fn new(origin: Arc<Origin>) -> Self {
        Self { origin, calls: Vec::new(), done: false }
    }

    /// Joins a piece to its call: the one with its index, unless it brings another id.
    fn add_call(&mut self, piece: ToolCallJson) {
        let id = piece.id.filter(|id| !id.is_empty());
        let open = match (piece.index, &id) {
            (Some(index), _) => self.calls.iter_mut().rev().find(|call| call.index == Some(index)),
            (None, None) => self.calls.last_mut(),
            (None, Some(id)) => self.calls.iter_mut().find(|call| call.id.as_ref() == Some(id)),
        };
        match open {
            Some(call) if id.is_none() || call.id.is_none() || call.id == id => {
                call.id = call.id.take().or(id);
                append(&mut call.function.name, piece.function.name);
                append(&mut call.function.arguments, piece.function.arguments);
                call.extra_content = piece.extra_content.or_else(|| call.extra_content.take());
            }
            _ => self.calls.push(ToolCallJson { id, ..piece }),
        }
    }

    fn take_calls(&mut self, reason: Option<&str>) -> Result<Vec<Part>, ModelError> {
        call_parts(std::mem::take(&mut self.calls), reason, &self.origin)
    }
}

impl Decoder for Deltas {
    fn payload(&mut self, payload: &str) -> Result<Vec<LlmResponse>, ModelError> {
        if payload.trim() == DONE {
            self.done = true;
            return self.end();
        }
        let mut chunk = parse(payload.as_bytes(), &self.origin)?;
        let mut response = chunk.response(true);
        let mut parts = Vec::new();
        if let Some(choice) = chunk.take_choice() {
            let mut message = choice.message.unwrap_or_default();
            for piece in message.tool_calls.take().unwrap_or_default() {
                self.add_call(piece);
            }
            parts = message.parts();
            if let Some(reason) = choice.finish_reason.as_deref().map(finish_reason) {
                parts.extend(self.take_calls(Some(reason))?);
                finish::set(&mut response, reason, None);
                response.custom_metadata = chunk.metadata();
            }
        }
        if parts.is_empty() && response.finish_reason.is_none() && response.usage_metadata.is_none() {
            return Ok(Vec::new());
        }
        response.content = (!parts.is_empty()).then(|| Content::new("model", parts));
        Ok(vec![response])
    }

    /// The calls of a stream that ended without saying why.
    fn end(&mut self) -> Result<Vec<LlmResponse>, ModelError> {
        let parts = self.take_calls(None)?;
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let content = Some(Content::new("model", parts));
        Ok(vec![LlmResponse { content, partial: true, ..LlmResponse::default() }])
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

fn append(text: &mut Option<String>, more: Option<String>) {
    match (text.as_mut(), more) {
        (Some(text), Some(more)) => text.push_str(&more),
        (None, more) => *text = more,
        (Some(_), None) => {}
    }
}
