//! Every statement that reads or writes sessions.

/// One session by app, user and id.
pub(super) const FIND: &str =
    "SELECT session, revision, created, updated FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3";

/// A session's own and shared state, by session, app and user.
pub(super) const STATE: &str = "\
    SELECT key, value FROM session_state WHERE session = ?1 \
    UNION ALL SELECT key, value FROM user_state WHERE app = ?2 AND user = ?3 \
    UNION ALL SELECT key, value FROM app_state WHERE app = ?2";

/// A session's events after a revision and not before a time.
pub(super) const EVENTS: &str =
    "SELECT revision, json FROM events WHERE session = ?1 AND revision > ?2 AND time >= ?3 ORDER BY revision";

/// A user's sessions in an app, newest update first.
pub(super) const LIST: &str = "\
    SELECT session, id, revision, created, updated FROM sessions WHERE app = ?1 AND user = ?2 \
    ORDER BY updated DESC, id";

/// The own state of all of a user's sessions in an app.
pub(super) const LIST_STATE: &str = "\
    SELECT session, key, value FROM sessions JOIN session_state USING (session) WHERE app = ?1 AND user = ?2";

/// The state that a user's sessions in an app share.
pub(super) const SHARED_STATE: &str = "\
    SELECT key, value FROM user_state WHERE app = ?1 AND user = ?2 \
    UNION ALL SELECT key, value FROM app_state WHERE app = ?1";

/// A new session of app, user, id and time; gives no row when there is one already.
pub(super) const CREATE: &str = "\
    INSERT INTO sessions (app, user, id, created, updated) VALUES (?1, ?2, ?3, ?4, ?4) \
    ON CONFLICT DO NOTHING RETURNING session";

/// Deletes a session; its events and its own state follow.
pub(super) const DELETE: &str = "DELETE FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3";

/// Appends an event of time and JSON to the session of app, user and id; gives no row when there is none.
pub(super) const APPEND: &str = "\
    INSERT INTO events (session, revision, time, json) \
    SELECT session, revision + 1, ?4, ?5 FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3 \
    RETURNING session, revision";

/// What a session takes, by app, user and id.
pub(super) const SESSION_USAGE: &str =
    "SELECT revision, event_bytes, state_keys, state_bytes FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3";

/// What a user's sessions in an app take.
pub(super) const USER_USAGE: &str =
    "SELECT sessions, event_bytes, state_keys, state_bytes FROM users WHERE app = ?1 AND user = ?2";

/// What an app's shared state takes.
pub(super) const APP_USAGE: &str = "SELECT state_keys, state_bytes FROM apps WHERE app = ?1";
