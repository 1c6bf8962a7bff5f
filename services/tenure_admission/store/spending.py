"""What leases held and gave back, in SQL: row by row, and summed by day for budgets."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from decimal import Decimal

from tenure_admission.budgets import Spent, SpentCharge, day_resource, summed
from tenure_admission.charges import Drift
from tenure_core.admission.budgets import month_of, week_of
from tenure_core.timebase import DAY_MS, Millis
from tenure_runtime.postgres.transaction import Transaction

_ROWS = """
INSERT INTO spent_charges
       (lease_id, version, day, owner, project, node_count, amounts, held_ms)
SELECT id, version, day, owner, project, node_count, amounts::jsonb, held_ms
FROM unnest($1::text[], $2::bigint[], $3::int[], $4::text[], $5::text[], $6::int[], $7::text[],
            $8::bigint[])
     AS given (id, version, day, owner, project, node_count, amounts, held_ms)
"""
# The rows come sorted, so that two transactions cannot deadlock.
_SUMS = """
INSERT INTO spending AS s (dimension, name, resource, day, used)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::numeric[])
ON CONFLICT (dimension, name, resource, day) DO UPDATE SET used = s.used + excluded.used
"""
_SPENT = """
SELECT dimension, name, resource, day, used FROM spending
WHERE (dimension, name) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND day >= $3
"""
_DRIFT = """
WITH held AS (
    SELECT owner, project, day, key, value::numeric * node_count * held_ms AS used
    FROM spent_charges, jsonb_each_text(amounts)
), recomputed AS (
    SELECT 'owner' AS dimension, owner AS name, key AS resource, day, sum(used) AS used
    FROM held GROUP BY owner, key, day
    UNION ALL
    SELECT 'project', project, key, day, sum(used) FROM held GROUP BY project, key, day
)
SELECT dimension, name, resource, day,
       coalesce(r.used, 0) AS recomputed, coalesce(s.used, 0) AS stored
FROM recomputed r FULL JOIN spending s USING (dimension, name, resource, day)
WHERE coalesce(r.used, 0) <> coalesce(s.used, 0)
ORDER BY dimension, name, resource, day
"""
_OLDEST = "SELECT min(day) FROM spending WHERE day < $1"


async def add(tx: Transaction, rows: Sequence[SpentCharge]) -> None:
    """Store what was given back, and add it to the sums."""
    if not rows:
        return
    await tx.execute(
        _ROWS,
        [row.lease for row in rows],
        [row.version for row in rows],
        [row.day for row in rows],
        [row.owner for row in rows],
        [row.project for row in rows],
        [row.node_count for row in rows],
        [json.dumps({kind: n for kind, n in row.amounts.items() if n}) for row in rows],
        [row.held_ms for row in rows],
    )
    sums = summed(rows)
    await tx.execute(
        _SUMS,
        [account[0] for account, _ in sums],
        [account[1] for account, _ in sums],
        [account[2] for account, _ in sums],
        [day for _, day in sums],
        [Decimal(used) for used in sums.values()],
    )


async def spent_by(tx: Transaction, subjects: Collection[tuple[str, str]], now: Millis) -> Spent:
    """Return what was spent since the start of the present periods, by account and day."""
    oldest = min(month_of(now).start, week_of(now).start) // DAY_MS
    ordered = sorted(subjects)
    found = await tx.fetch(
        _SPENT, [subject[0] for subject in ordered], [subject[1] for subject in ordered], oldest
    )
    return {
        ((row["dimension"], row["name"], row["resource"]), row["day"]): int(row["used"])
        for row in found
    }


async def forget(tx: Transaction, before_day: int) -> int:
    """Forget the oldest day before one, its sums with its rows; return of how many sums."""
    day = await tx.fetchval(_OLDEST, before_day)
    if day is None:
        return 0
    await tx.execute("DELETE FROM spent_charges WHERE day = $1", day)
    tag = await tx.execute("DELETE FROM spending WHERE day = $1", day)
    return int(tag.rpartition(" ")[2])


async def drifts(tx: Transaction) -> list[Drift]:
    """Return the days of accounts whose sum is not that of what was given back."""
    return [
        Drift(
            (row["dimension"], row["name"], day_resource(row["resource"], row["day"])),
            int(row["recomputed"]),
            int(row["stored"]),
        )
        for row in await tx.fetch(_DRIFT)
    ]
