"""The smallest change to a request that would let it start now or soonest.

When a changed request would start is the caller's question to the planner (`start_of`); this module
asks as few of them as it can, and only for changes that an owner can make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from tenure_core.timebase import FOREVER, Millis


class Remedy(Enum):
    """What to change."""

    FEWER_NODES = "FEWER_NODES"
    SHORTER = "SHORTER"
    FEWER_AND_SHORTER = "FEWER_AND_SHORTER"
    """Both at once, where neither alone brings it forward."""
    OTHER_POOL = "OTHER_POOL"
    OTHER_PROJECT = "OTHER_PROJECT"


@dataclass(frozen=True, slots=True)
class Terms:
    """What can be changed of a request within its pool; `duration_ms` as asked for or in steps."""

    node_count: int
    duration_ms: Millis


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change, the terms that follow from it, and when it would start then.

    `elsewhere` names the pool or project of the remedies that say to use another.
    """

    remedy: Remedy
    terms: Terms
    start: Millis
    elsewhere: str = ""


def suggestions(
    asked: Terms,
    most: Terms,
    start_of: Callable[[Terms], Millis | None],
    *,
    step_ms: Millis,
    least_ms: Millis,
) -> list[Suggestion]:
    """Return the smallest change of each sort that starts soonest, the soonest start first.

    `most` is what other rules (quotas) allow of either while the other is as asked for; where that
    is less than `asked`, the lease as it is starts never. A sort that brings nothing forward is
    left out. Fewer nodes and shorter are searched by halving, since less of either never starts
    later: some 2 (log2(nodes) + log2(duration / step)) questions at most. Durations are multiples
    of `step_ms`, at least `least_ms`.
    """
    refused = most.node_count < asked.node_count or most.duration_ms < asked.duration_ms
    present = None if refused else start_of(asked)
    search = _Search(start_of, FOREVER if present is None else present)
    fewer = range(1, min(asked.node_count - 1, most.node_count) + 1)
    steps = range(-(-least_ms // step_ms), -(-asked.duration_ms // step_ms))
    allowed = range(steps.start, min(steps.stop, most.duration_ms // step_ms + 1))
    found = [
        *search.soonest(Remedy.FEWER_NODES, fewer, lambda n: Terms(n, asked.duration_ms)),
        *search.soonest(Remedy.SHORTER, allowed, lambda n: Terms(asked.node_count, n * step_ms)),
    ]
    if not found and not refused and steps:
        both, least = Remedy.FEWER_AND_SHORTER, steps.start * step_ms
        for each in search.soonest(both, fewer, lambda n: Terms(n, least)):
            count = each.terms.node_count
            found += search.soonest(both, steps, partial(_stepped, count, step_ms))
    return sorted(found, key=lambda each: each.start)


def _stepped(count: int, step_ms: Millis, steps: int) -> Terms:
    return Terms(count, steps * step_ms)


def elsewhere(
    remedy: Remedy, asked: Terms, starts: Mapping[str, Millis | None], sooner: Millis | None
) -> list[Suggestion]:
    """Return the pool or project in which the lease as asked for would start soonest, if any.

    `sooner` is when it starts as it is (None: never); what starts no earlier is no remedy.
    """
    known = [(start, name) for name, start in starts.items() if start is not None]
    if not known:
        return []
    start, name = min(known)
    if sooner is not None and start >= sooner:
        return []
    return [Suggestion(remedy, asked, start, name)]


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for what starts before an instant."""

    start_of: Callable[[Terms], Millis | None]
    before: Millis

    def soonest(
        self, remedy: Remedy, amounts: range, terms: Callable[[int], Terms]
    ) -> list[Suggestion]:
        """Return the largest of the amounts that starts as early as the least one does."""
        soonest = self.start_of(terms(amounts.start)) if amounts else None
        if soonest is None or soonest >= self.before:
            return []

        def holds(amount: int) -> bool:
            start = self.start_of(terms(amount))
            return start is not None and start <= soonest

        amount = largest(amounts.start, amounts.stop - 1, holds)
        assert amount is not None, "the least amount holds"
        return [Suggestion(remedy, terms(amount), soonest)]


def largest(least: int, most: int, holds: Callable[[int], bool]) -> int | None:
    """Return the largest number in least..most for which `holds`, which holds for all below it."""
    if most < least or not holds(least):
        return None
    while least < most:
        middle = (least + most + 1) // 2
        if holds(middle):
            least = middle
        else:
            most = middle - 1
    return least
