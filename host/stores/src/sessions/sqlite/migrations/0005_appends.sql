-- An append updates the totals of its session and user by statements of its own. With triggers, it was one statement with
-- several changes, for which SQLite copies each page before it changes it. The ids of events get a table of their own,
-- which is smaller than a column and its index.

CREATE TABLE event_ids (
  session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  -- The first eight bytes of the SHA-256 of the event's id.
  hash INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  PRIMARY KEY (session, hash)
) STRICT, WITHOUT ROWID;

INSERT INTO event_ids (session, hash, revision) SELECT session, id_hash, revision FROM events WHERE id_hash IS NOT NULL;

DROP INDEX events_by_id;
ALTER TABLE events DROP COLUMN id_hash;

DROP TRIGGER event_appended;
DROP TRIGGER session_grown;

CREATE TRIGGER session_grown AFTER UPDATE OF state_keys, state_bytes ON sessions BEGIN
  UPDATE users SET
    state_keys = state_keys + new.state_keys - old.state_keys,
    state_bytes = state_bytes + new.state_bytes - old.state_bytes
    WHERE app = new.app AND user = new.user;
END;

DROP TRIGGER call_recorded;
DROP TRIGGER call_changed;
DROP TRIGGER call_deleted;

CREATE TRIGGER call_recorded AFTER INSERT ON run_calls WHEN new.call <> '' BEGIN
  UPDATE sessions SET event_bytes = event_bytes + octet_length(new.call) + coalesce(octet_length(new.outcome), 0)
    WHERE session = new.session;
  UPDATE users SET event_bytes = event_bytes + octet_length(new.call) + coalesce(octet_length(new.outcome), 0)
    WHERE (app, user) = (SELECT app, user FROM sessions WHERE session = new.session);
END;

CREATE TRIGGER call_changed AFTER UPDATE OF outcome ON run_calls WHEN new.call <> '' BEGIN
  UPDATE sessions SET
    event_bytes = event_bytes + coalesce(octet_length(new.outcome), 0) - coalesce(octet_length(old.outcome), 0)
    WHERE session = new.session;
  UPDATE users SET
    event_bytes = event_bytes + coalesce(octet_length(new.outcome), 0) - coalesce(octet_length(old.outcome), 0)
    WHERE (app, user) = (SELECT app, user FROM sessions WHERE session = new.session);
END;

-- Those of a session that is deleted find no row any more: session_deleted has counted them.
CREATE TRIGGER call_deleted AFTER DELETE ON run_calls WHEN old.call <> '' BEGIN
  UPDATE users SET event_bytes = event_bytes - octet_length(old.call) - coalesce(octet_length(old.outcome), 0)
    WHERE (app, user) = (SELECT app, user FROM sessions WHERE session = old.session);
  UPDATE sessions SET event_bytes = event_bytes - octet_length(old.call) - coalesce(octet_length(old.outcome), 0)
    WHERE session = old.session;
END;

PRAGMA user_version = 5;
