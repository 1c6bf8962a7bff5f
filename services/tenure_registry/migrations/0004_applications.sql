-- What the applications on machines of elastic groups last said, and what they shall be.

CREATE TABLE applications (
    agent       text COLLATE "C" PRIMARY KEY,
    incarnation text NOT NULL,
    sequence    bigint NOT NULL,
    received_at timestamptz NOT NULL,
    report      bytea NOT NULL
);

CREATE TABLE application_orders (
    agent       text COLLATE "C" PRIMARY KEY,
    incarnation text NOT NULL,
    order_id    text NOT NULL,
    body        bytea NOT NULL
);
