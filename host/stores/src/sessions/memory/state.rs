//! State with its usage, and the state that sessions share.

use hatchery_core::{JsonMap, State, StateScope, StateUsage, is_state_removal, state_entry_bytes};

/// State that several sessions share. The version is incremented by every change.
#[derive(Clone, Default)]
pub(super) struct SharedState {
    pub(super) state: State,
    pub(super) version: u64,
    pub(super) usage: StateUsage,
}

impl SharedState {
    pub(super) fn set(&mut self, name: &str, value: &serde_json::Value) {
        set(&mut self.state, &mut self.usage, name, value);
        self.version += 1;
    }
}

/// Sets a key and updates the totals.
pub(super) fn set(state: &mut State, usage: &mut StateUsage, name: &str, value: &serde_json::Value) {
    if let Some(old) = state.get(name) {
        usage.keys -= 1;
        usage.bytes -= state_entry_bytes(name, old);
    }
    if !is_state_removal(value) {
        usage.keys += 1;
        usage.bytes += state_entry_bytes(name, value);
    }
    state.set(name, value.clone());
}

/// Adds the change from `before` to `after` to a sum of changes. Negative sums wrap around.
pub(super) fn add_change(sum: StateUsage, before: StateUsage, after: StateUsage) -> StateUsage {
    let add = |sum: u64, before: u64, after: u64| sum.wrapping_add(after).wrapping_sub(before);
    StateUsage { keys: add(sum.keys, before.keys, after.keys), bytes: add(sum.bytes, before.bytes, after.bytes) }
}

/// Returns the keys of the session itself, which have no prefix.
pub(super) fn session_keys(state: &State) -> State {
    let mut own = state.clone();
    own.retain(|name| StateScope::split_key(name).0 == StateScope::Session);
    own
}

/// Returns the delta that sets all keys of a state.
pub(super) fn to_delta(state: &State) -> JsonMap {
    state.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
}
