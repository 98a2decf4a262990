-- Runs. The bytes of their texts count as those of the session's events. Times are microseconds since 1970 (UTC).

CREATE TABLE runs (
  -- Grows with each run of a session.
  run INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  id TEXT NOT NULL,
  state TEXT NOT NULL,
  error_code TEXT,
  error_message TEXT,
  background INTEGER NOT NULL,
  cancel_requested INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  first_revision INTEGER NOT NULL,
  -- The request of a background run that is not at rest, as JSON.
  request TEXT,
  accepted INTEGER NOT NULL,
  updated INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX runs_by_id ON runs (session, id);
CREATE INDEX runs_by_session ON runs (session);
CREATE INDEX runs_in_background ON runs (accepted) WHERE background = 1 AND state IN ('accepted', 'running');

PRAGMA user_version = 6;
