"""The charge ledger in SQL: usage changed and checked, limits read and locked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from tenure_admission.charges import OWNER, PROJECT, Account, Charge
from tenure_admission.records import HELD_LEASES, Limit
from tenure_core.timebase import Interval
from tenure_runtime.postgres.transaction import Transaction

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

_LIMITS = """
SELECT dimension, name, resource, amount FROM limits
WHERE (dimension, name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
  AND ($3 = '' OR resource = $3)
ORDER BY dimension, name, resource FOR UPDATE
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


@dataclass(frozen=True, slots=True)
class Drift:
    """An account whose stored usage is not the sum over the charged leases."""

    account: Account
    recomputed: int
    stored: int


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
    tx: Transaction, owners: Iterable[str], projects: Iterable[str], resource: str = ""
) -> list[Limit]:
    """Return the limits of these owners and projects, locked: who decides by them goes in turn."""
    accounts = [(OWNER, name) for name in owners] + [(PROJECT, name) for name in projects]
    rows = await tx.fetch(
        _LIMITS,
        [account[0] for account in accounts],
        [account[1] for account in accounts],
        resource,
    )
    return [
        Limit(row["dimension"], row["name"], row["resource"], int(row["amount"])) for row in rows
    ]


async def put_limits(tx: Transaction, limits: Iterable[Limit]) -> None:
    """Set limits, replacing those of the same accounts and resources."""
    await tx.executemany(
        "INSERT INTO limits (dimension, name, resource, amount) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (dimension, name, resource) DO UPDATE SET amount = excluded.amount",
        [(limit.dimension, limit.name, limit.resource, Decimal(limit.amount)) for limit in limits],
    )


async def charges_under(tx: Transaction, limits: Iterable[Limit]) -> dict[str, Charge]:
    """Return every charge that counts against one of the limits, by lease."""
    owners = sorted({limit.name for limit in limits if limit.dimension == OWNER})
    projects = sorted({limit.name for limit in limits if limit.dimension == PROJECT})
    charges = {}
    for row in await tx.fetch(_CHARGES, owners, projects):
        amounts = {
            kind: amount * row["node_count"] for kind, amount in json.loads(row["amounts"]).items()
        }
        amounts[HELD_LEASES] = 1
        span = Interval(row["charge_start_ms"], row["charge_end_ms"])
        charges[row["id"]] = Charge(row["id"], row["owner"], row["project"], span, amounts)
    return charges


async def open_counts(tx: Transaction, limits: Iterable[Limit]) -> dict[tuple[str, str], int]:
    """Return how many open leases each limited owner or project has."""
    counts = {}
    for dimension, name in sorted({(limit.dimension, limit.name) for limit in limits}):
        column = "owner" if dimension == OWNER else "project"
        counts[dimension, name] = await tx.fetchval(
            f"SELECT count(*) FROM leases WHERE {column} = $1"  # noqa: S608 - one of two columns
            " AND state NOT IN ('DONE', 'FAILED', 'CANCELLED', 'REJECTED')",
            name,
        )
    return counts


async def drifts(tx: Transaction) -> list[Drift]:
    """Return every account whose usage is not the sum over the charged leases; none is right."""
    return [
        Drift(
            (row["dimension"], row["name"], row["resource"]),
            int(row["recomputed"]),
            int(row["stored"]),
        )
        for row in await tx.fetch(_DRIFT)
    ]
