//! Adds the pieces of a streamed answer up into the whole.

use hatchery_core::{Content, LlmResponse, Part, PartData};

/// The whole of what has been pushed. Runs of text and runs of thought are joined, each in its place; everything else stays as it came.
#[derive(Debug, Default)]
pub struct Aggregator {
    whole: Option<LlmResponse>,
    parts: Vec<Part>,
    role: Option<String>,
    has_content: bool,
}

impl Aggregator {
    /// Adds a piece, or a whole answer.
    pub fn push(&mut self, piece: LlmResponse) {
        let whole = self.whole.get_or_insert_default();
        whole.finish_reason = piece.finish_reason.or(whole.finish_reason.take());
        whole.error_code = piece.error_code.or(whole.error_code.take());
        whole.error_message = piece.error_message.or(whole.error_message.take());
        whole.usage_metadata = piece.usage_metadata.or(whole.usage_metadata.take());
        whole.model_version = piece.model_version.or(whole.model_version.take());
        whole.grounding_metadata = piece.grounding_metadata.or(whole.grounding_metadata.take());
        whole.custom_metadata = piece.custom_metadata.or(whole.custom_metadata.take());
        whole.avg_logprobs = piece.avg_logprobs.or(whole.avg_logprobs);
        if let Some(content) = piece.content {
            self.has_content = true;
            self.role = self.role.take().or(content.role);
            for part in content.parts {
                self.push_part(part);
            }
        }
    }

    /// The whole answer; nothing if nothing came.
    pub fn finish(self) -> Option<LlmResponse> {
        let mut whole = self.whole?;
        // A bare empty text carries nothing: it is how some streams say that they end.
        let parts: Vec<_> = self.parts.into_iter().filter(|part| !is_bare_empty_text(part)).collect();
        if self.has_content && !(parts.is_empty() && whole.error_code.is_some()) {
            whole.content = Some(Content { role: self.role, parts });
        }
        Some(whole)
    }

    fn push_part(&mut self, part: Part) {
        let Some(last) = self.parts.last_mut() else {
            self.parts.push(part);
            return;
        };
        match (&mut last.data, &part.data) {
            (PartData::Text(text), PartData::Text(more))
                if last.thought == part.thought && last.extra == part.extra =>
            {
                text.push_str(more);
                // Of the signatures in a run, the first that says something stands for the run.
                let signed = last.thought_signature.as_ref().is_some_and(|signature| !signature.is_empty());
                if !signed {
                    last.thought_signature = part.thought_signature.filter(|signature| !signature.is_empty());
                }
            }
            _ => self.parts.push(part),
        }
    }
}

fn is_bare_empty_text(part: &Part) -> bool {
    part.as_text() == Some("") && part.thought_signature.is_none() && part.extra.is_empty()
}
