"""Adds up what is held, in SQL and from the raw rows: a second opinion on the slot table.

Shares nothing with the code that books but the rows themselves. One pass over the reservations and
the steps of the nodes' capacity, sorted by node, kind and time: O(n log n) in the database.
"""

from __future__ import annotations

from typing import Final

from tenure_core.timebase import Interval
from tenure_runtime.postgres.transaction import Transaction
from tenure_slottable.ports import Occupancy, OverCommit

_OVER_COMMITS: Final = """
WITH held AS (
    SELECT r.node, a.key AS resource, r.start_ms, r.end_ms, a.value::bigint AS amount
    FROM reservations r, jsonb_each_text(r.amounts) a
    WHERE NOT r.displaced AND ($1 = '' OR r.pool = $1)
), kinds AS (
    SELECT DISTINCT node, resource FROM held
), steps AS (
    SELECT k.node, k.resource, (s.step->>0)::bigint AS at, s.number,
           coalesce((s.step->1->>k.resource)::bigint, 0) AS has
    FROM kinds k JOIN nodes n ON n.id = k.node,
         jsonb_array_elements(n.body->'capacity') WITH ORDINALITY s (step, number)
), changes AS (
    SELECT node, resource, start_ms AS at, amount AS held, 0::bigint AS has FROM held
    UNION ALL
    SELECT node, resource, end_ms, -amount, 0 FROM held
    UNION ALL
    SELECT node, resource, at, 0,
           has - coalesce(lag(has) OVER (PARTITION BY node, resource ORDER BY number), 0)
    FROM steps
), instants AS (
    SELECT node, resource, at, sum(held) AS held, sum(has) AS has
    FROM changes GROUP BY node, resource, at
), levels AS (
    SELECT node, resource, at, lead(at) OVER w AS until,
           sum(held) OVER w AS held, sum(has) OVER w AS has
    FROM instants WINDOW w AS (PARTITION BY node, resource ORDER BY at)
)
SELECT node, resource, at, until, held::bigint AS held, has::bigint AS has FROM levels
WHERE held > has AND until IS NOT NULL
ORDER BY node COLLATE "C", resource COLLATE "C", at LIMIT $2
"""

_COUNTS: Final = """
SELECT (SELECT count(*) FROM nodes WHERE $1 = '' OR pool = $1) AS nodes,
       (SELECT count(*) FROM reservations WHERE $1 = '' OR pool = $1) AS reservations,
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
"""


async def occupancy(tx: Transaction, pool: str, limit: int) -> Occupancy:
    """Return where more is held than there is, in one snapshot of the database."""
    found = await tx.fetch(_OVER_COMMITS, pool, limit)
    counts = await tx.fetchrow(_COUNTS, pool)
    assert counts is not None
    return Occupancy(
        tuple(
            OverCommit(
                row["node"],
                row["resource"],
                Interval(row["at"], row["until"]),
                row["held"],
                row["has"],
            )
            for row in found
        ),
        counts["nodes"],
        counts["reservations"],
        counts["now_ms"],
    )
