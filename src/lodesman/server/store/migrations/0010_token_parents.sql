-- The token that a token was made with: what was made with a revoked one is revoked too. NULL: none, or not known.
ALTER TABLE token ADD COLUMN parent BLOB;
CREATE INDEX token_parent ON token (parent) WHERE parent IS NOT NULL;
