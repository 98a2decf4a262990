-- Entries of memory and their words. Times are microseconds since 1970 (UTC).

CREATE TABLE owners (
  owner INTEGER PRIMARY KEY,
  app TEXT NOT NULL,
  user TEXT NOT NULL,
  UNIQUE (app, user)
) STRICT;

CREATE TABLE entries (
  entry INTEGER PRIMARY KEY,
  owner INTEGER NOT NULL REFERENCES owners,
  -- The ids of the session and of the event.
  session TEXT NOT NULL,
  event TEXT NOT NULL,
  author TEXT NOT NULL,
  time INTEGER NOT NULL,
  -- The message as JSON.
  content TEXT NOT NULL,
  UNIQUE (owner, session, event)
) STRICT;

-- The words of each entry, and `_` with the number of its owner, which is no word. The host splits texts into words, so
-- the tokenizer only separates them at spaces.
CREATE VIRTUAL TABLE entry_words USING fts5 (
  words, content = '', contentless_delete = 1, detail = 'none', tokenize = "ascii tokenchars '_'"
);

CREATE TRIGGER entry_deleted AFTER DELETE ON entries BEGIN
  DELETE FROM entry_words WHERE rowid = old.entry;
END;

-- "HtMe": distinguishes this file from those of other programs.
PRAGMA application_id = 1215581541;
PRAGMA user_version = 1;
