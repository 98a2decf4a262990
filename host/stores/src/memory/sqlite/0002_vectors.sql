-- Embeddings of entries, for a search by meaning. An entry that was added without an embedder has none.
CREATE TABLE entry_vectors (
  entry INTEGER PRIMARY KEY REFERENCES entries ON DELETE CASCADE,
  -- The name of the embedder: vectors of others are not compared.
  embedder TEXT NOT NULL,
  -- Of length 1, little-endian numbers of 32 bits.
  vector BLOB NOT NULL
) STRICT;

PRAGMA user_version = 2;
