"""Quotas as operators set them, and where an owner or a project stands under them.

Pure. Decides what is used, allowed and over at an instant and from then on, and which waiting
leases are held back; what a charge may be `charges` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tenure_admission.budgets import Spent, charged_in_period
from tenure_admission.charges import (
    Charge,
    counting,
    highest,
    pieces,
    spelled_out,
)
from tenure_admission.records import OPEN_LEASES, WAITING_LEASES, Limit
from tenure_core.errors import Conflict
from tenure_core.recurrence.weekly import WeeklySpan
from tenure_core.timebase import FOREVER, HOUR_MS, Interval, Millis

HELD_BACK_MAX: Final = 100
WAITING_MAX: Final = 1_000
"""Waiting leases looked at for one answer, the oldest first."""

Subject = tuple[str, str]
"""Dimension (`owner` or `project`) and name."""


@dataclass(frozen=True, slots=True)
class WantedQuota:
    """A quota as an operator asks for it; `etag` is of the one that it replaces, if given."""

    id: str
    subject: Subject
    limits: Mapping[str, int]
    valid: Interval | None = None
    etag: str = ""
    budgets: Mapping[str, int] = field(default_factory=dict)
    period: str = "month"
    weekly: tuple[WeeklySpan, ...] = ()
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota as it is stored. Versions grow over all quotas, so that none comes twice."""

    id: str
    subject: Subject
    limits: Mapping[str, int]
    valid: Interval | None
    version: int
    created: Millis
    updated: Millis
    budgets: Mapping[str, int] = field(default_factory=dict)
    period: str = "month"
    weekly: tuple[WeeklySpan, ...] = ()
    zone: str = "UTC"

    @property
    def etag(self) -> str:
        """Return the tag that changes with every write."""
        return f"q{self.version:x}"

    def as_limits(self) -> list[Limit]:
        """Return a limit for each resource, and the budgets."""
        return [
            Limit(
                *self.subject,
                resource,
                amount,
                self.id,
                self.valid,
                weekly=self.weekly,
                zone=self.zone,
            )
            for resource, amount in sorted(self.limits.items())
        ] + [
            Limit(*self.subject, resource, hours, self.id, period=self.period)
            for resource, hours in sorted(self.budgets.items())
        ]


def limits_of(quotas: Iterable[Quota]) -> list[Limit]:
    """Return all limits of the quotas."""
    return [limit for quota in quotas for limit in quota.as_limits()]


def check_etag(quota_id: str, present: Quota | None, etag: str) -> None:
    """Raise Conflict ETAG_MISMATCH when an etag is given and is not the present one's."""
    stored = present.etag if present else ""
    if etag and etag != stored:
        text = f"quotas/{quota_id} was changed meanwhile; read it again."
        raise Conflict("ETAG_MISMATCH", text, name=f"quotas/{quota_id}", etag=stored)


@dataclass(frozen=True, slots=True)
class WaitingLease:
    """A lease that waits, and what it would be charged."""

    id: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Holdings:
    """What one moment shows of a subject: quotas, ledger, charges, counts, and who waits."""

    subject: Subject
    quotas: Sequence[Quota]
    ledger: Mapping[str, int]
    charges: Sequence[Charge]
    open_count: int
    waiting_count: int
    waiting: Sequence[WaitingLease]
    spent: Spent = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResourceStanding:
    """What a subject uses of one resource, and what counts for it."""

    resource: str
    used: int
    peak: int
    peak_at: Millis
    charged: int
    limit: Limit | None
    over_at: Millis | None


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """What is charged of a budget in its present period: amount x milliseconds."""

    limit: Limit
    charged: int
    period: Interval

    @property
    def is_used_up(self) -> bool:
        """Say whether nothing is left of it."""
        return self.charged >= self.limit.amount * HOUR_MS


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a subject stands, and which of its leases are held back."""

    subject: Subject
    resources: tuple[ResourceStanding, ...]
    held_back: tuple[str, ...]
    budgets: tuple[BudgetStanding, ...] = ()


def standing_of(holdings: Holdings, now: Millis) -> Standing:
    """Return where a subject stands at `now` and from then on."""
    every = limits_of(holdings.quotas)
    ahead = Interval(now, FOREVER)
    limits = spelled_out([limit for limit in every if not limit.period], ahead)
    budgets = tuple(
        BudgetStanding(limit, *charged_in_period(limit, holdings.charges, holdings.spent, now))
        for limit in every
        if limit.period
    )
    counts = {OPEN_LEASES: holdings.open_count, WAITING_LEASES: holdings.waiting_count}
    names = {
        *(kind for kind, amount in holdings.ledger.items() if amount),
        *(limit.resource for limit in limits),
        *counts,
    }
    resources = tuple(
        _of_count(name, counts[name], _on(limits, name), now)
        if name in counts
        else _of_resource(name, holdings, _on(limits, name), now)
        for name in sorted(names)
    )
    held_back = _held_back(holdings.waiting, resources, budgets)
    return Standing(holdings.subject, resources, held_back, budgets)


def _on(limits: Iterable[Limit], resource: str) -> list[Limit]:
    return [limit for limit in limits if limit.resource == resource]


def _of_count(name: str, count: int, limits: Sequence[Limit], now: Millis) -> ResourceStanding:
    limit = counting(limits, now)
    over = limit is not None and count > limit.amount
    return ResourceStanding(name, count, count, now, 0, limit, now if over else None)


def _of_resource(
    name: str, holdings: Holdings, limits: Sequence[Limit], now: Millis
) -> ResourceStanding:
    ahead = Interval(now, FOREVER)
    used, _ = highest(holdings.charges, name, Interval(now, now + 1), now)
    most, when = highest(holdings.charges, name, ahead, now)
    return ResourceStanding(
        resource=name,
        used=used,
        peak=most,
        peak_at=when,
        charged=holdings.ledger.get(name, 0),
        limit=counting(limits, now),
        over_at=_over_at(name, holdings.charges, limits, now),
    )


def _over_at(
    name: str, charges: Sequence[Charge], limits: Sequence[Limit], now: Millis
) -> Millis | None:
    for piece in pieces(limits, Interval(now, FOREVER)) if limits else ():
        limit = counting(limits, piece.start)
        most, when = highest(charges, name, piece, now)
        if limit is not None and most > limit.amount:
            return when
    return None


def _held_back(
    waiting: Iterable[WaitingLease],
    resources: Iterable[ResourceStanding],
    budgets: Iterable[BudgetStanding],
) -> tuple[str, ...]:
    rooms = {
        each.resource: each.limit.amount - each.used for each in resources if each.limit is not None
    }
    rooms.update({each.limit.resource: 0 for each in budgets if each.is_used_up})
    held = [
        lease.id
        for lease in waiting
        if any(
            amount > rooms[kind]
            for kind, amount in lease.amounts.items()
            if amount and kind in rooms
        )
    ]
    return tuple(held[:HELD_BACK_MAX])
