//! The document of a session.

use std::time::Duration;

use hatchery_core::{MAX_TURN_LEASE, Session, SessionKey, State, StoreError, Timestamp};
use imbl::Vector;

use super::{Store, lease_micros, state};
use crate::firestore::document::{Document, Fields, Precondition, Write, fields};
use crate::firestore::{keys, names};

/// The fields that every change of a session needs.
const FIELDS: [&str; 10] = [
    keys::STATUS,
    keys::REVISION,
    keys::FENCE,
    keys::LEASED_UNTIL,
    keys::CREATE_TIME,
    keys::UPDATE_TIME,
    keys::EVENT_BYTES,
    keys::STATE_KEYS,
    keys::STATE_BYTES,
    keys::LAST_RUN,
];

/// Returns the paths of the fields that every change needs, and of others.
pub(super) fn field_paths(others: &[&str]) -> Vec<String> {
    FIELDS.iter().chain(others).map(|field| (*field).to_owned()).collect()
}

/// An operation on a session that takes more than one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// Nothing.
    Active,
    /// A copy that is not complete yet.
    Copying,
    /// Deleted, but some documents may remain.
    Removing,
    /// Rewound, but some events after its revision may remain.
    Trimming,
}

impl Status {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Copying => "copying",
            Self::Removing => "removing",
            Self::Trimming => "trimming",
        }
    }

    fn from_name(name: &str) -> Self {
        [Self::Copying, Self::Removing, Self::Trimming].into_iter().find(|it| it.name() == name).unwrap_or(Self::Active)
    }

    /// Returns true if clients see the session.
    pub(super) fn is_visible(self) -> bool {
        matches!(self, Self::Active | Self::Trimming)
    }
}

/// A session as it was read, without its events.
pub(super) struct StoredSession {
    pub(super) document: Document,
    pub(super) status: Status,
    pub(super) revision: u64,
    pub(super) fence: u64,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    pub(super) event_bytes: u64,
    /// The name of the document in the database.
    name: String,
    leased_until: i64,
    /// The time of the read by the clock of the service, in microseconds.
    now: i64,
}

impl StoredSession {
    pub(super) fn new(document: Document, read_time: &str) -> Self {
        let relative = document.name.split_once("/documents/").map_or(document.name.as_str(), |(_, name)| name);
        Self {
            status: Status::from_name(document.text(keys::STATUS).unwrap_or_default()),
            revision: document.unsigned(keys::REVISION),
            fence: document.unsigned(keys::FENCE),
            created: document.time(keys::CREATE_TIME),
            updated: document.time(keys::UPDATE_TIME),
            event_bytes: document.unsigned(keys::EVENT_BYTES),
            leased_until: document.integer(keys::LEASED_UNTIL),
            now: Timestamp::from_iso(read_time).unwrap_or_else(Timestamp::now).as_micros(),
            name: relative.to_owned(),
            document,
        }
    }

    /// Returns the remaining time of the turn's lease; `None` if no turn is held.
    pub(super) fn lease_remaining(&self) -> Option<Duration> {
        let remaining = self.leased_until.saturating_sub(self.now);
        (remaining > 0 && remaining <= lease_micros(MAX_TURN_LEASE))
            .then(|| Duration::from_micros(remaining.cast_unsigned()))
    }

    /// Returns the end of a lease from now on.
    pub(super) fn lease_end(&self, lease: Duration) -> i64 {
        self.now.saturating_add(lease_micros(lease))
    }

    /// Sets fields if the document has not changed since.
    pub(super) fn update(&self, fields: Fields) -> Write {
        Write::merge(self.name.clone(), fields).with_condition(self.is_unchanged())
    }

    /// Changes nothing, and fails if the document has changed since.
    pub(super) fn guard(&self) -> Write {
        self.update(fields([(keys::STATUS, self.status.name().into())]))
    }

    /// Returns the session after one of these writes at a time by the clock of the service.
    pub(super) fn after(&self, write: &Write, time: String) -> Self {
        let read_time = time.clone();
        let mut document = write.applied_to(&self.document, time);
        document.fields.remove(keys::STATE);
        Self::new(document, &read_time)
    }

    pub(super) fn replace(&self, fields: Fields) -> Write {
        Write::set(self.name.clone(), fields).with_condition(self.is_unchanged())
    }

    pub(super) fn delete(&self) -> Write {
        Write::delete(self.name.clone()).with_condition(self.is_unchanged())
    }

    fn is_unchanged(&self) -> Precondition {
        Precondition::unchanged(Some(&self.document))
    }

    /// Returns the update that adds bytes to the total of the session. A negative number wraps around.
    pub(super) fn add_bytes(&self, bytes: u64) -> Write {
        self.update(fields([
            (keys::STATUS, self.status.name().into()),
            (keys::EVENT_BYTES, self.event_bytes.wrapping_add(bytes).into()),
        ]))
    }
}

/// Returns an error if another turn has begun.
pub(super) fn check_fence(key: &SessionKey, stored: &StoredSession, fence: Option<u64>) -> Result<(), StoreError> {
    match fence {
        Some(fence) if fence != stored.fence => Err(StoreError::Fenced(key.clone())),
        Some(_) | None => Ok(()),
    }
}

/// Returns a session without events.
pub(super) fn session(
    key: SessionKey,
    state: State,
    revision: u64,
    created: Timestamp,
    last_update_time: Timestamp,
) -> Session {
    Session { key, state, events: Vector::new(), revision, created, last_update_time }
}

impl Store {
    /// Returns the documents of a session, and of the state of its app and its user.
    pub(super) fn session_names(&self, key: &SessionKey) -> Vec<String> {
        vec![self.names.session(key), names::app_state(&key.app), names::user_state(&key.app, &key.user)]
    }

    /// Creates the document of a session without events.
    pub(super) fn new_session(&self, key: &SessionKey, created: Timestamp, own: &State, initial: &State) -> Write {
        let (state, usage) = state::session_fields(own);
        let fields = fields([
            (keys::ID, (*key.id).into()),
            (keys::APP_NAME, (*key.app).into()),
            (keys::USER_ID, (*key.user).into()),
            (keys::STATUS, Status::Active.name().into()),
            (keys::CREATE_TIME, created.into()),
            (keys::UPDATE_TIME, created.into()),
            (keys::LISTING, names::listing_key(&key.app, created, &key.id).into()),
            (keys::REVISION, 0_u64.into()),
            (keys::STATE, state),
            (keys::STATE_KEYS, usage.keys.into()),
            (keys::STATE_BYTES, usage.bytes.into()),
            (keys::INITIAL_STATE, state::to_json(initial).into()),
            (keys::EVENT_BYTES, 0_u64.into()),
            // It differs from the turns of a deleted session.
            (keys::FENCE, created.as_micros().into()),
        ]);
        Write::set(self.names.session(key), fields).with_condition(Precondition::Exists(false))
    }
}
