//! A message of a live run whose parts arrive one by one, and its limits.

use hatchery_core::{
    Content, JsonMap, LiveRequest, MAX_MESSAGE_PARTS, Part, QueuedRequest, Reservation, RunError, USER_AUTHOR, json_len,
};

/// A message that is not complete yet.
#[derive(Default)]
pub(crate) struct PendingMessage {
    /// Maximum size in bytes of its JSON.
    limit: usize,
    bytes: usize,
    /// Parts, or requests without parts.
    count: usize,
    parts: Vec<Part>,
    state_delta: JsonMap,
    reservations: Vec<Reservation>,
}

/// A message that is complete.
pub(crate) struct LiveMessage {
    pub(crate) content: Content,
    /// Changes of state that are stored with the message.
    pub(crate) state_delta: JsonMap,
    pub(crate) reservations: Vec<Reservation>,
}

impl PendingMessage {
    /// Creates an empty message of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Adds parts and changes of state.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the message has too many parts or bytes with them.
    pub(crate) fn add(
        &mut self,
        parts: Vec<Part>,
        state_delta: JsonMap,
        reservations: Vec<Reservation>,
    ) -> Result<(), RunError> {
        self.count = self.count.saturating_add(parts.len().max(1));
        self.bytes = self.bytes.saturating_add(json_len(&parts)).saturating_add(json_len(&state_delta));
        // The requests that a message comes in are limited too.
        if self.count > MAX_MESSAGE_PARTS {
            let message = format!("a message has at most {MAX_MESSAGE_PARTS} parts; send it as several");
            return Err(RunError::BadInput(message));
        }
        if self.bytes > self.limit {
            return Err(RunError::BadInput(format!(
                "the parts of a message have at most {} bytes together; send it as several",
                self.limit
            )));
        }
        self.parts.extend(parts);
        self.state_delta.extend(state_delta);
        self.reservations.extend(reservations);
        Ok(())
    }

    /// Removes and returns the message. `None` if it has no parts.
    pub(crate) fn take(&mut self) -> Option<LiveMessage> {
        let Self { parts, state_delta, reservations, .. } = std::mem::replace(self, Self::new(self.limit));
        let content = (!parts.is_empty()).then(|| Content::new(USER_AUTHOR, parts))?;
        Some(LiveMessage { content, state_delta, reservations })
    }
}

impl From<LiveMessage> for QueuedRequest {
    fn from(LiveMessage { content, state_delta, reservations }: LiveMessage) -> Self {
        Self { request: LiveRequest::Content { content, partial: false, state_delta }, reservations }
    }
}
