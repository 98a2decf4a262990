//! How large a session's prompts are.

use std::sync::Arc;

use hatchery_core::{Content, Event};
use imbl::Vector;

use super::{Shown, shown};

/// Bytes of text that count as a token where no model has counted.
const BYTES_PER_TOKEN: u64 = 4;

/// The tokens of a session's prompts: as the newest answer reports them; while none has, as the texts suggest. Kept up to date as events
/// arrive.
#[derive(Debug, Default)]
pub(crate) struct PromptSize {
    /// How many events have been read.
    read: usize,
    /// Of the newest answer that says so. Nothing once a compaction has changed what is sent.
    reported: Option<u64>,
    /// Of all that is shown.
    text_bytes: u64,
    /// How many events there were at the newest compaction.
    compacted: Option<usize>,
    /// How many events the newest prompt was made of.
    asked: Option<usize>,
}

impl PromptSize {
    /// Reads the events that are new.
    pub(crate) fn read(&mut self, events: &Vector<Arc<Event>>) {
        if events.len() < self.read {
            *self = Self::default();
        }
        let compacted_before = self.compacted;
        let mut focus = events.focus();
        while let Some(event) = focus.get(self.read) {
            self.read += 1;
            if event.actions.compaction.is_some() {
                self.compacted = Some(self.read);
                self.reported = None;
            }
            self.text_bytes += event.content.as_deref().map_or(0, bytes_of);
            let tokens = event.usage_metadata.as_ref().and_then(|usage| usage.prompt_token_count);
            // The answer to a prompt that was made before the compaction says nothing about those after it.
            let is_outdated = self.compacted.zip(self.asked).is_some_and(|(compacted, asked)| asked < compacted);
            if tokens.is_some() && !is_outdated {
                self.reported = tokens;
            }
        }
        if self.compacted != compacted_before {
            self.text_bytes = text_bytes(events);
        }
    }

    /// Notes that a prompt is made of what has been read.
    pub(crate) fn asked(&mut self) {
        self.asked = Some(self.read);
    }

    /// True when prompts are larger than so many tokens.
    pub(crate) fn is_over(&self, tokens: u64) -> bool {
        self.reported.unwrap_or(self.text_bytes / BYTES_PER_TOKEN) > tokens
    }
}

fn text_bytes(events: &Vector<Arc<Event>>) -> u64 {
    let bytes = shown(events).into_iter().map(|item| match item {
        Shown::Event(event) => event.content.as_deref().map_or(0, bytes_of),
        Shown::Summary(compaction) => bytes_of(&compaction.compacted_content),
        Shown::Covered(_) => 0,
    });
    bytes.sum()
}

fn bytes_of(content: &Content) -> u64 {
    let texts = content.parts.iter().filter_map(|part| part.as_text());
    texts.map(|text| u64::try_from(text.len()).unwrap_or(u64::MAX)).sum()
}
