-- As `recall`, which older hosts use, with the number of each entry.
CREATE FUNCTION recall_entries(p_app TEXT, p_user TEXT, p_configuration TEXT, p_words TEXT[], p_limit BIGINT)
RETURNS TABLE (out_entry BIGINT, out_author TEXT, out_time BIGINT, out_content TEXT) LANGUAGE plpgsql STABLE AS $$
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
  RETURN QUERY SELECT entry, author, time, content FROM entries
    WHERE words @@ (('_' || v_owner)::TSQUERY && v_any)
    ORDER BY (SELECT count(*) FROM unnest(v_queries) AS q (query) WHERE words @@ q.query) DESC, time DESC, entry
    LIMIT p_limit;
END
$$;
