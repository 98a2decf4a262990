//! The state that a call sets, weighed: it waits in the host's memory until the event that reports it is stored.

use std::collections::HashMap;

use crate::convert::ITEM;
use crate::limits::{Limit, LimitHit, Limits};

/// Keys that a call has set, with what the last value of each weighs.
pub(crate) struct Kept {
    limits: Limits,
    weights: HashMap<String, u64>,
    total: u64,
}

impl Kept {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, weights: HashMap::new(), total: 0 }
    }

    /// Notes that `key` is set to a value of so many bytes.
    ///
    /// # Errors
    /// When all values together are more than one call may keep; then nothing is noted.
    pub(crate) fn set(&mut self, key: &str, bytes: usize) -> Result<(), LimitHit> {
        let weight = ITEM + key.len() as u64 + bytes as u64;
        let before = self.weights.get(key).copied().unwrap_or(0);
        let total = (self.total - before).saturating_add(weight);
        if total > self.limits.result {
            return Err(self.limits.hit(Limit::Result));
        }
        self.total = total;
        self.weights.insert(key.to_owned(), weight);
        Ok(())
    }

    /// Most bytes that one answer of the host may have.
    pub(crate) fn most(&self) -> u64 {
        self.limits.result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_together_and_a_new_value_takes_the_place_of_the_old() {
        let mut kept = Kept::new(Limits { result: 2 * (ITEM + 101), ..Limits::default() });
        for _ in 0..10 {
            kept.set("a", 100).unwrap();
        }
        kept.set("b", 100).unwrap();
        assert!(kept.set("c", 0).is_err());
        assert!(kept.set("b", 101).is_err());
        kept.set("b", 0).unwrap();
        kept.set("c", 0).unwrap();
    }
}
