-- The slot table: nodes and what is held on them, per pool. Every write of a pool happens under the
-- lock of its row in `pools`, so revisions of a pool are totally ordered.
CREATE TABLE pools (
    pool     text PRIMARY KEY,
    revision bigint NOT NULL DEFAULT 0,
    -- Newest time handed out: a pool's time never goes backward, whatever the host's clock does.
    last_ms  bigint NOT NULL DEFAULT 0,
    -- Released rows older than this revision are forgotten: caches behind it load everything.
    horizon  bigint NOT NULL DEFAULT 0
);
CREATE TABLE epochs (
    scope       text PRIMARY KEY,
    epoch       bigint NOT NULL,
    holder      text NOT NULL DEFAULT '',
    acquired_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE nodes (
    id       text PRIMARY KEY,
    pool     text NOT NULL,
    revision bigint NOT NULL,
    body     jsonb NOT NULL
);
CREATE INDEX nodes_of_pool ON nodes (pool, revision);
CREATE TABLE reservations (
    id         text PRIMARY KEY,
    pool       text NOT NULL,
    node       text NOT NULL,
    lease      text NOT NULL,
    attempt    integer NOT NULL,
    rank       integer NOT NULL,
    kind       text NOT NULL,
    start_ms   bigint NOT NULL,
    end_ms     bigint NOT NULL CHECK (end_ms > start_ms),
    amounts    jsonb NOT NULL,
    displaced  boolean NOT NULL DEFAULT false,
    version    bigint NOT NULL,
    created_ms bigint NOT NULL,
    revision   bigint NOT NULL
);
CREATE INDEX reservations_of_pool ON reservations (pool, revision);
CREATE INDEX reservations_by_name ON reservations (pool, id);
CREATE INDEX reservations_on_node ON reservations (node, start_ms);
CREATE INDEX reservations_of_lease ON reservations (lease);
CREATE TABLE released (
    pool     text NOT NULL,
    revision bigint NOT NULL,
    id       text NOT NULL,
    PRIMARY KEY (pool, revision, id)
);
CREATE TABLE maintenance_windows (
    id       text PRIMARY KEY,
    pool     text NOT NULL,
    nodes    text[] NOT NULL,
    start_ms bigint NOT NULL,
    end_ms   bigint NOT NULL CHECK (end_ms > start_ms),
    message  text NOT NULL DEFAULT ''
);
CREATE INDEX maintenance_windows_of_pool ON maintenance_windows (pool, id);
