//! Transcriptions of speech: chunks, and the whole text.

use hatchery_core::{EventData, Transcription, new_event_id};
use serde_json::json;

/// The unstored transcription of one side.
#[derive(Default)]
pub(super) struct Speech {
    /// The id of the event that will have the whole text; empty until there is text.
    id: String,
    text: String,
}

impl Speech {
    /// Adds a chunk. Returns its event: partial, or with the whole text if the chunk is the last one.
    pub(super) fn add(&mut self, chunk: &Transcription) -> Option<EventData> {
        self.text.push_str(&chunk.text);
        if self.text.is_empty() {
            return None;
        }
        if chunk.finished {
            return self.finish();
        }
        if self.id.is_empty() {
            self.id = new_event_id();
        }
        Some(event(self.id.clone(), &chunk.text, true))
    }

    /// Returns the event with the whole text, and resets. `None` if there is no text.
    pub(super) fn finish(&mut self) -> Option<EventData> {
        let Self { id, text } = std::mem::take(self);
        (!text.is_empty()).then(|| event(id, &text, false))
    }
}

/// Returns an event with the transcription of the model's speech.
fn event(id: String, text: &str, partial: bool) -> EventData {
    let transcription = json!(Transcription { text: text.into(), finished: !partial });
    EventData { id, partial, output_transcription: Some(Box::new(transcription)), ..EventData::default() }
}
