//! Changes of state usage by a delta: an upper bound without reading the state, and the exact value.

use hatchery_core::{JsonMap, State, StateScope, StateUsage, is_state_removal, state_entry_bytes};

/// Keys and bytes that a delta adds to, or replaces in, the state of a session, its user and its app.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StateChange {
    pub(super) session: StateUsage,
    pub(super) user: StateUsage,
    pub(super) app: StateUsage,
}

impl StateChange {
    /// Returns an upper bound of the growth by a delta: all keys that it sets are new, and none that it removes exists.
    pub(super) fn upper_bound(delta: &JsonMap) -> Self {
        let mut change = Self::default();
        for (name, value) in delta {
            if let Some(usage) = change.usage_mut(StateScope::split_key(name).0)
                && !is_state_removal(value)
            {
                usage.keys += 1;
                usage.bytes += state_entry_bytes(name, value);
            }
        }
        change
    }

    /// Returns the part that a delta replaces: the keys of `state` that it overwrites or removes.
    pub(super) fn exact(delta: &JsonMap, state: &State) -> Self {
        let mut change = Self::default();
        for name in delta.keys() {
            if let (Some(usage), Some(old)) = (change.usage_mut(StateScope::split_key(name).0), state.get(name)) {
                usage.keys += 1;
                usage.bytes += state_entry_bytes(name, old);
            }
        }
        change
    }

    fn usage_mut(&mut self, scope: StateScope) -> Option<&mut StateUsage> {
        match scope {
            StateScope::Session => Some(&mut self.session),
            StateScope::User => Some(&mut self.user),
            StateScope::App => Some(&mut self.app),
            StateScope::Temp => None,
        }
    }
}

/// Returns the saturating sum.
pub(super) fn add(one: StateUsage, other: StateUsage) -> StateUsage {
    StateUsage { keys: one.keys.saturating_add(other.keys), bytes: one.bytes.saturating_add(other.bytes) }
}

/// Returns the saturating difference.
pub(super) fn subtract(one: StateUsage, other: StateUsage) -> StateUsage {
    StateUsage { keys: one.keys.saturating_sub(other.keys), bytes: one.bytes.saturating_sub(other.bytes) }
}
