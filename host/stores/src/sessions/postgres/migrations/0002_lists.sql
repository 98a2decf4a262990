-- Lists of sessions are read in their order, a page at a time. From now on an append changes a column of an index, the
-- beginning and the end of a turn still do not.
CREATE INDEX sessions_by_time ON sessions (app, user_id, updated DESC, id);
