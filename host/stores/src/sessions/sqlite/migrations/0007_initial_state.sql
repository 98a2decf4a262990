-- The state that a session was created with, as a JSON object, so that the state at an earlier event can be restored. NULL
-- for sessions that were created before this column.
ALTER TABLE sessions ADD COLUMN initial_state TEXT;

PRAGMA user_version = 7;
