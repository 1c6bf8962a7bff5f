-- What each owner used of a pool, day by day (UTC, since 1970), for fair share: amount x ms. Days
-- older than `usage_meter.DAYS_KEPT` are deleted, so a pool has at most so many rows a user.
CREATE TABLE usage_days (
    pool    text COLLATE "C" NOT NULL,
    day     integer NOT NULL,
    owner   text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    used    numeric NOT NULL CHECK (used >= 0),
    PRIMARY KEY (pool, day, owner, project, kind)
);
-- Up to which instant a pool's usage is stored, and by whom: nothing is counted twice.
CREATE TABLE usage_clocks (
    pool     text COLLATE "C" PRIMARY KEY,
    until_ms bigint NOT NULL,
    epoch    bigint NOT NULL
);
