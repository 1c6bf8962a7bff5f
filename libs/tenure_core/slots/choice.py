"""Which of the nodes that fit take the slots of a demand."""

from __future__ import annotations

from collections.abc import Sequence

from tenure_core.policies.placement import HostSelection
from tenure_core.slots.packing import Packing
from tenure_core.slots.profile import NodeProfile
from tenure_core.slots.search import slots_at
from tenure_core.timebase import Interval


class Candidate:
    """A node as the search sees it: its profile, and the largest capacity it has at any time."""

    __slots__ = ("capacity", "node", "profile")

    def __init__(self, node: str, profile: NodeProfile) -> None:
        self.node = node
        self.profile = profile
        self.capacity = 0


def choose(
    candidates: Sequence[Candidate],
    packing: Packing,
    demand: int,
    interval: Interval,
    *,
    count: int,
    spread: bool,
    selection: HostSelection,
) -> tuple[str, ...] | None:
    """Return a node for each of `count` slots over the interval, None when they do not fit.

    Candidates stand in the order of their ids, which breaks ties. FIRST_FIT and BEST_FIT fill a
    node before they go to the next; WORST_FIT gives one slot to each in turn.
    """
    guard, start, end = packing.guard, interval.start, interval.end
    most = 1 if spread else count
    if selection is HostSelection.FIRST_FIT:
        return _first(candidates, demand, guard, interval, count, most)
    fitting: list[tuple[int, int, int]] = []
    total = 0
    sign = 1 if selection is HostSelection.BEST_FIT else -1
    for index, candidate in enumerate(candidates):
        slots = slots_at(candidate.profile, demand, guard, start, end, most)
        if slots:
            share = packing.share(candidate.profile.at(start), candidate.capacity, demand)
            fitting.append((sign * share, index, slots))
            total += slots
    if total < count:
        return None
    fitting.sort()
    if selection is HostSelection.WORST_FIT:
        return _in_turn(candidates, fitting, count)
    nodes: list[str] = []
    for _, index, slots in fitting:
        nodes.extend([candidates[index].node] * min(slots, count - len(nodes)))
        if len(nodes) == count:
            break
    return tuple(nodes)


def _first(
    candidates: Sequence[Candidate],
    demand: int,
    guard: int,
    interval: Interval,
    count: int,
    most: int,
) -> tuple[str, ...] | None:
    nodes: list[str] = []
    for candidate in candidates:
        limit = min(most, count - len(nodes))
        slots = slots_at(candidate.profile, demand, guard, interval.start, interval.end, limit)
        nodes.extend([candidate.node] * slots)
        if len(nodes) == count:
            return tuple(nodes)
    return None


def _in_turn(
    candidates: Sequence[Candidate], fitting: Sequence[tuple[int, int, int]], count: int
) -> tuple[str, ...]:
    nodes: list[str] = []
    depth = 0
    while True:
        for _, index, slots in fitting:
            if slots > depth:
                nodes.append(candidates[index].node)
                if len(nodes) == count:
                    return tuple(nodes)
        depth += 1
