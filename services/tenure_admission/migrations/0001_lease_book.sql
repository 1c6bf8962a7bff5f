-- The lease book. What is filtered or compared has a column; `body` is the whole lease as it is
-- sent (tenure.admission.v1.Lease), so that most reads only pass it on.
CREATE TABLE leases (
    id              text COLLATE "C" PRIMARY KEY,
    owner           text COLLATE "C" NOT NULL,
    project         text COLLATE "C" NOT NULL,
    pool            text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL,
    version         bigint NOT NULL,
    attempt         integer NOT NULL,
    created_ms      bigint NOT NULL,
    node_count      integer NOT NULL,
    -- Amounts of one slot, without zeros.
    amounts         jsonb NOT NULL,
    labels          jsonb NOT NULL,
    -- The span charged; both null while nothing is. No end is 2^53.
    charge_start_ms bigint,
    charge_end_ms   bigint,
    body            bytea NOT NULL,
    CHECK (version > 0),
    CHECK ((charge_start_ms IS NULL) = (charge_end_ms IS NULL)),
    CHECK (charge_start_ms IS NULL
           OR state NOT IN ('PENDING', 'QUEUED', 'DONE', 'FAILED', 'CANCELLED', 'REJECTED'))
);
-- Lists are newest first, page by page.
CREATE INDEX leases_by_age ON leases (created_ms DESC, id DESC);
CREATE INDEX leases_by_owner ON leases (owner, created_ms DESC, id DESC);
CREATE INDEX leases_by_project ON leases (project, created_ms DESC, id DESC);
CREATE INDEX leases_by_pool ON leases (pool, state, created_ms DESC, id DESC);
CREATE INDEX leases_by_state ON leases (state, created_ms DESC, id DESC);
CREATE INDEX leases_by_labels ON leases USING gin (labels jsonb_path_ops) WHERE labels <> '{}';
-- Limits on open leases count these, limits on amounts read the charged ones.
CREATE INDEX leases_open ON leases (project, owner)
    WHERE state NOT IN ('DONE', 'FAILED', 'CANCELLED', 'REJECTED');
CREATE INDEX leases_charged ON leases (project, owner) WHERE charge_start_ms IS NOT NULL;

-- What leaders expect of waiting leases: rewritten by every cycle, without a version.
CREATE TABLE forecasts (
    lease_id           text COLLATE "C" PRIMARY KEY,
    evaluated_ms       bigint NOT NULL,
    predicted_start_ms bigint,
    queue_position     integer NOT NULL,
    reason             text NOT NULL,
    message            text NOT NULL
) WITH (fillfactor = 70);

-- The smallest epoch accepted of each scope's leaders; it never falls.
CREATE TABLE epochs (
    scope text PRIMARY KEY,
    epoch bigint NOT NULL CHECK (epoch > 0)
);

-- The charge ledger: always the sum over the charged leases.
CREATE TABLE usage (
    dimension text COLLATE "C" NOT NULL CHECK (dimension IN ('owner', 'project')),
    name      text COLLATE "C" NOT NULL,
    resource  text COLLATE "C" NOT NULL,
    amount    numeric NOT NULL CHECK (amount >= 0),
    PRIMARY KEY (dimension, name, resource)
) WITH (fillfactor = 50);

-- At most `amount` of `resource` at any instant; `open_leases` and `held_leases` count leases.
CREATE TABLE limits (
    dimension text COLLATE "C" NOT NULL CHECK (dimension IN ('owner', 'project')),
    name      text COLLATE "C" NOT NULL,
    resource  text COLLATE "C" NOT NULL,
    amount    numeric NOT NULL CHECK (amount >= 0),
    PRIMARY KEY (dimension, name, resource)
);
