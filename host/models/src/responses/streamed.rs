//! Decoder of streamed responses: passes text and thoughts through, and tool calls when they are complete.

use std::sync::Arc;

use hatchery_core::{Content, LlmResponse, ModelError, Part};
use serde::Deserialize;
use serde_json::Value;

use super::wire::{OutputItem, ResponseJson, thought};
use crate::failure::Origin;
use crate::sse::Decoder;

/// An event of a stream. Events of unknown types are ignored.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Event {
    #[serde(rename = "response.created")]
    Created { response: ResponseJson },
    #[serde(rename = "response.output_text.delta", alias = "response.refusal.delta")]
    Text { delta: String },
    #[serde(rename = "response.reasoning_summary_text.delta", alias = "response.reasoning_text.delta")]
    Thought { delta: String },
    #[serde(rename = "response.reasoning_summary_part.added")]
    SummaryPart {
        #[serde(default)]
        summary_index: u64,
    },
    #[serde(rename = "response.output_item.added")]
    ItemAdded { item: OutputItem },
    #[serde(rename = "response.output_item.done")]
    ItemDone { item: OutputItem },
    #[serde(rename = "response.completed", alias = "response.incomplete", alias = "response.failed")]
    Ended { response: ResponseJson },
    #[serde(rename = "error")]
    Error(Value),
    #[serde(other)]
    Other,
}

pub(super) struct EventDecoder {
    origin: Arc<Origin>,
    model: Option<String>,
    /// True if the current item has been passed through by its deltas.
    has_deltas: bool,
    was_thought: bool,
    /// The reason why a call cannot be read. An error unless the response was cut off.
    malformed_call: Option<String>,
    is_done: bool,
}

impl EventDecoder {
    pub(super) fn new(origin: Arc<Origin>) -> Self {
        Self { origin, model: None, has_deltas: false, was_thought: false, malformed_call: None, is_done: false }
    }

    fn partial(&self, parts: Vec<Part>) -> LlmResponse {
        LlmResponse {
            content: (!parts.is_empty()).then(|| Content::new("model", parts)),
            partial: true,
            model_version: self.model.clone(),
            ..LlmResponse::default()
        }
    }

    fn start_item(&mut self, item: &OutputItem) -> Vec<Part> {
        let is_thought = matches!(item, OutputItem::Reasoning { .. });
        // An empty text separates two thoughts with different encrypted forms.
        let separator = (self.was_thought && is_thought).then(|| Part::text(""));
        self.was_thought = is_thought;
        self.has_deltas = false;
        separator.into_iter().collect()
    }

    /// Returns the parts of a complete item that its deltas have not sent yet.
    fn end_item(&mut self, item: OutputItem) -> Vec<Part> {
        let had_deltas = std::mem::take(&mut self.has_deltas);
        match item {
            OutputItem::Message { .. } if had_deltas => Vec::new(),
            OutputItem::Reasoning { encrypted_content, .. } if had_deltas => {
                thought("", encrypted_content.as_deref()).into_iter().collect()
            }
            item => item.parts().unwrap_or_else(|reason| {
                self.malformed_call.get_or_insert(reason);
                Vec::new()
            }),
        }
    }

    fn end(&mut self, response: ResponseJson) -> Result<LlmResponse, ModelError> {
        self.is_done = true;
        let is_cut_off = response.is_incomplete();
        let response = response.into_response(&self.origin)?;
        match self.malformed_call.take().filter(|_| !is_cut_off) {
            Some(reason) => Err(self.origin.bad_response(reason)),
            None => Ok(LlmResponse { partial: true, ..response }),
        }
    }
}

impl Decoder for EventDecoder {
    fn decode(&mut self, payload: &str) -> Result<Vec<LlmResponse>, ModelError> {
        let parts = match serde_json::from_str(payload).map_err(|error| self.origin.bad_response(error))? {
            Event::Created { response } => {
                self.model = response.model;
                Vec::new()
            }
            Event::Text { delta } => {
                self.has_deltas = true;
                if delta.is_empty() { Vec::new() } else { vec![Part::text(delta)] }
            }
            Event::Thought { delta } => {
                self.has_deltas = true;
                thought(delta, None).into_iter().collect()
            }
            Event::SummaryPart { summary_index: 0 } => Vec::new(),
            Event::SummaryPart { .. } => thought("\n\n", None).into_iter().collect(),
            Event::ItemAdded { item } => self.start_item(&item),
            Event::ItemDone { item } => self.end_item(item),
            Event::Ended { response } => return Ok(vec![self.end(response)?]),
            // The error is the event itself, or below a key.
            Event::Error(event) => return Err(self.origin.body_error(event.get("error").unwrap_or(&event))),
            Event::Other => Vec::new(),
        };
        Ok(if parts.is_empty() { Vec::new() } else { vec![self.partial(parts)] })
    }

    /// Returns the error of a stream without its last event.
    fn finish(&mut self) -> Result<Vec<LlmResponse>, ModelError> {
        Err(match self.malformed_call.take() {
            Some(reason) => self.origin.bad_response(reason),
            None => self.origin.incomplete_answer(),
        })
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}
