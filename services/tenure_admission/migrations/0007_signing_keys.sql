-- The public halves of the keys by which this service's replicas sign tokens; private halves never
-- leave the memory of their process. Each replica renews its own row while it signs by it, and a
-- row stays until the last token signed by it has expired.
CREATE TABLE signing_keys (
    id         text COLLATE "C" PRIMARY KEY,
    -- A JWK (RFC 7517).
    public_jwk text NOT NULL,
    expires_ms bigint NOT NULL
);
