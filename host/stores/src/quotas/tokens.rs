//! The tokens that users have used today. The stored events have them; a total that is read once a day is updated as
//! events are appended.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{Event, EventWindow, SessionKey, SessionService, StoreError, Timestamp};

/// Microseconds of a day.
const DAY: i64 = 24 * 3600 * 1_000_000;

/// Maximum number of users whose tokens are kept. Other users' tokens are read again.
const MAX_USERS: usize = 16_384;

const PAGE_SIZE: usize = 64;

/// App and user.
type Owner = (Arc<str>, Arc<str>);

/// The tokens of users since midnight, UTC.
#[derive(Default)]
pub(super) struct DailyTokens(Mutex<HashMap<Owner, UsedTokens>>);

#[derive(Clone, Copy)]
struct UsedTokens {
    /// Days since 1970.
    day: i64,
    tokens: u64,
    /// True if the stored events may have more.
    is_stale: bool,
}

fn today() -> i64 {
    day_of(Timestamp::now())
}

/// Returns the days since 1970.
fn day_of(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(DAY)
}

fn owner(key: &SessionKey) -> Owner {
    (key.app.clone(), key.user.clone())
}

fn tokens_of(event: &Event) -> u64 {
    event.usage_metadata.as_deref().map_or(0, |usage| usage.total())
}

impl DailyTokens {
    /// Returns the tokens that the user of a session has used today. `None` if they are not known.
    pub(super) fn used(&self, key: &SessionKey) -> Option<u64> {
        let users = self.0.lock_unpoisoned();
        users.get(&owner(key)).filter(|used| used.day == today() && !used.is_stale).map(|used| used.tokens)
    }

    /// Counts an event of today that is appended, if the tokens of its user are known. An imported event may be older.
    /// Returns the tokens that were counted.
    pub(super) fn add(&self, key: &SessionKey, event: &Event) -> u64 {
        let (tokens, day) = (tokens_of(event), today());
        if tokens == 0 || day_of(event.timestamp) < day {
            return 0;
        }
        let mut users = self.0.lock_unpoisoned();
        let Some(used) = users.get_mut(&owner(key)).filter(|used| used.day == day) else { return 0 };
        used.tokens = used.tokens.saturating_add(tokens);
        tokens
    }

    /// Removes tokens that were counted twice, and lets the tokens of the user of a session be read again.
    pub(super) fn distrust(&self, key: &SessionKey, counted_twice: u64) {
        if let Some(used) = self.0.lock_unpoisoned().get_mut(&owner(key)) {
            used.tokens = used.tokens.saturating_sub(counted_twice);
            used.is_stale = true;
        }
    }

    /// Reads the tokens of the user of a session from the events of today. Tokens that are known stay used when their
    /// events were deleted.
    pub(super) async fn count(&self, sessions: &dyn SessionService, key: &SessionKey) -> Result<u64, StoreError> {
        let day = today();
        let midnight = Timestamp::from_micros(day * DAY);
        let (mut tokens, mut after) = (0_u64, None);
        // A fork has copies of the events of another session.
        let mut counted: HashSet<String> = HashSet::new();
        loop {
            let page = sessions.list_page(&key.app, &key.user, after.as_ref(), PAGE_SIZE).await?;
            // The last updated come first.
            let is_today = |session: &&hatchery_core::Session| session.last_update_time >= midnight;
            let count = page.sessions.len();
            let of_today: Vec<_> =
                page.sessions.iter().take_while(is_today).map(|session| session.key.clone()).collect();
            for key in &of_today {
                let Some(session) = sessions.get(key, EventWindow::Since(midnight)).await? else { continue };
                for event in session.events.iter().filter(|event| tokens_of(event) > 0) {
                    if counted.insert(event.id.clone()) {
                        tokens = tokens.saturating_add(tokens_of(event));
                    }
                }
            }
            after = page.next.filter(|_| of_today.len() == count);
            if after.is_none() {
                break;
            }
        }
        let mut users = self.0.lock_unpoisoned();
        let known = users.get(&owner(key)).filter(|used| used.day == day).map_or(0, |used| used.tokens);
        let tokens = tokens.max(known);
        if users.len() >= MAX_USERS {
            users.retain(|_, used| used.day == day);
        }
        if users.len() >= MAX_USERS {
            users.clear();
        }
        users.insert(owner(key), UsedTokens { day, tokens, is_stale: false });
        Ok(tokens)
    }
}
