//! Usage counters of a run: model calls, tokens, events and schema checks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures::StreamExt;
use serde::{Deserialize, Serialize};

use crate::error::{RunError, RunLimit};
use crate::event::{Event, UsageMetadata};
use crate::model::{LlmResponse, ResponseStream};

/// The resources that a run has used so far.
#[derive(Debug, Default)]
pub struct RunUsage {
    /// Model calls.
    pub llm_calls: AtomicU32,
    /// Tokens, as the models count them.
    pub tokens: AtomicU64,
    /// Steps of checks against JSON Schemas.
    pub check_steps: AtomicU64,
    /// Stored events, and events of agents called as tools, which stay in memory until the call ends.
    pub events: AtomicU32,
    /// Bytes of the JSON of these events, of all streamed chunks, and of `temp:` state that was set.
    pub event_bytes: AtomicU64,
    /// Rounds of loop agents.
    pub rounds: AtomicU32,
    /// Requests to models that were sent again.
    pub model_retries: AtomicU32,
    /// The limit of events or bytes that was exceeded first.
    exceeded: OnceLock<ExceededLimit>,
}

/// A limit of the run, and the agent that exceeded it.
#[derive(Debug, Clone)]
pub(crate) struct ExceededLimit {
    pub(crate) limit: RunLimit,
    pub(crate) value: u64,
    pub(crate) agent: String,
}

/// The counters of a [`RunUsage`] at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageSnapshot {
    /// Model calls.
    pub llm_calls: u32,
    pub tokens: u64,
    /// Steps of checks against JSON Schemas.
    pub check_steps: u64,
    /// Stored events.
    pub events: u32,
    pub event_bytes: u64,
}

impl UsageSnapshot {
    /// Adds a stored event of an agent. An event with metadata of a model counts as one model call.
    pub fn add_event(&mut self, event: &Event) {
        let is_model_call =
            event.usage_metadata.is_some() || event.finish_reason.is_some() || event.model_version.is_some();
        self.llm_calls = self.llm_calls.saturating_add(u32::from(is_model_call));
        self.tokens = self.tokens.saturating_add(event.usage_metadata.as_deref().map_or(0, UsageMetadata::total));
        self.events = self.events.saturating_add(1);
        self.event_bytes = self.event_bytes.saturating_add(event.json_len() as u64);
    }
}

impl From<UsageSnapshot> for RunUsage {
    fn from(snapshot: UsageSnapshot) -> Self {
        Self {
            llm_calls: snapshot.llm_calls.into(),
            tokens: snapshot.tokens.into(),
            check_steps: snapshot.check_steps.into(),
            events: snapshot.events.into(),
            event_bytes: snapshot.event_bytes.into(),
            // A run that is resumed replays its rounds, and counts them again.
            rounds: AtomicU32::new(0),
            model_retries: AtomicU32::new(0),
            exceeded: OnceLock::new(),
        }
    }
}

impl RunUsage {
    /// Returns the counters as they are now.
    pub fn snapshot(&self) -> UsageSnapshot {
        UsageSnapshot {
            llm_calls: self.llm_calls.load(Ordering::Relaxed),
            tokens: self.tokens.load(Ordering::Relaxed),
            check_steps: self.check_steps.load(Ordering::Relaxed),
            events: self.events.load(Ordering::Relaxed),
            event_bytes: self.event_bytes.load(Ordering::Relaxed),
        }
    }

    /// Counts the tokens of one model call while its responses are read.
    pub(crate) fn count_tokens(self: Arc<Self>, responses: ResponseStream) -> ResponseStream {
        let mut counter = TokenCounter::default();
        let count = move |response: &Result<LlmResponse, _>| {
            if let Ok(response) = response {
                self.tokens.fetch_add(counter.add(response), Ordering::Relaxed);
            }
        };
        responses.inspect(count).boxed()
    }

    /// Records that a limit was exceeded. Returns false if one was exceeded before.
    pub(crate) fn record_exceeded(&self, exceeded: ExceededLimit) -> bool {
        self.exceeded.set(exceeded).is_ok()
    }

    /// Returns the limit that was exceeded first.
    pub(crate) fn exceeded_limit(&self) -> Option<&ExceededLimit> {
        self.exceeded.get()
    }
}

impl From<ExceededLimit> for RunError {
    fn from(ExceededLimit { limit, value, agent }: ExceededLimit) -> Self {
        Self::Limit { limit, value, agent }
    }
}

/// Counts the tokens of one model call. Each response reports the total of the call so far, so only increases are
/// added.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenCounter {
    total: u64,
}

impl TokenCounter {
    /// Returns the number of tokens that `response` adds to those counted before.
    pub fn add(&mut self, response: &LlmResponse) -> u64 {
        let total = response.usage_metadata.as_ref().map_or(0, UsageMetadata::total);
        let added = total.saturating_sub(self.total);
        self.total += added;
        added
    }

    /// Returns the tokens counted so far.
    pub fn total(self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_increases_of_a_calls_total_are_counted() {
        let mut counter = TokenCounter::default();
        let response = |total_token_count| LlmResponse {
            usage_metadata: Some(UsageMetadata { total_token_count, ..UsageMetadata::default() }),
            ..LlmResponse::default()
        };
        let added = [Some(3), None, Some(2), Some(7)].map(|total| counter.add(&response(total)));
        assert_eq!(added, [3, 0, 0, 4]);
        assert_eq!(counter.add(&LlmResponse::default()), 0);
        assert_eq!(counter.total(), 7);
    }
}
