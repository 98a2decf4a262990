//! How much is stored: the running totals that quotas are checked against.

/// Keys of state, and the bytes of their names and JSON values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateUsage {
    /// Keys.
    pub keys: u64,
    /// Bytes of names and values.
    pub bytes: u64,
}

/// What one session takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionUsage {
    /// Events.
    pub events: u64,
    /// Bytes of the events' JSON.
    pub event_bytes: u64,
    /// Keys without a prefix.
    pub state: StateUsage,
}

/// What all sessions of a user in an app take together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserUsage {
    /// Sessions.
    pub sessions: u64,
    /// Bytes of the JSON of all events.
    pub event_bytes: u64,
    /// `user:` keys, and the own keys of all sessions.
    pub state: StateUsage,
}

/// What a session, its user and its app take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The session; zero if there is none of this key.
    pub session: SessionUsage,
    /// The user in this app.
    pub user: UserUsage,
    /// `app:` keys.
    pub app: StateUsage,
}

/// Versions of artifacts, and their bytes as they are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArtifactUsage {
    /// Versions of the session's own artifacts.
    pub session_versions: u64,
    /// Their bytes.
    pub session_bytes: u64,
    /// Versions of all artifacts of the user in this app: `user:` ones and those of all sessions.
    pub user_versions: u64,
    /// Their bytes.
    pub user_bytes: u64,
}
