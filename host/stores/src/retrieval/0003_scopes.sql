-- One index may hold the texts of several owners. A folder has one: 0.

ALTER TABLE files ADD COLUMN scope INTEGER NOT NULL DEFAULT 0;

-- Only artifacts have one.
ALTER TABLE files ADD COLUMN version INTEGER;

PRAGMA user_version = 3;
