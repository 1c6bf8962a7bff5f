-- Quotas by name take the place of limits by account: each has limits on several resources, and may
-- count for a span of time only.
CREATE TABLE quotas (
    id             text COLLATE "C" PRIMARY KEY,
    dimension      text COLLATE "C" NOT NULL CHECK (dimension IN ('owner', 'project')),
    name           text COLLATE "C" NOT NULL,
    -- At most so much at any instant by resource; `open_leases`, `waiting_leases` and `held_leases`
    -- count leases.
    limits         jsonb NOT NULL,
    -- The span in which it counts; both null: wherever no other one does. No end is 2^53.
    valid_start_ms bigint,
    valid_end_ms   bigint,
    version        bigint NOT NULL,
    created_ms     bigint NOT NULL,
    updated_ms     bigint NOT NULL,
    CHECK ((valid_start_ms IS NULL) = (valid_end_ms IS NULL))
);
CREATE INDEX quotas_by_subject ON quotas (dimension, name);
-- Over all quotas: no version comes twice, also when a quota is deleted and set anew.
CREATE SEQUENCE quota_versions;

INSERT INTO quotas (id, dimension, name, limits, version, created_ms, updated_ms)
SELECT dimension || '-' || left(md5(name), 12), dimension, name, jsonb_object_agg(resource, amount),
       nextval('quota_versions'), now_ms, now_ms
FROM limits, (SELECT (extract(epoch FROM now()) * 1000)::bigint AS now_ms) AS clock
GROUP BY dimension, name, now_ms;
-- `limits` stays for replicas of the version before, which go on by it until they are replaced.
