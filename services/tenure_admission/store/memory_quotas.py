"""Quotas and usage in memory: the same promises as PostgreSQL's.

Nothing awaits between reading and writing, so each call is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tenure_admission.budgets import Spent
from tenure_admission.charges import Account, Drift, charge_of, charged_if
from tenure_admission.quotas import (
    WAITING_MAX,
    Holdings,
    Quota,
    Subject,
    WaitingLease,
    WantedQuota,
    check_etag,
    limits_of,
)
from tenure_admission.records import LeaseRecord, Limit, RequestKey
from tenure_admission.store import quota_answers
from tenure_core.leases.states import WAITING
from tenure_core.timebase import Millis

Remembered = Callable[[RequestKey | None], bytes | None]
Remember = Callable[[RequestKey | None, bytes], None]


class MemoryQuotas:
    """The quotas of a memory store, which lends its request log and what it knows of leases."""

    def __init__(
        self,
        remembered: Remembered,
        remember: Remember,
        look: Callable[[Subject, list[Quota]], Holdings],
        drifts: Callable[[], list[Drift]],
    ) -> None:
        self._remembered = remembered
        self._remember = remember
        self._look = look
        self._drifts = drifts
        self._quotas: dict[str, Quota] = {}
        self._version = 0

    def limits(self) -> list[Limit]:
        """Return all limits."""
        return limits_of(quota for _, quota in sorted(self._quotas.items()))

    async def put(self, wanted: WantedQuota, now: Millis, request: RequestKey | None) -> Quota:
        """Store a quota, replacing the one of its id."""
        repeated = self._remembered(request)
        if repeated is not None:
            return quota_answers.quota_of(repeated)
        before = self._quotas.get(wanted.id)
        check_etag(wanted.id, before, wanted.etag)
        self._version += 1
        quota = self._quotas[wanted.id] = Quota(
            id=wanted.id,
            subject=wanted.subject,
            limits=dict(wanted.limits),
            valid=wanted.valid,
            version=self._version,
            created=before.created if before else now,
            updated=max(before.updated, now) if before else now,
            budgets=dict(wanted.budgets),
            period=wanted.period,
            weekly=wanted.weekly,
            zone=wanted.zone,
        )
        self._remember(request, quota_answers.bytes_of(quota))
        return quota

    async def delete(self, quota_id: str, etag: str, request: RequestKey | None) -> Quota:
        """Forget a quota and return it."""
        repeated = self._remembered(request)
        if repeated is not None:
            return quota_answers.quota_of(repeated)
        found = self._quotas.get(quota_id)
        if found is None:
            raise quota_answers.quota_not_found(quota_id)
        check_etag(quota_id, found, etag)
        del self._quotas[quota_id]
        self._remember(request, quota_answers.bytes_of(found))
        return found

    async def page(self, subject: Subject | None, after: str, limit: int) -> list[Quota]:
        """Return quotas by id after one."""
        found = [
            quota
            for quota_id, quota in sorted(self._quotas.items())
            if quota_id > after and subject in (None, quota.subject)
        ]
        return found[:limit]

    async def holdings(self, subject: Subject, now: Millis) -> Holdings:
        """Return what is known of a subject."""
        del now
        return self._look(subject, await self.page(subject, "", len(self._quotas)))

    async def drifts(self) -> list[Drift]:
        """Return the accounts whose usage is not the sum over the charged leases; none is right."""
        return self._drifts()


def holdings_of(
    subject: Subject,
    quotas: Sequence[Quota],
    open_leases: Sequence[LeaseRecord],
    usage: Mapping[Account, int],
    spent: Spent,
) -> Holdings:
    """Return what the open leases and the ledger say of a subject."""
    waiting = [record for record in open_leases if record.lease.state in WAITING]
    return Holdings(
        subject=subject,
        quotas=quotas,
        ledger={
            resource: amount
            for (dimension, name, resource), amount in usage.items()
            if (dimension, name) == subject
        },
        charges=[charge for record in open_leases if (charge := charge_of(record)) is not None],
        open_count=len(open_leases),
        waiting_count=len(waiting),
        waiting=[
            WaitingLease(record.lease.id, charged_if(record.lease.spec))
            for record in waiting[:WAITING_MAX]
        ],
        spent=spent,
    )
