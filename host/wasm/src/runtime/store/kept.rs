//! What a call sets, weighed: it waits in the host's memory until the event that reports it is stored.

use std::collections::HashMap;

use crate::contract::convert::ITEM;
use crate::runtime::limits::{Limit, LimitHit, Limits};

/// What a call has set, with what the last value of each weighs.
pub(crate) struct Kept {
    limits: Limits,
    weights: HashMap<Kind, u64>,
    total: u64,
}

/// Something that a call can set.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A state key.
    State(String),
    /// The question whether the call may go on.
    Confirmation,
}

impl Kept {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, weights: HashMap::new(), total: 0 }
    }

    /// Notes that `kind` is set to something of so many bytes.
    ///
    /// # Errors
    /// When all together is more than one call may keep; then nothing is noted.
    pub(crate) fn keep(&mut self, kind: Kind, bytes: usize) -> Result<(), LimitHit> {
        let weight = ITEM + bytes as u64;
        let before = self.weights.get(&kind).copied().unwrap_or(0);
        let total = (self.total - before).saturating_add(weight);
        if total > self.limits.result {
            return Err(self.limits.hit(Limit::Result));
        }
        self.total = total;
        self.weights.insert(kind, weight);
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
        let mut kept = Kept::new(Limits { result: 2 * (ITEM + 100), ..Limits::default() });
        let key = |name: &str| Kind::State(name.into());
        for _ in 0..10 {
            kept.keep(key("a"), 100).unwrap();
        }
        kept.keep(key("b"), 100).unwrap();
        assert!(kept.keep(key("c"), 0).is_err());
        assert!(kept.keep(Kind::Confirmation, 0).is_err());
        assert!(kept.keep(key("b"), 101).is_err());
        kept.keep(key("b"), 0).unwrap();
        kept.keep(Kind::Confirmation, 0).unwrap();
    }
}
