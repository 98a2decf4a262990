//! All SQL statements that read or write sessions. The statements that change sessions are functions of the schema.

pub(super) const CREATE: &str = "SELECT out_key, out_value FROM create_session($1, $2, $3, $4, $5, $6, $7, $8, $9)";

pub(super) const DELETE: &str = "DELETE FROM sessions WHERE app = $1 AND user_id = $2 AND id = $3";

pub(super) const APPEND: &str = "\
    SELECT out_outcome, out_revision FROM append_event($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

pub(super) const BEGIN_TURN: &str =
    "SELECT out_turn, out_revision, out_remaining FROM begin_turn($1, $2, $3, $4, $5, $6)";

pub(super) const RENEW_TURN: &str = "SELECT renew_turn($1, $2, $3, $4, $5)";

/// A session with its state, and the events that a last part selects. The first column is the kind of row: 0 is the
/// session, 1 a key of state, 2 an event. One statement, so it sees one state of the database.
macro_rules! get {
    ($and_time:literal) => {
        concat!(
            "WITH found AS (SELECT session, revision, created, updated FROM sessions \
               WHERE app = $1 AND user_id = $2 AND id = $3) \
             SELECT 0 AS kind, revision, created, updated, NULL::TEXT AS key, NULL::TEXT AS value FROM found \
             UNION ALL SELECT 1, NULL, NULL, NULL, key, value FROM found JOIN session_state USING (session) \
             UNION ALL SELECT 1, NULL, NULL, NULL, key, value FROM user_state \
               WHERE app = $1 AND user_id = $2 AND EXISTS (SELECT FROM found) \
             UNION ALL SELECT 1, NULL, NULL, NULL, key, value FROM app_state WHERE app = $1 AND EXISTS (SELECT FROM found) \
             UNION ALL (SELECT 2, e.revision, NULL, NULL, NULL, e.json FROM found JOIN events e USING (session) \
               WHERE e.revision > greatest($4::BIGINT, found.revision - $5::BIGINT)",
            $and_time,
            " ORDER BY e.revision LIMIT $6)"
        )
    };
}

/// Selects a session with the events after a revision. Two limits: of the newest events, and of the first ones.
pub(super) const GET: &str = get!("");

/// As [`GET`], with events at or after a time.
pub(super) const GET_SINCE: &str = get!(" AND e.time >= $7");

/// Selects the sessions of a user in an app that are listed after a time and an id, each part from its position in the
/// index. The first column is the kind of row: 0 is a session, 1 a key of its state, 2 a key of shared state.
/// `OFFSET 0` keeps a generic plan, which does not know the limit, from reading the state of all sessions.
pub(super) const LIST: &str = "\
    WITH page AS MATERIALIZED ( \
      (SELECT session, id, revision, created, updated FROM sessions \
        WHERE app = $1 AND user_id = $2 AND updated = $3 AND id > $4 ORDER BY id LIMIT $5) \
      UNION ALL (SELECT session, id, revision, created, updated FROM sessions \
        WHERE app = $1 AND user_id = $2 AND updated < $3 ORDER BY updated DESC, id LIMIT $5) \
      ORDER BY updated DESC, id LIMIT $5) \
    SELECT 0 AS kind, session, revision, created, updated, id AS key, NULL::TEXT AS value FROM page \
    UNION ALL SELECT 1, page.session, NULL, NULL, NULL, key, value FROM page \
      CROSS JOIN LATERAL (SELECT key, value FROM session_state WHERE session_state.session = page.session OFFSET 0) own \
    UNION ALL SELECT 2, NULL, NULL, NULL, NULL, key, value FROM user_state WHERE app = $1 AND user_id = $2 \
    UNION ALL SELECT 2, NULL, NULL, NULL, NULL, key, value FROM app_state WHERE app = $1";

/// Selects the sessions of an app, except for one user's, that are idle since a time or exceed a number per user. Skips
/// sessions with a held turn, whose lease ends in the future, but not after the latest possible time.
pub(super) const EXPIRED: &str = "\
    SELECT user_id, id, updated FROM ( \
      SELECT user_id, id, updated, leased_until, \
        row_number() OVER (PARTITION BY user_id ORDER BY updated DESC, id) AS place FROM sessions \
      WHERE app = $1 AND user_id <> $5) s \
    WHERE (updated < $2 OR place > $3) AND (leased_until <= now_micros() OR leased_until > now_micros() + $6::BIGINT) \
    ORDER BY updated LIMIT $4";

/// Selects the totals of a session, of its user and of its app.
pub(super) const USAGE: &str = "\
    SELECT coalesce(s.revision, 0), coalesce(s.event_bytes, 0), coalesce(s.state_keys, 0), coalesce(s.state_bytes, 0), \
      u.sessions, u.event_bytes, u.state_keys + us.keys, u.state_bytes + us.bytes, a.keys, a.bytes \
    FROM (SELECT count(*) AS sessions, coalesce(sum(event_bytes), 0)::BIGINT AS event_bytes, \
        coalesce(sum(state_keys), 0)::BIGINT AS state_keys, coalesce(sum(state_bytes), 0)::BIGINT AS state_bytes \
      FROM sessions WHERE app = $1 AND user_id = $2) u \
    CROSS JOIN (SELECT count(*) AS keys, coalesce(sum(bytes), 0)::BIGINT AS bytes \
      FROM user_state WHERE app = $1 AND user_id = $2) us \
    CROSS JOIN (SELECT count(*) AS keys, coalesce(sum(bytes), 0)::BIGINT AS bytes FROM app_state WHERE app = $1) a \
    LEFT JOIN sessions s ON s.app = $1 AND s.user_id = $2 AND s.id = $3";

pub(super) const RECORD_CALL: &str = "SELECT record_call($1, $2, $3, $4, $5, $6, $7, $8)";

pub(super) const CALLS: &str = "\
    SELECT call, outcome FROM sessions JOIN run_calls USING (session) \
    WHERE app = $1 AND user_id = $2 AND id = $3 AND run = $4 ORDER BY call";

pub(super) const FINISH_CALLS: &str = "SELECT finish_calls($1, $2, $3, $4)";

pub(super) const ADD_RUN: &str = "SELECT add_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";

pub(super) const CHANGE_RUN: &str = "SELECT change_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

/// The columns of a run, with an expression for its request.
macro_rules! run_columns {
    ($request:literal) => {
        concat!(
            "run, version, runs.id, state, failure, background, cancel_requested, attempts, first_revision, ",
            $request,
            ", accepted, runs.updated"
        )
    };
}

/// Selects a run by app, user and id of its session, and its own id, with the newest turn of the session.
pub(super) const FIND_RUN: &str = concat!(
    "SELECT ",
    run_columns!("request"),
    ", turn FROM sessions JOIN runs USING (session) WHERE app = $1 AND user_id = $2 AND sessions.id = $3 AND runs.id = $4"
);

/// Selects the runs of a session before a number, newest first.
pub(super) const LIST_RUNS: &str = concat!(
    "SELECT ",
    run_columns!("request"),
    " FROM sessions JOIN runs USING (session) WHERE app = $1 AND user_id = $2 AND sessions.id = $3 AND run < $4 \
     ORDER BY run DESC LIMIT $5"
);

/// Selects the id of the running run of a session that was started last, if a turn is held: its lease ends in the
/// future, but not after the latest possible time.
pub(super) const RUN_IN_PROGRESS: &str = "\
    SELECT runs.id FROM sessions JOIN runs USING (session) WHERE app = $1 AND user_id = $2 AND sessions.id = $3 \
      AND leased_until > now_micros() AND leased_until <= now_micros() + $4::BIGINT AND state = 'running' \
    ORDER BY runs.updated DESC, run DESC LIMIT 1";

/// Selects the newest turn of a session if it holds the session, as for [`RUN_IN_PROGRESS`].
pub(super) const FIND_TURN: &str = "\
    SELECT turn FROM sessions WHERE app = $1 AND user_id = $2 AND id = $3 \
      AND leased_until > now_micros() AND leased_until <= now_micros() + $4::BIGINT";

/// Selects the active background runs whose session is held by no turn, as for [`EXPIRED`], without their requests.
pub(super) const INTERRUPTED_RUNS: &str = concat!(
    "SELECT ",
    run_columns!("NULL::TEXT"),
    ", app, user_id, sessions.id FROM runs JOIN sessions USING (session) \
     WHERE background AND state IN ('accepted', 'running') AND app = ANY ($1) \
       AND (leased_until <= now_micros() OR leased_until > now_micros() + $3::BIGINT) \
     ORDER BY accepted LIMIT $2"
);

/// Selects the columns of a session that a fork or a rewind needs, and locks it.
pub(super) const FIND_FOR_RESTORATION: &str = "\
    SELECT session, revision, leased_until - now_micros(), created, initial_state FROM sessions \
    WHERE app = $1 AND user_id = $2 AND id = $3 FOR NO KEY UPDATE";

/// Selects the first events of a session.
pub(super) const FIRST_EVENTS: &str = "SELECT json FROM events WHERE session = $1 AND revision <= $2 ORDER BY revision";

/// Creates a session by copying the first events of another one.
pub(super) const CREATE_FORK: &str = "\
    INSERT INTO sessions (app, user_id, id, created, updated, initial_state) VALUES ($1, $2, $3, $4, $4, $5) \
    ON CONFLICT DO NOTHING RETURNING session";

/// Copies the first events of session 2 to session 1.
pub(super) const COPY_EVENTS: &str = "\
    INSERT INTO events (session, revision, time, id_hash, run, json) \
    SELECT $1::BIGINT, revision, time, id_hash, run, json FROM events WHERE session = $2 AND revision <= $3";

pub(super) const DELETE_SESSION_STATE: &str = "DELETE FROM session_state WHERE session = $1";

/// Deletes the journals of the runs with events after a revision. Returns their bytes.
pub(super) const DELETE_CALLS_AFTER: &str = "\
    WITH deleted AS (DELETE FROM run_calls WHERE session = $1 AND run IN ( \
      SELECT run FROM events WHERE session = $1 AND revision > $2) RETURNING bytes) \
    SELECT coalesce(sum(bytes), 0)::BIGINT FROM deleted";

/// Deletes the runs that have begun after a revision: they have no events before it. Returns their bytes.
pub(super) const DELETE_RUNS_AFTER: &str = "\
    WITH deleted AS (DELETE FROM runs WHERE session = $1 AND state <> 'accepted' \
      AND (first_revision >= $2 OR id IN (SELECT run FROM events WHERE session = $1 AND revision > $2)) \
      AND NOT EXISTS (SELECT FROM events WHERE session = $1 AND revision <= $2 AND events.run = runs.id) RETURNING bytes) \
    SELECT coalesce(sum(bytes), 0)::BIGINT FROM deleted";

/// Lets the runs of a session begin at a revision at the latest, to which it was rewound.
pub(super) const REWIND_RUNS: &str = "UPDATE runs SET first_revision = $2 WHERE session = $1 AND first_revision > $2";

/// Deletes the events after a revision. Returns their bytes.
pub(super) const DELETE_EVENTS_AFTER: &str = "\
    WITH deleted AS (DELETE FROM events WHERE session = $1 AND revision > $2 RETURNING octet_length(json) AS bytes) \
    SELECT coalesce(sum(bytes), 0)::BIGINT FROM deleted";

/// Selects the bytes of a session's events.
pub(super) const EVENT_BYTES: &str =
    "SELECT coalesce(sum(octet_length(json)), 0)::BIGINT FROM events WHERE session = $1";

/// Sets the state of a session.
pub(super) const APPLY_STATE: &str = "\
    SELECT out_keys, out_bytes FROM apply_state($1, $2, $3, $4, $5, $6, $7)";

/// Sets revision, times and totals of a session, and fences out its last turn. Returns the time of its last event, or
/// the time of its creation.
pub(super) const SET_REVISION: &str = "\
    UPDATE sessions SET revision = $2, created = $3, \
      updated = coalesce((SELECT time FROM events WHERE session = $1 AND revision = $2), $3), \
      event_bytes = event_bytes + $4, state_keys = $5, state_bytes = $6, turn = turn + 1, leased_until = 0 \
    WHERE session = $1 RETURNING updated";

/// Selects the state of a session, with the shared state of its user and its app.
pub(super) const STATE: &str = "\
    SELECT key, value FROM session_state WHERE session = $1 \
    UNION ALL SELECT key, value FROM user_state WHERE app = $2 AND user_id = $3 \
    UNION ALL SELECT key, value FROM app_state WHERE app = $2";

/// Selects the newest turn of a session.
pub(super) const TURN: &str = "SELECT turn FROM sessions WHERE app = $1 AND user_id = $2 AND id = $3";
