"""Quotas and usage in PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Final

from tenure_admission import auditing
from tenure_admission.charges import OWNER, Drift
from tenure_admission.quotas import (
    WAITING_MAX,
    Holdings,
    Quota,
    Subject,
    WaitingLease,
    WantedQuota,
    check_etag,
)
from tenure_admission.records import OPEN_LEASES, WAITING_LEASES, RequestKey
from tenure_admission.store import ledger, quota_answers, spending
from tenure_admission.store.creation import runtime_key
from tenure_core.timebase import Millis
from tenure_runtime.audit import trail
from tenure_runtime.postgres import idempotency
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run

_PUT: Final = """
INSERT INTO quotas AS q
       (id, dimension, name, limits, valid_start_ms, valid_end_ms, version, created_ms, updated_ms,
        budgets, period, weekly, zone)
VALUES ($1, $2, $3, $4, $5, $6, nextval('quota_versions'), $7, $7, $8, $9, $10, $11)
ON CONFLICT (id) DO UPDATE SET
    dimension = excluded.dimension, name = excluded.name, limits = excluded.limits,
    valid_start_ms = excluded.valid_start_ms, valid_end_ms = excluded.valid_end_ms,
    budgets = excluded.budgets, period = excluded.period,
    weekly = excluded.weekly, zone = excluded.zone,
    version = excluded.version, updated_ms = greatest(q.updated_ms, excluded.updated_ms)
RETURNING *
"""
_PAGE: Final = """
SELECT * FROM quotas WHERE id > $1 AND ($2 = '' OR (dimension = $2 AND name = $3))
ORDER BY id LIMIT $4
"""


class PostgresQuotas:
    """The quotas of one schema; see `ports.QuotaBook`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def put(self, wanted: WantedQuota, now: Millis, request: RequestKey | None) -> Quota:
        """Store a quota, replacing the one of its id."""

        async def effect(tx: Transaction) -> Quota:
            before = await _locked(tx, wanted.id)
            check_etag(wanted.id, before, wanted.etag)
            row = await tx.fetchrow(
                _PUT,
                wanted.id,
                *wanted.subject,
                json.dumps(dict(wanted.limits), sort_keys=True),
                wanted.valid.start if wanted.valid else None,
                wanted.valid.end if wanted.valid else None,
                now,
                json.dumps(dict(wanted.budgets), sort_keys=True),
                wanted.period,
                json.dumps([astuple(span) for span in wanted.weekly]),
                wanted.zone,
            )
            assert row is not None
            quota = ledger.quota_of(row)
            await trail.write(tx, [auditing.quota_change(before, quota)])
            return quota

        return await self._once(effect, request)

    async def delete(self, quota_id: str, etag: str, request: RequestKey | None) -> Quota:
        """Forget a quota and return it."""

        async def effect(tx: Transaction) -> Quota:
            found = await _locked(tx, quota_id)
            if found is None:
                raise quota_answers.quota_not_found(quota_id)
            check_etag(quota_id, found, etag)
            await tx.execute("DELETE FROM quotas WHERE id = $1", quota_id)
            await trail.write(tx, [auditing.quota_change(found, None)])
            return found

        return await self._once(effect, request)

    async def _once(self, effect: quota_answers.Effect, request: RequestKey | None) -> Quota:
        async def use_case(tx: Transaction) -> Quota:
            async def changed() -> bytes:
                await ledger.lock_quotas(tx)
                return quota_answers.bytes_of(await effect(tx))

            if request is None:
                return quota_answers.quota_of(await changed())
            return quota_answers.quota_of(await idempotency.once(tx, runtime_key(request), changed))

        return await run(self._pool, use_case)

    async def page(self, subject: Subject | None, after: str, limit: int) -> list[Quota]:
        """Return quotas by id after one."""

        async def use_case(tx: Transaction) -> list[Quota]:
            rows = await tx.fetch(_PAGE, after, *(subject or ("", "")), limit)
            return [ledger.quota_of(row) for row in rows]

        return await run(self._pool, use_case, readonly=True)

    async def holdings(self, subject: Subject, now: Millis) -> Holdings:
        """Return what one snapshot shows of a subject."""

        async def use_case(tx: Transaction) -> Holdings:
            return await _holdings(tx, subject, now)

        return await run(self._pool, use_case, isolation="repeatable_read", readonly=True)

    async def drifts(self) -> list[Drift]:
        """Return the accounts whose usage is not the sum over the charged leases; none is right."""
        return await run(self._pool, ledger.drifts, isolation="repeatable_read", readonly=True)


async def _locked(tx: Transaction, quota_id: str) -> Quota | None:
    row = await tx.fetchrow("SELECT * FROM quotas WHERE id = $1 FOR UPDATE", quota_id)
    return None if row is None else ledger.quota_of(row)


async def _holdings(tx: Transaction, subject: Subject, now: Millis) -> Holdings:
    dimension, name = subject
    quotas = await tx.fetch(
        "SELECT * FROM quotas WHERE dimension = $1 AND name = $2 ORDER BY id", dimension, name
    )
    used = await tx.fetch(
        "SELECT resource, amount FROM usage WHERE dimension = $1 AND name = $2", dimension, name
    )
    column = "owner" if dimension == OWNER else "project"
    waiting = await tx.fetch(
        "SELECT id, node_count, amounts FROM leases"  # noqa: S608 - one of two columns
        f" WHERE {column} = $1 AND state IN ('PENDING', 'QUEUED')"
        " AND state NOT IN ('DONE', 'FAILED', 'CANCELLED', 'REJECTED')"
        " ORDER BY created_ms, id LIMIT $2",
        name,
        WAITING_MAX,
    )
    counts = await ledger.lease_counts(tx, [subject])
    return Holdings(
        subject=subject,
        quotas=[ledger.quota_of(row) for row in quotas],
        ledger={row["resource"]: int(row["amount"]) for row in used},
        charges=list((await ledger.charges_of(tx, [subject])).values()),
        open_count=counts[dimension, name, OPEN_LEASES],
        waiting_count=counts[dimension, name, WAITING_LEASES],
        waiting=[WaitingLease(row["id"], ledger.amounts_in(row)) for row in waiting],
        spent=await spending.spent_by(tx, [subject], now),
    )
