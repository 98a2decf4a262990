//! Thoughts in the form of OpenRouter, `reasoning_details`. It needs those of some models back unchanged, because they
//! contain signatures and encrypted texts of the model's provider.

use hatchery_core::{Content, JsonMap, Part};
use serde_json::Value;

use crate::signatures::SignatureKind;

/// The details of an answer, in their order.
#[derive(Default)]
pub(super) struct ReasoningDetails(Vec<JsonMap>);

impl ReasoningDetails {
    /// Returns the details of an answer that is not streamed.
    pub(super) fn new(details: Option<Value>) -> Self {
        Self(objects(details).collect())
    }

    /// Adds the details of a chunk, which may continue the last one.
    pub(super) fn add(&mut self, details: Option<Value>) {
        for detail in objects(details) {
            match self.0.last_mut() {
                Some(last) if is_continued_by(last, &detail) => append(last, detail),
                _ => self.0.push(detail),
            }
        }
    }

    /// Removes the details, and returns them as the signature of a thought without text. `None` if they are texts only,
    /// which are thoughts already.
    pub(super) fn take_part(&mut self) -> Option<Part> {
        let details = std::mem::take(&mut self.0);
        let has = |detail: &JsonMap, key: &str| detail.get(key).is_some_and(|value| !value.is_null());
        if !details.iter().any(|detail| has(detail, "data") || has(detail, "signature")) {
            return None;
        }
        let json = serde_json::to_string(&details).ok()?;
        let thought_signature = Some(SignatureKind::OpenRouter.write(&json));
        Some(Part { thought: true, thought_signature, ..Part::default() })
    }
}

/// Returns the details of a content of the model.
pub(super) fn details_of(content: &Content) -> Vec<Value> {
    let all = content.parts.iter().filter_map(|part| SignatureKind::OpenRouter.read(part));
    all.filter_map(|json| serde_json::from_str::<Vec<Value>>(json).ok()).flatten().collect()
}

fn objects(details: Option<Value>) -> impl Iterator<Item = JsonMap> {
    let details = match details {
        Some(Value::Array(details)) => details,
        _ => Vec::new(),
    };
    details.into_iter().filter_map(|detail| match detail {
        Value::Object(detail) => Some(detail),
        _ => None,
    })
}

/// Returns true if a detail is a piece of the same text. Encrypted texts come in one piece.
fn is_continued_by(last: &JsonMap, detail: &JsonMap) -> bool {
    let is_same = |key: &str| last.get(key) == detail.get(key);
    is_same("type") && is_same("index") && !detail.contains_key("data")
}

fn append(last: &mut JsonMap, detail: JsonMap) {
    for (key, value) in detail {
        let is_text = key == "text" || key == "summary";
        let is_appended = match (last.get_mut(&key), &value) {
            (Some(Value::String(text)), Value::String(more)) if is_text => {
                text.push_str(more);
                true
            }
            _ => false,
        };
        if !is_appended && !value.is_null() {
            last.insert(key, value);
        }
    }
}
