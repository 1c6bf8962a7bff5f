-- When a lease ended, by the database's clock; null while it has not, and where a release before
-- this one recorded it: then retention counts from its creation.
ALTER TABLE leases ADD COLUMN ended_ms bigint;
CREATE INDEX leases_ended ON leases ((coalesce(ended_ms, created_ms)), id)
    WHERE state IN ('DONE', 'FAILED', 'CANCELLED', 'REJECTED');
