"""The earliest instant at which several slots fit on several nodes at once, and which nodes.

Works on profiles; knows neither reservations nor leases.

For node i let f(i, k) be the first instant not before t from which k slots fit on it for the whole
duration. Before the n-th smallest F of all f(i, k), fewer than n slots fit at any instant, so no
earlier start exists. If at F itself n slots fit, F is the answer; otherwise every f(i, k) that no
longer holds at F is computed anew from F on, and F grows. Only the f(i, k) that F needs are
computed: k + 1 when k was taken, and none that is later than n known ones. Cost: one profile scan a
node, cut short there, and one more for each f that is taken or renewed, plus the heap,
O((N + r) log N).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from tenure_core.slots.profile import NodeProfile
from tenure_core.timebase import FOREVER, Millis

_UNKNOWN = 0
"""In place of a number of slots: the instant is only a bound, nothing fits before it."""


def earliest_start(
    profiles: Sequence[NodeProfile],
    demand: int,
    guard: int,
    *,
    count: int,
    duration: Millis,
    not_before: Millis,
    per_node: int,
    latest: Millis = FOREVER,
) -> Millis | None:
    """Return the earliest start in [not_before, latest] of `count` slots, None if there is none.

    `demand` is one slot, packed; at most `per_node` slots go to one node (1 to spread).
    """
    if count == 1:
        return _earliest_single(profiles, demand, guard, duration, not_before, latest)
    heap = _first_fits(profiles, demand, guard, count, duration, not_before, latest)
    if heap is None:
        return not_before
    if per_node == 1 and len(heap) < count:
        return None
    heapify(heap)
    deepest = [1] * len(profiles)
    taken: list[tuple[Millis, int, int]] = []
    while True:
        while len(taken) < count:
            if not heap:
                return None
            first, index, slots = heappop(heap)
            if slots == _UNKNOWN:
                exact = profiles[index].first_fit(first, duration, demand, guard, latest)
                if exact is not None:
                    heappush(heap, (exact, index, 1))
                continue
            taken.append((first, index, slots))
            if slots < per_node and slots == deepest[index]:
                deepest[index] = slots + 1
                more = demand * (slots + 1)
                following = profiles[index].first_fit(first, duration, more, guard, latest)
                if following is not None:
                    heappush(heap, (following, index, slots + 1))
        start = taken[-1][0]
        holding: list[tuple[Millis, int, int]] = []
        for first, index, slots in taken:
            if first == start:
                holding.append((first, index, slots))
                continue
            again = profiles[index].first_fit(start, duration, demand * slots, guard, latest)
            if again == start:
                holding.append((start, index, slots))
            elif again is not None:
                heappush(heap, (again, index, slots))
        if len(holding) == count:
            return start
        taken = holding


def _first_fits(
    profiles: Sequence[NodeProfile],
    demand: int,
    guard: int,
    count: int,
    duration: Millis,
    not_before: Millis,
    latest: Millis,
) -> list[tuple[Millis, int, int]] | None:
    """Return f(i, 1) for each node that has one, as (instant, node, 1); None for "all at once".

    Once `count` of them are known, no later one matters to the first answer: a node that has none
    by the latest of these is listed with the instant after it, as unknown.
    """
    found: list[tuple[Millis, int, int]] = []
    best: list[Millis] = []
    limit = latest
    at_once = 0
    for index, profile in enumerate(profiles):
        first = profile.first_fit(not_before, duration, demand, guard, limit)
        if first is None:
            if limit < latest:
                found.append((limit + 1, index, _UNKNOWN))
            continue
        found.append((first, index, 1))
        if first == not_before:
            at_once += 1
            if at_once == count:
                return None
        heappush(best, -first)
        if len(best) > count:
            heappop(best)
        if len(best) == count:
            limit = min(latest, -best[0])
    return found


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


def slots_at(
    profile: NodeProfile, demand: int, guard: int, start: Millis, end: Millis, most: int
) -> int:
    """Return how many slots of `demand` fit on the node throughout [start, end), at most `most`.

    Doubles and then halves: O(k log most) for k change points inside.
    """
    if not profile.fits(start, end, demand, guard):
        return 0
    low, high = 1, 2
    while high <= most and profile.fits(start, end, demand * high, guard):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if profile.fits(start, end, demand * middle, guard):
            low = middle
        else:
            high = middle
    return low
