-- Budgets: at most so much x hours of a resource in each period, `day`, `week` or `month` (UTC).
ALTER TABLE quotas ADD COLUMN budgets jsonb NOT NULL DEFAULT '{}';
ALTER TABLE quotas ADD COLUMN period text NOT NULL DEFAULT 'month';
-- Spans of every week in which the limits count, [day, start ms, duration ms]; none: all the time.
ALTER TABLE quotas ADD COLUMN weekly jsonb NOT NULL DEFAULT '[]';
ALTER TABLE quotas ADD COLUMN zone text NOT NULL DEFAULT 'UTC';
-- What leases held that they hold no more: one row a charge given back and day (UTC, since 1970).
CREATE TABLE spent_charges (
    lease_id   text COLLATE "C" NOT NULL,
    -- Of the lease, after the write that gave the charge back.
    version    bigint NOT NULL,
    day        integer NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    project    text COLLATE "C" NOT NULL,
    node_count integer NOT NULL,
    -- Amounts of one slot, without zeros.
    amounts    jsonb NOT NULL,
    held_ms    bigint NOT NULL CHECK (held_ms > 0),
    PRIMARY KEY (lease_id, version, day)
);
CREATE INDEX spent_charges_by_day ON spent_charges (day);
-- Their sums: amount x ms. Always the sum over `spent_charges`.
CREATE TABLE spending (
    dimension text COLLATE "C" NOT NULL CHECK (dimension IN ('owner', 'project')),
    name      text COLLATE "C" NOT NULL,
    resource  text COLLATE "C" NOT NULL,
    day       integer NOT NULL,
    used      numeric NOT NULL CHECK (used >= 0),
    PRIMARY KEY (dimension, name, resource, day)
) WITH (fillfactor = 50);
