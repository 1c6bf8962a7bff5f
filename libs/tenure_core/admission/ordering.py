"""In which order waiting leases are tried: bands of priority, and a policy inside each band.

Dominant resource fairness (Ghodsi et al., NSDI 2011) serves whoever's largest share of any kind is
smallest, and counts what it gives as it gives it (progressive filling). Usage and capacity must be
of the same pool. The ancestor computes shares once a pass and divides usage of all pools by the
capacity of one (`progressive=False` and a caller that says so).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from itertools import groupby
from typing import Final

from tenure_core.admission.amounts import Amounts, plus
from tenure_core.admission.fair_share import Factors
from tenure_core.admission.waiting import WaitingLease
from tenure_core.timebase import Millis

PRIORITY_MAX: Final = 100
"""The highest priority; 0 is the lowest."""


NO_HISTORY: Final = Factors()
"""Where somebody without history stands: before all who used anything."""


class Ordering(Enum):
    """The policy inside a band of equal priority."""

    FIFO = "FIFO"
    LIFO = "LIFO"
    DRF = "DRF"
    FAIR_SHARE = "FAIR_SHARE"


@dataclass(frozen=True, slots=True)
class OrderingFacts:
    """What the policies look at, by owner; `usage` and `capacity` are of the pool ordered for."""

    usage: Mapping[str, Amounts] = field(default_factory=dict)
    capacity: Amounts = field(default_factory=dict)
    weights: Mapping[str, Fraction] = field(default_factory=dict)
    factors: Mapping[str, Factors] = field(default_factory=dict)
    no_history: Factors = NO_HISTORY
    progressive: bool = True


def dominant_share(usage: Amounts, capacity: Amounts) -> Fraction:
    """Return the largest part of any kind; kinds of which there is no capacity do not count."""
    return max(
        (
            Fraction(amount, capacity[kind])
            for kind, amount in usage.items()
            if capacity.get(kind, 0) > 0
        ),
        default=Fraction(0),
    )


def ordered(
    waiting: Sequence[WaitingLease], ordering: Ordering, facts: OrderingFacts
) -> list[WaitingLease]:
    """Return the leases in the order in which they are tried; ties keep the order of arrival.

    Higher priority first, then the policy. What one band would be given counts in the next.
    """
    by_priority = sorted(waiting, key=lambda lease: -lease.priority)
    bands = [list(band) for _, band in groupby(by_priority, key=lambda lease: lease.priority)]
    if ordering is Ordering.DRF and facts.progressive:
        return _filled_progressively(bands, facts)
    return [lease for band in bands for lease in _in_band(band, ordering, facts)]


def aged(priority: int, waited_ms: Millis, step_ms: Millis, most: int = PRIORITY_MAX) -> int:
    """Return the priority after a wait: one more for each whole `step_ms`, at most `most`.

    With a bound on priorities no lease is passed for ever by later ones of higher priority.
    """
    return max(priority, min(most, priority + waited_ms // step_ms))


def _in_band(
    band: Sequence[WaitingLease], ordering: Ordering, facts: OrderingFacts
) -> list[WaitingLease]:
    if ordering is Ordering.LIFO:
        return list(reversed(band))
    if ordering is Ordering.DRF:
        return sorted(band, key=lambda lease: _share(lease.owner, facts.usage, facts))
    if ordering is Ordering.FAIR_SHARE:
        return sorted(
            band,
            key=lambda lease: facts.factors.get(lease.owner, facts.no_history).order,
            reverse=True,
        )
    return list(band)


def _share(owner: str, usage: Mapping[str, Amounts], facts: OrderingFacts) -> Fraction:
    share = dominant_share(usage.get(owner, {}), facts.capacity)
    return share / facts.weights.get(owner, Fraction(1))


def _filled_progressively(
    bands: Sequence[Sequence[WaitingLease]], facts: OrderingFacts
) -> list[WaitingLease]:
    usage = dict(facts.usage)
    result: list[WaitingLease] = []
    for band in bands:
        queues: dict[str, list[WaitingLease]] = {}
        arrival = {lease.id: place for place, lease in enumerate(band)}
        for lease in band:
            queues.setdefault(lease.owner, []).append(lease)
        next_up = [
            (_share(owner, usage, facts), arrival[queue[0].id], owner, 0)
            for owner, queue in queues.items()
        ]
        heapq.heapify(next_up)
        while next_up:
            _, _, owner, place = heapq.heappop(next_up)
            lease = queues[owner][place]
            result.append(lease)
            usage[owner] = plus(usage.get(owner, {}), lease.amounts)
            if place + 1 < len(queues[owner]):
                later = queues[owner][place + 1]
                share = _share(owner, usage, facts)
                heapq.heappush(next_up, (share, arrival[later.id], owner, place + 1))
    return result
