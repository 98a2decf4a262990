//! Decoder of streamed messages: passes text and thoughts through and buffers tool calls until they are complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_core::{Content, JsonMap, LlmResponse, ModelError, Part};
use serde::Deserialize;
use serde_json::Value;

use super::wire::{
    BlockJson, MessageJson, ResponseBlock, UsageJson, call, citations, finish_reason, metadata, redacted_thought,
    thought,
};
use crate::failure::Origin;
use crate::finish;
use crate::sse::Decoder;

/// An event of a stream. Events of unknown types are ignored.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: MessageJson,
    },
    ContentBlockStart {
        #[serde(default)]
        index: u64,
        content_block: BlockJson,
    },
    ContentBlockDelta {
        #[serde(default)]
        index: u64,
        delta: Delta,
    },
    ContentBlockStop {
        #[serde(default)]
        index: u64,
    },
    MessageDelta {
        #[serde(default)]
        delta: MessageDelta,
        usage: Option<UsageJson>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "citations_delta")]
    Citations { citation: Value },
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MessageDelta {
    stop_reason: Option<String>,
}

/// A tool call whose arguments are incomplete.
struct OpenCall {
    id: Option<String>,
    name: String,
    input: JsonMap,
    json: String,
}

impl OpenCall {
    /// Returns true if the call has no arguments, or none yet.
    fn is_empty(&self) -> bool {
        self.json.trim().is_empty() && self.input.is_empty()
    }

    /// Returns the call with its arguments. The error is the reason why they are invalid.
    fn part(self) -> Result<Part, String> {
        let args = match self.json.trim() {
            "" => self.input,
            json => serde_json::from_str(json)
                .map_err(|error| format!("the arguments of tool call `{}` are no JSON object ({error})", self.name))?,
        };
        Ok(call(self.id, self.name, args))
    }
}

pub(super) struct EventDecoder {
    origin: Arc<Origin>,
    id: Option<String>,
    model: Option<String>,
    usage: UsageJson,
    calls: BTreeMap<u64, OpenCall>,
    citations: Vec<Value>,
    /// The reason why a call cannot be read. An error unless the response was cut off.
    malformed_call: Option<String>,
    was_thought: bool,
    has_stop_reason: bool,
    is_done: bool,
}

impl EventDecoder {
    pub(super) fn new(origin: Arc<Origin>) -> Self {
        Self {
            origin,
            id: None,
            model: None,
            usage: UsageJson::default(),
            calls: BTreeMap::new(),
            citations: Vec::new(),
            malformed_call: None,
            was_thought: false,
            has_stop_reason: false,
            is_done: false,
        }
    }

    fn partial(&self, parts: Vec<Part>) -> LlmResponse {
        LlmResponse {
            content: (!parts.is_empty()).then(|| Content::new("model", parts)),
            partial: true,
            model_version: self.model.clone(),
            ..LlmResponse::default()
        }
    }

    fn start_block(&mut self, index: u64, block: ResponseBlock) -> Vec<Part> {
        let is_thought = matches!(block, ResponseBlock::Thinking { .. } | ResponseBlock::RedactedThinking { .. });
        // An empty text separates two thoughts with different signatures.
        let separator = (self.was_thought && is_thought).then(|| Part::text(""));
        self.was_thought = is_thought;
        let part = match block {
            ResponseBlock::Text { text, citations } => {
                self.citations.extend(citations);
                (!text.is_empty()).then(|| Part::text(text))
            }
            ResponseBlock::Thinking { text, signature } => {
                let signature = signature.filter(|signature| !signature.is_empty());
                (!text.is_empty() || signature.is_some()).then(|| thought(text, signature.as_deref()))
            }
            ResponseBlock::RedactedThinking { data } => Some(redacted_thought(&data)),
            ResponseBlock::ToolUse { id, name, input } => {
                self.calls.insert(index, OpenCall { id, name, input, json: String::new() });
                None
            }
            ResponseBlock::Other => None,
        };
        separator.into_iter().chain(part).collect()
    }

    fn add_delta(&mut self, index: u64, delta: Delta) -> Vec<Part> {
        match delta {
            Delta::Text { text } if !text.is_empty() => vec![Part::text(text)],
            Delta::Thinking { thinking } if !thinking.is_empty() => vec![thought(thinking, None)],
            Delta::Signature { signature } if !signature.is_empty() => vec![thought("", Some(&signature))],
            Delta::InputJson { partial_json } => {
                if let Some(call) = self.calls.get_mut(&index) {
                    call.json.push_str(&partial_json);
                }
                Vec::new()
            }
            Delta::Citations { citation } => {
                self.citations.push(citation);
                Vec::new()
            }
            Delta::Text { .. } | Delta::Thinking { .. } | Delta::Signature { .. } | Delta::Other => Vec::new(),
        }
    }

    /// Returns the complete call of a block, if it is one. A call without arguments, and those after it, wait for the
    /// end of the message: the block may have been cut off before its arguments.
    fn stop_block(&mut self, index: u64) -> Vec<Part> {
        let is_waiting = self.calls.range(..index).next().is_some();
        if is_waiting || self.calls.get(&index).is_some_and(OpenCall::is_empty) {
            return Vec::new();
        }
        match self.calls.remove(&index).map(OpenCall::part) {
            Some(Ok(part)) => vec![part],
            Some(Err(reason)) => {
                self.malformed_call.get_or_insert(reason);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Returns the last response, with the usage. `reason` has Gemini's name.
    fn end_message(&mut self, reason: &'static str) -> Result<LlmResponse, ModelError> {
        self.has_stop_reason = true;
        let mut parts = Vec::new();
        let last = self.calls.keys().next_back().copied();
        for (index, call) in std::mem::take(&mut self.calls) {
            if reason != finish::STOP && Some(index) == last && call.is_empty() {
                continue;
            }
            match call.part() {
                Ok(part) => parts.push(part),
                Err(reason) => {
                    self.malformed_call.get_or_insert(reason);
                }
            }
        }
        if let Some(malformed) = self.malformed_call.take().filter(|_| reason == finish::STOP) {
            return Err(self.origin.bad_response(malformed));
        }
        let mut response = LlmResponse {
            usage_metadata: Some(self.usage.metadata()),
            grounding_metadata: citations(std::mem::take(&mut self.citations)),
            custom_metadata: metadata(self.id.take()),
            ..self.partial(parts)
        };
        finish::set(&mut response, reason, None);
        Ok(response)
    }
}

impl Decoder for EventDecoder {
    fn decode(&mut self, payload: &str) -> Result<Vec<LlmResponse>, ModelError> {
        let parts = match serde_json::from_str(payload).map_err(|error| self.origin.bad_response(error))? {
            Event::MessageStart { message } => {
                self.usage = message.usage.unwrap_or_default();
                self.model = message.model;
                self.id = message.id;
                Vec::new()
            }
            Event::ContentBlockStart { index, content_block } => self.start_block(index, content_block.into()),
            Event::ContentBlockDelta { index, delta } => self.add_delta(index, delta),
            Event::ContentBlockStop { index } => self.stop_block(index),
            Event::MessageDelta { delta, usage } => {
                self.usage = usage.unwrap_or_default().or(self.usage);
                return match delta.stop_reason.as_deref().map(finish_reason) {
                    Some(reason) => Ok(vec![self.end_message(reason)?]),
                    None => Ok(Vec::new()),
                };
            }
            Event::MessageStop => {
                self.is_done = true;
                Vec::new()
            }
            Event::Error { error } => return Err(self.origin.body_error(&error)),
            Event::Other => Vec::new(),
        };
        Ok(if parts.is_empty() { Vec::new() } else { vec![self.partial(parts)] })
    }

    fn finish(&mut self) -> Result<Vec<LlmResponse>, ModelError> {
        if self.has_stop_reason { Ok(Vec::new()) } else { Err(self.origin.incomplete_answer()) }
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}
