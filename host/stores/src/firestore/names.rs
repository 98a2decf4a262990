//! Names of documents. An id of Firestore has no slash, is neither `.` nor `..`, is not enclosed in `__`, and has at
//! most 1,500 bytes; clients' names may have any characters.

use std::fmt::Write;

use hatchery_core::{SessionKey, Timestamp};
use sha2::{Digest, Sha256};

use super::keys;

/// Maximum length of an escaped id in bytes. An id of a document has up to two of them, or two and a short third one.
const MAX_ID_BYTES: usize = 700;

/// The names of the documents below a root collection, relative to the database.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) root: String,
}

impl Names {
    /// Returns the document of a user, which contains collections only.
    pub(super) fn user(&self, user: &str) -> String {
        format!("{}/{}", self.root, escape(user))
    }

    pub(super) fn session(&self, key: &SessionKey) -> String {
        format!("{}/{}/{}~{}", self.user(&key.user), keys::SESSIONS, escape(&key.app), escape(&key.id))
    }

    pub(super) fn event(&self, key: &SessionKey, event: &str) -> String {
        child(&self.session(key), keys::EVENTS, event)
    }

    pub(super) fn run(&self, key: &SessionKey, run: &str) -> String {
        child(&self.session(key), keys::RUNS, run)
    }

    pub(super) fn call(&self, key: &SessionKey, run: &str, call: &str) -> String {
        format!("{}/{}/{}~{}", self.session(key), keys::CALLS, escape(run), escape(call))
    }

    /// Returns the document that contains an app's collection of memory entries of a user.
    pub(super) fn memory(&self, app: &str, user: &str) -> String {
        child(&self.user(user), keys::MEMORY, app)
    }

    pub(super) fn memory_entry(&self, key: &SessionKey, event: &str) -> String {
        format!("{}/{}/{}~{}", self.memory(&key.app, &key.user), keys::ENTRIES, escape(&key.id), escape(event))
    }

    /// Returns the collection of remembered sessions.
    pub(super) fn remembered_sessions(&self) -> String {
        format!("{}-memory", self.root)
    }

    pub(super) fn remembered_session(&self, key: &SessionKey) -> String {
        let owner = hash_id(&format!("{}~{}", escape(&key.app), escape(&key.user)));
        format!("{}/{owner}~{}", self.remembered_sessions(), escape(&key.id))
    }
}

pub(super) fn app_state(app: &str) -> String {
    format!("{}/{}", keys::APP_STATE, escape(app))
}

pub(super) fn user_state(app: &str, user: &str) -> String {
    format!("{}/{}/{}/{}", keys::USER_STATE, escape(app), keys::USERS, escape(user))
}

/// Returns the document that contains the collection of an app's pending background runs.
pub(super) fn background_runs(app: &str) -> String {
    format!("{}/{}", keys::BACKGROUND_RUNS, escape(app))
}

pub(super) fn background_run(key: &SessionKey, run: &str) -> String {
    let session = hash_id(&format!("{}~{}", escape(&key.user), escape(&key.id)));
    format!("{}/{}/{session}~{}", background_runs(&key.app), keys::PENDING, escape(run))
}

/// Returns the part of a document's text with this index.
pub(super) fn part(document: &str, index: usize) -> String {
    format!("{document}/{}/{index}", keys::PARTS)
}

/// Returns the prefix of the list keys of an app's sessions, and the first text after them.
pub(super) fn listing_range(app: &str) -> (String, String) {
    let app = escape(app);
    // `0` is the character after `/`.
    (format!("{app}/"), format!("{app}0"))
}

/// Returns the list key of a session. Keys of newer sessions come first.
pub(super) fn listing_key(app: &str, updated: Timestamp, id: &str) -> String {
    let newest_first = !(updated.as_micros().cast_unsigned() ^ (1 << 63));
    format!("{}/{newest_first:016x}/{id}", escape(app))
}

fn child(parent: &str, collection: &str, id: &str) -> String {
    format!("{parent}/{collection}/{}", escape(id))
}

/// Returns an id that is unique and not reserved, without slashes, tildes, which separate ids, and what paths of
/// requests cannot have: colons, and percent signs, which the emulator decodes twice.
fn escape(id: &str) -> String {
    let mut escaped = String::with_capacity(id.len());
    let is_reserved = id == "." || id == ".." || id.starts_with("__");
    for (index, character) in id.chars().enumerate() {
        if matches!(character, '=' | '%' | '/' | ':' | '~') || (is_reserved && index == 0) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "={:02X}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    if escaped.is_empty() { "=".into() } else { hash_id(&escaped) }
}

/// Replaces the end of an escaped id that is too long by a hash of it.
fn hash_id(escaped: &str) -> String {
    if escaped.len() <= MAX_ID_BYTES {
        return escaped.to_owned();
    }
    let hash: String = Sha256::digest(escaped).iter().map(|byte| format!("{byte:02x}")).collect();
    let start = escaped.get(..escaped.floor_char_boundary(MAX_ID_BYTES - 66)).unwrap_or_default();
    format!("{start}=-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_readable_and_valid() {
        for (id, escaped) in [
            ("s1", "s1"),
            ("ann@example.org", "ann@example.org"),
            ("東京/a b", "東京=2Fa b"),
            ("a:b~%=", "a=3Ab=7E=25=3D"),
            (".", "=2E"),
            ("..", "=2E."),
            ("__x__", "=5F_x__"),
            ("", "="),
        ] {
            assert_eq!(escape(id), escaped);
        }
    }

    #[test]
    fn long_ids_stay_distinct_and_within_the_limit() {
        let (one, other) = (escape(&"/".repeat(255)), escape(&"/".repeat(256)));
        assert_ne!(one, other);
        assert!(one.len() <= MAX_ID_BYTES && other.len() <= MAX_ID_BYTES);
        let key = SessionKey::new("/".repeat(256), "é".repeat(128), ":".repeat(256));
        let names = Names { root: keys::ROOT.into() };
        for name in [names.session(&key), names.remembered_session(&key), background_run(&key, &"%".repeat(256))] {
            assert!(name.split('/').all(|id| id.len() <= 1_500), "{name}");
        }
    }

    #[test]
    fn lists_are_ordered_by_time_then_id() {
        let at = |micros, id| listing_key("a/b", Timestamp::from_micros(micros), id);
        let mut places = vec![at(-5, "a"), at(20, "b"), at(20, "a"), at(30, "z"), at(i64::MAX, "")];
        places.sort();
        assert_eq!(places, [at(i64::MAX, ""), at(30, "z"), at(20, "a"), at(20, "b"), at(-5, "a")]);
        let (first, last) = listing_range("a/b");
        assert!(places.iter().all(|place| *place >= first && *place < last));
    }
}
