//! Tracks when each app's agent card last changed, for `Last-Modified`.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use hatchery_core::sync::MutexExt;
use sha2::{Digest, Sha256};

/// The last change of each app's card in this process.
#[derive(Default)]
pub(super) struct CardChanges(Mutex<HashMap<String, CardChange>>);

struct CardChange {
    hash: [u8; 32],
    time: SystemTime,
}

impl CardChanges {
    /// Returns the time at which an app's card last changed, in full seconds: `now` for a new card. Two cards of an app
    /// never have the same time. Forgets apps for which `exists` returns false.
    pub(super) fn last_modified(
        &self,
        app: &str,
        card: &[u8],
        now: SystemTime,
        exists: impl Fn(&str) -> bool,
    ) -> SystemTime {
        let hash = Sha256::digest(card).into();
        let mut changes = self.0.lock_unpoisoned();
        let known = changes.get(app);
        if let Some(known) = known.filter(|known| known.hash == hash) {
            return known.time;
        }
        let now = full_seconds(now);
        let time = known.map_or(now, |known| now.max(known.time + Duration::from_secs(1)));
        changes.retain(|app, _| exists(app));
        changes.insert(app.to_owned(), CardChange { hash, time });
        time
    }
}

/// HTTP's dates have no fractions.
fn full_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn the_time_of_a_card_changes_with_its_content() {
        let changes = CardChanges::default();
        let time = |app: &str, card: &str, now: u64| changes.last_modified(app, card.as_bytes(), at(now), |_| true);
        assert_eq!(time("a", "one", 5_700), at(5_000));
        assert_eq!(time("a", "one", 9_000), at(5_000));
        assert_eq!(time("b", "one", 9_000), at(9_000));
        assert_eq!(time("a", "two", 9_300), at(9_000));
        // A client must not take the third card for the second one.
        assert_eq!(time("a", "three", 9_900), at(10_000));
        assert_eq!(time("a", "three", 20_000), at(10_000));
    }

    #[test]
    fn apps_that_are_gone_are_forgotten() {
        let changes = CardChanges::default();
        changes.last_modified("a", b"one", at(1_000), |_| true);
        changes.last_modified("b", b"one", at(2_000), |app| app != "a");
        assert_eq!(changes.0.lock_unpoisoned().len(), 1);
    }
}
