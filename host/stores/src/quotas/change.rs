//! What a delta of state adds to the totals: at most, without looking at the state, and exactly.

use hatchery_core::{JsonMap, State, StateScope, StateUsage, is_state_removal, state_entry_bytes};

/// Keys and bytes that a delta adds to the state of a session, its user and its app.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) session: StateUsage,
    pub(super) user: StateUsage,
    pub(super) app: StateUsage,
}

impl Change {
    /// The most that a delta adds: every key that it sets is new, none that it removes was there.
    pub(super) fn at_most(delta: &JsonMap) -> Self {
        let mut change = Self::default();
        for (name, value) in delta {
            if let Some(usage) = change.of_mut(StateScope::of(name).0)
                && !is_state_removal(value)
            {
                usage.keys += 1;
                usage.bytes += state_entry_bytes(name, value);
            }
        }
        change
    }

    /// What a delta takes away: the keys of `state` that it sets anew or removes.
    pub(super) fn replaced(delta: &JsonMap, state: &State) -> Self {
        let mut change = Self::default();
        for name in delta.keys() {
            if let (Some(usage), Some(old)) = (change.of_mut(StateScope::of(name).0), state.get(name)) {
                usage.keys += 1;
                usage.bytes += state_entry_bytes(name, old);
            }
        }
        change
    }

    fn of_mut(&mut self, scope: StateScope) -> Option<&mut StateUsage> {
        match scope {
            StateScope::Session => Some(&mut self.session),
            StateScope::User => Some(&mut self.user),
            StateScope::App => Some(&mut self.app),
            StateScope::Temp => None,
        }
    }
}

/// The sum of two.
pub(super) fn add(one: StateUsage, other: StateUsage) -> StateUsage {
    StateUsage { keys: one.keys.saturating_add(other.keys), bytes: one.bytes.saturating_add(other.bytes) }
}

/// The rest of one after the other, at least 0.
pub(super) fn subtract(one: StateUsage, other: StateUsage) -> StateUsage {
    StateUsage { keys: one.keys.saturating_sub(other.keys), bytes: one.bytes.saturating_sub(other.bytes) }
}
