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
    "SELECT json FROM events WHERE session = ?1 AND revision > ?2 AND time >= ?3 ORDER BY revision";

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

/// Sets a key of a session.
pub(super) const SET_SESSION: &str = "\
    INSERT INTO session_state (session, key, value) VALUES (?1, ?2, ?3) \
    ON CONFLICT DO UPDATE SET value = excluded.value";

/// Sets a key of a user in an app.
pub(super) const SET_USER: &str = "\
    INSERT INTO user_state (app, user, key, value) VALUES (?1, ?2, ?3, ?4) \
    ON CONFLICT DO UPDATE SET value = excluded.value";

/// Sets a key of an app.
pub(super) const SET_APP: &str = "\
    INSERT INTO app_state (app, key, value) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET value = excluded.value";

/// Deletes a key of a session.
pub(super) const UNSET_SESSION: &str = "DELETE FROM session_state WHERE session = ?1 AND key = ?2";

/// Deletes a key of a user in an app.
pub(super) const UNSET_USER: &str = "DELETE FROM user_state WHERE app = ?1 AND user = ?2 AND key = ?3";

/// Deletes a key of an app.
pub(super) const UNSET_APP: &str = "DELETE FROM app_state WHERE app = ?1 AND key = ?2";
