-- The secret values of a lease's environment, encrypted together (tenure_runtime/sealing.py) under
-- a key of admission's key file; there until the lease ends.
CREATE TABLE lease_secrets (
    lease_id text COLLATE "C" PRIMARY KEY,
    key_id   text COLLATE "C" NOT NULL,
    content  bytea NOT NULL
);
