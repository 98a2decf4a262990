-- Embeddings of passages.

CREATE TABLE passage_vectors (
  passage INTEGER NOT NULL REFERENCES passages ON DELETE CASCADE,
  -- Vectors of different embedders are never compared.
  embedder TEXT NOT NULL,
  -- Of length 1, as little-endian numbers; empty if the passage has no direction.
  vector BLOB NOT NULL,
  PRIMARY KEY (passage, embedder)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 2;
