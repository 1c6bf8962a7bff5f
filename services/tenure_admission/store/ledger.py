"""The charge ledger in SQL: usage changed and checked, quotas read and locked."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal

from tenure_admission.charges import OWNER, PROJECT, Account, Charge, Drift
from tenure_admission.quotas import Quota, Subject, limits_of
from tenure_admission.records import HELD_LEASES, OPEN_LEASES, WAITING_LEASES, Limit
from tenure_admission.store import spending
from tenure_core.recurrence.weekly import WeeklySpan
from tenure_core.timebase import Interval
from tenure_runtime.postgres.transaction import Record, Transaction

# An account whose usage would fall below zero has drifted: the table's CHECK ends the transaction.
_ADD = """
INSERT INTO usage (dimension, name, resource, amount)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::numeric[])
ON CONFLICT (dimension, name, resource) DO UPDATE SET amount = usage.amount + excluded.amount
"""
_TAKE = """
UPDATE usage SET amount = usage.amount + given.delta
FROM unnest($1::text[], $2::text[], $3::text[], $4::numeric[]) AS given (d, n, r, delta)
WHERE dimension = d AND name = n AND resource = r
"""
_LOCK = """
SELECT 1 FROM usage
WHERE (dimension, name, resource) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
ORDER BY dimension, name, resource FOR UPDATE
"""

# Whoever decides by quotas holds this lock shared until the commit, whoever changes one takes it
# alone: so a quota that was set counts for every charge that is decided afterwards, also where
# there was none whose row could be locked. The first number is ours (709459 is the fences').
_QUOTAS_SHARED = "SELECT pg_advisory_xact_lock_shared(709460, 0)"
_QUOTAS_ALONE = "SELECT pg_advisory_xact_lock(709460, 0)"
_LIMITS = """
SELECT * FROM quotas
WHERE (dimension, name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
  AND (NOT $3 OR limits ?| ARRAY['open_leases', 'waiting_leases'])
ORDER BY id FOR UPDATE
"""

_CHARGES = """
SELECT id, owner, project, node_count, amounts, charge_start_ms, charge_end_ms FROM leases
WHERE charge_start_ms IS NOT NULL AND (owner = ANY ($1) OR project = ANY ($2))
"""

_DRIFT = """
WITH charged AS (
    SELECT owner, project, key, value::numeric * node_count AS amount
    FROM leases, jsonb_each_text(amounts) WHERE charge_start_ms IS NOT NULL
    UNION ALL
    SELECT owner, project, 'held_leases', 1 FROM leases WHERE charge_start_ms IS NOT NULL
), recomputed AS (
    SELECT 'owner' AS dimension, owner AS name, key AS resource, sum(amount) AS amount
    FROM charged GROUP BY owner, key
    UNION ALL
    SELECT 'project', project, key, sum(amount) FROM charged GROUP BY project, key
)
SELECT dimension, name, resource,
       coalesce(r.amount, 0) AS recomputed, coalesce(u.amount, 0) AS stored
FROM recomputed r FULL JOIN usage u USING (dimension, name, resource)
WHERE coalesce(r.amount, 0) <> coalesce(u.amount, 0)
ORDER BY dimension, name, resource
"""


async def change_usage(tx: Transaction, deltas: Mapping[Account, int]) -> None:
    """Add the deltas (sorted by account, so that two transactions cannot deadlock)."""
    if not deltas:
        return
    accounts = sorted(deltas)
    if len(accounts) > 1:
        await tx.execute(_LOCK, *(list(column) for column in zip(*accounts, strict=True)))
    for sql, sign in ((_ADD, 1), (_TAKE, -1)):
        chosen = [account for account in accounts if deltas[account] * sign > 0]
        if chosen:
            columns = [list(column) for column in zip(*chosen, strict=True)]
            await tx.execute(sql, *columns, [Decimal(deltas[account]) for account in chosen])


async def lock_limits(
    tx: Transaction, owners: Iterable[str], projects: Iterable[str], *, counts_only: bool = False
) -> list[Limit]:
    """Return the limits of these owners and projects, locked: who decides by them goes in turn.

    With `counts_only` those of quotas that limit how many leases are open or wait.
    """
    await tx.execute(_QUOTAS_SHARED)
    accounts = [(OWNER, name) for name in owners] + [(PROJECT, name) for name in projects]
    rows = await tx.fetch(
        _LIMITS,
        [account[0] for account in accounts],
        [account[1] for account in accounts],
        counts_only,
    )
    return limits_of(quota_of(row) for row in rows)


async def lock_quotas(tx: Transaction) -> None:
    """Wait until nobody decides by quotas, and let nobody begin to before the commit."""
    await tx.execute(_QUOTAS_ALONE)


def quota_of(row: Record) -> Quota:
    """Return the quota in a row."""
    start = row["valid_start_ms"]
    return Quota(
        id=row["id"],
        subject=(row["dimension"], row["name"]),
        limits={resource: int(most) for resource, most in json.loads(row["limits"]).items()},
        valid=None if start is None else Interval(start, row["valid_end_ms"]),
        version=row["version"],
        created=row["created_ms"],
        updated=row["updated_ms"],
        budgets={resource: int(most) for resource, most in json.loads(row["budgets"]).items()},
        period=row["period"],
        weekly=tuple(WeeklySpan(*each) for each in json.loads(row["weekly"])),
        zone=row["zone"],
    )


async def charges_under(tx: Transaction, limits: Iterable[Limit]) -> dict[str, Charge]:
    """Return every charge that counts against one of the limits, by lease."""
    return await charges_of(tx, {(limit.dimension, limit.name) for limit in limits})


async def charges_of(tx: Transaction, subjects: Collection[Subject]) -> dict[str, Charge]:
    """Return every charge of these owners and projects, by lease."""
    owners = sorted(name for dimension, name in subjects if dimension == OWNER)
    projects = sorted(name for dimension, name in subjects if dimension == PROJECT)
    charges = {}
    for row in await tx.fetch(_CHARGES, owners, projects):
        span = Interval(row["charge_start_ms"], row["charge_end_ms"])
        charges[row["id"]] = Charge(row["id"], row["owner"], row["project"], span, amounts_in(row))
    return charges


def amounts_in(row: Record) -> dict[str, int]:
    """Return what the lease in a row is charged in all while it holds."""
    count = row["node_count"]
    amounts = {kind: amount * count for kind, amount in json.loads(row["amounts"]).items()}
    amounts[HELD_LEASES] = 1
    return amounts


async def lease_counts(tx: Transaction, subjects: Iterable[Subject]) -> dict[Account, int]:
    """Return how many leases of each owner or project are open, and how many wait."""
    counts: dict[Account, int] = {}
    for dimension, name in sorted(set(subjects)):
        column = "owner" if dimension == OWNER else "project"
        row = await tx.fetchrow(
            "SELECT count(*) AS open,"  # noqa: S608 - one of two columns
            " count(*) FILTER (WHERE state IN ('PENDING', 'QUEUED')) AS waiting"
            f" FROM leases WHERE {column} = $1"
            " AND state NOT IN ('DONE', 'FAILED', 'CANCELLED', 'REJECTED')",
            name,
        )
        assert row is not None
        counts[dimension, name, OPEN_LEASES] = row["open"]
        counts[dimension, name, WAITING_LEASES] = row["waiting"]
    return counts


async def drifts(tx: Transaction) -> list[Drift]:
    """Return every account that is not the sum over the leases; none is right.

    Usage over the charged ones, spending over what was given back.
    """
    return await spending.drifts(tx) + [
        Drift(
            (row["dimension"], row["name"], row["resource"]),
            int(row["recomputed"]),
            int(row["stored"]),
        )
        for row in await tx.fetch(_DRIFT)
    ]
