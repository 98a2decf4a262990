//! Size of a session's prompts in tokens.

use std::sync::Arc;

use hatchery_core::{Content, Event};
use imbl::Vector;

use super::{HistoryItem, effective_history};
use crate::history::rewind;

/// The number of bytes of text per token in estimates.
const BYTES_PER_TOKEN: u64 = 4;

/// The size of a session's prompts: the token count that the model reported with its newest response, or an estimate
/// from the texts. It is updated incrementally.
#[derive(Debug, Default)]
pub(crate) struct PromptSize {
    /// The number of events that have been read.
    read: usize,
    /// Tokens in the newest report. `None` after a compaction or a rewind, because it changes the prompt.
    reported: Option<u64>,
    /// Of all effective events.
    text_bytes: u64,
    /// The number of events at the newest compaction or rewind.
    compacted_at: Option<usize>,
    /// The number of events in the newest prompt.
    sent_at: Option<usize>,
}

impl PromptSize {
    /// Reads new events.
    pub(crate) fn read(&mut self, events: &Vector<Arc<Event>>) {
        if events.len() < self.read {
            *self = Self::default();
        }
        let previous_compaction = self.compacted_at;
        let mut focus = events.focus();
        while let Some(event) = focus.get(self.read) {
            self.read += 1;
            if event.actions.compaction.is_some() || rewind::is_rewind(event) {
                self.compacted_at = Some(self.read);
                self.reported = None;
            }
            self.text_bytes += event.content.as_deref().map_or(0, text_bytes);
            let tokens = event.usage_metadata.as_ref().and_then(|usage| usage.prompt_token_count);
            // Ignores the response to a prompt that was sent before the compaction.
            let is_outdated = self.compacted_at.zip(self.sent_at).is_some_and(|(compacted, sent)| sent < compacted);
            if tokens.is_some() && !is_outdated {
                self.reported = tokens;
            }
        }
        if self.compacted_at != previous_compaction {
            self.text_bytes = effective_text_bytes(events);
        }
    }

    /// Records that a prompt with the events read so far is sent.
    pub(crate) fn record_sent_prompt(&mut self) {
        self.sent_at = Some(self.read);
    }

    /// Returns true if prompts have more than `tokens` tokens.
    pub(crate) fn is_over(&self, tokens: u64) -> bool {
        self.reported.unwrap_or(self.text_bytes / BYTES_PER_TOKEN) > tokens
    }
}

fn effective_text_bytes(events: &Vector<Arc<Event>>) -> u64 {
    let bytes = effective_history(events).into_iter().map(|item| match item {
        HistoryItem::Event(event) => event.content.as_deref().map_or(0, text_bytes),
        HistoryItem::Summary(compaction) => text_bytes(&compaction.compacted_content),
        HistoryItem::Covered(_) | HistoryItem::Annulled(_) => 0,
    });
    bytes.sum()
}

fn text_bytes(content: &Content) -> u64 {
    let texts = content.parts.iter().filter_map(|part| part.as_text());
    texts.map(|text| u64::try_from(text.len()).unwrap_or(u64::MAX)).sum()
}
