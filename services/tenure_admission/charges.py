"""The charge ledger: what a lease is charged, how usage changes with it, whether a limit allows it.

Usage is the sum over the leases that are charged, per owner and per project; a store changes it
only in the transaction that changes the lease's state. Limits are on the amount *at any instant*:
two bookings that do not overlap do not add up. Limits vary over time; which one counts at an
instant the core's `LimitPlan` says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from tenure_admission.records import HELD_LEASES, LeaseRecord, Limit
from tenure_core.admission.quota_timeline import LimitPlan
from tenure_core.leases.lease import LeaseSpec
from tenure_core.recurrence.weekly import within
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


@dataclass(frozen=True, slots=True)
class Excess:
    """A charge of `asked` would be more than `limit` allows beside the `used` at an instant."""

    limit: Limit
    used: int
    asked: int
    at: Millis


@dataclass(frozen=True, slots=True)
class Drift:
    """An account whose stored usage is not the sum over the charged leases."""

    account: Account
    recomputed: int
    stored: int


def charge_of(record: LeaseRecord) -> Charge | None:
    """Return what the lease is charged, or None; one `held_leases` is part of every charge."""
    if record.charge is None:
        return None
    spec = record.lease.spec
    return Charge(record.lease.id, spec.owner, spec.project, record.charge, charged_if(spec))


def charged_if(spec: LeaseSpec) -> dict[str, int]:
    """Return what a lease is charged in all while it holds."""
    amounts = {kind: amount * spec.node_count for kind, amount in spec.amounts.items()}
    amounts[HELD_LEASES] = 1
    return amounts


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
    return highest(charges, kind, span, now)[0]


def highest(
    charges: Iterable[Charge], kind: str, span: Interval, now: Millis
) -> tuple[int, Millis]:
    """Return the largest amount of `kind` charged in `span`, and when first. O(n log n)."""
    steps: list[tuple[Millis, int]] = []
    for charge in charges:
        shared = effective(charge, now).intersection(span)
        amount = charge.amounts.get(kind, 0)
        if shared is not None and amount:
            steps += [(shared.start, amount), (shared.end, -amount)]
    level, most, when = 0, 0, span.start
    for at, step in sorted(steps):
        level += step
        if level > most:
            most, when = level, at
    return most, when


def plan_of(limits: Iterable[Limit]) -> LimitPlan:
    """Return the limits of one resource over time.

    Those that are valid at an instant count there, the others where there is none; of several the
    smallest does, whatever was set first.
    """
    base: int | None = None
    spans: list[tuple[Interval, int]] = []
    resource = ""
    for limit in limits:
        resource = limit.resource
        if limit.valid is not None:
            spans.append((limit.valid, limit.amount))
        else:
            base = limit.amount if base is None else min(base, limit.amount)
    # Of those that cover an instant the plan takes the last.
    spans.sort(key=lambda each: -each[1])
    return LimitPlan({resource: base}, tuple((span, {resource: most}) for span, most in spans))


def counting(limits: Sequence[Limit], at: Millis) -> Limit | None:
    """Return which of the limits of one resource counts at an instant; None when none does."""
    if not limits:
        return None
    allowed = plan_of(limits).at(at)[limits[0].resource]
    for limit in sorted(limits, key=lambda each: (each.valid is None, each.quota)):
        if limit.amount == allowed and (limit.valid is None or limit.valid.contains(at)):
            return limit
    return None


def pieces(limits: Sequence[Limit], span: Interval) -> list[Interval]:
    """Return the span cut where the limit may change."""
    edges = {edge for edge in plan_of(limits).changes() if span.contains(edge)}
    return [
        Interval(start, end) for start, end in pairwise([*sorted({span.start, *edges}), span.end])
    ]


def spelled_out(limits: Iterable[Limit], span: Interval) -> list[Limit]:
    """Return limits with those that recur as one for each of their spans within a span."""
    found: list[Limit] = []
    for limit in limits:
        if not limit.weekly:
            found.append(limit)
            continue
        window = span if limit.valid is None else limit.valid.intersection(span)
        if window is not None:
            zone = ZoneInfo(limit.zone)
            found += [
                replace(limit, valid=each, weekly=()) for each in within(limit.weekly, zone, window)
            ]
    return found


def by_resource(limits: Iterable[Limit]) -> dict[tuple[str, str, str], list[Limit]]:
    """Return limits by what they are on: dimension, name and resource, in order."""
    found: dict[tuple[str, str, str], list[Limit]] = defaultdict(list)
    for limit in limits:
        found[limit.dimension, limit.name, limit.resource].append(limit)
    return dict(sorted(found.items()))


def exceeded(
    wanted: Charge, others: Sequence[Charge], limits: Iterable[Limit], now: Millis
) -> Excess | None:
    """Return how `wanted` beside `others` would first be more than one of the limits, or None.

    A lease's own charge in `others` does not count against it. O(n log n) a resource and piece.
    """
    span = effective(wanted, now)
    for (dimension, name, resource), same in by_resource(spelled_out(limits, span)).items():
        asked = wanted.amounts.get(resource, 0)
        if name != _name(wanted, dimension) or not asked:
            continue
        beside = [
            other
            for other in others
            if other.lease != wanted.lease and _name(other, dimension) == name
        ]
        for piece in pieces(same, span):
            limit = counting(same, piece.start)
            if limit is None:
                continue
            used, at = highest(beside, resource, piece, now)
            if used + asked > limit.amount:
                return Excess(limit, used, asked, at)
    return None


def _name(charge: Charge, dimension: str) -> str:
    return charge.owner if dimension == OWNER else charge.project
