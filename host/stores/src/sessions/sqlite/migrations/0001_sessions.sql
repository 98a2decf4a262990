-- Sessions, their events and their state. Times are microseconds since 1970 (UTC).

CREATE TABLE sessions (
  session INTEGER PRIMARY KEY,
  app TEXT NOT NULL,
  user TEXT NOT NULL,
  id TEXT NOT NULL,
  -- How many events there are.
  revision INTEGER NOT NULL DEFAULT 0,
  created INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  UNIQUE (app, user, id)
) STRICT;

-- Rows are only ever added at the end of the table, which packs its pages; the index finds those of one session.
CREATE TABLE events (
  event INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  -- The session's revision once this event is in it: 1, 2, 3 …
  revision INTEGER NOT NULL,
  time INTEGER NOT NULL,
  json TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_by_session ON events (session, revision);

-- Keeps the session in step with its events, in the same statement.
CREATE TRIGGER event_appended AFTER INSERT ON events BEGIN
  UPDATE sessions SET revision = new.revision, updated = new.time WHERE session = new.session;
END;

-- State: one row per key (in full, with its prefix), the value as JSON.

CREATE TABLE session_state (
  session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE user_state (
  app TEXT NOT NULL,
  user TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (app, user, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE app_state (
  app TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (app, key)
) STRICT, WITHOUT ROWID;

-- "HtSe": tells this file from any other program's.
PRAGMA application_id = 1215583077;
PRAGMA user_version = 1;
