-- Embeddings of entries in the type of the extension `vector`, which is created if the account may do that.

-- Hosts with other schemas may create it at the same time.
SELECT pg_advisory_xact_lock(hashtext('hatchery'), hashtext('CREATE EXTENSION vector'));

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') THEN
    CREATE EXTENSION vector SCHEMA public;
  END IF;
EXCEPTION WHEN insufficient_privilege THEN
  RAISE insufficient_privilege USING MESSAGE = 'this account may not create the extension `vector`: let an '
    'administrator run `CREATE EXTENSION vector SCHEMA public` in the database, or search without an embedder';
END
$$;

-- The functions below keep this path, on which the type and its operators are.
SELECT set_config('search_path', current_setting('search_path') || ', ' || quote_ident(nspname), true)
  FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector';

CREATE TABLE entry_vectors (
  entry BIGINT PRIMARY KEY REFERENCES entries ON DELETE CASCADE,
  -- The name of the embedder: vectors of others are not compared.
  embedder TEXT COLLATE "C" NOT NULL,
  -- Of length 1.
  vector VECTOR NOT NULL
);

-- As `remember`, with the vectors of the entries; NULL for one without.
CREATE FUNCTION remember_vectors(
  p_app TEXT, p_user TEXT, p_session TEXT, p_replaces BOOLEAN, p_configuration TEXT,
  p_events TEXT[], p_authors TEXT[], p_times BIGINT[], p_contents TEXT[], p_words TEXT[],
  p_embedder TEXT, p_vectors TEXT[]
) RETURNS VOID LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM remember(
    p_app, p_user, p_session, p_replaces, p_configuration, p_events, p_authors, p_times, p_contents, p_words
  );
  INSERT INTO entry_vectors (entry, embedder, vector)
    SELECT DISTINCT ON (e.entry) e.entry, p_embedder, v.vector::VECTOR
    FROM unnest(p_events, p_vectors) AS v (event, vector)
    JOIN entries AS e ON e.event = v.event JOIN owners AS o ON o.owner = e.owner
    WHERE o.app = p_app AND o.user_id = p_user AND e.session = p_session AND v.vector IS NOT NULL
    ON CONFLICT (entry) DO UPDATE SET embedder = excluded.embedder, vector = excluded.vector;
END
$$;

-- Returns what `recall_entries` does, and then the entries with a vector that is similar to that of the query: the most
-- similar first, then the newest.
CREATE FUNCTION recall_similar(
  p_app TEXT, p_user TEXT, p_configuration TEXT, p_words TEXT[], p_limit BIGINT,
  p_embedder TEXT, p_query TEXT, p_min_similarity FLOAT8, p_max_similar BIGINT
) RETURNS TABLE (out_entry BIGINT, out_is_similar BOOLEAN, out_author TEXT, out_time BIGINT, out_content TEXT)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  v_query VECTOR := p_query::VECTOR;
BEGIN
  RETURN QUERY SELECT w.entry, FALSE, w.author, w.time, w.content
    FROM recall_entries(p_app, p_user, p_configuration, p_words, p_limit) AS w (entry, author, time, content);
  -- Vectors of different lengths cannot be compared.
  RETURN QUERY SELECT s.entry, TRUE, s.author, s.time, s.content FROM (
      SELECT e.entry, e.author, e.time, e.content,
        CASE WHEN vector_dims(v.vector) = vector_dims(v_query) THEN -(v.vector <#> v_query) END AS similarity
      FROM owners AS o JOIN entries AS e ON e.owner = o.owner JOIN entry_vectors AS v ON v.entry = e.entry
      WHERE o.app = p_app AND o.user_id = p_user AND v.embedder = p_embedder
    ) AS s
    WHERE s.similarity >= p_min_similarity
    ORDER BY s.similarity DESC, s.time DESC, s.entry DESC LIMIT p_max_similar;
END
$$;
