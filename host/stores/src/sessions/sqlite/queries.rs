//! All SQL statements that read or write sessions.

/// Selects a session by app, user and id.
pub(super) const FIND: &str =
    "SELECT session, revision, created, updated FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3";

/// Selects a session's own and shared state by session, app and user.
pub(super) const STATE: &str = "\
    SELECT key, value FROM session_state WHERE session = ?1 \
    UNION ALL SELECT key, value FROM user_state WHERE app = ?2 AND user = ?3 \
    UNION ALL SELECT key, value FROM app_state WHERE app = ?2";

/// Selects a session's events after a revision and at or after a time, at most as many as the limit; -1 is none.
pub(super) const EVENTS: &str =
    "SELECT revision, json FROM events WHERE session = ?1 AND revision > ?2 AND time >= ?3 ORDER BY revision LIMIT ?4";

/// Selects a user's sessions in an app, most recently updated first.
pub(super) const LIST: &str = "\
    SELECT session, id, revision, created, updated FROM sessions WHERE app = ?1 AND user = ?2 \
    ORDER BY updated DESC, id";

/// Selects the sessions of a user in an app that are listed after a time and an id. Each part of the union begins at
/// its position in the index; SQLite would not do that for one condition with `OR`.
pub(super) const LIST_PAGE: &str = "\
    SELECT session, id, revision, created, updated FROM sessions \
    WHERE app = ?1 AND user = ?2 AND updated = ?3 AND id > ?4 \
    UNION ALL SELECT session, id, revision, created, updated FROM sessions \
    WHERE app = ?1 AND user = ?2 AND updated < ?3 ORDER BY updated DESC, id LIMIT ?5";

/// Selects the sessions of an app, except for one user's, that are idle since a time or exceed a number per user. Skips
/// sessions with a held turn, whose lease ends in the future, but not after the latest possible time.
pub(super) const EXPIRED: &str = "\
    SELECT user, id, updated FROM ( \
      SELECT user, id, updated, leased_until, \
        row_number() OVER (PARTITION BY user ORDER BY updated DESC, id) AS place FROM sessions \
      WHERE app = ?1 AND user <> ?6) \
    WHERE (updated < ?2 OR place > ?3) AND (leased_until <= ?4 OR leased_until > ?7) ORDER BY updated LIMIT ?5";

/// Selects a session's own state.
pub(super) const OWN_STATE: &str = "SELECT key, value FROM session_state WHERE session = ?1";

/// Selects the own state of all of a user's sessions in an app.
pub(super) const LIST_STATE: &str = "\
    SELECT session, key, value FROM sessions JOIN session_state USING (session) WHERE app = ?1 AND user = ?2";

/// Selects the shared state of a user's sessions in an app.
pub(super) const SHARED_STATE: &str = "\
    SELECT key, value FROM user_state WHERE app = ?1 AND user = ?2 \
    UNION ALL SELECT key, value FROM app_state WHERE app = ?1";

/// Inserts a session with app, user, id, time and initial state. Its turns are counted from the time on, so that they
/// differ from the turns of a deleted session. Returns no row if the session exists already.
pub(super) const CREATE: &str = "\
    INSERT INTO sessions (app, user, id, created, updated, initial_state, turn) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?4) \
    ON CONFLICT DO NOTHING RETURNING session";

/// Deletes a session with its events and its own state (cascade).
pub(super) const DELETE: &str = "DELETE FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3";

/// Selects the columns of a session that an append needs.
pub(super) const FIND_FOR_APPEND: &str =
    "SELECT session, revision, turn FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3";

/// Inserts the hash of an event's id, unless the session has it.
pub(super) const INSERT_EVENT_ID: &str =
    "INSERT INTO event_ids (session, hash, revision) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";

/// Inserts an event.
pub(super) const INSERT_EVENT: &str = "INSERT INTO events (session, revision, time, json) VALUES (?1, ?2, ?3, ?4)";

/// Sets the revision and the time of a session after an append, and adds the bytes of the event.
pub(super) const COUNT_EVENT: &str =
    "UPDATE sessions SET revision = ?2, updated = ?3, event_bytes = event_bytes + ?4 WHERE session = ?1";

/// Adds the bytes of an event to the total of its user.
pub(super) const COUNT_USER_EVENT: &str =
    "UPDATE users SET event_bytes = event_bytes + ?3 WHERE app = ?1 AND user = ?2";

/// Selects the revision and the JSON of a session's event by the hash of its id.
pub(super) const FIND_EVENT: &str =
    "SELECT revision, json FROM event_ids JOIN events USING (session, revision) WHERE session = ?1 AND hash = ?2";

/// Begins a turn at a time, with the end of its lease. The lease of the last turn must have ended, end after the latest
/// possible time, or belong to the caller's own turn.
pub(super) const BEGIN_TURN: &str = "\
    UPDATE sessions SET turn = turn + 1, leased_until = ?5 \
    WHERE app = ?1 AND user = ?2 AND id = ?3 AND (leased_until <= ?4 OR leased_until > ?6 OR turn = ?7) \
    RETURNING turn, revision";

/// Sets the end of a turn's lease. Returns no row if the session does not exist or another turn has begun.
pub(super) const RENEW_TURN: &str = "\
    UPDATE sessions SET leased_until = ?5 WHERE app = ?1 AND user = ?2 AND id = ?3 AND turn = ?4 RETURNING turn";

/// Selects the end of the lease of a session's newest turn.
pub(super) const FIND_LEASE: &str = "SELECT leased_until FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3";

/// Selects the usage of a session by app, user and id.
pub(super) const SESSION_USAGE: &str =
    "SELECT revision, event_bytes, state_keys, state_bytes FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3";

/// Selects the usage of a user's sessions in an app.
pub(super) const USER_USAGE: &str =
    "SELECT sessions, event_bytes, state_keys, state_bytes FROM users WHERE app = ?1 AND user = ?2";

/// Selects the usage of an app's shared state.
pub(super) const APP_USAGE: &str = "SELECT state_keys, state_bytes FROM apps WHERE app = ?1";

/// Selects the bytes of a session's events, of its own state and its app's, and of all other state of its user.
pub(super) const READ_BYTES: &str = "\
    SELECT sessions.event_bytes, sessions.state_bytes + coalesce(apps.state_bytes, 0), \
      coalesce(users.state_bytes, 0) - sessions.state_bytes FROM sessions \
    LEFT JOIN users ON users.app = ?1 AND users.user = ?2 LEFT JOIN apps ON apps.app = ?1 \
    WHERE sessions.app = ?1 AND sessions.user = ?2 AND sessions.id = ?3";

/// Selects the bytes of each key of the state of a user in an app.
pub(super) const USER_KEY_BYTES: &str =
    "SELECT octet_length(key) + octet_length(value) FROM user_state WHERE app = ?1 AND user = ?2";

/// Records a call of a run with its outcome. Returns no row if the session does not exist or another turn has begun.
pub(super) const RECORD_CALL: &str = "\
    INSERT INTO run_calls (session, run, call, outcome) \
    SELECT session, ?4, ?5, ?6 FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3 AND turn = ?7 \
    ON CONFLICT DO UPDATE SET outcome = excluded.outcome RETURNING session";

/// Selects the calls of a run.
pub(super) const CALLS: &str = "\
    SELECT call, outcome FROM sessions JOIN run_calls USING (session) \
    WHERE app = ?1 AND user = ?2 AND id = ?3 AND run = ?4 ORDER BY call";

/// Deletes the calls of a run.
pub(super) const DELETE_CALLS: &str = "\
    DELETE FROM run_calls WHERE run = ?4 \
    AND session = (SELECT session FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3)";

/// Inserts the mark of a run that has finished.
pub(super) const MARK_FINISHED: &str = "\
    INSERT INTO run_calls (session, run, call) \
    SELECT session, ?4, '' FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3 ON CONFLICT DO NOTHING";

/// Sets a key of a session's own state.
pub(super) const SET_SESSION_KEY: &str = "\
    INSERT INTO session_state (session, key, value) VALUES (?1, ?2, ?3) \
    ON CONFLICT DO UPDATE SET value = excluded.value";

/// Deletes a key of a session's own state.
pub(super) const DELETE_SESSION_KEY: &str = "DELETE FROM session_state WHERE session = ?1 AND key = ?2";

/// Sets a key of the state of a user in an app.
pub(super) const SET_USER_KEY: &str = "\
    INSERT INTO user_state (app, user, key, value) VALUES (?1, ?2, ?3, ?4) \
    ON CONFLICT DO UPDATE SET value = excluded.value";

/// Deletes a key of the state of a user in an app.
pub(super) const DELETE_USER_KEY: &str = "DELETE FROM user_state WHERE app = ?1 AND user = ?2 AND key = ?3";

/// Sets a key of the state of an app.
pub(super) const SET_APP_KEY: &str = "\
    INSERT INTO app_state (app, key, value) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET value = excluded.value";

/// Deletes a key of the state of an app.
pub(super) const DELETE_APP_KEY: &str = "DELETE FROM app_state WHERE app = ?1 AND key = ?2";

/// Adds bytes to the total of a session.
pub(super) const COUNT_SESSION_BYTES: &str = "UPDATE sessions SET event_bytes = event_bytes + ?2 WHERE session = ?1";

/// Selects the row and the newest turn of a session by app, user and id.
pub(super) const FIND_TURN: &str = "SELECT session, turn FROM sessions WHERE app = ?1 AND user = ?2 AND id = ?3";

/// The columns of a run, with an expression for its request.
macro_rules! run_columns {
    () => {
        run_columns!("request")
    };
    ($request:literal) => {
        concat!(
            "run, runs.id, state, error_code, error_message, background, cancel_requested, attempts, first_revision, ",
            $request,
            ", accepted, runs.updated"
        )
    };
}

/// Selects a run by the row of its session and its id.
pub(super) const FIND_RUN: &str = concat!("SELECT ", run_columns!(), " FROM runs WHERE session = ?1 AND id = ?2");

/// Selects a run by app, user and id of its session, and its own id.
pub(super) const FIND_RUN_BY_KEY: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs JOIN sessions USING (session) WHERE app = ?1 AND user = ?2 AND sessions.id = ?3 AND runs.id = ?4"
);

/// Selects the runs of a session before a number, newest first.
pub(super) const LIST_RUNS: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM sessions JOIN runs USING (session) WHERE app = ?1 AND user = ?2 AND sessions.id = ?3 AND run < ?4 \
     ORDER BY run DESC LIMIT ?5"
);

/// Selects the id of the run of a session that was started last and is running, if a turn holds the session at a time.
/// No turn is held by a lease that ends after the latest possible time.
pub(super) const RUN_IN_PROGRESS: &str = "\
    SELECT runs.id FROM sessions JOIN runs USING (session) WHERE app = ?1 AND user = ?2 AND sessions.id = ?3 \
      AND leased_until > ?4 AND leased_until <= ?5 AND state = 'running' ORDER BY runs.updated DESC, run DESC LIMIT 1";

/// Selects the active background runs whose session is held by no turn at a time, without their requests. No turn is
/// held by a lease that ends after the latest possible time. The apps are a JSON array.
pub(super) const INTERRUPTED_RUNS: &str = concat!(
    "SELECT ",
    run_columns!("NULL"),
    ", app, user, sessions.id FROM runs JOIN sessions USING (session) \
     WHERE background = 1 AND state IN ('accepted', 'running') AND (leased_until <= ?1 OR leased_until > ?4) \
     AND app IN (SELECT value FROM json_each(?2)) ORDER BY accepted LIMIT ?3"
);

/// Inserts a run, unless the session has it.
pub(super) const ADD_RUN: &str = "\
    INSERT INTO runs (session, id, state, background, cancel_requested, attempts, first_revision, request, accepted, updated) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";

/// Changes a run.
pub(super) const UPDATE_RUN: &str = "\
    UPDATE runs SET state = ?2, error_code = ?3, error_message = ?4, cancel_requested = ?5, attempts = ?6, request = ?7, \
    updated = ?8 WHERE run = ?1";

/// Ends all leases.
pub(super) const END_LEASES: &str = "UPDATE sessions SET leased_until = 0 WHERE leased_until > 0";

/// Deletes a session's own state.
pub(super) const DELETE_SESSION_STATE: &str = "DELETE FROM session_state WHERE session = ?1";

/// Selects the columns of a session that a fork or a rewind needs.
pub(super) const FIND_FOR_RESTORATION: &str = "\
    SELECT session, revision, leased_until, created, initial_state FROM sessions \
    WHERE app = ?1 AND user = ?2 AND id = ?3";

/// Copies the first events of session 2 to session 1.
pub(super) const COPY_EVENTS: &str = "\
    INSERT INTO events (session, revision, time, json) \
    SELECT ?1, revision, time, json FROM events WHERE session = ?2 AND revision <= ?3 ORDER BY revision";

/// Copies the ids of the first events of session 2 to session 1.
pub(super) const COPY_EVENT_IDS: &str = "\
    INSERT INTO event_ids (session, hash, revision) \
    SELECT ?1, hash, revision FROM event_ids WHERE session = ?2 AND revision <= ?3";

/// Deletes the journals of the runs with events after a revision.
pub(super) const DELETE_CALLS_AFTER: &str = "\
    DELETE FROM run_calls WHERE session = ?1 AND run IN ( \
      SELECT json ->> '$.invocationId' FROM events WHERE session = ?1 AND revision > ?2 AND json_valid(json))";

/// Deletes the runs that have begun after a revision: they have no events before it. Returns the bytes of each.
pub(super) const DELETE_RUNS_AFTER: &str = "\
    DELETE FROM runs WHERE session = ?1 AND state <> 'accepted' \
    AND (first_revision >= ?2 OR id IN ( \
      SELECT json ->> '$.invocationId' FROM events WHERE session = ?1 AND revision > ?2 AND json_valid(json))) \
    AND NOT EXISTS ( \
      SELECT 1 FROM events WHERE session = ?1 AND revision <= ?2 AND json_valid(json) AND json ->> '$.invocationId' = runs.id) \
    RETURNING octet_length(id) + coalesce(octet_length(error_code) + octet_length(error_message), 0) \
      + coalesce(octet_length(request), 0)";

/// Lets the runs of a session begin at a revision at the latest, to which it was rewound.
pub(super) const REWIND_RUNS: &str = "UPDATE runs SET first_revision = ?2 WHERE session = ?1 AND first_revision > ?2";

/// Deletes the ids of the events after a revision.
pub(super) const DELETE_EVENT_IDS_AFTER: &str = "DELETE FROM event_ids WHERE session = ?1 AND revision > ?2";

/// Deletes the events after a revision.
pub(super) const DELETE_EVENTS_AFTER: &str = "DELETE FROM events WHERE session = ?1 AND revision > ?2";

/// Selects the bytes of a session's events between two revisions.
pub(super) const EVENT_BYTES: &str = "\
    SELECT coalesce(sum(octet_length(json)), 0) FROM events WHERE session = ?1 AND revision > ?2 AND revision <= ?3";

/// Selects the time of the event with a revision, or another time if there is none.
pub(super) const TIME_OF_EVENT: &str =
    "SELECT coalesce((SELECT time FROM events WHERE session = ?1 AND revision = ?2), ?3)";

/// Sets the revision and the time of a session, changes its bytes, and fences out its last turn.
pub(super) const SET_REVISION: &str = "\
    UPDATE sessions SET revision = ?2, updated = ?3, event_bytes = event_bytes + ?4, turn = turn + 1, leased_until = 0 \
    WHERE session = ?1";

/// Sets the time of creation of a session.
pub(super) const SET_CREATED: &str = "UPDATE sessions SET created = ?2 WHERE session = ?1";
