"""Which of the nodes that fit take the slots of a demand."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tenure_core.planning.snapshot import ReservationView
from tenure_core.policies.placement import HostRanking, HostSelection, NodeFit
from tenure_core.slots.packing import AMOUNT_MASK, Packing
from tenure_core.slots.profile import NodeProfile
from tenure_core.slots.search import slots_over
from tenure_core.timebase import FOREVER, Interval, Millis


class Candidate:
    """A node as the search sees it.

    Its profile, the largest capacity it has at any time, and what is booked on it.
    """

    __slots__ = ("capacity", "node", "profile", "reservations")

    def __init__(self, node: str, profile: NodeProfile) -> None:
        self.node = node
        self.profile = profile
        self.capacity = 0
        self.reservations: dict[str, ReservationView] = {}


def choose(
    candidates: Sequence[Candidate],
    packing: Packing,
    demand: int,
    interval: Interval,
    *,
    count: int,
    spread: bool,
    selection: HostSelection | HostRanking,
    turn: int = 0,
    known: Sequence[int] | None = None,
) -> tuple[str, ...] | int:
    """Return a node for each of `count` slots over the interval, or how many slots fit if fewer.

    `known` is how many slots fit on each candidate, where somebody found that already; `turn` is
    told to rankings.

    Candidates stand in the order of their ids, which breaks ties. FIRST_FIT and BEST_FIT fill a
    node before they go to the next; WORST_FIT gives one slot to each in turn; a ranking says which.
    """
    most = 1 if spread else count
    if selection is HostSelection.FIRST_FIT:
        return _first(candidates, packing, demand, interval, count, most)
    if selection is HostSelection.BEST_FIT and count == 1 and known is None:
        tightest = _tightest(candidates, packing, demand, interval)
        return 0 if tightest is None else (tightest,)
    if known is None:
        fitting = _fitting(candidates, packing, demand, interval, most)
    else:
        fitting = _shares(candidates, packing, demand, interval.start, known)
    total = sum(slots for _, _, slots in fitting)
    if total < count:
        return total
    if selection is HostSelection.WORST_FIT:
        fitting.sort(key=lambda entry: (-entry[0], entry[1]))
        return _in_turn(candidates, fitting, count)
    if isinstance(selection, HostSelection):
        fitting.sort()
    else:
        fitting = _ranked(candidates, fitting, interval, selection, turn)
        if selection.in_turn:
            return _in_turn(candidates, fitting, count)
    nodes: list[str] = []
    for _, index, slots in fitting:
        nodes.extend([candidates[index].node] * min(slots, count - len(nodes)))
        if len(nodes) == count:
            break
    return tuple(nodes)


def _tightest(
    candidates: Sequence[Candidate], packing: Packing, demand: int, interval: Interval
) -> str | None:
    """Return the node with the least free share that fits one slot, None if none does.

    What BEST_FIT means for one slot, without a list of all that fit: what follows on a node is
    looked at only if it would be the best so far.
    """
    guard, start, end = packing.guard, interval.start, interval.end
    fields = packing.fields_of(demand)
    shares: dict[tuple[int, int], int] = {}
    best, least = None, 1 << 62
    for candidate in candidates:
        profile = candidate.profile
        times, free = profile.times, profile.free
        i = bisect_right(times, start)
        here = free[i - 1]
        if (here - demand) & guard != guard:
            continue
        key = here, candidate.capacity
        share = shares.get(key)
        if share is None:
            share = shares[key] = _share(*key, fields)
        if share >= least:
            continue
        count = len(times)
        while i < count and times[i] < end:
            if (free[i] - demand) & guard != guard:
                break
            i += 1
        else:
            best, least = candidate.node, share
    return best


def _share(here: int, whole: int, fields: Sequence[tuple[int, int]]) -> int:
    """Return what is free of the kinds demanded, their mean in thousandths of the capacity."""
    share = 0
    for shift, _ in fields:
        share += ((here >> shift) & AMOUNT_MASK) * 1000 // ((whole >> shift) & AMOUNT_MASK)
    return share // (len(fields) or 1)


def _fitting(
    candidates: Sequence[Candidate],
    packing: Packing,
    demand: int,
    interval: Interval,
    most: int,
) -> list[tuple[int, int, int]]:
    """Return (free share at the start in thousandths, index, slots) of each node that fits any.

    The hot loop of planning: everything is local, and a node that is full at the start costs one
    search and one subtraction.
    """
    guard, start, end = packing.guard, interval.start, interval.end
    fields = packing.fields_of(demand)
    kinds = len(fields) or 1
    found: list[tuple[int, int, int]] = []
    for index, candidate in enumerate(candidates):
        profile = candidate.profile
        times, free = profile.times, profile.free
        i = bisect_right(times, start) - 1
        here = free[i]
        if (here - demand) & guard != guard:
            continue
        slots = most
        share = 0
        whole = candidate.capacity
        for shift, amount in fields:
            left = (here >> shift) & AMOUNT_MASK
            share += left * 1000 // ((whole >> shift) & AMOUNT_MASK)
            if left < slots * amount:
                slots = left // amount
        need = demand * slots
        count = len(times)
        i += 1
        while i < count and times[i] < end:
            here = free[i]
            if (here - need) & guard != guard:
                for shift, amount in fields:
                    left = (here >> shift) & AMOUNT_MASK
                    if left < slots * amount:
                        slots = left // amount
                if not slots:
                    break
                need = demand * slots
            i += 1
        if slots:
            found.append((share // kinds, index, slots))
    return found


def _shares(
    candidates: Sequence[Candidate],
    packing: Packing,
    demand: int,
    start: Millis,
    known: Sequence[int],
) -> list[tuple[int, int, int]]:
    """Return what `_fitting` does, given how many slots fit on each candidate."""
    fields = packing.fields_of(demand)
    found: list[tuple[int, int, int]] = []
    for index, slots in enumerate(known):
        if slots:
            candidate = candidates[index]
            here, whole = candidate.profile.at(start), candidate.capacity
            found.append((_share(here, whole, fields), index, slots))
    return found


def _first(
    candidates: Sequence[Candidate],
    packing: Packing,
    demand: int,
    interval: Interval,
    count: int,
    most: int,
) -> tuple[str, ...] | int:
    guard, fields = packing.guard, packing.fields_of(demand)
    nodes: list[str] = []
    for candidate in candidates:
        limit = min(most, count - len(nodes))
        slots, _ = slots_over(
            candidate.profile, demand, guard, fields, interval.start, interval.end, limit
        )
        nodes.extend([candidate.node] * slots)
        if len(nodes) == count:
            return tuple(nodes)
    return len(nodes)


def _ranked(
    candidates: Sequence[Candidate],
    fitting: Sequence[tuple[int, int, int]],
    interval: Interval,
    ranking: HostRanking,
    turn: int,
) -> list[tuple[int, int, int]]:
    """Return what fits in the order of a ranking; looks at all that is booked on those nodes."""
    start = interval.start
    keyed: list[tuple[tuple[int, ...], int, tuple[int, int, int]]] = []
    for entry in fitting:
        share, index, slots = entry
        candidate = candidates[index]
        times = candidate.profile.times
        following = bisect_right(times, start)
        rows = candidate.reservations.values()
        fit = NodeFit(
            candidate.node,
            index,
            len(candidates),
            slots,
            turn,
            interval,
            share,
            len({row.lease for row in rows if row.interval.contains(start)}),
            times[following] if following < len(times) else FOREVER,
        )
        keyed.append((ranking.key(fit), index, entry))
    keyed.sort(key=lambda found: found[:2])
    return [entry for _, _, entry in keyed]


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
