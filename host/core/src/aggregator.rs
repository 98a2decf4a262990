//! Joins the chunks of a streamed model response into one response.

use crate::{Content, LlmResponse, Part, PartData};

/// Accumulates response chunks. Adjacent texts are joined, and adjacent thoughts as well, unless they have different
/// signatures. All other parts are kept unchanged and in order.
#[derive(Debug, Default)]
pub struct Aggregator {
    response: Option<LlmResponse>,
    parts: Vec<Part>,
    role: Option<String>,
    has_content: bool,
}

impl Aggregator {
    /// Adds a chunk, or a complete response. Of the fields other than content, the last value wins.
    pub fn push(&mut self, chunk: LlmResponse) {
        let response = self.response.get_or_insert_default();
        response.turn_complete = chunk.turn_complete.or(response.turn_complete);
        response.interrupted = chunk.interrupted.or(response.interrupted);
        response.finish_reason = chunk.finish_reason.or(response.finish_reason.take());
        response.error_code = chunk.error_code.or(response.error_code.take());
        response.error_message = chunk.error_message.or(response.error_message.take());
        response.usage_metadata = chunk.usage_metadata.or(response.usage_metadata.take());
        response.model_version = chunk.model_version.or(response.model_version.take());
        response.grounding_metadata = chunk.grounding_metadata.or(response.grounding_metadata.take());
        response.custom_metadata = chunk.custom_metadata.or(response.custom_metadata.take());
        response.avg_logprobs = chunk.avg_logprobs.or(response.avg_logprobs);
        if let Some(content) = chunk.content {
            self.has_content = true;
            self.role = self.role.take().or(content.role);
            for part in content.parts {
                self.push_part(part);
            }
        }
    }

    /// Returns the complete response, or `None` if nothing was pushed.
    pub fn finish(self) -> Option<LlmResponse> {
        let mut response = self.response?;
        // Some streams end with a chunk of empty text.
        let parts: Vec<_> = self.parts.into_iter().filter(|part| !is_bare_empty_text(part)).collect();
        if self.has_content && !(parts.is_empty() && response.error_code.is_some()) {
            response.content = Some(Content { role: self.role, parts });
        }
        Some(response)
    }

    fn push_part(&mut self, part: Part) {
        let Some(last) = self.parts.last_mut() else {
            self.parts.push(part);
            return;
        };
        let is_signed = has_signature(last);
        // A signature is valid for its own part only.
        let is_other = is_signed && has_signature(&part) && last.thought_signature != part.thought_signature;
        match (&mut last.data, &part.data) {
            (PartData::Text(text), PartData::Text(more))
                if last.thought == part.thought && last.extra == part.extra && !is_other =>
            {
                text.push_str(more);
                // Joined parts keep their non-empty signature.
                if !is_signed {
                    last.thought_signature = part.thought_signature.filter(|signature| !signature.is_empty());
                }
            }
            _ => self.parts.push(part),
        }
    }
}

fn has_signature(part: &Part) -> bool {
    part.thought_signature.as_ref().is_some_and(|signature| !signature.is_empty())
}

fn is_bare_empty_text(part: &Part) -> bool {
    part.as_text() == Some("") && part.thought_signature.is_none() && part.extra.is_empty()
}
