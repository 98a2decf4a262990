-- Passages of artifacts and their words. What both kinds of indexes need is called as in those of folders.

CREATE TABLE scopes (
  -- Never used again, so that nobody who knows an old one sees the artifacts of another owner.
  scope INTEGER PRIMARY KEY AUTOINCREMENT,
  -- The app, the user and, unless the artifacts are the user's, the session: an array in JSON.
  owner TEXT NOT NULL UNIQUE,
  -- When the artifacts were listed last, in microseconds since 1970 (UTC).
  checked INTEGER NOT NULL
) STRICT;

CREATE INDEX scopes_by_age ON scopes (checked);

CREATE TABLE files (
  file INTEGER PRIMARY KEY,
  scope INTEGER NOT NULL REFERENCES scopes ON DELETE CASCADE,
  -- The name of the artifact.
  path TEXT NOT NULL,
  version INTEGER,
  -- When the version was saved, in microseconds since 1970 (UTC); 0 if the artifact service does not know it.
  modified INTEGER NOT NULL,
  size INTEGER NOT NULL,
  UNIQUE (scope, path)
) STRICT;

CREATE TABLE passages (
  passage INTEGER PRIMARY KEY,
  file INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
  first_line INTEGER NOT NULL,
  last_line INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;

CREATE INDEX passages_by_file ON passages (file);

CREATE VIRTUAL TABLE passage_words USING fts5 (
  words, content = '', contentless_delete = 1, tokenize = 'porter ascii'
);

CREATE TRIGGER passage_deleted AFTER DELETE ON passages BEGIN
  DELETE FROM passage_words WHERE rowid = old.passage;
END;

CREATE TABLE passage_vectors (
  passage INTEGER NOT NULL REFERENCES passages ON DELETE CASCADE,
  embedder TEXT NOT NULL,
  -- Of length 1, as little-endian numbers; empty if the passage has no direction.
  vector BLOB NOT NULL,
  PRIMARY KEY (passage, embedder)
) STRICT, WITHOUT ROWID;

-- "HtRa": distinguishes this file from those of other programs.
PRAGMA application_id = 1215582817;
PRAGMA user_version = 1;
