"""The earliest instant at which several slots fit on several nodes at once.

Works on profiles; knows neither reservations nor leases.

For node i let s(i, t) be how many slots fit on it from t on for the whole duration. The answer is
the first t at which the sum of s(i, t) reaches the count. Of each node three things are known: a
number of slots, until which start that many surely fit, and (in a heap) from when one more may. The
sum can only grow at an instant of the heap; until then what is known is an upper bound. Only when
the bounds reach the count are those nodes looked at again whose number may have fallen, and only
until the sum is too small.

A heap entry begins as a cheap bound (the end of the segment that lets no more slots fit) and is
made exact when its turn comes, so nodes that would grow later than the answer cost one entry.

Cost, with N nodes and k change points a node: one scan a node at first, O(N k); a second one the
first time that the bounds reach the count; then one or two for each time that a node's number of
slots changes before the answer; the heap's O(log N) for each growth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from tenure_core.slots.packing import AMOUNT_MASK
from tenure_core.slots.profile import NodeProfile
from tenure_core.timebase import FOREVER, Millis

Fields = Sequence[tuple[int, int]]
"""Of a demand: where each kind's field lies, and the amount (`Packing.fields_of`)."""

_BOUND = 0
"""In place of a number of slots: nothing grows before that instant, and perhaps not then."""


@dataclass(frozen=True, slots=True)
class Gang:
    """What is to fit at once: `count` slots of `demand`, packed, at most `per_node` on a node."""

    demand: int
    fields: Fields
    guard: int
    count: int
    per_node: int
    duration: Millis


def earliest_start(
    profiles: Sequence[NodeProfile],
    gang: Gang,
    *,
    not_before: Millis,
    latest: Millis = FOREVER,
) -> tuple[Millis, Sequence[int] | None] | None:
    """Return the earliest start in [not_before, latest], None if there is none.

    With it comes how many slots fit on each node then, `per_node` at most, where that was found.
    """
    if gang.count == 1:
        start = _earliest_single(
            profiles, gang.demand, gang.guard, gang.duration, not_before, latest
        )
        return None if start is None else (start, None)
    search = (_SpreadSearch if gang.per_node == 1 else _Search)(profiles, gang, latest)
    if search.fits_at(not_before):
        return not_before, None
    start = search.later()
    return None if start is None else (start, search.slots)


class _Search:
    """One search: what is known of each node so far."""

    def __init__(self, profiles: Sequence[NodeProfile], gang: Gang, latest: Millis) -> None:
        self._profiles = profiles
        self._gang = gang
        self._latest = min(latest, FOREVER - 1)
        self.slots: list[int] = []
        self._total = 0
        self._growth: list[tuple[Millis, int, int]] = []
        self._holds_until: list[Millis] = []
        self._was_vain = False

    def fits_at(self, start: Millis) -> bool:
        """Look at nodes until the gang fits at the first instant; say whether it does."""
        gang, growth, slots = self._gang, self._growth, self.slots
        demand, guard, fields, per_node = gang.demand, gang.guard, gang.fields, gang.per_node
        end, count, total = start + gang.duration, gang.count, 0
        for index, profile in enumerate(self._profiles):
            times = profile.times
            segment = bisect_right(times, start) - 1
            if (profile.free[segment] - demand) & guard != guard:
                slots.append(0)  # Most nodes are full at the start: no call for them.
                if segment + 1 < len(times):
                    growth.append((times[segment + 1], index, _BOUND))
                continue
            fit, segment = slots_over(profile, demand, guard, fields, start, end, per_node)
            slots.append(fit)
            total += fit
            if total >= count:
                return True
            if fit < per_node and segment + 1 < len(profile.times):
                growth.append((profile.times[segment + 1], index, _BOUND))
        heapify(growth)
        self._total = total
        self._holds_until = [start if fit else FOREVER for fit in slots]
        return False

    def later(self) -> Millis | None:
        """Return the first later instant at which the gang fits."""
        gang, growth = self._gang, self._growth
        grown: Millis | None = None
        while True:
            # All that grows at one instant comes first.
            if grown is not None and (not growth or growth[0][0] > grown):
                if self._total >= gang.count and self._holds(grown):
                    return grown
                grown = None
            if not growth:
                return None
            start, index, more = heappop(growth)
            if start > self._latest:
                return None
            wanted = self.slots[index] + 1
            if more == _BOUND:
                exact = self._profiles[index].first_fit(
                    start, gang.duration, gang.demand * wanted, gang.guard, self._latest
                )
                if exact is None:
                    continue
                if exact != start:
                    heappush(growth, (exact, index, wanted))
                    continue
            elif more != wanted:
                continue  # The number has fallen since: another entry says when it grows.
            self._grow(index, start)
            grown = start

    def _holds(self, start: Millis) -> bool:
        """Look again at what may have fallen by `start`; say whether the gang still fits.

        Until when a node holds is worth its scan once the gang has been looked for in vain.
        """
        gang, slots, holds_until = self._gang, self.slots, self._holds_until
        demand, guard, end = gang.demand, gang.guard, start + gang.duration
        for index, until in enumerate(holds_until):
            if until >= start:
                continue
            if self._profiles[index].fits(start, end, demand * slots[index], guard):
                holds_until[index] = self._lasts(index, start) if self._was_vain else start
                continue
            self._look(index, start)
            if self._total < gang.count:
                self._was_vain = True
                return False
        return True

    def _lasts(self, index: int, start: Millis) -> Millis:
        """Return the last start at which what is known of a node, which fits at `start`, does."""
        gang = self._gang
        misfit = self._profiles[index].first_misfit(
            start + gang.duration, gang.demand * self.slots[index], gang.guard
        )
        return misfit - gang.duration if misfit < FOREVER else FOREVER

    def _grow(self, index: int, start: Millis) -> None:
        """Note that one more slot, or several, fit on a node from `start` on."""
        self._look(index, start)

    def _look(self, index: int, start: Millis) -> None:
        """Note how many slots fit on a node from `start` on, and when one more may."""
        gang, profile = self._gang, self._profiles[index]
        end = start + gang.duration
        fit, segment = slots_over(
            profile, gang.demand, gang.guard, gang.fields, start, end, gang.per_node
        )
        if fit < gang.per_node and segment + 1 < len(profile.times):
            heappush(self._growth, (profile.times[segment + 1], index, _BOUND))
        self._note(index, fit, start)

    def _note(self, index: int, fit: int, start: Millis) -> None:
        self._total += fit - self.slots[index]
        self.slots[index] = fit
        self._holds_until[index] = self._lasts(index, start) if fit else FOREVER


class _SpreadSearch(_Search):
    """With one slot a node, when a node grows is found by the same scan as whether it fits."""

    def fits_at(self, start: Millis) -> bool:
        """Look at nodes until the gang fits at the first instant; say whether it does."""
        gang, growth, slots = self._gang, self._growth, self.slots
        total = 0
        for index, profile in enumerate(self._profiles):
            first = profile.first_fit(start, gang.duration, gang.demand, gang.guard, self._latest)
            slots.append(first == start)
            if first == start:
                total += 1
                if total == gang.count:
                    return True
            elif first is not None:
                growth.append((first, index, 1))
        heapify(growth)
        self._total = total
        self._holds_until = [start if fit else FOREVER for fit in slots]
        return False

    def _grow(self, index: int, start: Millis) -> None:
        self._note(index, 1, start)

    def _look(self, index: int, start: Millis) -> None:
        gang = self._gang
        first = self._profiles[index].first_fit(
            start, gang.duration, gang.demand, gang.guard, self._latest
        )
        if first is not None and first != start:
            heappush(self._growth, (first, index, 1))
        self._note(index, int(first == start), start)


def _earliest_single(
    profiles: Sequence[NodeProfile],
    demand: int,
    guard: int,
    duration: Millis,
    not_before: Millis,
    latest: Millis,
) -> Millis | None:
    best: Millis | None = None
    for profile in profiles:
        first = profile.first_fit(not_before, duration, demand, guard, latest)
        if first is not None:
            if first == not_before:
                return first
            best = first
            latest = first - 1
    return best


def earliest_together(
    demands: Sequence[tuple[NodeProfile, int]],
    guard: int,
    *,
    duration: Millis,
    not_before: Millis,
    latest: Millis = FOREVER,
) -> Millis | None:
    """Return the earliest start in [not_before, latest] at which every demand fits on its node.

    Each round moves the start to the latest of the nodes' own first fits: O(k) a node and round.
    """
    start = not_before
    settled = 0
    while settled < len(demands):
        settled = 0
        for profile, demand in demands:
            first = profile.first_fit(start, duration, demand, guard, latest)
            if first is None:
                return None
            settled = settled + 1 if first == start else 1
            start = first
    return start


def slots_over(
    profile: NodeProfile,
    demand: int,
    guard: int,
    fields: Fields,
    start: Millis,
    end: Millis,
    most: int,
) -> tuple[int, int]:
    """Return how many slots fit throughout [start, end), at most `most`, and what limits them.

    The second is the index of a segment that lets no more fit. One pass over the segments inside,
    one operation each and one division a kind where fewer fit than before: O(k).
    """
    times, free = profile.times, profile.free
    i = bisect_right(times, start) - 1
    count = len(times)
    slots, limiting = most, i
    need = demand * slots
    while True:
        here = free[i]
        if (here - need) & guard != guard:
            for shift, amount in fields:
                left = (here >> shift) & AMOUNT_MASK
                if left < slots * amount:
                    slots = left // amount
            limiting = i
            if not slots:
                return 0, i
            need = demand * slots
        i += 1
        if i == count or times[i] >= end:
            return slots, limiting
