//! Size accounting of pending writes: state and requests to a person that a call has set stay in the memory of the host
//! until the event that reports them is stored.

use std::collections::HashMap;

use super::memory::MemoryReservation;
use crate::contract::convert::ITEM_SIZE;
use crate::runtime::limits::{Limit, LimitExceeded, Limits};

/// The sizes of the values that a call has set, the last one per key.
pub(crate) struct PendingWrites {
    limits: Limits,
    sizes: HashMap<WriteKey, u64>,
    total: u64,
    /// The memory of the values, the last one per key.
    reservations: HashMap<WriteKey, MemoryReservation>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum WriteKey {
    State(String),
    /// The request for a confirmation.
    Confirmation,
    /// The request for a credential.
    Credential,
}

impl PendingWrites {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, sizes: HashMap::new(), total: 0, reservations: HashMap::new() }
    }

    /// Records that `key` is set to a value of `bytes`. A new value replaces the size of the earlier one.
    ///
    /// # Errors
    /// If the sum exceeds `limits.result`; then nothing is recorded.
    pub(crate) fn record(&mut self, key: WriteKey, bytes: usize) -> Result<(), LimitExceeded> {
        let size = ITEM_SIZE + bytes as u64;
        let before = self.sizes.get(&key).copied().unwrap_or(0);
        let total = (self.total - before).saturating_add(size);
        if total > self.limits.result {
            return Err(self.limits.exceeded(Limit::Result));
        }
        self.total = total;
        self.sizes.insert(key, size);
        Ok(())
    }

    /// Keeps the memory of the value of `key` reserved, until the key is set again or the call ends.
    pub(crate) fn hold(&mut self, key: WriteKey, reservation: MemoryReservation) {
        self.reservations.insert(key, reservation);
    }

    /// Releases the memory of all values, because the call has ended.
    pub(super) fn release(&mut self) {
        self.reservations.clear();
    }

    /// Returns the maximum number of bytes of one answer of the host.
    pub(crate) fn limit(&self) -> u64 {
        self.limits.result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_together_and_a_new_value_replaces_the_old() {
        let mut writes = PendingWrites::new(Limits { result: 2 * (ITEM_SIZE + 100), ..Limits::default() });
        let key = |name: &str| WriteKey::State(name.into());
        for _ in 0..10 {
            writes.record(key("a"), 100).unwrap();
        }
        writes.record(key("b"), 100).unwrap();
        assert!(writes.record(key("c"), 0).is_err());
        assert!(writes.record(WriteKey::Confirmation, 0).is_err());
        assert!(writes.record(key("b"), 101).is_err());
        writes.record(key("b"), 0).unwrap();
        writes.record(WriteKey::Confirmation, 0).unwrap();
    }
}
