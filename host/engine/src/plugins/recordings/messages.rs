//! What the user said in a session, read from its events and given to it again.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{Content, Event, JsonMap, PartData, USER_AUTHOR};
use imbl::Vector;

use super::UserMessage;
use super::place::CONFIG_KEYS;

/// What the user has said so far.
pub(super) fn of_session(events: &Vector<Arc<Event>>) -> Vec<UserMessage> {
    let mut messages: Vec<UserMessage> = Vec::new();
    let mut state_delta = JsonMap::new();
    for event in events {
        if event.author != USER_AUTHOR {
            if let Some(message) = messages.last_mut() {
                message.error_code = event.error_code.clone().filter(|_| event.content.is_none());
            }
            continue;
        }
        // A client may also set state without saying anything.
        state_delta.extend(event.actions.state_delta.clone());
        if let Some(content) = &event.content {
            let state_delta = without_config(std::mem::take(&mut state_delta));
            messages.push(UserMessage { content: content.as_ref().clone(), state_delta, error_code: None });
        }
    }
    messages
}

/// State without what says that the session is recorded or replayed.
pub(super) fn without_config(mut state: JsonMap) -> JsonMap {
    state.retain(|key, _| !CONFIG_KEYS.contains(&key.as_str()));
    state
}

impl UserMessage {
    /// The message for a replay of the session whose events so far are `events`. An answer to a call that has another id there goes to the
    /// first call of that name which nobody has answered.
    pub fn content_for(&self, events: &Vector<Arc<Event>>) -> Content {
        let mut content = self.content.clone();
        let mut answered: HashSet<&str> = HashSet::new();
        answered.extend(events.iter().flat_map(|event| event.function_responses()).filter_map(|it| it.id.as_deref()));
        let calls = || events.iter().flat_map(|event| event.function_calls());
        for part in &mut content.parts {
            let PartData::FunctionResponse(response) = &mut part.data else { continue };
            if calls().any(|call| call.id == response.id) {
                continue;
            }
            let open = calls()
                .find(|call| call.name == response.name && call.id.as_deref().is_some_and(|id| !answered.contains(id)));
            if let Some(id) = open.and_then(|call| call.id.as_deref()) {
                answered.insert(id);
                response.id = Some(id.to_owned());
            }
        }
        content
    }
}
