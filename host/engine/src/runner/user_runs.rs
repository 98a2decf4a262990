//! Counter of the active runs of each user.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{FastHashMap, SessionKey};

/// App and user.
type Owner = (Arc<str>, Arc<str>);

/// Counts the active runs of each user of an app.
#[derive(Clone, Default)]
pub(super) struct UserRuns(Arc<Mutex<FastHashMap<Owner, usize>>>);

/// Counts a run towards its user's active runs until it is dropped.
pub(super) struct UserRunGuard {
    runs: UserRuns,
    owner: Owner,
}

impl UserRuns {
    /// Counts a run. Returns the guard, and how many active runs the user has with it.
    pub(super) fn count(&self, key: &SessionKey) -> (UserRunGuard, usize) {
        let owner = (key.app.clone(), key.user.clone());
        let mut runs = self.0.lock_unpoisoned();
        let count = runs.entry(owner.clone()).or_default();
        *count += 1;
        (UserRunGuard { runs: self.clone(), owner }, *count)
    }
}

impl Drop for UserRunGuard {
    fn drop(&mut self) {
        let mut runs = self.runs.0.lock_unpoisoned();
        if let Entry::Occupied(mut count) = runs.entry(self.owner.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_of_an_app_has_its_own_count() {
        let runs = UserRuns::default();
        let count = |app: &str, user: &str| runs.count(&SessionKey::new(app, user, "s"));
        let (first, one) = count("a", "u");
        let (second, two) = count("a", "u");
        assert_eq!((one, two), (1, 2));
        assert_eq!((count("a", "v").1, count("b", "u").1), (1, 1));
        drop((first, second));
        assert_eq!(count("a", "u").1, 1);
        assert!(runs.0.lock_unpoisoned().is_empty(), "users without runs are removed");
    }
}
