"""The charge ledger: what a lease is charged, how usage changes with it, whether a limit allows it.

Usage is the sum over the leases that are charged, per owner and per project; a store changes it
only in the transaction that changes the lease's state. Limits are on the amount *at any instant*:
two bookings that do not overlap do not add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tenure_admission.records import HELD_LEASES, LeaseRecord, Limit
from tenure_core.timebase import FOREVER, Interval, Millis

OWNER: Final = "owner"
PROJECT: Final = "project"

Account = tuple[str, str, str]
"""Dimension (`owner` or `project`), name, resource."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one lease is charged: amounts in all, for a span."""

    lease: str
    owner: str
    project: str
    interval: Interval
    amounts: Mapping[str, int]


def charge_of(record: LeaseRecord) -> Charge | None:
    """Return what the lease is charged, or None; one `held_leases` is part of every charge."""
    if record.charge is None:
        return None
    spec = record.lease.spec
    amounts = {kind: amount * spec.node_count for kind, amount in spec.amounts.items()}
    amounts[HELD_LEASES] = 1
    return Charge(record.lease.id, spec.owner, spec.project, record.charge, amounts)


def usage_deltas(changes: Iterable[tuple[Charge | None, Charge | None]]) -> dict[Account, int]:
    """Return how usage changes when each charge before becomes the one after; zeros left out."""
    deltas: dict[Account, int] = defaultdict(int)
    for before, after in changes:
        for charge, sign in ((before, -1), (after, 1)):
            if charge is None:
                continue
            for kind, amount in charge.amounts.items():
                deltas[OWNER, charge.owner, kind] += sign * amount
                deltas[PROJECT, charge.project, kind] += sign * amount
    return {account: delta for account, delta in sorted(deltas.items()) if delta}


def effective(charge: Charge, now: Millis) -> Interval:
    """Return the span that counts: a charge past its end that is still held counts on."""
    end = charge.interval.end if charge.interval.end > now else FOREVER
    return Interval(min(charge.interval.start, end - 1), end)


def peak(charges: Iterable[Charge], kind: str, span: Interval, now: Millis) -> int:
    """Return the largest amount of `kind` charged at an instant of `span`. O(n log n)."""
    steps: list[tuple[Millis, int]] = []
    for charge in charges:
        shared = effective(charge, now).intersection(span)
        amount = charge.amounts.get(kind, 0)
        if shared is not None and amount:
            steps += [(shared.start, amount), (shared.end, -amount)]
    level = highest = 0
    for _, step in sorted(steps):
        level += step
        highest = max(highest, level)
    return highest


def exceeded(
    wanted: Charge, others: Sequence[Charge], limits: Iterable[Limit], now: Millis
) -> tuple[Limit, int] | None:
    """Return the first limit that `wanted` beside `others` would exceed, and the peak; or None."""
    for limit in limits:
        name = wanted.owner if limit.dimension == OWNER else wanted.project
        asked = wanted.amounts.get(limit.resource, 0)
        if limit.name != name or not asked:
            continue
        same = [
            other
            for other in others
            if other.lease != wanted.lease
            and (other.owner if limit.dimension == OWNER else other.project) == name
        ]
        reached = asked + peak(same, limit.resource, effective(wanted, now), now)
        if reached > limit.amount:
            return limit, reached
    return None
