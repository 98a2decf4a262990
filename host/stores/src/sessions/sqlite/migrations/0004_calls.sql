-- The journal of calls. Its bytes count as those of the session's events.

CREATE TABLE run_calls (
  session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  run TEXT NOT NULL,
  -- The key of the call; empty for the mark of a run that has finished.
  call TEXT NOT NULL,
  -- What it returned, as JSON. NULL if it has begun and not ended.
  outcome TEXT,
  PRIMARY KEY (session, run, call)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER call_recorded AFTER INSERT ON run_calls WHEN new.call <> '' BEGIN
  UPDATE sessions SET event_bytes = event_bytes + octet_length(new.call) + coalesce(octet_length(new.outcome), 0)
    WHERE session = new.session;
END;

CREATE TRIGGER call_changed AFTER UPDATE OF outcome ON run_calls WHEN new.call <> '' BEGIN
  UPDATE sessions SET
    event_bytes = event_bytes + coalesce(octet_length(new.outcome), 0) - coalesce(octet_length(old.outcome), 0)
    WHERE session = new.session;
END;

-- Those of a session that is deleted find no row any more: session_deleted has counted them.
CREATE TRIGGER call_deleted AFTER DELETE ON run_calls WHEN old.call <> '' BEGIN
  UPDATE sessions SET event_bytes = event_bytes - octet_length(old.call) - coalesce(octet_length(old.outcome), 0)
    WHERE session = old.session;
END;

PRAGMA user_version = 4;
