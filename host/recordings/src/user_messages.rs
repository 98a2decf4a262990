//! User messages of a session: collected from its events when recording, sent again when replaying.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{CallContext, Content, Event, JsonMap, PartData, USER_AUTHOR};
use imbl::Vector;

use crate::UserMessage;

/// The state key that requests recording of a session.
pub(crate) const RECORD_KEY: &str = "_adk_recordings_config";

/// The state key that requests replay of a session.
pub(crate) const REPLAY_KEY: &str = "_adk_replay_config";

/// Returns the user's message in an event, with speech as text.
fn content_of(event: &Event) -> Option<Content> {
    let transcription = || event.input_transcription.as_ref()?.get("text")?.as_str().map(Content::user);
    event.content.as_ref().map(|content| content.as_ref().clone()).or_else(transcription)
}

/// Returns true for an event with a message of the user.
pub(crate) fn is_message(event: &Event) -> bool {
    event.author == USER_AUTHOR && content_of(event).is_some()
}

/// Returns false for a live run that begins with speech.
pub(crate) fn begins_with_message(cx: &CallContext) -> bool {
    !cx.invocation.user_content().parts.is_empty()
}

/// Returns the user's messages in these events. Speech is text.
pub(crate) fn collect(events: &Vector<Arc<Event>>) -> Vec<UserMessage> {
    let mut messages: Vec<UserMessage> = Vec::new();
    let mut state_delta = JsonMap::new();
    for event in events {
        if event.author != USER_AUTHOR {
            if let Some(message) = messages.last_mut() {
                message.error_code = event.error_code.clone().filter(|_| event.is_run_failure());
            }
            continue;
        }
        // A client can also set state without sending a message.
        state_delta.extend(event.actions.state_delta.clone());
        if let Some(content) = content_of(event) {
            let state_delta = without_config_keys(std::mem::take(&mut state_delta));
            messages.push(UserMessage { content, state_delta, error_code: None });
        }
    }
    messages
}

/// Removes the state keys that request recording or replay.
pub(crate) fn without_config_keys(mut state: JsonMap) -> JsonMap {
    state.retain(|key, _| ![RECORD_KEY, REPLAY_KEY].contains(&key.as_str()));
    state
}

impl UserMessage {
    /// Returns the content to send in a replay whose session has `events` so far. A function response whose call has
    /// another id in the replay is assigned to the first unanswered call with the same name.
    pub fn content_for(&self, events: &Vector<Arc<Event>>) -> Content {
        let mut content = self.content.clone();
        let mut answered: HashSet<&str> = HashSet::new();
        answered.extend(
            events.iter().flat_map(|event| event.function_responses()).filter_map(|response| response.id.as_deref()),
        );
        let calls = || events.iter().flat_map(|event| event.function_calls());
        for part in &mut content.parts {
            let PartData::FunctionResponse(response) = &mut part.data else { continue };
            if calls().any(|call| call.id == response.id) {
                continue;
            }
            let unanswered = calls()
                .find(|call| call.name == response.name && call.id.as_deref().is_some_and(|id| !answered.contains(id)));
            if let Some(id) = unanswered.and_then(|call| call.id.as_deref()) {
                answered.insert(id);
                response.id = Some(id.to_owned());
            }
        }
        content
    }
}
