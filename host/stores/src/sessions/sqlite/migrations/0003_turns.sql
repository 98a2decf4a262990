-- Turns: only the newest may append, and no other begins before its lease ends. Ids of events are unique in a session.

-- The number of the newest turn.
ALTER TABLE sessions ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
-- The end of its lease.
ALTER TABLE sessions ADD COLUMN leased_until INTEGER NOT NULL DEFAULT 0;

-- The first eight bytes of the SHA-256 of the event's id. Events that were appended before this column have none.
ALTER TABLE events ADD COLUMN id_hash INTEGER;

CREATE UNIQUE INDEX events_by_id ON events (session, id_hash) WHERE id_hash IS NOT NULL;

PRAGMA user_version = 3;
