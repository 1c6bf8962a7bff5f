-- How owners are told of their leases; an owner without a row is told nothing.
CREATE TABLE notice_settings (
    owner          text COLLATE "C" PRIMARY KEY,
    webhook_url    text NOT NULL,
    -- Signs what is posted; never returned, never in the audit trail.
    webhook_secret text NOT NULL,
    email          text NOT NULL,
    -- Empty: all kinds.
    kinds          text[] NOT NULL,
    ending_lead_ms bigint NOT NULL CHECK (ending_lead_ms > 0)
);
-- Written in the transaction of a lease's change, one row for each way; delivered by a loop.
CREATE TABLE notices (
    id         text COLLATE "C" NOT NULL,
    channel    text COLLATE "C" NOT NULL CHECK (channel IN ('webhook', 'email')),
    owner      text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    facts      jsonb NOT NULL,
    state      text COLLATE "C" NOT NULL DEFAULT 'PENDING',
    created_ms bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    attempts   integer NOT NULL DEFAULT 0,
    -- Not tried before then; a sender that takes a row moves it on, so that none is stuck with it.
    due_ms     bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    error      text NOT NULL DEFAULT '',
    -- A fact has one id, and is told once on each way.
    PRIMARY KEY (id, channel)
);
CREATE INDEX notices_due ON notices (due_ms) WHERE state = 'PENDING';
CREATE INDEX notices_by_owner ON notices (owner, created_ms DESC);
CREATE INDEX leases_ending ON leases (charge_end_ms) WHERE state = 'ACTIVE';
