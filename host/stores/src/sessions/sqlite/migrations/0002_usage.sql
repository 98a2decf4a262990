-- Running totals of what is stored, kept by triggers, so that no quota needs a count of rows.
-- A key of state counts the bytes of its name and of its value's JSON.

ALTER TABLE sessions ADD COLUMN event_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN state_keys INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN state_bytes INTEGER NOT NULL DEFAULT 0;

-- A user in an app: all sessions with their own state, and the state that they share.
CREATE TABLE users (
  app TEXT NOT NULL,
  user TEXT NOT NULL,
  sessions INTEGER NOT NULL DEFAULT 0,
  event_bytes INTEGER NOT NULL DEFAULT 0,
  state_keys INTEGER NOT NULL DEFAULT 0,
  state_bytes INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (app, user)
) STRICT, WITHOUT ROWID;

-- The state that all sessions of an app share.
CREATE TABLE apps (
  app TEXT PRIMARY KEY,
  state_keys INTEGER NOT NULL DEFAULT 0,
  state_bytes INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What is there already is counted once.

UPDATE sessions SET
  event_bytes = (SELECT coalesce(sum(octet_length(json)), 0) FROM events WHERE events.session = sessions.session),
  state_keys = (SELECT count(*) FROM session_state WHERE session_state.session = sessions.session),
  state_bytes = (SELECT coalesce(sum(octet_length(key) + octet_length(value)), 0) FROM session_state
                 WHERE session_state.session = sessions.session);

INSERT INTO users (app, user) SELECT app, user FROM sessions UNION SELECT app, user FROM user_state;

UPDATE users SET
  sessions = (SELECT count(*) FROM sessions WHERE sessions.app = users.app AND sessions.user = users.user),
  event_bytes = (SELECT coalesce(sum(event_bytes), 0) FROM sessions
                 WHERE sessions.app = users.app AND sessions.user = users.user),
  state_keys = (SELECT coalesce(sum(state_keys), 0) FROM sessions
                WHERE sessions.app = users.app AND sessions.user = users.user)
             + (SELECT count(*) FROM user_state WHERE user_state.app = users.app AND user_state.user = users.user),
  state_bytes = (SELECT coalesce(sum(state_bytes), 0) FROM sessions
                 WHERE sessions.app = users.app AND sessions.user = users.user)
              + (SELECT coalesce(sum(octet_length(key) + octet_length(value)), 0) FROM user_state
                 WHERE user_state.app = users.app AND user_state.user = users.user);

INSERT INTO apps (app, state_keys, state_bytes)
  SELECT app, count(*), sum(octet_length(key) + octet_length(value)) FROM app_state GROUP BY app;

DROP TRIGGER event_appended;

CREATE TRIGGER event_appended AFTER INSERT ON events BEGIN
  UPDATE sessions SET revision = new.revision, updated = new.time, event_bytes = event_bytes + octet_length(new.json)
    WHERE session = new.session;
END;

CREATE TRIGGER session_created AFTER INSERT ON sessions BEGIN
  INSERT INTO users (app, user) SELECT new.app, new.user
    WHERE NOT EXISTS (SELECT 1 FROM users WHERE app = new.app AND user = new.user);
  UPDATE users SET sessions = sessions + 1 WHERE app = new.app AND user = new.user;
END;

CREATE TRIGGER session_grown AFTER UPDATE OF event_bytes, state_keys, state_bytes ON sessions BEGIN
  UPDATE users SET
    event_bytes = event_bytes + new.event_bytes - old.event_bytes,
    state_keys = state_keys + new.state_keys - old.state_keys,
    state_bytes = state_bytes + new.state_bytes - old.state_bytes
    WHERE app = new.app AND user = new.user;
END;

CREATE TRIGGER session_deleted AFTER DELETE ON sessions BEGIN
  UPDATE users SET
    sessions = sessions - 1,
    event_bytes = event_bytes - old.event_bytes,
    state_keys = state_keys - old.state_keys,
    state_bytes = state_bytes - old.state_bytes
    WHERE app = old.app AND user = old.user;
END;

CREATE TRIGGER session_key_set AFTER INSERT ON session_state BEGIN
  UPDATE sessions SET
    state_keys = state_keys + 1,
    state_bytes = state_bytes + octet_length(new.key) + octet_length(new.value)
    WHERE session = new.session;
END;

CREATE TRIGGER session_key_changed AFTER UPDATE OF value ON session_state
  WHEN octet_length(new.value) <> octet_length(old.value) BEGIN
  UPDATE sessions SET state_bytes = state_bytes + octet_length(new.value) - octet_length(old.value)
    WHERE session = new.session;
END;

-- Those of a session that is deleted find no row any more: session_deleted has counted them.
CREATE TRIGGER session_key_unset AFTER DELETE ON session_state BEGIN
  UPDATE sessions SET
    state_keys = state_keys - 1,
    state_bytes = state_bytes - octet_length(old.key) - octet_length(old.value)
    WHERE session = old.session;
END;

CREATE TRIGGER user_key_set AFTER INSERT ON user_state BEGIN
  INSERT INTO users (app, user) SELECT new.app, new.user
    WHERE NOT EXISTS (SELECT 1 FROM users WHERE app = new.app AND user = new.user);
  UPDATE users SET
    state_keys = state_keys + 1,
    state_bytes = state_bytes + octet_length(new.key) + octet_length(new.value)
    WHERE app = new.app AND user = new.user;
END;

CREATE TRIGGER user_key_changed AFTER UPDATE OF value ON user_state
  WHEN octet_length(new.value) <> octet_length(old.value) BEGIN
  UPDATE users SET state_bytes = state_bytes + octet_length(new.value) - octet_length(old.value)
    WHERE app = new.app AND user = new.user;
END;

CREATE TRIGGER user_key_unset AFTER DELETE ON user_state BEGIN
  UPDATE users SET
    state_keys = state_keys - 1,
    state_bytes = state_bytes - octet_length(old.key) - octet_length(old.value)
    WHERE app = old.app AND user = old.user;
END;

CREATE TRIGGER app_key_set AFTER INSERT ON app_state BEGIN
  INSERT INTO apps (app) SELECT new.app WHERE NOT EXISTS (SELECT 1 FROM apps WHERE app = new.app);
  UPDATE apps SET
    state_keys = state_keys + 1,
    state_bytes = state_bytes + octet_length(new.key) + octet_length(new.value)
    WHERE app = new.app;
END;

CREATE TRIGGER app_key_changed AFTER UPDATE OF value ON app_state
  WHEN octet_length(new.value) <> octet_length(old.value) BEGIN
  UPDATE apps SET state_bytes = state_bytes + octet_length(new.value) - octet_length(old.value)
    WHERE app = new.app;
END;

CREATE TRIGGER app_key_unset AFTER DELETE ON app_state BEGIN
  UPDATE apps SET
    state_keys = state_keys - 1,
    state_bytes = state_bytes - octet_length(old.key) - octet_length(old.value)
    WHERE app = old.app;
END;

PRAGMA user_version = 2;
