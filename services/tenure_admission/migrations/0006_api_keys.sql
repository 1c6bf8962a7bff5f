-- API keys made by calls. Of a secret only its SHA-256: it has 256 random bits, so that a slow hash
-- would add nothing.
CREATE TABLE api_keys (
    id            text COLLATE "C" PRIMARY KEY,
    caller        text COLLATE "C" NOT NULL,
    roles         text[] NOT NULL,
    read_only     boolean NOT NULL,
    -- Empty: of all.
    pools         text[] NOT NULL,
    projects      text[] NOT NULL,
    administers   text[] NOT NULL,
    description   text NOT NULL,
    secret_sha256 bytea NOT NULL CHECK (length(secret_sha256) = 32),
    created_ms    bigint NOT NULL,
    creator       text NOT NULL,
    expires_ms    bigint,
    revoked_ms    bigint,
    revoker       text NOT NULL,
    replaced_by   text NOT NULL
);
CREATE INDEX api_keys_by_caller ON api_keys (caller, id);
