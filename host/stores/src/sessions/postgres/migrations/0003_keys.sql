-- Without statistics, the planner found a session among all of its user's by `sessions_by_time`, and pages of lists by the
-- index of keys. Of two indexes with the same estimated cost it takes the newer one, and an index that begins with the id
-- cannot serve a list.
CREATE UNIQUE INDEX sessions_key ON sessions (id, user_id, app);
ALTER TABLE sessions DROP CONSTRAINT sessions_app_user_id_id_key;
