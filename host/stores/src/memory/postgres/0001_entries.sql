-- Entries of memory and their words. Times are microseconds since 1970 (UTC).

CREATE TABLE owners (
  owner BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app TEXT COLLATE "C" NOT NULL,
  user_id TEXT COLLATE "C" NOT NULL,
  UNIQUE (app, user_id)
);

CREATE TABLE entries (
  entry BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  owner BIGINT NOT NULL REFERENCES owners,
  -- The ids of the session and of the event, the latter as in JSON without the quotes, like the author.
  session TEXT COLLATE "C" NOT NULL,
  event TEXT COLLATE "C" NOT NULL,
  author TEXT NOT NULL,
  time BIGINT NOT NULL,
  -- The message as JSON.
  content TEXT NOT NULL,
  -- The words as the host splits them, their lexemes in the configuration of text search, and `_` with the number of the
  -- owner, which is no word.
  words TSVECTOR NOT NULL,
  UNIQUE (owner, session, event)
);

CREATE INDEX entries_by_word ON entries USING gin (words);

-- Adds entries, after the deletion of those of the session if they are to be replaced. The words of an entry are separated
-- by spaces. Without a configuration, only whole words are found.
CREATE FUNCTION remember(
  p_app TEXT, p_user TEXT, p_session TEXT, p_replaces BOOLEAN, p_configuration TEXT,
  p_events TEXT[], p_authors TEXT[], p_times BIGINT[], p_contents TEXT[], p_words TEXT[]
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_owner BIGINT;
BEGIN
  SELECT owner INTO v_owner FROM owners WHERE app = p_app AND user_id = p_user;
  IF NOT FOUND THEN
    IF cardinality(p_events) = 0 THEN
      RETURN;
    END IF;
    INSERT INTO owners (app, user_id) VALUES (p_app, p_user)
      ON CONFLICT (app, user_id) DO UPDATE SET app = excluded.app RETURNING owner INTO v_owner;
  END IF;
  IF p_replaces THEN
    DELETE FROM entries WHERE owner = v_owner AND session = p_session;
  END IF;
  INSERT INTO entries (owner, session, event, author, time, content, words)
    SELECT v_owner, p_session, e.event, e.author, e.time, e.content,
      array_to_tsvector(string_to_array('_' || v_owner || ' ' || e.words, ' '))
        || CASE WHEN p_configuration IS NULL THEN ''::TSVECTOR
                ELSE strip(to_tsvector(p_configuration::REGCONFIG, e.words)) END
    FROM unnest(p_events, p_authors, p_times, p_contents, p_words) AS e (event, author, time, content, words)
    ON CONFLICT DO NOTHING;
END
$$;

-- Returns the lexemes of a word: the word itself, and those of the configuration.
CREATE FUNCTION word_query(p_configuration TEXT, p_word TEXT) RETURNS TSQUERY LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_query TSQUERY := quote_literal(p_word)::TSQUERY;
BEGIN
  IF p_configuration IS NULL THEN
    RETURN v_query;
  END IF;
  RETURN v_query || plainto_tsquery(p_configuration::REGCONFIG, p_word);
END
$$;

-- Returns the entries of an owner with one of the words: those with most of them first, then the newest.
CREATE FUNCTION recall(p_app TEXT, p_user TEXT, p_configuration TEXT, p_words TEXT[], p_limit BIGINT)
RETURNS TABLE (out_author TEXT, out_time BIGINT, out_content TEXT) LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_owner BIGINT;
  v_word TEXT;
  v_query TSQUERY;
  v_queries TSQUERY[] := '{}';
  v_any TSQUERY;
BEGIN
  SELECT owner INTO v_owner FROM owners WHERE app = p_app AND user_id = p_user;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  FOREACH v_word IN ARRAY p_words LOOP
    v_query := word_query(p_configuration, v_word);
    v_queries := v_queries || v_query;
    v_any := CASE WHEN v_any IS NULL THEN v_query ELSE v_any || v_query END;
  END LOOP;
  RETURN QUERY SELECT author, time, content FROM entries
    WHERE words @@ (('_' || v_owner)::TSQUERY && v_any)
    ORDER BY (SELECT count(*) FROM unnest(v_queries) AS q (query) WHERE words @@ q.query) DESC, time DESC, entry
    LIMIT p_limit;
END
$$;
