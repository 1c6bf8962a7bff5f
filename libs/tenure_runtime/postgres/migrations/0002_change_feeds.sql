-- Change feeds (changefeed.py). Rows are read in the order (tx, sequence) below the oldest running
-- transaction: sequence numbers alone become visible out of commit order.
CREATE TABLE feeds (
    feed            text PRIMARY KEY,
    incarnation     text NOT NULL,
    -- Which server, timeline and database the transaction ids belong to.
    home            text NOT NULL,
    pruned_tx       bigint NOT NULL DEFAULT 0,
    pruned_sequence bigint NOT NULL DEFAULT 0
);
CREATE TABLE changes (
    feed       text NOT NULL,
    tx         bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    sequence   bigint GENERATED ALWAYS AS IDENTITY,
    key        text NOT NULL,
    kind       text NOT NULL,
    payload    bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (feed, tx, sequence)
);
