//! The number of active runs of each user.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use hatchery_core::SessionKey;
use hatchery_core::sync::MutexExt;

/// App and user.
type Owner = (Arc<str>, Arc<str>);

/// Counts the active runs of each user of an app.
#[derive(Clone, Default)]
pub(super) struct UserRuns(Arc<Mutex<HashMap<Owner, usize>>>);

/// Counts a run until it is dropped.
pub(super) struct UserRun {
    runs: UserRuns,
    owner: Owner,
}

impl UserRuns {
    /// Counts a run. Returns how many the user has with it.
    pub(super) fn begin(&self, key: &SessionKey) -> (UserRun, usize) {
        let owner = (key.app.clone(), key.user.clone());
        let mut runs = self.0.lock_unpoisoned();
        let count = runs.entry(owner.clone()).or_default();
        *count += 1;
        (UserRun { runs: self.clone(), owner }, *count)
    }
}

impl Drop for UserRun {
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
        let begin = |app: &str, user: &str| runs.begin(&SessionKey::new(app, user, "s"));
        let (first, one) = begin("a", "u");
        let (second, two) = begin("a", "u");
        assert_eq!((one, two), (1, 2));
        assert_eq!((begin("a", "v").1, begin("b", "u").1), (1, 1));
        drop((first, second));
        assert_eq!(begin("a", "u").1, 1);
        assert!(runs.0.lock_unpoisoned().is_empty(), "users without runs are removed");
    }
}
