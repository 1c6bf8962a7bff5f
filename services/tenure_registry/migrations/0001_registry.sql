-- Agents, the commands stored for them, the reports they sent, and what each allocation came to.

CREATE TABLE agents (
    agent       text COLLATE "C" PRIMARY KEY,
    pool        text NOT NULL,
    incarnation text NOT NULL,
    state       text NOT NULL,
    cordoned    boolean NOT NULL DEFAULT false,
    draining    boolean NOT NULL DEFAULT false,
    -- Capacity, attributes and what suspended work keeps, as last claimed and believed.
    facts       jsonb NOT NULL,
    version     text NOT NULL,
    session     text NOT NULL,
    replica     text NOT NULL,
    contact_ms  bigint NOT NULL,
    changed_ms  bigint NOT NULL
);
CREATE INDEX agents_by_replica ON agents (replica);

-- The smallest epoch accepted for each scope.
CREATE TABLE epochs (
    scope text PRIMARY KEY,
    epoch bigint NOT NULL
);

-- Replicas that serve; agents of one that is not renewed are watched by another.
CREATE TABLE replicas (
    replica    text PRIMARY KEY,
    renewed_at timestamptz NOT NULL
);

CREATE TABLE commands (
    command_id    text PRIMARY KEY,
    number        bigint GENERATED ALWAYS AS IDENTITY,
    agent         text COLLATE "C" NOT NULL,
    lease         text COLLATE "C" NOT NULL,
    attempt       integer NOT NULL,
    rank          integer NOT NULL,
    verb          text NOT NULL,
    epoch         bigint NOT NULL,
    valid_ms      bigint NOT NULL,
    on_loss       text NOT NULL,
    digest        bytea NOT NULL,
    body          bytea NOT NULL,
    dispatched_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Absent while the command is to be delivered; else ANSWERED, SETTLED (its allocation ended) or VOID.
    outcome       text
);
CREATE INDEX commands_open ON commands (agent, number) WHERE outcome IS NULL;
CREATE INDEX commands_by_age ON commands USING brin (dispatched_at);

CREATE TABLE allocations (
    lease         text COLLATE "C" NOT NULL,
    attempt       integer NOT NULL,
    rank          integer NOT NULL,
    agent         text COLLATE "C" NOT NULL,
    pool          text NOT NULL,
    state         text NOT NULL,
    on_loss       text NOT NULL,
    live          boolean NOT NULL,
    started       boolean NOT NULL,
    -- The report that says how it is.
    report_id     text,
    command_id    text,
    kind          text,
    sequence      bigint,
    body          bytea,
    -- Set when its agent came back with a new disk: its old work has ended by then.
    abandoned_at  timestamptz,
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lease, attempt, rank)
);
CREATE INDEX allocations_live ON allocations (agent) WHERE live;
CREATE INDEX allocations_abandoned ON allocations (abandoned_at) WHERE live AND abandoned_at IS NOT NULL;
CREATE INDEX allocations_by_pool ON allocations (pool, lease, attempt, rank) WHERE body IS NOT NULL;
CREATE INDEX allocations_ended ON allocations (changed_at) WHERE NOT live;

-- Every report once, also those about allocations that the agent does not have (known = false).
CREATE TABLE reports (
    agent       text COLLATE "C" NOT NULL,
    report_id   text NOT NULL,
    sequence    bigint NOT NULL,
    lease       text NOT NULL,
    attempt     integer NOT NULL,
    rank        integer NOT NULL,
    kind        text NOT NULL,
    command_id  text NOT NULL,
    body        bytea NOT NULL,
    known       boolean NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (agent, report_id)
);
CREATE INDEX reports_by_age ON reports USING brin (recorded_at);
