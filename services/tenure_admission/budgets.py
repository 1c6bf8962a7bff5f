"""Budgets over periods: what was held and given back, and whether a charge would be too much.

A charge counts ahead for all of its interval, split over the periods that it touches; when it is
given back, what was held becomes *spent*, day by day, in the transaction that gives it back, and
the rest is free again. The rule is the core's `budgets.Budget`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tenure_admission.charges import (
    OWNER,
    PROJECT,
    Account,
    Charge,
    Excess,
    by_resource,
    exceeded,
)
from tenure_admission.records import HELD_LEASES, LeaseRecord, Limit
from tenure_core.admission.budgets import Budget, PeriodOf, day_of, month_of, split, week_of
from tenure_core.timebase import DAY_MS, HOUR_MS, Interval, Millis

PERIODS: Final[Mapping[str, PeriodOf]] = {"day": day_of, "week": week_of, "month": month_of}
SPENT_DAYS: Final = 100
"""How long it is kept what was spent: more than the longest period."""

Spent = Mapping[tuple[Account, int], int]
"""Amount x milliseconds given back, by account and day since 1970 (UTC)."""


@dataclass(frozen=True, slots=True)
class SpentCharge:
    """What a lease held on one day of a charge that it gave back."""

    lease: str
    version: int
    day: int
    owner: str
    project: str
    node_count: int
    amounts: Mapping[str, int]
    held_ms: Millis

    def accounts(self) -> dict[tuple[Account, int], int]:
        """Return what it adds to what was spent."""
        return {
            ((dimension, name, kind), self.day): amount * self.node_count * self.held_ms
            for dimension, name in ((OWNER, self.owner), (PROJECT, self.project))
            for kind, amount in self.amounts.items()
            if amount
        }


def given_back(before: LeaseRecord, after: LeaseRecord) -> list[SpentCharge]:
    """Return what the lease held, and is charged no more, of its charge before: a row a day.

    What is held past the end of the charge counts too.
    """
    if before.charge is None:
        return []
    until = after.updated
    if after.charge is not None:
        until = min(until, after.charge.start)
    if until <= before.charge.start:
        return []
    lease, spec = before.lease, before.lease.spec
    return [
        SpentCharge(
            lease.id,
            after.lease.version,
            piece.start // DAY_MS,
            spec.owner,
            spec.project,
            spec.node_count,
            spec.amounts,
            piece.duration_ms,
        )
        for piece in split(Interval(before.charge.start, until), day_of)
    ]


def summed(rows: Iterable[SpentCharge]) -> dict[tuple[Account, int], int]:
    """Return what the rows add up to."""
    sums: dict[tuple[Account, int], int] = defaultdict(int)
    for row in rows:
        for account, used in row.accounts().items():
            sums[account] += used
    return dict(sorted(sums.items()))


def hours(amount_ms: int) -> int:
    """Return amount x milliseconds as amount x hours, rounded up."""
    return -(-amount_ms // HOUR_MS)


def day_resource(resource: str, day: int) -> str:
    """Return under which name a day's account is told when it is wrong: `cpu on day 20788`."""
    return f"{resource} on day {day}"


def over_budget(
    wanted: Charge,
    others: Sequence[Charge],
    limits: Iterable[Limit],
    spent: Spent,
    now: Millis,
) -> Excess | None:
    """Return how `wanted` would first be more than a budget allows in a period, or None."""
    for (dimension, name, resource), same in by_resource(limits).items():
        asked = wanted.amounts.get(resource, 0)
        if name != (wanted.owner if dimension == OWNER else wanted.project) or not asked:
            continue
        for limit in same:
            budget = _budget(limit, others, spent, now)
            over = budget.first_over(wanted.lease, wanted.interval, {resource: asked})
            if over is not None:
                period, [excess] = over
                return Excess(limit, excess.held, excess.requested, period.start)
    return None


def refused_by(
    wanted: Charge,
    others: Sequence[Charge],
    limits: Sequence[Limit],
    spent: Spent,
    now: Millis,
) -> Excess | None:
    """Return which limit or budget would refuse the charge, limits first, or None."""
    momentary = [limit for limit in limits if not limit.period]
    periodic = [limit for limit in limits if limit.period]
    over = exceeded(wanted, others, momentary, now)
    return over or (over_budget(wanted, others, periodic, spent, now) if periodic else None)


def charged_in_period(
    limit: Limit, charges: Sequence[Charge], spent: Spent, now: Millis
) -> tuple[int, Interval]:
    """Return amount x milliseconds charged in the present period of a budget, and the period."""
    budget = _budget(limit, charges, spent, now)
    return budget.charged(now).get(limit.resource, 0), PERIODS[limit.period](now)


def _budget(limit: Limit, charges: Sequence[Charge], spent: Spent, now: Millis) -> Budget:
    period_of, resource = PERIODS[limit.period], limit.resource
    budget = Budget({resource: limit.amount * HOUR_MS}, period_of)
    for (account, day), used in spent.items():
        if account == (limit.dimension, limit.name, resource):
            start = period_of(day * DAY_MS).start
            budget.spent[start] = {resource: budget.spent.get(start, {}).get(resource, 0) + used}
    for charge in charges:
        if limit.name == (charge.owner if limit.dimension == OWNER else charge.project):
            amount = charge.amounts.get(resource, 0)
            if amount and resource != HELD_LEASES:
                end = max(charge.interval.end, now)
                span = Interval(charge.interval.start, max(end, charge.interval.start + 1))
                budget.charges[charge.lease] = (span, {resource: amount})
    return budget
