-- The audit trail (tenure_runtime/audit): who changed what, written in the transaction of the
-- change. Entries are sealed in the order of their transaction ids, below the oldest transaction
-- still running, like change feeds.
CREATE TABLE audit_entries (
    tx         bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    sequence   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms      bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    caller     text COLLATE "C" NOT NULL,
    method     text COLLATE "C" NOT NULL,
    resource   text COLLATE "C" NOT NULL,
    peer       text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    -- The resource as its service encodes it, secrets hidden; null where there is none.
    before     bytea,
    after      bytea
);
CREATE INDEX audit_entries_by_tx ON audit_entries (tx, sequence);
-- Who, what and when are looked for seldom and written always: summaries of blocks cost writers
-- next to nothing.
CREATE INDEX audit_entries_by_facts ON audit_entries USING brin
    (caller text_bloom_ops, resource text_bloom_ops, method text_bloom_ops, at_ms)
    WITH (pages_per_range = 32, autosummarize = on);

-- Batches, each with the hash of the one before. `hash` covers all columns but `home`.
CREATE TABLE audit_batches (
    number         bigint PRIMARY KEY,
    previous       bytea NOT NULL,
    sealed_ms      bigint NOT NULL,
    -- Not sealed yet are the entries with a greater sequence than `floor` and a greater
    -- (tx, sequence) than (last_tx, last_sequence) of the last batch.
    floor          bigint NOT NULL,
    last_tx        bigint NOT NULL,
    last_sequence  bigint NOT NULL,
    -- The entries' sequences in their order, and the digests of the entries, 32 bytes each.
    sequences      bigint[] NOT NULL,
    digests        bytea NOT NULL,
    hash           bytea NOT NULL,
    sequence_min   bigint GENERATED ALWAYS AS (sequences[1]) STORED,
    sequence_max   bigint GENERATED ALWAYS AS (sequences[cardinality(sequences)]) STORED,
    -- Which server, timeline and database the transaction ids belong to.
    home           text NOT NULL
);
CREATE INDEX audit_batches_by_entries ON audit_batches (sequence_max);

CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit trail is append-only: % of % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_entries
    EXECUTE FUNCTION refuse_audit_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_batches
    EXECUTE FUNCTION refuse_audit_change();
