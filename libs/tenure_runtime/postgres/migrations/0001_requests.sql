-- Request ids, stored in the same transaction as the effect of the request (idempotency.py).
CREATE TABLE requests (
    caller       text NOT NULL,
    request_id   text NOT NULL,
    request_hash bytea NOT NULL,
    response     bytea,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (caller, request_id)
);
CREATE INDEX requests_by_age ON requests USING brin (created_at);
