-- The turns of a session are counted from the time of its creation on, so that they differ from the turns of a deleted
-- session with its key.
ALTER TABLE sessions ALTER COLUMN turn SET DEFAULT now_micros();
