-- Groups of machines, the machines that agents show, and what would be done about them.

CREATE TABLE groups (
    group_id   text COLLATE "C" PRIMARY KEY,
    kind       text NOT NULL,
    pool       text NOT NULL,
    size_min   integer NOT NULL CHECK (size_min >= 0),
    size_max   integer NOT NULL CHECK (size_max >= size_min),
    provider   text NOT NULL,
    amounts    jsonb NOT NULL,
    boot_ms    bigint NOT NULL,
    paused     boolean NOT NULL,
    dry_run    boolean NOT NULL,
    version    bigint NOT NULL,
    created_ms bigint NOT NULL
);

CREATE TABLE machines (
    machine    text COLLATE "C" PRIMARY KEY,
    group_id   text NOT NULL,
    pool       text NOT NULL,
    state      text NOT NULL,
    amounts    jsonb NOT NULL,
    changed_ms bigint NOT NULL,
    version    bigint NOT NULL
);
CREATE INDEX machines_by_group ON machines (group_id, machine);

CREATE TABLE decisions (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject    text NOT NULL,
    decided_ms bigint NOT NULL,
    current    integer NOT NULL,
    target     integer NOT NULL,
    rule       text NOT NULL,
    message    text NOT NULL,
    inputs     jsonb NOT NULL,
    enacted    boolean NOT NULL
);
CREATE INDEX decisions_by_subject ON decisions (subject, number DESC);
