-- What retention keeps of the batches it drops (tenure_runtime/audit/retention.py): the last one's
-- number and hash, from which the rest of the chain still verifies. `bytes` is that of the entries
-- that are there; batches of releases before this one count for nothing.
ALTER TABLE audit_batches ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
CREATE TABLE audit_kept (
    single  boolean PRIMARY KEY DEFAULT true CHECK (single),
    number  bigint NOT NULL DEFAULT -1,
    hash    bytea NOT NULL DEFAULT '',
    entries bigint NOT NULL DEFAULT 0,
    bytes   bigint NOT NULL DEFAULT 0
);
INSERT INTO audit_kept DEFAULT VALUES;

-- Retention says in its own transaction that it is at work: against accidents, as the rest of this
-- function. What shows that somebody else removed something is the chain.
CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('tenure.audit_retention', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the audit trail is append-only: % of % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
