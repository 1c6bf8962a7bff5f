"""The smallest changes that would let a waiting lease start now or sooner.

What quotas allow is reckoned here, what the pool has room for its leader says, by the code that
places leases; other pools' leaders are asked the same. Whoever is away is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tenure_admission.budgets import Spent, refused_by
from tenure_admission.charges import OWNER, PROJECT, Account, Charge, Excess, charged_if
from tenure_admission.ports import LeaderDesk, LeaseReader, Outlook, QuotaBook
from tenure_admission.quotas import limits_of
from tenure_admission.records import Limit
from tenure_core.admission.remedies import Remedy, Suggestion, Terms, elsewhere, largest
from tenure_core.leases.lease import Advance, Deadline, Lease, LeaseSpec
from tenure_core.timebase import MINUTE_MS, Interval, Millis

PROJECTS_MAX: Final = 16
STEP_MS: Final[Millis] = MINUTE_MS


@dataclass(frozen=True, slots=True)
class Under:
    """The limits that a lease is under, and what is charged beside it."""

    limits: Sequence[Limit]
    charges: Sequence[Charge]
    spent: Spent
    now: Millis

    def excess(self, spec: LeaseSpec, lease_id: str, dimension: str = "") -> Excess | None:
        """Return which limit (of a dimension) would refuse the lease a charge now."""
        start = earliest(spec, self.now)
        span = Interval(start, start + spec.duration_ms)
        wanted = Charge(lease_id, spec.owner, spec.project, span, charged_if(spec))
        limits = [limit for limit in self.limits if dimension in ("", limit.dimension)]
        return refused_by(wanted, self.charges, limits, self.spent, self.now)

    def most(self, lease: Lease) -> Terms | None:
        """Return how many slots, and how long, the limits allow; None when all that is asked."""
        spec = lease.spec
        if self.excess(spec, lease.id) is None:
            return None

        def fits(**changed: int) -> bool:
            return self.excess(replace(spec, **changed), lease.id) is None  # type: ignore[arg-type]

        nodes = largest(1, spec.node_count - 1, lambda count: fits(node_count=count))
        longest = -(-spec.duration_ms // STEP_MS) - 1
        steps = largest(1, longest, lambda count: fits(duration_ms=count * STEP_MS))
        return Terms(nodes or 0, (steps or 0) * STEP_MS)


def earliest(spec: LeaseSpec, now: Millis) -> Millis:
    """Return when a lease could start at the earliest, by its terms."""
    match spec.terms:
        case Advance(start=start):
            return max(now, start)
        case Deadline(earliest_start=first):
            return max(now, first or now)
        case _:
            return now


class Remedying:
    """Looks for remedies among the leaders, the quotas and the owner's projects."""

    def __init__(self, reader: LeaseReader, quotas: QuotaBook, desk: LeaderDesk) -> None:
        self._reader = reader
        self._quotas = quotas
        self._desk = desk

    async def under(self, spec: LeaseSpec, now: Millis) -> Under:
        """Return what a lease is under."""
        limits: list[Limit] = []
        charges: dict[str, Charge] = {}
        spent: dict[tuple[Account, int], int] = {}
        for subject in ((OWNER, spec.owner), (PROJECT, spec.project)):
            held = await self._quotas.holdings(subject, now)
            limits += limits_of(held.quotas)
            charges.update((each.lease, each) for each in held.charges)
            spent.update(held.spent)
        return Under(limits, list(charges.values()), spent, now)

    async def excesses(self, lease: Lease, under: Under) -> Mapping[str, Excess]:
        """Return by dimension which quota would refuse the lease now."""
        found = {each: under.excess(lease.spec, lease.id, each) for each in (OWNER, PROJECT)}
        return {dimension: excess for dimension, excess in found.items() if excess is not None}

    async def outlook(
        self, lease: Lease, under: Under
    ) -> tuple[Outlook | None, tuple[Suggestion, ...]]:
        """Return where the lease stands, and what would help, the soonest start first."""
        spec, most = lease.spec, under.most(lease)
        own, others = await asyncio.gather(
            self._desk.outlook(lease, most),
            self._desk.starts_elsewhere(spec),
        )
        asked = Terms(spec.node_count, spec.duration_ms)
        found: list[Suggestion] = list(own.suggestions) if own else []
        if most is None:
            found += elsewhere(Remedy.OTHER_POOL, asked, others, own.start if own else None)
        elif own is not None and own.start is not None:
            projects = await self._projects_with_room(lease, under.now)
            starts = dict.fromkeys(projects, own.start)
            found += elsewhere(Remedy.OTHER_PROJECT, asked, starts, None)
        return own, tuple(sorted(found, key=lambda each: each.start))

    async def _projects_with_room(self, lease: Lease, now: Millis) -> Iterable[str]:
        """Return other projects of the owner whose quotas would not refuse the lease."""
        spec = lease.spec
        names = await self._reader.projects_of(spec.owner, PROJECTS_MAX)
        found = []
        for name in names:
            other = replace(spec, project=name)
            under = await self.under(other, now)
            if name != spec.project and under.excess(other, lease.id) is None:
                found.append(name)
        return found
