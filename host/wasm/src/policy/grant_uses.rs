//! Counters of the uses of grants, and of refusals because a grant is missing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;

/// Numbers of uses, by configuration key and entry.
pub type GrantCounts = BTreeMap<&'static str, BTreeMap<String, u64>>;

/// The uses of grants since they were read. Clones share the numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrantUses(Arc<Mutex<GrantUseCounts>>);

#[derive(Debug, Default)]
struct GrantUseCounts {
    used: GrantCounts,
    refused: BTreeMap<&'static str, u64>,
}

impl GrantUses {
    /// Counts an operation that an entry below `key` has allowed.
    pub(crate) fn count(&self, key: &'static str, entry: &str) {
        let mut counts = self.0.lock_unpoisoned();
        let entries = counts.used.entry(key).or_default();
        match entries.get_mut(entry) {
            Some(count) => *count += 1,
            None => {
                entries.insert(entry.to_owned(), 1);
            }
        }
    }

    /// Counts an operation that was refused because an entry below `key` is missing.
    pub(crate) fn count_refusal(&self, key: &'static str) {
        *self.0.lock_unpoisoned().refused.entry(key).or_default() += 1;
    }

    /// Returns the numbers of uses.
    pub(crate) fn used(&self) -> GrantCounts {
        self.0.lock_unpoisoned().used.clone()
    }

    /// Returns the numbers of refusals by key.
    pub(crate) fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock_unpoisoned().refused.clone()
    }
}
