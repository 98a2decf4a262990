//! Partial messages: the streamed parts of messages that are not complete yet, for followers that join in between.

use std::collections::VecDeque;
use std::sync::Arc;

use hatchery_core::{Content, Event, EventData, Part, PartData, Timestamp, Transcription, json_len};
use serde_json::{Value, json};

/// Maximum size in bytes of the texts that a run keeps, with the parts that they are in.
const MAX_BYTES: usize = 256 << 10;

/// Maximum number of messages that a run keeps.
const MAX_MESSAGES: usize = 128;

/// The messages whose partial events have come, and whose final events have not.
#[derive(Default)]
pub(super) struct PartialMessages {
    /// The one that got no text for the longest time comes first.
    messages: VecDeque<Message>,
}

impl PartialMessages {
    /// Adds the text of a partial event to its message. Any other event completes its message.
    pub(super) fn add(&mut self, event: &Event) {
        let position = self.messages.iter().position(|message| message.id == event.id);
        let known = position.and_then(|position| self.messages.remove(position));
        if !event.partial {
            return;
        }
        let begun = || has_text(event).then(|| Message::new(event));
        let Some(mut message) = known.or_else(begun) else { return };
        message.add(event);
        self.messages.push_back(message);
        if self.messages.len() > MAX_MESSAGES {
            self.messages.pop_front();
        }
        self.limit_bytes();
    }

    /// Drops the texts of the oldest messages if all together are too long.
    fn limit_bytes(&mut self) {
        let mut bytes: usize = self.messages.iter().map(|message| message.bytes).sum();
        for message in &mut self.messages {
            if bytes <= MAX_BYTES {
                return;
            }
            bytes -= message.bytes;
            message.cut();
        }
    }

    /// Returns each message so far as one partial event.
    pub(super) fn to_events(&self) -> Vec<Arc<Event>> {
        self.messages.iter().filter(|message| !message.is_cut).map(Message::to_event).collect()
    }
}

/// Returns true for an event with text or a transcription. Speech, pictures and progress are not kept.
fn has_text(event: &Event) -> bool {
    let mut parts = event.content.iter().flat_map(|content| &content.parts);
    parts.any(|part| part.as_text().is_some_and(|text| !text.is_empty()))
        || event.input_transcription.is_some()
        || event.output_transcription.is_some()
}

/// A message so far.
struct Message {
    id: String,
    invocation_id: String,
    author: String,
    branch: Option<String>,
    role: Option<String>,
    custom_metadata: Option<Box<Value>>,
    /// The time of the last chunk.
    timestamp: Timestamp,
    parts: Vec<Part>,
    input_transcription: String,
    output_transcription: String,
    bytes: usize,
    /// True if the text was dropped: without its beginning, the rest is of no use.
    is_cut: bool,
}

impl Message {
    fn new(event: &Event) -> Self {
        Self {
            id: event.id.clone(),
            invocation_id: event.invocation_id.clone(),
            author: event.author.clone(),
            branch: event.branch.clone(),
            role: event.content.as_ref().and_then(|content| content.role.clone()),
            custom_metadata: event.custom_metadata.clone(),
            timestamp: event.timestamp,
            parts: Vec::new(),
            input_transcription: String::new(),
            output_transcription: String::new(),
            bytes: event.custom_metadata.as_ref().map_or(0, |metadata| json_len(&**metadata)),
            is_cut: false,
        }
    }

    fn add(&mut self, event: &Event) {
        if self.is_cut {
            return;
        }
        self.timestamp = event.timestamp;
        for part in event.content.iter().flat_map(|content| &content.parts) {
            if let Some(text) = part.as_text() {
                self.add_text(text, part.thought);
            }
        }
        let (heard, spoken) = (text_of(&event.input_transcription), text_of(&event.output_transcription));
        self.input_transcription.push_str(heard);
        self.output_transcription.push_str(spoken);
        self.bytes += heard.len() + spoken.len();
    }

    /// Appends text to the last part, unless only one of the two is a thought.
    fn add_text(&mut self, text: &str, thought: bool) {
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        match self.parts.last_mut() {
            Some(Part { data: PartData::Text(last), thought: is_thought, .. }) if *is_thought == thought => {
                last.push_str(text);
            }
            _ => {
                self.bytes += size_of::<Part>();
                self.parts.push(Part { thought, ..Part::text(text) });
            }
        }
    }

    fn cut(&mut self) {
        (self.parts, self.custom_metadata) = (Vec::new(), None);
        (self.input_transcription, self.output_transcription) = (String::new(), String::new());
        (self.bytes, self.is_cut) = (0, true);
    }

    fn to_event(&self) -> Arc<Event> {
        let transcription = |text: &str| {
            let text = Some(text.to_owned()).filter(|text| !text.is_empty())?;
            Some(Box::new(json!(Transcription { text, finished: false })))
        };
        let content = || Arc::new(Content { role: self.role.clone(), parts: self.parts.clone() });
        Event::new(EventData {
            id: self.id.clone(),
            invocation_id: self.invocation_id.clone(),
            author: self.author.clone(),
            branch: self.branch.clone(),
            content: (!self.parts.is_empty()).then(content),
            partial: true,
            custom_metadata: self.custom_metadata.clone(),
            input_transcription: transcription(&self.input_transcription),
            output_transcription: transcription(&self.output_transcription),
            timestamp: self.timestamp,
            ..EventData::default()
        })
    }
}

/// Returns the text of a transcription.
fn text_of(transcription: &Option<Box<Value>>) -> &str {
    transcription.as_ref().and_then(|transcription| transcription.get("text")?.as_str()).unwrap_or_default()
}
