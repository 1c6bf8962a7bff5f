-- Pools and the policies by which they are planned.
CREATE TABLE policies (
    id      text PRIMARY KEY,
    version bigint NOT NULL,
    body    jsonb NOT NULL
);
CREATE TABLE pools (
    id         text PRIMARY KEY,
    policy     text NOT NULL REFERENCES policies (id),
    version    bigint NOT NULL,
    body       jsonb NOT NULL
);
CREATE INDEX pools_of_policy ON pools (policy);
INSERT INTO policies (id, version, body) VALUES ('default', 1, '{}');
INSERT INTO pools (id, policy, version, body) VALUES ('default', 'default', 1, '{}');
