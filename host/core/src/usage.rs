//! Storage usage: the running totals that quotas are checked against.

/// Number and size of state keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateUsage {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of their names and JSON values.
    pub bytes: u64,
}

/// Usage of one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionUsage {
    /// Number of events.
    pub events: u64,
    /// Bytes of the events' JSON and of the [journal](crate::CallJournal).
    pub event_bytes: u64,
    /// State keys without a prefix.
    pub state: StateUsage,
}

/// Usage of all sessions of a user in an app.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserUsage {
    /// Number of sessions.
    pub sessions: u64,
    /// Bytes of the JSON of all events and of the journals.
    pub event_bytes: u64,
    /// `user:` keys, and keys without a prefix of all sessions.
    pub state: StateUsage,
}

/// Usage of a session, its user and its app.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The session; zero if it does not exist.
    pub session: SessionUsage,
    /// The user in this app.
    pub user: UserUsage,
    /// `app:` keys.
    pub app: StateUsage,
}

/// Number and size of artifact versions, as [`Part::stored_bytes`](crate::Part::stored_bytes) counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArtifactUsage {
    /// Number of versions of the session's own artifacts.
    pub session_versions: u64,
    /// Their bytes.
    pub session_bytes: u64,
    /// Number of versions of all artifacts of the user in this app: `user:` ones and the ones of all sessions.
    pub user_versions: u64,
    /// Their bytes.
    pub user_bytes: u64,
}
