-- Passages of files and their words.

CREATE TABLE files (
  file INTEGER PRIMARY KEY,
  -- Below the folder, with `/`.
  path TEXT NOT NULL UNIQUE,
  -- Microseconds since 1970 (UTC), and bytes.
  modified INTEGER NOT NULL,
  size INTEGER NOT NULL
) STRICT;

CREATE TABLE passages (
  passage INTEGER PRIMARY KEY,
  file INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
  first_line INTEGER NOT NULL,
  last_line INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;

CREATE INDEX passages_by_file ON passages (file);

-- The host splits texts into words; the tokenizer separates them at spaces and reduces English words to their stems.
CREATE VIRTUAL TABLE passage_words USING fts5 (
  words, content = '', contentless_delete = 1, tokenize = 'porter ascii'
);

CREATE TRIGGER passage_deleted AFTER DELETE ON passages BEGIN
  DELETE FROM passage_words WHERE rowid = old.passage;
END;

-- "HtRe": distinguishes this file from those of other programs.
PRAGMA application_id = 1215582821;
PRAGMA user_version = 1;
