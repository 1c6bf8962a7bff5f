-- How the group of a master with workers is kept, in plain form; null for groups of a pool.

ALTER TABLE groups ADD COLUMN elastic jsonb;
