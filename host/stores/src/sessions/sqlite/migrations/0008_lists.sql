-- Lists of sessions are read in their order, a page at a time. Rules of retention use it too.
CREATE INDEX sessions_by_time ON sessions (app, user, updated DESC, id);

PRAGMA user_version = 8;
