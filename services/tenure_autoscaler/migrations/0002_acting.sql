-- What makes the autoscaler act: orders written before the provider is asked, and what a fleet
-- remembers from one decision to the next.

ALTER TABLE groups ADD COLUMN idle_ms bigint NOT NULL DEFAULT 600000;
ALTER TABLE machines ADD COLUMN provider_id text NOT NULL DEFAULT '';
ALTER TABLE decisions ADD COLUMN results jsonb NOT NULL DEFAULT '{}';

-- One row a machine: its newest life. `body` is the record in plain form.
CREATE TABLE orders (
    machine  text COLLATE "C" PRIMARY KEY,
    group_id text NOT NULL,
    token    text NOT NULL UNIQUE,
    live     boolean NOT NULL,
    body     jsonb NOT NULL
);
CREATE INDEX orders_by_group ON orders (group_id, machine);

CREATE TABLE fleets (
    group_id text PRIMARY KEY,
    epoch    bigint NOT NULL,
    memory   jsonb NOT NULL
);
