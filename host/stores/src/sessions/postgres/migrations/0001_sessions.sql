-- Sessions, their events, state, runs and journals of calls. Times are microseconds since 1970 (UTC). Keys of state, ids
-- of runs and keys of calls are written as in JSON, without the quotes, because a text cannot contain U+0000.

CREATE TABLE sessions (
  session BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app TEXT COLLATE "C" NOT NULL,
  user_id TEXT COLLATE "C" NOT NULL,
  id TEXT COLLATE "C" NOT NULL,
  -- How many events there are.
  revision BIGINT NOT NULL DEFAULT 0,
  created BIGINT NOT NULL,
  updated BIGINT NOT NULL,
  -- The state that the session was created with, as a JSON object, so that the state at an event can be restored.
  initial_state TEXT NOT NULL,
  -- Running totals. Journals and runs count as events.
  event_bytes BIGINT NOT NULL DEFAULT 0,
  state_keys BIGINT NOT NULL DEFAULT 0,
  state_bytes BIGINT NOT NULL DEFAULT 0,
  -- The number of the newest turn, and the end of its lease.
  turn BIGINT NOT NULL DEFAULT 0,
  leased_until BIGINT NOT NULL DEFAULT 0,
  UNIQUE (app, user_id, id)
-- An append changes no column of an index, so with free space on the page it needs no new index entries.
) WITH (fillfactor = 70);

CREATE TABLE events (
  session BIGINT NOT NULL REFERENCES sessions ON DELETE CASCADE,
  -- The session's revision once this event is in it: 1, 2, 3 …
  revision BIGINT NOT NULL,
  time BIGINT NOT NULL,
  -- The first eight bytes of the SHA-256 of the event's id.
  id_hash BIGINT NOT NULL,
  run TEXT NOT NULL,
  json TEXT NOT NULL,
  PRIMARY KEY (session, revision)
);

CREATE UNIQUE INDEX events_by_id ON events (session, id_hash);
CREATE INDEX events_by_time ON events (session, time);

-- State: one row per key in full, with its prefix; the value is JSON. Bytes are those of the key and of the JSON.

CREATE TABLE session_state (
  session BIGINT NOT NULL REFERENCES sessions ON DELETE CASCADE,
  key TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  PRIMARY KEY (session, key)
);

CREATE TABLE user_state (
  app TEXT COLLATE "C" NOT NULL,
  user_id TEXT COLLATE "C" NOT NULL,
  key TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  PRIMARY KEY (app, user_id, key)
);

CREATE TABLE app_state (
  app TEXT COLLATE "C" NOT NULL,
  key TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  PRIMARY KEY (app, key)
);

CREATE TABLE runs (
  -- Grows with each run of a session.
  run BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session BIGINT NOT NULL REFERENCES sessions ON DELETE CASCADE,
  id TEXT COLLATE "C" NOT NULL,
  -- Grows with each change.
  version BIGINT NOT NULL DEFAULT 0,
  state TEXT NOT NULL,
  -- The error of a failed run, as JSON.
  failure TEXT,
  background BOOLEAN NOT NULL,
  cancel_requested BOOLEAN NOT NULL,
  attempts BIGINT NOT NULL,
  first_revision BIGINT NOT NULL,
  -- The request of a background run that is not at rest, as JSON.
  request TEXT,
  accepted BIGINT NOT NULL,
  updated BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  UNIQUE (session, id)
);

CREATE INDEX runs_by_session ON runs (session, run);
CREATE INDEX runs_in_background ON runs (accepted) WHERE background AND state IN ('accepted', 'running');

CREATE TABLE run_calls (
  session BIGINT NOT NULL REFERENCES sessions ON DELETE CASCADE,
  run TEXT COLLATE "C" NOT NULL,
  -- The key of the call; empty for the mark of a run that has finished.
  call TEXT COLLATE "C" NOT NULL,
  -- What it returned, as JSON. NULL if it has begun and not ended.
  outcome TEXT,
  bytes BIGINT NOT NULL,
  PRIMARY KEY (session, run, call)
);

-- Each write of a host is one call of a function, which locks the row of the session first.

CREATE FUNCTION now_micros() RETURNS BIGINT LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT
$$;

-- Sets keys, or deletes those whose value is NULL. Returns by how much the session's own state has grown. Those who change
-- the state of a user or an app wait for each other, also for keys that have no row, and in one order.
CREATE FUNCTION apply_state(
  p_session BIGINT, p_app TEXT, p_user TEXT, p_scopes TEXT[], p_keys TEXT[], p_values TEXT[], p_bytes BIGINT[],
  OUT out_keys BIGINT, OUT out_bytes BIGINT
) LANGUAGE plpgsql AS $$
DECLARE
  v_keys BIGINT;
  v_bytes BIGINT;
BEGIN
  out_keys := 0;
  out_bytes := 0;
  IF 'session' = ANY (p_scopes) THEN
    SELECT count(*), coalesce(sum(bytes), 0) INTO v_keys, v_bytes
      FROM session_state WHERE session = p_session AND key = ANY (p_keys);
    DELETE FROM session_state USING unnest(p_scopes, p_keys, p_values) AS c (scope, key, value)
      WHERE session = p_session AND session_state.key = c.key AND c.scope = 'session' AND c.value IS NULL;
    INSERT INTO session_state (session, key, value, bytes)
      SELECT p_session, c.key, c.value, c.bytes
      FROM unnest(p_scopes, p_keys, p_values, p_bytes) AS c (scope, key, value, bytes)
      WHERE c.scope = 'session' AND c.value IS NOT NULL
      ON CONFLICT (session, key) DO UPDATE SET value = excluded.value, bytes = excluded.bytes;
    SELECT count(*) - v_keys, coalesce(sum(bytes), 0) - v_bytes INTO out_keys, out_bytes
      FROM session_state WHERE session = p_session AND key = ANY (p_keys);
  END IF;
  IF 'user' = ANY (p_scopes) THEN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_app || chr(1) || p_user, 1));
    DELETE FROM user_state USING unnest(p_scopes, p_keys, p_values) AS c (scope, key, value)
      WHERE app = p_app AND user_id = p_user AND user_state.key = c.key AND c.scope = 'user' AND c.value IS NULL;
    INSERT INTO user_state (app, user_id, key, value, bytes)
      SELECT p_app, p_user, c.key, c.value, c.bytes
      FROM unnest(p_scopes, p_keys, p_values, p_bytes) AS c (scope, key, value, bytes)
      WHERE c.scope = 'user' AND c.value IS NOT NULL
      ON CONFLICT (app, user_id, key) DO UPDATE SET value = excluded.value, bytes = excluded.bytes;
  END IF;
  IF 'app' = ANY (p_scopes) THEN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_app, 2));
    DELETE FROM app_state USING unnest(p_scopes, p_keys, p_values) AS c (scope, key, value)
      WHERE app = p_app AND app_state.key = c.key AND c.scope = 'app' AND c.value IS NULL;
    INSERT INTO app_state (app, key, value, bytes)
      SELECT p_app, c.key, c.value, c.bytes
      FROM unnest(p_scopes, p_keys, p_values, p_bytes) AS c (scope, key, value, bytes)
      WHERE c.scope = 'app' AND c.value IS NOT NULL
      ON CONFLICT (app, key) DO UPDATE SET value = excluded.value, bytes = excluded.bytes;
  END IF;
END
$$;

-- Creates a session. Returns its state, after a row of NULLs; nothing if the session exists.
CREATE FUNCTION create_session(
  p_app TEXT, p_user TEXT, p_id TEXT, p_created BIGINT, p_initial_state TEXT,
  p_scopes TEXT[], p_keys TEXT[], p_values TEXT[], p_bytes BIGINT[]
) RETURNS TABLE (out_key TEXT, out_value TEXT) LANGUAGE plpgsql AS $$
DECLARE
  v_session BIGINT;
  v_grown RECORD;
BEGIN
  INSERT INTO sessions (app, user_id, id, created, updated, initial_state)
    VALUES (p_app, p_user, p_id, p_created, p_created, p_initial_state)
    ON CONFLICT DO NOTHING RETURNING session INTO v_session;
  IF v_session IS NULL THEN
    RETURN;
  END IF;
  IF cardinality(p_keys) > 0 THEN
    SELECT * INTO v_grown FROM apply_state(v_session, p_app, p_user, p_scopes, p_keys, p_values, p_bytes);
    UPDATE sessions SET state_keys = v_grown.out_keys, state_bytes = v_grown.out_bytes WHERE session = v_session;
  END IF;
  RETURN QUERY SELECT NULL::TEXT, NULL::TEXT
    UNION ALL SELECT key, value FROM session_state WHERE session = v_session
    UNION ALL SELECT key, value FROM user_state WHERE app = p_app AND user_id = p_user
    UNION ALL SELECT key, value FROM app_state WHERE app = p_app;
END
$$;

-- Appends an event. What the session has already is compared first, so that a repeated append succeeds in later turns.
-- The outcome is `stored`, `other_event`, `fenced` or `no_session`.
CREATE FUNCTION append_event(
  p_app TEXT, p_user TEXT, p_id TEXT, p_fence BIGINT, p_id_hash BIGINT, p_time BIGINT, p_run TEXT, p_json TEXT,
  p_scopes TEXT[], p_keys TEXT[], p_values TEXT[], p_bytes BIGINT[],
  OUT out_outcome TEXT, OUT out_revision BIGINT
) LANGUAGE plpgsql AS $$
DECLARE
  v_session RECORD;
  v_event RECORD;
  v_keys BIGINT := 0;
  v_bytes BIGINT := 0;
BEGIN
  SELECT session, revision, turn INTO v_session FROM sessions
    WHERE app = p_app AND user_id = p_user AND id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    out_outcome := 'no_session';
    RETURN;
  END IF;
  SELECT revision, json = p_json AS is_same INTO v_event FROM events
    WHERE session = v_session.session AND id_hash = p_id_hash;
  IF FOUND THEN
    out_outcome := CASE WHEN v_event.is_same THEN 'stored' ELSE 'other_event' END;
    out_revision := v_event.revision;
    RETURN;
  END IF;
  IF p_fence <> v_session.turn THEN
    out_outcome := 'fenced';
    RETURN;
  END IF;
  out_outcome := 'stored';
  out_revision := v_session.revision + 1;
  INSERT INTO events (session, revision, time, id_hash, run, json)
    VALUES (v_session.session, out_revision, p_time, p_id_hash, p_run, p_json);
  IF cardinality(p_keys) > 0 THEN
    SELECT out_keys, out_bytes INTO v_keys, v_bytes
      FROM apply_state(v_session.session, p_app, p_user, p_scopes, p_keys, p_values, p_bytes);
  END IF;
  UPDATE sessions SET revision = out_revision, updated = p_time, event_bytes = event_bytes + octet_length(p_json),
      state_keys = state_keys + v_keys, state_bytes = state_bytes + v_bytes
    WHERE session = v_session.session;
END
$$;

-- Begins a turn if no other one is held. A lease that ends later than the longest one possible is the result of a clock
-- that was set back. Returns the turn, or how long another one is held; only NULLs if the session does not exist.
CREATE FUNCTION begin_turn(
  p_app TEXT, p_user TEXT, p_id TEXT, p_previous BIGINT, p_lease BIGINT, p_longest BIGINT,
  OUT out_turn BIGINT, OUT out_revision BIGINT, OUT out_remaining BIGINT
) LANGUAGE plpgsql AS $$
DECLARE
  v_session RECORD;
  v_now BIGINT;
BEGIN
  SELECT session, revision, turn, leased_until INTO v_session FROM sessions
    WHERE app = p_app AND user_id = p_user AND id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  v_now := now_micros();
  IF v_session.leased_until > v_now AND v_session.leased_until <= v_now + p_longest
      AND v_session.turn IS DISTINCT FROM p_previous THEN
    out_remaining := v_session.leased_until - v_now;
    RETURN;
  END IF;
  out_turn := v_session.turn + 1;
  out_revision := v_session.revision;
  UPDATE sessions SET turn = out_turn, leased_until = v_now + p_lease WHERE session = v_session.session;
END
$$;

-- Sets the end of a turn's lease. The outcome is `renewed`, `fenced` or `no_session`.
CREATE FUNCTION renew_turn(p_app TEXT, p_user TEXT, p_id TEXT, p_fence BIGINT, p_lease BIGINT)
RETURNS TEXT LANGUAGE plpgsql AS $$
BEGIN
  UPDATE sessions SET leased_until = now_micros() + p_lease
    WHERE app = p_app AND user_id = p_user AND id = p_id AND turn = p_fence;
  IF FOUND THEN
    RETURN 'renewed';
  END IF;
  PERFORM 1 FROM sessions WHERE app = p_app AND user_id = p_user AND id = p_id;
  RETURN CASE WHEN FOUND THEN 'fenced' ELSE 'no_session' END;
END
$$;

-- Stores a record of a call. The outcome is `stored`, `fenced` or `no_session`.
CREATE FUNCTION record_call(
  p_app TEXT, p_user TEXT, p_id TEXT, p_fence BIGINT, p_run TEXT, p_call TEXT, p_outcome TEXT, p_bytes BIGINT
) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
  v_session RECORD;
  v_before BIGINT;
BEGIN
  SELECT session, turn INTO v_session FROM sessions
    WHERE app = p_app AND user_id = p_user AND id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'no_session';
  ELSIF v_session.turn <> p_fence THEN
    RETURN 'fenced';
  END IF;
  SELECT bytes INTO v_before FROM run_calls WHERE session = v_session.session AND run = p_run AND call = p_call;
  INSERT INTO run_calls (session, run, call, outcome, bytes)
    VALUES (v_session.session, p_run, p_call, p_outcome, p_bytes)
    ON CONFLICT (session, run, call) DO UPDATE SET outcome = excluded.outcome, bytes = excluded.bytes;
  UPDATE sessions SET event_bytes = event_bytes + p_bytes - coalesce(v_before, 0) WHERE session = v_session.session;
  RETURN 'stored';
END
$$;

-- Deletes the records of a run, and marks it as finished.
CREATE FUNCTION finish_calls(p_app TEXT, p_user TEXT, p_id TEXT, p_run TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_session BIGINT;
  v_freed BIGINT;
BEGIN
  SELECT session INTO v_session FROM sessions
    WHERE app = p_app AND user_id = p_user AND id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  WITH deleted AS (DELETE FROM run_calls WHERE session = v_session AND run = p_run AND call <> '' RETURNING bytes)
    SELECT coalesce(sum(bytes), 0) INTO v_freed FROM deleted;
  INSERT INTO run_calls (session, run, call, bytes) VALUES (v_session, p_run, '', 0) ON CONFLICT DO NOTHING;
  UPDATE sessions SET event_bytes = event_bytes - v_freed WHERE session = v_session;
END
$$;

-- Adds a run, unless the session has it. The outcome is `added`, `known`, `fenced` or `no_session`.
CREATE FUNCTION add_run(
  p_app TEXT, p_user TEXT, p_id TEXT, p_fence BIGINT, p_run TEXT, p_state TEXT, p_failure TEXT, p_background BOOLEAN,
  p_cancel_requested BOOLEAN, p_attempts BIGINT, p_first_revision BIGINT, p_request TEXT, p_accepted BIGINT,
  p_updated BIGINT, p_bytes BIGINT
) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
  v_session RECORD;
BEGIN
  SELECT session, turn INTO v_session FROM sessions
    WHERE app = p_app AND user_id = p_user AND id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'no_session';
  ELSIF p_fence <> v_session.turn THEN
    RETURN 'fenced';
  END IF;
  PERFORM 1 FROM runs WHERE session = v_session.session AND id = p_run;
  IF FOUND THEN
    RETURN 'known';
  END IF;
  INSERT INTO runs (session, id, state, failure, background, cancel_requested, attempts, first_revision, request, accepted,
      updated, bytes)
    VALUES (v_session.session, p_run, p_state, p_failure, p_background, p_cancel_requested, p_attempts, p_first_revision,
      p_request, p_accepted, p_updated, p_bytes);
  UPDATE sessions SET event_bytes = event_bytes + p_bytes WHERE session = v_session.session;
  RETURN 'added';
END
$$;

-- Changes a run that still has a version. The outcome is `changed`, `stale`, `fenced` or `no_session`.
CREATE FUNCTION change_run(
  p_app TEXT, p_user TEXT, p_id TEXT, p_fence BIGINT, p_run BIGINT, p_version BIGINT, p_state TEXT, p_failure TEXT,
  p_cancel_requested BOOLEAN, p_attempts BIGINT, p_request TEXT, p_updated BIGINT, p_bytes BIGINT
) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
  v_session RECORD;
  v_before BIGINT;
BEGIN
  SELECT session, turn INTO v_session FROM sessions
    WHERE app = p_app AND user_id = p_user AND id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'no_session';
  ELSIF p_fence <> v_session.turn THEN
    RETURN 'fenced';
  END IF;
  SELECT bytes INTO v_before FROM runs WHERE run = p_run AND session = v_session.session AND version = p_version;
  IF NOT FOUND THEN
    RETURN 'stale';
  END IF;
  UPDATE runs SET version = version + 1, state = p_state, failure = p_failure, cancel_requested = p_cancel_requested,
      attempts = p_attempts, request = p_request, updated = p_updated, bytes = p_bytes
    WHERE run = p_run;
  UPDATE sessions SET event_bytes = event_bytes + p_bytes - v_before WHERE session = v_session.session;
  RETURN 'changed';
END
$$;
